"""Rewrite selections by a number's sign as masks, for indices that may be negative.

Code that cannot exclude a negative index adds the array's length to it: numba-cuda by a shift and a mask,
numba-cuda-mlir by a comparison and a selection. The analysis knows more of the first form
(`rules.is_sign`), so the second is rewritten as the first.
"""

from collections import Counter
from dataclasses import replace

from gpuless.emulator.ptx.instructions import destinations
from gpuless.emulator.ptx.model import BITS, Instruction


def with_masks(function):
    """Return a function with ``and d, x, sign`` for ``selp d, x, 0, p`` if p is true for negative numbers.

    The same function is returned if it has no such instruction.
    """
    own = [each for each in function.body if isinstance(each, Instruction)]
    writes = Counter(name for each in own for name in destinations(each))
    signs = {each.operands[0] for each in own if _asks_for_sign(each) and writes[each.operands[0]] == 1}
    chosen = {each.operands[3] for each in own if _chooses(each)} & signs
    if not chosen:
        return function
    registers, body = dict(function.registers), []
    for each in function.body:
        if not isinstance(each, Instruction):
            body.append(each)
        elif _chooses(each) and each.operands[3] in chosen:
            target, value, _, predicate = each.operands
            operands = [target, value, _mask(predicate)]
            body.append(Instruction(("and", "b64"), operands, each.guard, each.location))
        else:
            body.append(each)
            if _asks_for_sign(each) and each.operands[0] in chosen:
                body += _sign(each, registers)
    return replace(function, registers=registers, body=body)


def _asks_for_sign(instruction):
    """Return whether an instruction sets a predicate if a number is negative."""
    opcode, operands = instruction.opcode, instruction.operands
    return (
        opcode[:2] == ("setp", "lt")
        and opcode[2:] in (("s32",), ("s64",))
        and instruction.guard is None
        and len(operands) == 3
        and operands[2] == "0"
    )


def _chooses(instruction):
    """Return whether an instruction selects between a number and 0."""
    opcode, operands = instruction.opcode, instruction.operands
    return opcode[0] == "selp" and opcode[-1] == "b64" and operands[2] == "0"


def _mask(predicate):
    """Return the name of the 64-bit register whose bits all equal a predicate."""
    return f"{predicate}.mask"


def _sign(comparison, registers):
    """Return instructions that write a number's sign to all bits of the mask register."""
    predicate, number, _ = comparison.operands
    type_, location = comparison.opcode[-1], comparison.location
    bits = BITS[type_]
    registers[_mask(predicate)] = 64
    if bits == 64:
        return [Instruction(("shr", type_), [_mask(predicate), number, "63"], None, location)]
    registers[sign := f"{predicate}.sign"] = bits
    return [
        Instruction(("shr", type_), [sign, number, str(bits - 1)], None, location),
        Instruction(("cvt", "s64", type_), [_mask(predicate), sign], None, location),
    ]
