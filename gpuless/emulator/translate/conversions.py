"""Moves and conversions, in IR."""

from gpuless.emulator.analysis import lanes
from gpuless.emulator.analysis.lanes import VARYING
from gpuless.emulator.analysis.rules import is_widened
from gpuless.emulator.ptx import BITS
from gpuless.emulator.translate.bitfields import pack_saturated
from gpuless.emulator.translate.doubts import wrapped
from gpuless.emulator.translate.floats import toward
from gpuless.emulator.translate.small_floats import convert_eights
from gpuless.emulator.translate.typed import (
    Typed,
    call_int,
    change,
    flush,
    is_float,
    relu,
    resize,
    saturate,
    widen,
)
from gpuless.emulator.translate.values import translates


@translates("mov")
def _mov(t, instruction):
    first, second = instruction.operands
    type_ = instruction.opcode[-1]
    if isinstance(second, tuple):
        _pack(t, first, second, instruction)
    elif isinstance(first, tuple):
        _unpack(t, first, second, instruction)
    else:
        t.write(first, t.operand(second, type_))


def _pack(t, target, names, instruction):
    bits = BITS[instruction.opcode[-1]]
    part = bits // len(names)

    def make(s, *parts):
        total = s.literal(0, f"i{bits}")
        for i, name in enumerate(parts):
            wide = resize(t, s, name, part, bits)
            shifted = t.new(f"shl {s.int(bits)} {wide}, {s.literal(part * i, f'i{bits}')}")
            total = t.new(f"or {s.int(bits)} {total}, {shifted}")
        return total

    t.set(make, *[(t.operand(name, f"b{part}"), part) for name in names])


def _unpack(t, targets, name, instruction):
    bits = BITS[instruction.opcode[-1]]
    part = bits // len(targets)
    value = t.operand(name, f"b{bits}" if bits < 128 else "b128")
    kind = lanes.UNIFORM if lanes.uniform(value.kind) else VARYING
    for i, target in enumerate(targets):

        def make(s, x, i=i):
            shifted = t.new(f"lshr {s.int(bits)} {x}, {s.literal(part * i, f'i{bits}')}")
            return resize(t, s, shifted, bits, part)

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
    """Return the width of a register, which may be larger than the type that is read from it."""
    return t.function.registers.get(name, BITS[type_])


def _between_integers(t, s, instruction, want, have, a):
    width = _width(t, instruction.operands[1], have)
    target = t.function.registers[instruction.operands[0]]
    a = resize(t, s, a, width, BITS[have])
    if "sat" in instruction.opcode:
        a = _saturate_integer(t, s, want, have, a)
    change = widen if BITS[want] > BITS[have] else resize
    a = change(t, s, a, BITS[have], BITS[want], have[0] == "s")
    return resize(t, s, a, BITS[want], target, want[0] == "s")


def _saturate_integer(t, s, want, have, a):
    bits = BITS[want]
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if want[0] == "s" else (0, (1 << bits) - 1)
    type_, most = f"i{BITS[have]}", (1 << (BITS[have] - (have[0] == "s"))) - 1
    if have[0] == "s":
        a = call_int(t, s, "smax", BITS[have], a, s.literal(max(low, -most - 1), type_))
        return call_int(t, s, "smin", BITS[have], a, s.literal(min(high, most), type_))
    return call_int(t, s, "umin", BITS[have], a, s.literal(min(high, most), type_))


_TO_WHOLE = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


def _from_float(t, s, instruction, want, have, a):
    opcode = instruction.opcode
    width = _width(t, instruction.operands[1], have)
    a = resize(t, s, a, width, BITS[have])
    f = Typed(t, s, have)
    if have == "f32":  # of the two, `.ftz` is about this one
        a = flush(t, f, instruction, a)
    x = f.to_float(a)
    whole = next((part for part in opcode if part in _TO_WHOLE), None)
    if whole:
        x = f.call(_TO_WHOLE[whole], x)
    if is_float(want) or want == "tf32":
        return _between_floats(t, s, instruction, f, want, x)
    bits, target = BITS[want], t.function.registers[instruction.operands[0]]
    found = _nearest_integer(t, s, f, x, bits, want[0] == "s")
    if bits == 64 or f.bits == 64:
        # Conversions of, and to, 64 bits make the largest negative number of a NaN, others make zero.
        unordered = t.new(f"fcmp uno {f.float} {x}, {x}")
        nan = s.literal(-(1 << (bits - 1)), f"i{bits}")
        found = t.new(f"select {s.int(1)} {unordered}, {s.int(bits)} {nan}, {s.int(bits)} {found}")
    return resize(t, s, found, bits, target, want[0] == "s")


def _nearest_integer(t, s, f, x, bits, signed):
    """Return a whole number as an integer: the largest or smallest where it is none, and 0 of a NaN."""
    word = "fptosi" if signed else "fptoui"
    if s.lanes == 1 or f.bits == 16:
        name = f"@llvm.{word}.sat.{s.suffix(f'i{bits}')}.{f.suffix}"
        t.module.declare(f"{s.int(bits)} {name}({f.float})")
        return t.new(f"call {s.int(bits)} {name}({f.float} {x})")
    # Of vectors LLVM would do this lane by lane.
    least, end = (-(1 << (bits - 1)), 1 << (bits - 1)) if signed else (0, 1 << bits)
    above = t.new(f"fcmp oge {f.float} {x}, {f.number(float(end))}")
    below = t.new(f"fcmp olt {f.float} {x}, {f.number(float(least))}")
    some = t.new(f"fcmp ord {f.float} {x}, {x}")
    outside = t.new(f"or {s.int(1)} {above}, {below}")
    within = t.new(f"xor {s.int(1)} {outside}, {s.literal('true', 'i1')}")
    inside = t.new(f"and {s.int(1)} {some}, {within}")
    plain = t.new(f"select {s.int(1)} {inside}, {f.float} {x}, {f.float} {f.number(0.0)}")
    found = t.new(f"{word} {f.float} {plain} to {s.int(bits)}")
    for beyond, limit in ((above, end - 1), (below, least)):
        most = s.literal(limit, f"i{bits}")
        found = t.new(f"select {s.int(1)} {beyond}, {s.int(bits)} {most}, {s.int(bits)} {found}")
    return found


def _between_floats(t, s, instruction, f, want, x):
    opcode = instruction.opcode
    if want == "tf32":
        return _to_tf32(t, s, opcode, f, x)
    g = Typed(t, s, want)
    rounding = next((part for part in opcode if part in ("rz", "rm", "rp")), None)
    y = change(t, f, g, x)
    if rounding and g.bits <= f.bits and g.type_ != f.type_:
        error = t.new(f"fsub {f.float} {x}, {change(t, g, f, y)}")
        y = _toward_narrow(t, g, f, rounding, y, error)
    if "sat" in opcode:
        y = saturate(t, g, y)
    if "relu" in opcode:
        y = relu(t, g, y)
    bits = g.to_int(y)
    if "satfinite" in opcode:
        bits = _made_finite(t, s, bits, g.bits, 0x7F80 if g.bfloat else 0x7C00)
    if want == "f32":
        bits = flush(t, g, instruction, bits)
    return bits


def _to_tf32(t, s, opcode, f, x):
    """Return the bits of float32 numbers rounded to ten bits behind the point."""
    unordered = t.new(f"fcmp uno {f.float} {x}, {x}")
    bits = f.to_int(relu(t, f, x) if "relu" in opcode else x)
    half = s.literal(0x1000 if "rna" in opcode else 0, "i32")  # away from zero in the middle, or cut off
    if "rn" in opcode:
        last = t.new(f"lshr {f.int} {bits}, {s.literal(13, 'i32')}")
        odd = t.new(f"and {f.int} {last}, {s.literal(1, 'i32')}")
        half = t.new(f"add {f.int} {odd}, {s.literal(0xFFF, 'i32')}")
    near = t.new(f"add {f.int} {bits}, {half}")
    found = t.new(f"and {f.int} {near}, {s.literal(-0x2000, 'i32')}")
    if "satfinite" in opcode:
        found = _made_finite(t, s, found, 32, 0x7F800000, 0x2000)
    return t.new(f"select {s.int(1)} {unordered}, {f.int} {s.literal(0x7FFFFFFF, 'i32')}, {f.int} {found}")


def _made_finite(t, s, found, bits, infinite, step=1):
    """Return the bits of numbers of which those that are infinite are the largest."""
    int_, one = s.int(bits), f"i{bits}"
    size = t.new(f"and {int_} {found}, {s.literal((1 << (bits - 1)) - 1, one)}")
    flag = t.new(f"icmp eq {int_} {size}, {s.literal(infinite, one)}")
    below = t.new(f"sub {int_} {found}, {s.literal(step, one)}")
    return t.new(f"select {s.int(1)} {flag}, {int_} {below}, {int_} {found}")


def _toward_narrow(t, g, f, rounding, near, error):
    sign = t.new(f"fcmp olt {f.float} {error}, {f.number(0.0)}")
    positive = t.new(f"fcmp ogt {f.float} {error}, {f.number(0.0)}")
    flag = g.shape.int(1)
    one, minus = g.number(1.0), g.number(-1.0)
    narrow = t.new(f"select {flag} {positive}, {g.float} {one}, {g.float} {g.number(0.0)}")
    narrow = t.new(f"select {flag} {sign}, {g.float} {minus}, {g.float} {narrow}")
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
    rounding = next((part for part in opcode if part in ("rz", "rm", "rp")), None)
    if rounding and BITS[have] > {16: 11, 32: 24, 64: 53}[g.bits]:
        y = _rounded_integer(t, s, g, rounding, a, BITS[have], signed, y)
    if "sat" in opcode:
        y = saturate(t, g, y)
    return g.to_int(y)


def _to_bfloat(t, s, g, a, bits, signed, word):
    """Return the bits of integers rounded to bfloat16 once: to the odd one of two neighbours first."""
    h = Typed(t, s, "f32")
    near = t.new(f"{word} {h.float}")
    down, up = (_rounded_integer(t, s, h, way, a, bits, signed, near) for way in ("rm", "rp"))
    last = t.new(f"and {h.int} {h.to_int(down)}, {s.literal(1, 'i32')}")
    is_odd = t.new(f"icmp ne {h.int} {last}, {s.literal(0, 'i32')}")
    return g.to_int(t.new(f"select {s.int(1)} {is_odd}, {h.float} {down}, {h.float} {up}"))


def _rounded_integer(t, s, g, rounding, a, bits, signed, near):
    """Round an integer to a number otherwise than to the nearest, `near`."""
    # What was rounded away, in double precision: both halves of the integer are exact there, and so is what
    # is left when the nearest number is taken from the upper one.
    double, wide = s.float(64), s.int(64)
    word = "s" if signed else "u"
    a = resize(t, s, a, bits, 64, signed)
    high = t.new(f"{'ashr' if signed else 'lshr'} {wide} {a}, {s.literal(32, 'i64')}")
    low = t.new(f"and {wide} {a}, {s.literal(0xFFFFFFFF, 'i64')}")
    high = t.new(f"{word}itofp {wide} {high} to {double}")
    high = t.new(f"fmul {double} {high}, {s.literal('0x41F0000000000000', 'double')}")
    low = t.new(f"uitofp {wide} {low} to {double}")
    back = near if g.bits == 64 else t.new(f"fpext {g.float} {near} to {double}")
    rest = t.new(f"fadd {double} {t.new(f'fsub {double} {high}, {back}')}, {low}")
    zero, flag = s.literal("0.0", "double"), s.int(1)
    above = t.new(f"fcmp ogt {double} {rest}, {zero}")
    below = t.new(f"fcmp olt {double} {rest}, {zero}")
    error = t.new(f"select {flag} {above}, {g.float} {g.number(1.0)}, {g.float} {g.number(0.0)}")
    error = t.new(f"select {flag} {below}, {g.float} {g.number(-1.0)}, {g.float} {error}")
    return toward(t, g, rounding, near, error)


def _cvt_packed(t, instruction):
    """Convert two numbers into the halves of one register, the first into the upper one."""
    want, have = instruction.opcode[-2:]
    names = instruction.operands[1:3]

    def make(s, high, low):
        halves = []
        for name in (high, low):
            f = Typed(t, s, have)
            x = f.to_float(name)
            halves.append(_between_floats(t, s, instruction, f, want[:-2], x))
        upper = t.new(f"shl {s.int(32)} {resize(t, s, halves[0], 16, 32)}, {s.literal(16, 'i32')}")
        return t.new(f"or {s.int(32)} {upper}, {resize(t, s, halves[1], 16, 32)}")

    t.set(make, *[(t.operand(name, have), BITS[have]) for name in names])
