"""The functions that a kernel may call, the variables that it can access, and their addresses."""

import math

from gpuless.emulator.ptx.instructions import sources, split_call
from gpuless.emulator.ptx.model import BITS, Address


def lay_out(variables, space):
    """Return the offsets of the variables in some state spaces, by name, and their total size."""
    places, at = {}, 0
    for variable in variables:
        if variable.space in space and not (variable.space == "shared" and not variable.size):
            align = max(variable.align, 1)
            at = -(-at // align) * align
            places[variable.name] = at
            at += variable.size
    return places, at


def called(source, function):
    """Return the functions of a module that a function may call."""
    found = []
    for item in function.body:
        if not isinstance(item, str) and item.opcode[0] == "call":
            name = split_call(item)[1]
            if name in function.registers:  # called by address: any function
                found += [other for other in source.functions.values() if not other.kernel]
            elif name in source.functions:
                found.append(source.functions[name])
    return found


def visible_variables(source, kernel):
    """Return the variables of a module, of a kernel in it, and of the functions that it may call.

    The module's shared variables are included if they are used there: each kernel has its own copy.
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
    """Return the number that stands for a function's address."""
    return 16 * (1 + list(source.functions).index(name))


def parameter_units(source):
    """Return the size in bytes of the pieces in which each parameter of a function is held.

    A parameter may be stored in one width and loaded in another; all accesses consist of whole pieces.
    Functions that are called by address share their sizes. Functions that CUDA provides (`host`) are not
    included, as they take each parameter whole.

    The result is keyed by (function, variable): its own parameter, or an argument that it passes.
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
    """Return the offset of each kernel parameter in the argument buffer, and the buffer's size."""
    return lay_out(function.parameters, ("param",))
