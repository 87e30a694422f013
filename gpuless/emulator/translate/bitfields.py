"""Instructions on the bits of an integer, in IR: shifts, counts, fields, bytes.

Nothing traps: a shift may be longer than there are bits.
"""

from gpuless.emulator.analysis import lanes
from gpuless.emulator.analysis.lanes import VARYING
from gpuless.emulator.analysis.rules import is_sign
from gpuless.emulator.ptx import BITS
from gpuless.emulator.translate.typed import Integers, computes, in_all, operands_of
from gpuless.emulator.translate.values import Shape, translates


@translates("shl", "shr")
def _shift(t, instruction):
    name, type_ = instruction.opcode[0], instruction.opcode[-1]
    bits, amount = BITS[type_], instruction.operands[2]
    word = "shl" if name == "shl" else "ashr" if type_[0] == "s" else "lshr"

    def make(s, a, b):
        i, count = Integers(t, s, bits), Integers(t, s, 32)
        if amount[0].isdigit():
            number = int(amount, 0)
            if number >= bits and word != "ashr":
                return i("and", a, 0)
            return i(word, a, min(number, bits - 1))
        # PTX defines shifts by the width or more; in LLVM they are undefined.
        shifted = i(word, a, i.resized(count.call("umin", b, bits - 1), 32))
        return shifted if word == "ashr" else i.select(count("icmp ult", b, bits), shifted, 0)

    operands = operands_of(t, instruction, type_, "u32")
    t.set(make, *operands, check=sign_check(t, instruction, operands))


def sign_check(t, instruction, operands):
    """Return the condition that all lanes have the same sign, None if the instruction takes no sign."""
    return _one_sign(t, *operands[0]) if is_sign(instruction) else None


def _one_sign(t, value, bits):
    """Return the condition that all lanes, which are near each other, are negative or none is."""
    near = value.kind if value.kind is not VARYING else value.assumed
    if near is VARYING or near.constant or near.uniform or near.unit:
        return None
    distances = lanes.nearest(near.offsets, bits)
    low, high = min(distances), max(distances)
    if high - low >= 1 << (bits - 1):
        return "false"
    i = Integers(t, Shape(near.rows), bits)
    ends = [i("add", value.scalar, end) for end in (low, high)]
    return in_all(t, i.shape, i("icmp sge", i("xor", *ends), 0))


@computes("shf", "b32 b32 u32")
def _funnel(i, opcode, a, b, c):
    wide = i.of(64)
    by = wide.resized(i.call("umin", c, 32) if "clamp" in opcode else i("and", c, 31), 32)
    high, low = wide.resized(b, 32), wide.resized(a, 32)
    both = wide("or", wide("shl", high, 32), low)
    shifted = wide("lshr", wide("shl", both, by), 32) if "l" in opcode else wide("lshr", both, by)
    return i.resized(shifted, 64)


@computes("popc clz brev", "t")
def _count(i, opcode, a):
    if opcode[0] == "brev":
        return i.call("bitreverse", a)
    found = i.call("ctpop", a) if opcode[0] == "popc" else i.call("ctlz", a, "false")
    return i.of(32).resized(found, i.bits)


@computes("bfind", "t")
def _bfind(i, opcode, a):
    if i.signed:
        a = i("xor", a, i("ashr", a, i.bits - 1))
    count = i.of(32)
    leading = count.resized(i.call("ctlz", a, "false"), i.bits)
    found = leading if "shiftamt" in opcode else count("sub", i.bits - 1, leading)
    return count.select(count("icmp eq", leading, i.bits), -1, found)


def _field(i, position, length):
    """Return the position and the length of a field, at most the register's width, in twice its bits."""
    count = i.of(32)
    ends = [count("and", x, 255) for x in (position, length)]
    ends = [count.call("umin", x, i.bits) for x in ends]
    return [i.of(2 * i.bits).resized(x, 32) for x in ends]


@computes("bfe", "t u32 u32")
def _bfe(i, opcode, a, position, length):
    wide = i.of(2 * i.bits)
    position, length = _field(i, position, length)
    shifted = wide("lshr", wide.resized(a, i.bits, i.signed), position)
    rest, none = wide("sub", 2 * i.bits, length), wide("icmp eq", length, 0)
    rest = wide.select(none, 0, rest)
    down = wide.select(none, 0, wide.shift_right(wide("shl", shifted, rest), rest))
    return i.resized(down, 2 * i.bits)


@computes("bfi", "t t u32 u32")
def _bfi(i, opcode, a, b, position, length):
    wide = i.of(2 * i.bits)
    position, length = _field(i, position, length)
    mask = wide("shl", wide("sub", wide("shl", 1, length), 1), position)
    inserted = wide("shl", wide.resized(a, i.bits), position)
    inserted, mask = (i.resized(x, 2 * i.bits) for x in (inserted, mask))
    inserted, rest = i("and", inserted, mask), i("xor", mask, -1)
    return i("or", inserted, i("and", b, rest))


def _ones_from(i, position):
    """Return 32 bits that are set from a position on."""
    return i("shl", -1, position)


@computes("bmsk", "b32 b32")
def _bmsk(i, opcode, a, b):
    start, width = i("and", a, 31), i("and", b, 31)
    end = i("add", start, width)
    over = i("icmp uge", end, 32)
    rest = i.select(over, 0, _ones_from(i, i("and", end, 31)))
    first = _ones_from(i, start)
    if "clamp" in opcode:
        far, wide = (i("icmp uge", x, 32) for x in (a, b))
        rest, first = i.select(wide, 0, rest), i.select(far, 0, first)
    return i("and", first, i("xor", rest, -1))


@computes("szext", "b32 b32")
def _szext(i, opcode, a, b):
    width = i("and", b, 31)
    up = i("and", i("sub", 32, width), 31)
    down = i("ashr" if opcode[-1] == "s32" else "lshr", i("shl", a, up), up)
    found = i.select(i("icmp eq", width, 0), 0, down)
    return i.select(i("icmp uge", b, 32), a, found) if opcode[1] == "clamp" else found


@computes("fns", "b32 b32 b32")
def _fns(i, opcode, mask, base, offset):
    """Find the n-th set bit from a position on, forwards or backwards."""
    flag = i.of(1)
    step = i.select(i("icmp slt", offset, 0), -1, 1)
    left = i.call("umax", i.call("abs", offset, "false"), 1)
    found, at = -1, base
    only = i("icmp eq", offset, 0)
    for number in range(32):
        inside = i("icmp ult", at, 32)
        bit = i("lshr", mask, i("and", at, 31))
        bit = i.select(inside, i("and", bit, 1), 0)
        left = i("sub", left, bit)
        hit = i("icmp eq", i("or", left, i("xor", bit, 1)), 0)
        if number:  # with offset 0 only the first bit counts
            hit = flag("and", hit, flag("xor", only, True))
        found = i.select(hit, at, found)
        at = i("add", at, step)
    return found


#: The bytes that the modes of `prmt` pick, by the lowest bits of its last operand: PTX ISA 9.7.9.7.
_ORDERS = {"f4e": (0x3210, 0x4321, 0x5432, 0x6543), "b4e": (0x5670, 0x6701, 0x7012, 0x0123)}
_ORDERS |= {"rc8": (0x0000, 0x1111, 0x2222, 0x3333), "rc16": (0x1010, 0x3232, 0x1010, 0x3232)}
_ORDERS |= {"ecl": (0x3210, 0x3211, 0x3222, 0x3333), "ecr": (0x0000, 0x1110, 0x2210, 0x3210)}


@computes("prmt", "b32 b32 b32")
def _prmt(i, opcode, a, b, c):
    if orders := _ORDERS.get(opcode[-1]):
        which, c = i("and", c, 3), orders[0]
        for number, order in enumerate(orders[1:], 1):
            c = i.select(i("icmp eq", which, number), order, c)
    wide, byte = i.of(64), i.of(8)
    both = wide("or", wide("shl", wide.resized(b, 32), 32), wide.resized(a, 32))
    result = 0
    for place in range(4):
        nibble = i("lshr", c, 4 * place)
        amount = wide.resized(i("shl", i("and", nibble, 7), 3), 32)
        part = byte.resized(wide("lshr", both, amount), 64)
        sign = byte("ashr", part, 7)
        flag = i.of(1).resized(i("lshr", nibble, 3), 32)
        part = byte.select(flag, sign, part)
        result = i("or", result, i("shl", i.resized(part, 8), 8 * place))
    return result


@translates("lop3")
def _lop3(t, instruction):
    if len(instruction.opcode) > 2:
        t.refuse()  # the form with a second result, a predicate
    table = int(instruction.operands[4], 0)

    def make(s, a, b, c):
        result, i = 0, Integers(t, s, 32)
        inverse = {x: i("xor", x, -1) for x in dict.fromkeys((a, b, c))}
        for row in range(8):
            if table >> row & 1:
                terms = [x if row >> place & 1 else inverse[x] for place, x in ((2, a), (1, b), (0, c))]
                result = i("or", result, i("and", i("and", *terms[:2]), terms[2]))
        return i.number(result)

    t.set(make, *operands_of(t, instruction, "b32", "b32", "b32"))
