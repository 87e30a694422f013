"""Write a choice by a number's sign as its bits: what a negative index adds to itself, 0 or a length.

Where a compiler does not know that an index is never negative, code adds the length of the array if it is:
numba-cuda's by a shift and a mask, numba-cuda-mlir's by a comparison and a selection. Of the former more is
known before a kernel runs (`rules.is_sign`), so the latter is written as the former.
"""

from collections import Counter
from dataclasses import replace

from gpuless.emulator.ptx.instructions import destinations
from gpuless.emulator.ptx.model import BITS, Instruction


def with_masks(function):
    """Return a function with ``selp d, x, 0, p`` as ``and d, x, sign`` where p says that a number is < 0.

    It is the same function if there is nothing of the kind.
    """
    own = [each for each in function.body if isinstance(each, Instruction)]
    writes = Counter(name for each in own for name in destinations(each))
    signs = {
        each.operands[0]: each
        for each in own
        if _asks_for_sign(each) and writes[each.operands[0]] == 1 and writes[each.operands[1]] == 1
    }
    chosen = {id(each) for each in own if _chooses(each) and each.operands[3] in signs}
    if not chosen:
        return function
    registers, body = dict(function.registers), []
    for each in function.body:
        if id(each) in chosen:
            body += _as_mask(each, signs[each.operands[3]], registers)
        else:
            body.append(each)
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
        and operands[0] != operands[1]
    )


def _chooses(instruction):
    """Return whether an instruction takes a number, or 0 where its predicate does not hold."""
    opcode, operands = instruction.opcode, instruction.operands
    return opcode[0] == "selp" and opcode[-1] == "b64" and operands[2] == "0"


def _as_mask(selection, sign, registers):
    """Return instructions that take the same by a mask, a number's sign in all its bits."""
    number, type_ = sign.operands[1], sign.opcode[-1]
    bits = BITS[type_]
    mask = wide = f"{selection.operands[3]}.sign{bits}"
    registers[mask] = bits
    make = [Instruction(("shr", type_), [mask, number, str(bits - 1)], None, selection.location)]
    if bits < 64:
        wide = f"{mask}.wide"
        registers[wide] = 64
        make.append(Instruction(("cvt", "s64", type_), [wide, mask], None, selection.location))
    target, value = selection.operands[:2]
    taken = Instruction(("and", "b64"), [target, value, wide], selection.guard, selection.location)
    return [*make, taken]
