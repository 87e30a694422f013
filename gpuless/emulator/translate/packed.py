"""Packed integers, in IR: halves, bytes and fields of a register that are computed side by side."""

from gpuless.emulator.translate.typed import Integers, computes, operands_of
from gpuless.emulator.translate.values import translates


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
    """Write the absolute differences of the bytes or halves of two registers, or their sum."""
    opcode = instruction.opcode
    count = int(opcode[0][-1])
    bits = 32 // count
    if len({type_[0] for type_ in opcode[2:4]}) > 1 or "sat" in opcode:
        t.refuse()

    def make(s, a, b, c):
        i, parts = Integers(t, s, 32), f"<{count * s.lanes} x i{bits}>"
        a, b = (t.new(f"bitcast {i.type} {x} to {parts}") for x in (a, b))
        more, less = (_call(t, parts, opcode[2][0] + word, a, b) for word in ("max", "min"))
        found = t.new(f"bitcast {parts} {t.new(f'sub {parts} {more}, {less}')} to {i.type}")
        if "add" not in opcode:
            return found
        for place in range(0, 32, bits):
            c = i("add", c, i("and", i("lshr", found, place), (1 << bits) - 1))
        return c

    t.set(make, *operands_of(t, instruction, "b32", "b32", "b32"))


def pack_saturated(t, instruction):
    """Write `cvt.pack`: saturate two integers and pack them, below a third operand if there is one."""
    want, have = instruction.opcode[3:5]
    bits = int(want[1:])
    low, high = limits(bits, want[0] == "s")

    def saturated(i, x):
        x = i.call("umin", x, high) if have[0] == "u" else i.call("smin", i.call("smax", x, low), high)
        return i("and", x, (1 << bits) - 1)

    def make(s, a, b, c=None):
        i = Integers(t, s, 32)
        both = i("shl", saturated(i, a), bits)
        both = i("or", both, saturated(i, b))
        return both if c is None else i("or", both, i("shl", c, 2 * bits))

    t.set(make, *operands_of(t, instruction, have, have, "b32"))


def limits(bits, signed):
    """Return the smallest and the largest integer of this many bits."""
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)


@computes("dp4a dp2a", "b32 b32 b32")
def _dot(i, opcode, a, b, c):
    count, first = int(opcode[0][2]), 2 if "hi" in opcode else 0

    def pick(x, type_, size, place):
        up = i("shl", x, 32 - size * (place + 1))
        return i("ashr" if type_[0] == "s" else "lshr", up, 32 - size)

    for place in range(count):
        x = pick(a, opcode[-2], 32 // count, place)
        c = i("add", c, i("mul", x, pick(b, opcode[-1], 8, first + place)))
    return c
