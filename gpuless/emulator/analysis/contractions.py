"""Write a product and the sum it goes into as one multiply-add, rounded once, as NVIDIA's assembler does.

PTX allows that for `mul`, `add` and `sub` that name no rounding. What comes before the assembler leaves it
most differences. It fuses a product only where all that read it are sums of the same block; of two products
in one sum it takes the first.
"""

from collections import Counter
from dataclasses import replace

from gpuless.emulator.ptx.instructions import destinations, sources
from gpuless.emulator.ptx.model import BITS, Instruction

_TYPES = ("f32", "f64")
_LEAVING = {"bra", "brx", "ret", "exit", "call"}  # after one of these another block begins


def contracted(function):
    """Return a function with ``fma d, a, b, c`` for ``add d, p, c`` after ``mul p, a, b``.

    The product stays, though nothing reads it. It is the same function if there is nothing of the kind.
    """
    found = _fused_products(function)
    if not found:
        return function
    registers, body = dict(function.registers), []
    for at, each in enumerate(function.body):
        body += _fused(each, found[at], registers) if at in found else [each]
    return replace(function, registers=registers, body=body)


def _fused_products(function):
    """Return the product that goes into a sum, by the place of the sum."""
    own = [each for each in function.body if isinstance(each, Instruction)]
    reads = Counter(name for each in own for name in sources(each))
    writes = Counter(name for each in own for name in destinations(each))
    products, sums = {}, {}  # those whose factors are still there; for each sum the products in it
    for at, each in enumerate(function.body):
        if not isinstance(each, Instruction) or each.opcode[0] in _LEAVING:
            products = {}
            continue
        if _is_plain(each, "add", "sub") and each.operands[1] != each.operands[2]:
            known = (products.get(name) for name in each.operands[1:])
            sums[at] = [one for one in known if one is not None and one.opcode[1:] == each.opcode[1:]]
        written = set(destinations(each))
        products = {name: one for name, one in products.items() if written.isdisjoint(one.operands)}
        if _is_plain(each, "mul") and writes[each.operands[0]] == 1:
            products[each.operands[0]] = each
    summed = Counter(one.operands[0] for found in sums.values() for one in found)
    whole = {
        at: [one for one in found if summed[one.operands[0]] == reads[one.operands[0]]]
        for at, found in sums.items()
    }
    return {at: found[0] for at, found in whole.items() if found}


def _is_plain(instruction, *names):
    """Return whether an instruction is one of these, of numbers that it may round as it likes."""
    opcode = instruction.opcode
    return (
        opcode[0] in names
        and opcode[-1] in _TYPES
        and set(opcode[1:-1]) <= {"ftz"}
        and instruction.guard is None
    )


def _fused(total, product, registers):
    """Return the instructions for a sum and the product in it; for a difference one operand is negated."""
    (result, first, second), (name, a, b) = total.operands, product.operands
    other = second if first == name else first
    before = []
    if total.opcode[0] == "sub":
        turned, negated = a if second == name else other, f"{result}.negated"
        registers[negated] = BITS[total.opcode[-1]]
        before = [replace(total, opcode=("neg", *total.opcode[1:]), operands=[negated, turned])]
        a, other = (negated, other) if second == name else (a, negated)
    return [*before, replace(total, opcode=("fma", "rn", *total.opcode[1:]), operands=[result, a, b, other])]
