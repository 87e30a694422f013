"""Floating point numbers of 8 bits, in IR."""

from gpuless.emulator.translate.typed import Typed, call_int, relu

#: Bits of the fraction, and the largest number.
_FRACTION = {"e4m3": 3, "e5m2": 2}
_LARGEST = {"e4m3": 0x7E, "e5m2": 0x7B}
_BIAS = {"e4m3": 7, "e5m2": 15}


def from_eight(t, s, type_, byte):
    """Return numbers of 8 bits, which are the low ones of 32, as float32."""
    f = Typed(t, s, "f32")
    fraction = _FRACTION[type_]
    sign = t.new(
        f"shl {f.int} {t.new(f'and {f.int} {byte}, ' + s.literal(128, 'i32'))}, {s.literal(24, 'i32')}"
    )
    size = t.new(f"and {f.int} {byte}, {s.literal(127, 'i32')}")
    bits = t.new(f"shl {f.int} {size}, {s.literal(23 - fraction, 'i32')}")
    number = t.new(f"fmul {f.float} {f.to_float(bits)}, {f.number(2.0 ** (127 - _BIAS[type_]))}")
    special = t.new(f"icmp ugt {f.int} {size}, {s.literal(_LARGEST[type_], 'i32')}")
    # The first behind the largest number is infinite where there is room for that.
    rest = t.new(f"sub {f.int} {size}, {s.literal(0x7C if type_ == 'e5m2' else 0, 'i32')}")
    rest = t.new(
        f"or {f.int} {t.new(f'shl {f.int} {rest}, ' + s.literal(21, 'i32'))}, {s.literal(0x7F800000, 'i32')}"
    )
    found = t.new(f"select {s.int(1)} {special}, {f.int} {rest}, {f.int} {f.to_int(number)}")
    return f.to_float(t.new(f"or {f.int} {found}, {sign}"))


def to_eight(t, s, type_, number):
    """Return float32 numbers rounded to 8 bits, the largest where they are too large; NaN is 0x7f."""
    f = Typed(t, s, "f32")
    fraction = _FRACTION[type_]
    drop, least = 23 - fraction, 1 - _BIAS[type_]
    bits = f.to_int(number)
    size = t.new(f"and {f.int} {bits}, {s.literal(0x7FFFFFFF, 'i32')}")
    sign = t.new(
        f"and {f.int} {t.new(f'lshr {f.int} {bits}, ' + s.literal(24, 'i32'))}, {s.literal(128, 'i32')}"
    )
    odd = t.new(
        f"and {f.int} {t.new(f'lshr {f.int} {size}, ' + s.literal(drop, 'i32'))}, {s.literal(1, 'i32')}"
    )
    up = t.new(
        f"add {f.int} {t.new(f'add {f.int} {size}, {odd}')}, {s.literal((1 << (drop - 1)) - 1, 'i32')}"
    )
    up = t.new(f"lshr {f.int} {up}, {s.literal(drop, 'i32')}")
    plain = t.new(f"sub {f.int} {up}, {s.literal((127 - _BIAS[type_]) << fraction, 'i32')}")
    # Denormal ones are multiples of the smallest.
    scaled = t.new(f"fmul {f.float} {f.to_float(size)}, {f.number(2.0 ** (fraction - least))}")
    near = f.call("roundeven", scaled)
    small = t.new(f"fcmp olt {f.float} {f.to_float(size)}, {f.number(2.0**least)}")
    few = f.call("minnum", near, f.number(2.0**fraction))
    few = t.new(f"fptoui {f.float} {few} to {f.int}")
    found = t.new(f"select {s.int(1)} {small}, {f.int} {few}, {f.int} {plain}")
    found = call_int(t, s, "umin", 32, found, s.literal(_LARGEST[type_], "i32"))
    found = t.new(f"or {f.int} {found}, {sign}")
    unordered = t.new(f"fcmp uno {f.float} {number}, {number}")
    return t.new(f"select {s.int(1)} {unordered}, {f.int} {s.literal(127, 'i32')}, {f.int} {found}")


def convert_eights(t, instruction):
    """Write a conversion of pairs of numbers of 8 bits."""
    want, have = instruction.opcode[-2:]
    names = instruction.operands[1:]

    def half(s):
        return Typed(t, s, "f16")

    def widen(s, both):
        wide, halves = t.new(f"zext {s.int(16)} {both} to {s.int(32)}"), []
        for i in range(2):
            byte = t.new(f"lshr {s.int(32)} {wide}, {s.literal(8 * i, 'i32')}")
            g, number = half(s), from_eight(t, s, have[:-2], byte)
            number = t.new(f"fptrunc {Typed(t, s, 'f32').float} {number} to {g.float}")
            number = relu(t, g, number) if "relu" in instruction.opcode else number
            halves.append(t.new(f"zext {s.int(16)} {g.to_int(number)} to {s.int(32)}"))
        upper = t.new(f"shl {s.int(32)} {halves[1]}, {s.literal(16, 'i32')}")
        return t.new(f"or {s.int(32)} {upper}, {halves[0]}")

    def narrow(s, *given):
        f = Typed(t, s, "f32")
        if have == "f16x2":
            parts = [t.new(f"lshr {s.int(32)} {given[0]}, {s.literal(shift, 'i32')}") for shift in (16, 0)]
            parts = [half(s).to_float(t.new(f"trunc {s.int(32)} {part} to {s.int(16)}")) for part in parts]
            numbers = [t.new(f"fpext {half(s).float} {part} to {f.float}") for part in parts]
        else:
            numbers = [f.to_float(one) for one in given]
        if "relu" in instruction.opcode:
            numbers = [relu(t, f, number) for number in numbers]
        high, low = (to_eight(t, s, want[:-2], number) for number in numbers)
        both = t.new(f"or {s.int(32)} {t.new(f'shl {s.int(32)} {high}, ' + s.literal(8, 'i32'))}, {low}")
        return t.new(f"trunc {s.int(32)} {both} to {s.int(16)}")

    bits = 16 if want == "f16x2" else 32
    t.set(widen if want == "f16x2" else narrow, *[(t.operand(name, f"b{bits}"), bits) for name in names])
