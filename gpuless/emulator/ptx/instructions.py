"""The registers and variables that an instruction reads and writes; calls; readable names."""

import re

from gpuless.emulator.ptx.model import Address

#: Instructions that write no register.
SILENT = set("st red bar barrier membar fence call prefetch prefetchu nanosleep trap brkpt".split())
SILENT |= {"cp", "discard", "applypriority", "griddepcontrol", "setmaxnreg", "pmevent"}
WITH_CARRY = {"addc", "subc", "madc"}


def listed(operand):
    """Return the operands in braces as a tuple, also if there is a single one without braces."""
    return operand if type(operand) is tuple else (operand,)


def destinations(instruction):
    """Return the names of the registers that an instruction writes."""
    if not instruction.operands or (instruction.opcode[0] in SILENT and "red" not in instruction.opcode[1:]):
        return ()
    first = instruction.operands[0]
    if isinstance(first, Address):
        return ()
    found = listed(first)
    found += ("%cc",) if "cc" in instruction.opcode else ()
    return tuple(name for name in found if name != "_")


def sources(instruction):
    """Return the names that an instruction reads: registers, variables and immediates."""
    rest = instruction.operands[1:] if destinations(instruction) else instruction.operands
    if instruction.operands and isinstance(instruction.operands[0], Address):
        rest = instruction.operands
    found = ["%cc"] if instruction.opcode[0] in WITH_CARRY else []
    for operand in rest:
        for name in listed(operand):
            found.append(name.base if isinstance(name, Address) else name)
    return [name[1:] if name.startswith("!") else name for name in found]


def written_by(instructions):
    """Return the instructions that write each register, by its name."""
    found = {}
    for instruction in instructions:
        for name in destinations(instruction):
            found.setdefault(name, []).append(instruction)
    return found


def parameters_behind(function, written, registers):
    """Return the indices of the kernel parameters that registers are computed from, except through memory.

    `written`: the result of `written_by` for the kernel's instructions.
    """
    if not function.kernel:
        return []
    names, waiting = set(), list(registers)
    while waiting:
        name = waiting.pop()
        if name not in names:
            names.add(name)
            for instruction in written.get(name, ()):
                if instruction.opcode[0] != "ld" or "param" in instruction.opcode:
                    waiting += sources(instruction)
    return [i for i, variable in enumerate(function.parameters) if variable.name in names]


def split_call(instruction):
    """Return (results, function, arguments) of a call."""
    operands = list(instruction.operands)
    results = operands.pop(0) if isinstance(operands[0], tuple) else ()
    name = operands.pop(0)
    return results, name, operands.pop(0) if operands and isinstance(operands[0], tuple) else ()


def readable(name):
    """Return the function's own name in a mangled name: the last part before the types.

    >>> readable("_ZN8__main__6doubleE5ArrayIfLi1E1C"), readable("_Z6double5ArrayIfLi1E1C")
    ('double', 'double')
    """
    head = re.match(r"_ZN?(?=\d)", name)
    found, at, parts = name, head.end() if head else 0, len(name) if name.startswith("_ZN") else 1
    while head and parts and (length := re.match(r"\d+", name[at:])):
        at, parts = at + length.end(), parts - 1
        found = name[at : at + int(length[0])]
        at += len(found)
    return found


def renamed(operand, names):
    """Return an operand with its registers, variables and labels renamed."""
    if isinstance(operand, Address):
        return operand._replace(base=names.get(operand.base, operand.base))
    if isinstance(operand, tuple):
        return tuple(renamed(each, names) for each in operand)
    if operand.startswith("!"):
        return "!" + names.get(operand[1:], operand[1:])
    return names.get(operand, operand)
