"""Inline functions in which lanes wait for each other.

A called function returns only when all its lanes have finished. Lanes that took a lock in it would wait for
the lanes that wait for that lock. Inlined code can be left by each lane separately.
"""

import itertools
from dataclasses import replace

from gpuless.emulator.analysis.flow import Flow
from gpuless.emulator.analysis.waits import called, called_by, gathered, instructions_of, spinning_loops
from gpuless.emulator.ptx import Address, Instruction
from gpuless.emulator.ptx.instructions import renamed


def joined(source, kernel, anew):
    """Return a module in which the lanes of a kernel wait for each other only in the kernel itself.

    It is the same module if they never wait. Recursive functions, and those called by address, stay.

    `anew`: the result of `reading_anew` for the module.
    """
    calls = {name: called_by(function) & set(source.functions) for name, function in source.functions.items()}
    below = {name: _reachable(calls, name) for name in calls}
    reached = {kernel} | below[kernel]
    if not below[kernel] or all(not _spins(source.functions[name], anew) for name in reached):
        return source
    waiting = {name for name in reached if _waits(source.functions[name], anew)}
    chosen = {name for name in below[kernel] if name not in below[name] and waiting & ({name} | below[name])}
    functions, count = dict(source.functions), itertools.count()
    for name in [*sorted(chosen, key=lambda name: len(below[name])), kernel]:  # callees first
        functions[name] = _with(functions[name], {each: functions[each] for each in chosen}, count)
    return replace(source, functions=functions)


def _reachable(calls, name):
    """Return the names of the functions that one calls, directly or indirectly."""
    found, left = set(), list(calls[name])
    while left:
        at = left.pop()
        if at not in found:
            found.add(at)
            left += calls[at]
    return found


def _spins(function, anew):
    return bool(spinning_loops(Flow(function, anew)))


def _waits(function, anew):
    """Return whether lanes may wait for each other in a function, in a loop or at an instruction."""
    return any(gathered(one) is not None for one in instructions_of(function)) or _spins(function, anew)


def _with(function, others, count):
    """Return a function with the calls of others inlined."""
    result = replace(
        function,
        registers=dict(function.registers),
        variables=dict(function.variables),
        tables=dict(function.tables),
        body=[],
    )
    body, passed = [], set()
    for item in function.body:
        name = None if isinstance(item, str) or item.opcode[0] != "call" else called(item)
        if name in others:
            given = [one for operand in item.operands if isinstance(operand, tuple) for one in operand]
            passed.update(given)
            body += _in_place(item, others[name], given, result, next(count))
        else:
            body.append(item)
    for name in passed:  # arguments and results: each lane keeps its own
        result.variables[name] = replace(result.variables[name], space="local")
    result.body = [_in_local_memory(item, passed) for item in body]
    return result


def _in_place(call, function, given, result, number):
    """Return the instructions of a called function, with its names made unique."""
    inner, end = f".in{number}", f"end.in{number}"
    own = [*function.registers, *function.tables]
    own += [name for name, variable in function.variables.items() if variable.space in ("local", "param")]
    own += [item for item in function.body if isinstance(item, str)]
    names = {name: name + inner for name in own}
    names |= {
        variable.name: name
        for variable, name in zip([*function.results, *function.parameters], given, strict=True)
    }
    result.registers.update((names[name], bits) for name, bits in function.registers.items())
    result.tables.update(
        (names[name], [names[one] for one in listed]) for name, listed in function.tables.items()
    )
    for name, variable in function.variables.items():
        result.variables[names.get(name, name)] = replace(variable, name=names.get(name, name))
    body = [] if call.guard is None else [_jump(end, (call.guard[0], not call.guard[1]), call)]
    for item in function.body:
        if isinstance(item, str):
            body.append(names[item])
        elif item.opcode[0] == "ret":
            guard = (names[item.guard[0]], item.guard[1]) if item.guard else None
            body.append(_jump(end, guard, item))
        else:
            guard = (names[item.guard[0]], item.guard[1]) if item.guard else None
            body.append(replace(item, guard=guard, operands=[renamed(one, names) for one in item.operands]))
    return [*body, end]


def _jump(label, guard, like):
    return Instruction(("bra",), [label], guard, like.location)


def _in_local_memory(item, names):
    """Return an instruction that finds arguments and results in local memory."""
    if isinstance(item, str) or "param" not in item.opcode:
        return item
    if not any(isinstance(one, Address) and one.base in names for one in item.operands):
        return item
    return replace(item, opcode=tuple("local" if part == "param" else part for part in item.opcode))
