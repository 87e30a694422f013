"""Which functions a kernel may call, which variables it sees, and where these lie."""

import math

from gpuless.emulator.ptx.instructions import sources, split_call
from gpuless.emulator.ptx.model import BITS, Address


def lay_out(variables, space):
    """Give each variable of the given spaces its place."""
    places, at = {}, 0
    for variable in variables:
        if variable.space in space and not (variable.space == "shared" and not variable.size):
            at = -(-at // max(variable.align, 1)) * max(variable.align, 1)
            places[variable.name] = at
            at += variable.size
    return places, at


def called(source, function):
    """Return the functions of a module that one of them may call."""
    found = []
    for item in function.body:
        if not isinstance(item, str) and item.opcode[0] == "call":
            name = split_call(item)[1]
            if name in function.registers:  # an address: of any of them
                found += [other for other in source.functions.values() if not other.kernel]
            elif name in source.functions:
                found.append(source.functions[name])
    return found


def visible_variables(source, kernel):
    """Return the variables of a module, of a kernel in it, and of the functions that it may call.

    Shared ones of the module are among them if they are named there: each kernel has its own.
    """
    found, waiting = {}, [kernel]
    while waiting:
        function = waiting.pop()
        if function.name not in found:
            found[function.name] = function
            waiting += called(source, function)
    items = (item for function in found.values() for item in function.body if not isinstance(item, str))
    unnamed = {variable.name for variable in source.variables.values() if variable.space == "shared"}
    for item in items if unnamed else ():
        unnamed.difference_update(sources(item))
    variables = [variable for variable in source.variables.values() if variable.name not in unnamed]
    for function in source.functions.values():
        variables += function.variables.values() if function.name in found else ()
    return variables


def function_address(source, name):
    """Return a number that stands for a function, where a program takes its address."""
    return 16 * (1 + list(source.functions).index(name))


def parameter_units(source):
    """Return the bytes of the pieces that parameters of functions are to be held in.

    A parameter may be stored in one width and loaded in another. Its pieces are what all these consist of.
    Functions that are called by their addresses share theirs. What CUDA provides is none of these: it takes
    each parameter whole, as `host` has it.

    Returns them by the names of a function and of a variable in it: its own parameter, or what it passes on.
    """
    roles, units = {}, {}
    calls = [
        (function, item)
        for function in source.functions.values()
        for item in function.body
        if not isinstance(item, str) and item.opcode[0] == "call"
    ]
    split = [(function, *split_call(item)) for function, item in calls]
    unknown = any(name in function.registers for function, _, name, _ in split)
    for function in source.functions.values():
        for side, listed in enumerate((function.results, function.parameters)):
            for i, variable in enumerate(listed if not function.kernel else ()):
                roles[function.name, variable.name] = None if unknown else function.name, side, i
    for function, results, name, given in split:
        for side, listed in enumerate((results, given)):
            own = name in source.functions or name in function.registers
            for i, variable in enumerate(listed if own else ()):
                roles[function.name, variable] = None if unknown else name, side, i
    for function in source.functions.values():
        for item in function.body:
            if isinstance(item, str) or item.opcode[0] not in ("ld", "st") or "param" not in item.opcode:
                continue
            address = next(operand for operand in item.operands if isinstance(operand, Address))
            role = roles.get((function.name, address.base))
            if role:
                units[role] = math.gcd(units.get(role, 0), address.offset, BITS[item.opcode[-1]] // 8)
    return {key: units[role] for key, role in roles.items() if role in units}


def parameter_places(function):
    """Return where each parameter of a kernel lies in the buffer of its arguments, and the buffer's size."""
    places, at = {}, 0
    for variable in function.parameters:
        at = -(-at // variable.align) * variable.align
        places[variable.name] = at
        at += variable.size
    return places, at
