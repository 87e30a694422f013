"""Contract a product and a sum into one fused multiply-add, rounded once, as NVIDIA's assembler does.

PTX allows it if `mul`, `add` and `sub` name no rounding. The compiler before the assembler contracts most
sums itself, but leaves most differences. The assembler fuses a product only if every reader is a sum in the
same basic block; of two products in one sum it takes the first.
"""

from collections import Counter
from dataclasses import replace

from gpuless.emulator.ptx.instructions import destinations, sources
from gpuless.emulator.ptx.model import BITS, Instruction

_TYPES = ("f32", "f64")
_LEAVING = {"bra", "brx", "ret", "exit", "call"}  # each ends a basic block


def contracted(function):
    """Return a function with ``fma d, a, b, c`` for ``add d, p, c`` after ``mul p, a, b``.

    The `mul` stays, though nothing reads its result. The same function is returned if nothing is fused.
    """
    found = _fused_products(function)
    if not found:
        return function
    registers, body = dict(function.registers), []
    for at, each in enumerate(function.body):
        body += _fused(each, found[at], registers) if at in found else [each]
    return replace(function, registers=registers, body=body)


def _fused_products(function):
    """Return the product that is fused into each sum, by the index of the sum in the body."""
    own = [each for each in function.body if isinstance(each, Instruction)]
    reads = Counter(name for each in own for name in sources(each))
    writes = Counter(name for each in own for name in destinations(each))
    products, sums = {}, {}  # products whose factors are still unchanged; the products in each sum
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
    """Return whether an instruction is one of these on floating point numbers, without a rounding mode."""
    opcode = instruction.opcode
    return (
        opcode[0] in names
        and opcode[-1] in _TYPES
        and set(opcode[1:-1]) <= {"ftz"}
        and instruction.guard is None
    )


def _fused(total, product, registers):
    """Return the instructions for the fused sum; a difference negates one operand first."""
    (result, first, second), (name, a, b) = total.operands, product.operands
    other = second if first == name else first
    before = []
    if total.opcode[0] == "sub":
        turned, negated = a if second == name else other, f"{result}.negated"
        registers[negated] = BITS[total.opcode[-1]]
        before = [replace(total, opcode=("neg", *total.opcode[1:]), operands=[negated, turned])]
        a, other = (negated, other) if second == name else (a, negated)
    return [*before, replace(total, opcode=("fma", "rn", *total.opcode[1:]), operands=[result, a, b, other])]
