"""Integer instructions that look at parts of a register: fields of bits, bytes and halves, in IR."""

from gpuless.emulator.translate.typed import call_int, operands_of
from gpuless.emulator.translate.values import translates


def _op(t, s, word, a, b, bits=32):
    return t.new(f"{word} {s.int(bits)} {a}, {b}")


def _select(t, s, flag, a, b, bits=32):
    return t.new(f"select {s.int(1)} {flag}, {s.int(bits)} {a}, {s.int(bits)} {b}")


def _ones_from(t, s, position):
    """Return a register whose bits are set from a position on, of which there are 32."""
    return _op(t, s, "shl", s.literal(-1, "i32"), position)


@translates("bmsk")
def _bmsk(t, instruction):
    clamp = "clamp" in instruction.opcode

    def make(s, a, b):
        low, limit = s.literal(31, "i32"), s.literal(32, "i32")
        start, width = _op(t, s, "and", a, low), _op(t, s, "and", b, low)
        end = _op(t, s, "add", start, width)
        over = _op(t, s, "icmp uge", end, limit)
        rest = _select(t, s, over, s.literal(0, "i32"), _ones_from(t, s, _op(t, s, "and", end, low)))
        first = _ones_from(t, s, start)
        if clamp:
            far, wide = (_op(t, s, "icmp uge", x, limit) for x in (a, b))
            rest = _select(t, s, wide, s.literal(0, "i32"), rest)
            first = _select(t, s, far, s.literal(0, "i32"), first)
        return _op(t, s, "and", first, _op(t, s, "xor", rest, s.literal(-1, "i32")))

    t.set(make, *operands_of(t, instruction, "b32", "b32"))


@translates("szext")
def _szext(t, instruction):
    clamp, type_ = instruction.opcode[1] == "clamp", instruction.opcode[-1]

    def make(s, a, b):
        width = _op(t, s, "and", b, s.literal(31, "i32"))
        up = _op(t, s, "and", _op(t, s, "sub", s.literal(32, "i32"), width), s.literal(31, "i32"))
        down = _op(t, s, "ashr" if type_ == "s32" else "lshr", _op(t, s, "shl", a, up), up)
        none = _op(t, s, "icmp eq", width, s.literal(0, "i32"))
        found = _select(t, s, none, s.literal(0, "i32"), down)
        if clamp:
            found = _select(t, s, _op(t, s, "icmp uge", b, s.literal(32, "i32")), a, found)
        return found

    t.set(make, *operands_of(t, instruction, "b32", "b32"))


@translates("fns")
def _fns(t, instruction):
    """Find the bit that is the n-th which is set, counted from a place on, or backwards."""

    def make(s, mask, base, offset):
        zero, one = s.literal(0, "i32"), s.literal(1, "i32")
        back = _op(t, s, "icmp slt", offset, zero)
        step = _select(t, s, back, s.literal(-1, "i32"), one)
        left = call_int(t, s, "abs", 32, offset, "false")
        left = call_int(t, s, "umax", 32, left, one)
        found, at = s.literal(-1, "i32"), base
        only = _op(t, s, "icmp eq", offset, zero)
        for i in range(32):
            inside = _op(t, s, "icmp ult", at, s.literal(32, "i32"))
            bit = _op(t, s, "lshr", mask, _op(t, s, "and", at, s.literal(31, "i32")))
            bit = _select(t, s, inside, _op(t, s, "and", bit, one), zero)
            left = _op(t, s, "sub", left, bit)
            hit = _op(t, s, "icmp eq", _op(t, s, "or", left, _op(t, s, "xor", bit, one)), zero)
            if i:  # no offset: this bit or none
                hit = _op(t, s, "and", hit, _op(t, s, "xor", only, s.literal("true", "i1"), 1), 1)
            found = _select(t, s, hit, at, found)
            at = _op(t, s, "add", at, step)
        return found

    t.set(make, *operands_of(t, instruction, "b32", "b32", "b32"))


# --- Several numbers in a register --------------------------------------------------------------------------


def packed_halves(t, instruction):
    """Write add, min or max of two pairs of 16-bit integers."""
    opcode = instruction.opcode
    word = opcode[0] if opcode[0] == "add" else opcode[-1][0] + opcode[0]

    def make(s, a, b):
        pairs = f"<{2 * s.lanes} x i16>"
        a, b = (t.new(f"bitcast {s.int(32)} {x} to {pairs}") for x in (a, b))
        found = t.new(f"add {pairs} {a}, {b}") if word == "add" else _call(t, pairs, word, a, b)
        if "relu" in opcode:
            found = _call(t, pairs, "smax", found, "zeroinitializer")
        return t.new(f"bitcast {pairs} {found} to {s.int(32)}")

    t.set(make, *operands_of(t, instruction, "b32", "b32"))


def _call(t, type_, word, a, b):
    name = f"@llvm.{word}.v{type_[1:-1].replace(' x ', '')}"
    t.module.declare(f"{type_} {name}({type_}, {type_})")
    return t.new(f"call {type_} {name}({type_} {a}, {type_} {b})")


@translates("vabsdiff2", "vabsdiff4")
def _distances(t, instruction):
    """Write the distances of the bytes or halves of two registers, or their sum."""
    opcode = instruction.opcode
    count = int(opcode[0][-1])
    bits = 32 // count
    if len({type_[0] for type_ in opcode[2:4]}) > 1 or "sat" in opcode:
        t.refuse()

    def make(s, a, b, c):
        parts = f"<{count * s.lanes} x i{bits}>"
        a, b = (t.new(f"bitcast {s.int(32)} {x} to {parts}") for x in (a, b))
        more, less = (_call(t, parts, opcode[2][0] + word, a, b) for word in ("max", "min"))
        found = t.new(f"bitcast {parts} {t.new(f'sub {parts} {more}, {less}')} to {s.int(32)}")
        if "add" not in opcode:
            return found
        for i in range(count):
            part = _op(t, s, "lshr", found, s.literal(bits * i, "i32"))
            c = _op(t, s, "add", c, _op(t, s, "and", part, s.literal((1 << bits) - 1, "i32")))
        return c

    t.set(make, *operands_of(t, instruction, "b32", "b32", "b32"))


def pack_saturated(t, instruction):
    """Write `cvt.pack`: two integers saturated and put behind what is there."""
    opcode = instruction.opcode
    want, have = opcode[3], opcode[4]
    bits, signed = int(want[1:]), want[0] == "s"
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)

    def saturated(s, x):
        if have[0] == "u":
            x = call_int(t, s, "umin", 32, x, s.literal(high, "i32"))
        else:
            x = call_int(t, s, "smax", 32, x, s.literal(low, "i32"))
            x = call_int(t, s, "smin", 32, x, s.literal(high, "i32"))
        return _op(t, s, "and", x, s.literal((1 << bits) - 1, "i32"))

    def make(s, a, b, c=None):
        both = _op(t, s, "shl", saturated(s, a), s.literal(bits, "i32"))
        both = _op(t, s, "or", both, saturated(s, b))
        if c is None:
            return both
        return _op(t, s, "or", both, _op(t, s, "shl", c, s.literal(2 * bits, "i32")))

    t.set(make, *operands_of(t, instruction, have, have, "b32"))
