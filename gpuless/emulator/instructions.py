"""What an instruction reads and writes."""

from gpuless.emulator.ptx import Address

#: Instructions that write no register.
SILENT = {
    "st",
    "red",
    "bar",
    "barrier",
    "membar",
    "fence",
    "call",
    "prefetch",
    "prefetchu",
    "nanosleep",
    "trap",
    "brkpt",
}
SILENT |= {"cp", "discard", "applypriority", "griddepcontrol", "setmaxnreg", "pmevent"}
WITH_CARRY = {"addc", "subc", "madc"}


def destinations(instruction):
    """Return the names of the registers that an instruction writes."""
    if not instruction.operands or (instruction.opcode[0] in SILENT and "red" not in instruction.opcode[1:]):
        return ()
    first = instruction.operands[0]
    if isinstance(first, Address):
        return ()
    found = first if isinstance(first, tuple) else (first,)
    found += ("%cc",) if "cc" in instruction.opcode else ()
    return tuple(name for name in found if name != "_")


def sources(instruction):
    """Return the names that an instruction reads, registers and others."""
    rest = instruction.operands[1:] if destinations(instruction) else instruction.operands
    if instruction.operands and isinstance(instruction.operands[0], Address):
        rest = instruction.operands
    found = ["%cc"] if instruction.opcode[0] in WITH_CARRY else []
    for operand in rest:
        for name in (
            operand if isinstance(operand, tuple) and not isinstance(operand, Address) else (operand,)
        ):
            found.append(name.base if isinstance(name, Address) else name)
    return [name[1:] if name.startswith("!") else name for name in found]
