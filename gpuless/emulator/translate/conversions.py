"""Moves and conversions, in IR."""

from gpuless.emulator.analysis import lanes
from gpuless.emulator.analysis.lanes import VARYING
from gpuless.emulator.analysis.rules import is_widened
from gpuless.emulator.ptx import BITS
from gpuless.emulator.translate.doubts import wrapped
from gpuless.emulator.translate.floats import direction, toward
from gpuless.emulator.translate.packed import limits, pack_saturated
from gpuless.emulator.translate.small_floats import convert_eights
from gpuless.emulator.translate.typed import Integers, Typed, is_float, resize, widen
from gpuless.emulator.translate.values import translates


@translates("mov")
def _mov(t, instruction):
    first, second = instruction.operands
    type_ = instruction.opcode[-1]
    if isinstance(second, tuple):
        _pack(t, second, instruction)
    elif isinstance(first, tuple):
        _unpack(t, first, second, instruction)
    else:
        t.write(first, t.operand(second, type_))


def _pack(t, names, instruction):
    bits = BITS[instruction.opcode[-1]]
    part = bits // len(names)

    def make(s, *parts):
        whole, total = Integers(t, s, bits), 0
        for place, name in enumerate(parts):
            total = whole("or", total, whole("shl", whole.resized(name, part), part * place))
        return total

    t.set(make, *[(t.operand(name, f"b{part}"), part) for name in names])


def _unpack(t, targets, name, instruction):
    bits = BITS[instruction.opcode[-1]]
    part = bits // len(targets)
    value = t.operand(name, f"b{bits}" if bits < 128 else "b128")
    kind = lanes.UNIFORM if lanes.uniform(value.kind) else VARYING
    for i, target in enumerate(targets):

        def make(s, x, i=i):
            return resize(t, s, Integers(t, s, bits)("lshr", x, part * i), bits, part)

        if target != "_":
            t.write(target, t.compute(make, [(value, bits)], part, kind))


@translates("cvt")
def _cvt(t, instruction):
    want, have = instruction.opcode[-2:]
    if instruction.opcode[1] == "pack":
        pack_saturated(t, instruction)
        return
    if want[:2] in ("e4", "e5") or have[:2] in ("e4", "e5"):
        convert_eights(t, instruction)
        return
    if want.endswith("x2"):
        _cvt_packed(t, instruction)
        return

    def make(s, a):
        if is_float(have) or have == "tf32":
            return _from_float(t, s, instruction, want, have, a)
        if is_float(want):
            return _to_float(t, s, instruction, want, have, a)
        return _between_integers(t, s, instruction, want, have, a)

    value, width = t.operand(instruction.operands[1], have), _width(t, instruction.operands[1], have)
    wraps = wrapped(t, value, width, BITS[have], have[0] == "s") if is_widened(instruction) else None
    t.set(make, (value, width), wrapped=wraps)


def _width(t, name, type_):
    """Return the width of a register, which may be larger than the type read from it."""
    return t.function.registers.get(name, BITS[type_])


def _between_integers(t, s, instruction, want, have, a):
    width = _width(t, instruction.operands[1], have)
    target = t.function.registers[instruction.operands[0]]
    a = resize(t, s, a, width, BITS[have])
    if "sat" in instruction.opcode:
        a = _saturate_integer(t, s, want, have, a)
    to_width = widen if BITS[want] > BITS[have] else resize
    a = to_width(t, s, a, BITS[have], BITS[want], have[0] == "s")
    return resize(t, s, a, BITS[want], target, want[0] == "s")


def _saturate_integer(t, s, want, have, a):
    i, signed = Integers(t, s, BITS[have]), have[0] == "s"
    low, high = limits(BITS[want], want[0] == "s")
    least, most = limits(i.bits, signed)
    if signed:
        return i.call("smin", i.call("smax", a, max(low, least)), min(high, most))
    return i.call("umin", a, min(high, most))


_TO_WHOLE = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


def _from_float(t, s, instruction, want, have, a):
    opcode = instruction.opcode
    width = _width(t, instruction.operands[1], have)
    a = resize(t, s, a, width, BITS[have])
    f = Typed(t, s, have)
    if have == "f32":  # `.ftz` applies only to float32
        a = f.flush(a)
    x = f.to_float(a)
    whole = next((part for part in opcode if part in _TO_WHOLE), None)
    if whole:
        x = f.call(_TO_WHOLE[whole], x)
    if is_float(want) or want == "tf32":
        return _between_floats(t, s, instruction, f, want, x)
    bits, target = BITS[want], t.function.registers[instruction.operands[0]]
    found = _nearest_integer(t, s, f, x, bits, want[0] == "s")
    if bits == 64 or f.bits == 64:
        # A NaN becomes the most negative number if either type has 64 bits, otherwise zero.
        unordered = f("fcmp uno", x, x)
        found = Integers(t, s, bits).select(unordered, -(1 << (bits - 1)), found)
    return resize(t, s, found, bits, target, want[0] == "s")


def _nearest_integer(t, s, f, x, bits, signed):
    """Convert a whole number to an integer, saturated; a NaN becomes 0."""
    word = "fptosi" if signed else "fptoui"
    if s.lanes == 1 or f.bits == 16:
        name = f"@llvm.{word}.sat.{s.suffix(f'i{bits}')}.{f.suffix}"
        t.module.declare(f"{s.int(bits)} {name}({f.float})")
        return t.new(f"call {s.int(bits)} {name}({f.float} {x})")
    # For vectors LLVM would do this lane by lane.
    least, most = limits(bits, signed)
    i, flag = Integers(t, s, bits), Integers(t, s, 1)
    above, below = f("fcmp oge", x, float(most + 1)), f("fcmp olt", x, float(least))
    some = f("fcmp ord", x, x)
    inside = flag("and", some, flag("xor", flag("or", above, below), True))
    found = f.cast(word, f.select(inside, x, 0.0), i.type)
    return i.select(below, least, i.select(above, most, found))


def _between_floats(t, s, instruction, f, want, x):
    opcode = instruction.opcode
    if want == "tf32":
        return _to_tf32(t, s, opcode, f, x)
    g = Typed(t, s, want)
    rounding = direction(instruction)
    y = f.change(g, x)
    if rounding and g.bits <= f.bits and g.type_ != f.type_:
        error = f("fsub", x, g.change(f, y))
        y = _toward_narrow(t, g, f, rounding, y, error)
    if "sat" in opcode:
        y = g.saturate(y)
    if "relu" in opcode:
        y = g.relu(y)
    bits = g.to_int(y)
    if "satfinite" in opcode:
        bits = _made_finite(t, s, bits, g.bits, 0x7F80 if g.bfloat else 0x7C00)
    if want == "f32":
        bits = g.flush(bits)
    return bits


def _to_tf32(t, s, opcode, f, x):
    """Return the bits of float32 numbers rounded to ten bits after the point.

    As on an H200, `rna` cuts off the lower bits of a NaN, so a NaN with no other bits becomes infinity.
    """
    unordered = f("fcmp uno", x, x)
    bits = f.to_int(f.relu(x) if "relu" in opcode else x)
    half = s.literal(0x1000 if "rna" in opcode else 0, "i32")  # rna: ties away from zero; rz: cut off
    if "rn" in opcode:
        last = f.bitwise("lshr", bits, 13)
        odd = f.bitwise("and", last, 1)
        half = f.bitwise("add", odd, 0xFFF)
    near = f.bitwise("add", bits, half)
    found = f.bitwise("and", near, -0x2000)
    if "satfinite" in opcode:
        found = _made_finite(t, s, found, 32, 0x7F800000, 0x2000)
    cut = "rna" in opcode and "satfinite" not in opcode
    nan = f.bitwise("and", bits, -0x2000) if cut else 0x7FFFFFFF
    return f.bitwise.select(unordered, nan, found)


def _made_finite(t, s, found, bits, infinite, step=1):
    """Replace infinite numbers by the largest finite ones; numbers are given as bits."""
    i = Integers(t, s, bits)
    flag = i("icmp eq", i("and", found, (1 << (bits - 1)) - 1), infinite)
    return i.select(flag, i("sub", found, step), found)


def _toward_narrow(t, g, f, rounding, near, error):
    sign = f("fcmp olt", error, 0.0)
    positive = f("fcmp ogt", error, 0.0)
    narrow = g.select(sign, -1.0, g.select(positive, 1.0, 0.0))
    return toward(t, g, rounding, near, narrow)


def _to_float(t, s, instruction, want, have, a):
    opcode = instruction.opcode
    width = _width(t, instruction.operands[1], have)
    a = resize(t, s, a, width, BITS[have])
    g = Typed(t, s, want)
    signed = have[0] == "s"
    word = f"{'s' if signed else 'u'}itofp {s.int(BITS[have])} {a} to"
    if want == "bf16":
        return _to_bfloat(t, s, g, a, BITS[have], signed, word)
    y = t.new(f"{word} {g.float}")
    rounding = direction(instruction)
    if rounding and BITS[have] > {16: 11, 32: 24, 64: 53}[g.bits]:
        y = _rounded_integer(t, s, g, rounding, a, BITS[have], signed, y)
    if "sat" in opcode:
        y = g.saturate(y)
    return g.to_int(y)


def _to_bfloat(t, s, g, a, bits, signed, word):
    """Return the bits of integers rounded to bfloat16 once, by way of float32 rounded to odd."""
    h = Typed(t, s, "f32")
    near = t.new(f"{word} {h.float}")
    down, up = (_rounded_integer(t, s, h, way, a, bits, signed, near) for way in ("rm", "rp"))
    last = h.bitwise("and", h.to_int(down), 1)
    is_odd = h.bitwise("icmp ne", last, 0)
    return g.to_int(h.select(is_odd, down, up))


def _rounded_integer(t, s, g, rounding, a, bits, signed, near):
    """Round an integer to a floating point number in a direction, given the nearest, `near`."""
    # Compute the rounding error in double precision: both halves of the integer are exact there, and so is
    # the difference between the upper half and the nearest number.
    double, wide = s.float(64), s.int(64)
    word = "s" if signed else "u"
    a = resize(t, s, a, bits, 64, signed)
    high = t.new(f"{'ashr' if signed else 'lshr'} {wide} {a}, {s.literal(32, 'i64')}")
    low = t.new(f"and {wide} {a}, {s.literal(0xFFFFFFFF, 'i64')}")
    high = t.new(f"{word}itofp {wide} {high} to {double}")
    high = t.new(f"fmul {double} {high}, {s.literal('0x41F0000000000000', 'double')}")
    low = t.new(f"uitofp {wide} {low} to {double}")
    back = near if g.bits == 64 else g.cast("fpext", near, double)
    rest = t.new(f"fadd {double} {t.new(f'fsub {double} {high}, {back}')}, {low}")
    zero = s.literal("0.0", "double")
    above = t.new(f"fcmp ogt {double} {rest}, {zero}")
    below = t.new(f"fcmp olt {double} {rest}, {zero}")
    error = g.select(below, -1.0, g.select(above, 1.0, 0.0))
    return toward(t, g, rounding, near, error)


def _cvt_packed(t, instruction):
    """Convert two numbers to the halves of one register, the first to the upper half."""
    want, have = instruction.opcode[-2:]
    names = instruction.operands[1:3]

    def make(s, high, low):
        f = Typed(t, s, have)
        halves = [_between_floats(t, s, instruction, f, want[:-2], f.to_float(name)) for name in (high, low)]
        i = Integers(t, s, 32)
        return i("or", i("shl", i.resized(halves[0], 16), 16), i.resized(halves[1], 16))

    t.set(make, *[(t.operand(name, have), BITS[have]) for name in names])
