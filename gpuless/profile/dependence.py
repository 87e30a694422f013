"""Whether a kernel's branches or addresses depend on values in memory.

If not, all launches of the same shape execute the same instructions and access the same places, so one model
serves all. The analysis follows every definition of a register, whatever the order: it finds all dependences,
and sometimes one too many.
"""

from typing import NamedTuple

from gpuless.emulator.ptx import Address
from gpuless.emulator.ptx.instructions import listed, sources, written_by

_MEMORY = {"ld", "ldu", "st", "atom", "red", "cp", "ldmatrix", "stmatrix", "wmma", "bar", "barrier"}
_BRANCHES = {"bra", "brx", "ret", "exit", "trap", "call"}
_PRIVATE = {"shared", "local"}  # spaces that hold only what the kernel has written


class Dependence(NamedTuple):
    """What a launch depends on: numbers of the kernel's parameters, and whether values in memory."""

    parameters: frozenset
    on_data: bool


def dependence_of(kernel):
    """Return the `Dependence` of a kernel of the emulated GPU."""
    instructions = [one for one in kernel.function.body if not isinstance(one, str)]
    written = written_by(instructions)
    stored = {name for one in instructions if _stores_privately(one) for name in sources(one)}
    names, on_data = set(), False
    copies = any(one.opcode[0] == "cp" for one in instructions)  # from global memory to shared memory
    waiting = [name for one in instructions for name in _decisive(one)]
    while waiting:
        name = waiting.pop()
        if name in names:
            continue
        names.add(name)
        for one in written.get(name, ()):
            waiting += [*sources(one), *_guard(one)]
            if _reads_memory(one):
                on_data |= copies or _PRIVATE.isdisjoint(one.opcode)
                waiting += stored
    # Called functions aren't analysed.
    on_data |= any(one.opcode[0] == "call" for one in instructions) or any(map(_is_clock, names))
    numbers = (i for i, parameter in enumerate(kernel.function.parameters) if parameter.name in names)
    return Dependence(frozenset(numbers), on_data)


def _decisive(instruction):
    """Return the names that decide where an instruction branches, or which memory it accesses."""
    kind = instruction.opcode[0]
    if kind in _BRANCHES:
        names = [name for operand in instruction.operands for name in listed(operand)]
        names = [name.base if isinstance(name, Address) else name.removeprefix("!") for name in names]
        return [*names, *_guard(instruction)]
    if kind not in _MEMORY or "param" in instruction.opcode:
        return []
    bases = [operand.base for operand in instruction.operands if isinstance(operand, Address)]
    return [*bases, *_guard(instruction)]


def _guard(instruction):
    return [instruction.guard[0]] if instruction.guard else []


def _is_clock(name):
    return name.startswith(("%clock", "%globaltimer"))


def _stores_privately(instruction):
    return instruction.opcode[0] in ("st", "stmatrix", "atom", "red", "cp") and not _PRIVATE.isdisjoint(
        instruction.opcode
    )


def _reads_memory(instruction):
    """Return whether an instruction reads values that may differ between launches of the same shape."""
    kind = instruction.opcode[0]
    if kind in ("ld", "ldu"):
        return {"param", "const"}.isdisjoint(instruction.opcode)
    return kind in ("atom", "ldmatrix") or (kind == "wmma" and instruction.opcode[1] == "load")
