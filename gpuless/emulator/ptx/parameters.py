"""Move parameters to memory if a function takes their addresses or passes them in registers.

Later stages then handle a single case.
"""

from dataclasses import replace

from gpuless.emulator.ptx.model import Address, Instruction, Variable


def give_homes(function):
    """Copy parameters whose addresses a function takes into local memory, at its beginning.

    In a device function, PTX means such an address as one of local memory. In a kernel only `ld.param` reads
    it, unless `cvta.param` converts it to an address that any load accepts.
    """
    instructions = [item for item in function.body if not isinstance(item, str)]
    escape = any(one.opcode[0] == "cvta" and "param" in one.opcode for one in instructions)
    if function.kernel and not escape:
        return
    taken = {operand for one in instructions for operand in one.operands if isinstance(operand, str)}
    given = [one for one in function.parameters if one.name in taken and one.space == "param"]
    homes, copies = {}, []
    for one in given:
        homes[one.name] = home = Variable(f"{one.name}.home", "local", one.align, one.size)
        function.variables[home.name] = home
        copies += _copies(function, one, home, instructions[0].location)
    if homes:
        function.body = copies + [_at_home(item, homes, function.registers) for item in function.body]


def _copies(function, parameter, home, location):
    """Return instructions that copy a parameter to its home."""
    found, at = [], 0
    while at < parameter.size:
        size = min(8, parameter.align)
        while at % size or at + size > parameter.size:
            size //= 2
        register = f"%{parameter.name}.{at}"
        function.registers[register] = 8 * size
        for name, variable, space in (("ld", parameter, "param"), ("st", home, "local")):
            operands = [register, Address(variable.name, at)]
            opcode = (name, space, f"b{8 * size}")
            found.append(Instruction(opcode, operands if name == "ld" else operands[::-1], None, location))
        at += size
    return found


def _at_home(item, homes, registers):
    """Return an instruction that uses the parameters' homes instead."""
    if isinstance(item, str) or item.opcode[0] == "call":
        return item

    def moved(operand):
        if isinstance(operand, Address):
            return operand._replace(base=moved(operand.base))
        return homes[operand].name if isinstance(operand, str) and operand in homes else operand

    bases = [operand.base for operand in item.operands if isinstance(operand, Address)]
    opcode = item.opcode
    if opcode[0] == "cvta" or any(base in homes or base in registers for base in bases):
        opcode = tuple("local" if part in ("param", "param_entry") else part for part in opcode)
    return replace(item, opcode=opcode, operands=[moved(operand) for operand in item.operands])


def pass_in_memory(function, module):
    """Move to memory the parameters, results and arguments that are registers."""
    loads, stores = [], []
    for moves, listed in ((loads, function.parameters), (stores, function.results)):
        for i, variable in enumerate(listed):
            if variable.space == "reg":
                listed[i] = Variable(f"{variable.name}.passed", "param", variable.size, variable.size)
                function.registers[variable.name] = 8 * variable.size
                moves.append((variable.name, listed[i]))
    body = [_move("ld", None, *move) for move in loads]
    for item in function.body:
        if isinstance(item, str) or item.opcode[0] not in ("ret", "call"):
            body.append(item)
        elif item.opcode[0] == "ret":
            body += [*(_move("st", item, *move) for move in stores), item]
        else:
            body += _call(function, module, item, len(body))
    function.body = [*body, *(_move("st", None, *move) for move in stores)]


def _move(name, like, register, variable):
    """Return an instruction that loads or stores a parameter, with the guard of another instruction."""
    operands = [register, Address(variable.name, 0)]
    guard, location = (like.guard, like.location) if like else (None, None)
    opcode = (name, "param", f"b{8 * variable.size}")
    return Instruction(opcode, operands if name == "ld" else operands[::-1], guard, location)


def _call(function, module, call, number):
    """Return a call, with stores of its arguments before it and loads of its results after it."""
    at = 1 if isinstance(call.operands[0], tuple) else 0
    called = module.functions.get(call.operands[at])
    if called is None:
        return [call]
    before, behind, operands = [], [], list(call.operands)
    for place, listed, moves in ((0, called.results, behind), (at + 1, called.parameters, before)):
        if place < len(operands) and place != at and isinstance(operands[place], tuple):
            names = list(operands[place])
            for i, variable in enumerate(listed):
                if names[i] not in function.variables:
                    passed = Variable(f"passed.{number}.{place}.{i}", "param", variable.size, variable.size)
                    function.variables[passed.name] = passed
                    if names[i] != "_":
                        moves.append(_move("ld" if moves is behind else "st", call, names[i], passed))
                    names[i] = passed.name
            operands[place] = tuple(names)
    return [*before, replace(call, operands=operands), *behind]
