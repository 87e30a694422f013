"""8-bit floating point numbers, in IR."""

from gpuless.emulator.translate.typed import Integers, Typed

#: Bits of the fraction, the largest finite number, the bias of the exponent.
_FRACTION = {"e4m3": 3, "e5m2": 2}
_LARGEST = {"e4m3": 0x7E, "e5m2": 0x7B}
_BIAS = {"e4m3": 7, "e5m2": 15}


def from_eight(t, s, type_, byte):
    """Return 8-bit numbers, the low byte of 32 bits, as float32."""
    f = Typed(t, s, "f32")
    b = f.bitwise
    fraction = _FRACTION[type_]
    sign = b("shl", b("and", byte, 128), 24)
    size = b("and", byte, 127)
    bits = b("shl", size, 23 - fraction)
    number = f("fmul", f.to_float(bits), f.number(2.0 ** (127 - _BIAS[type_])))
    special = b("icmp ugt", size, _LARGEST[type_])
    # e5m2 has infinity after the largest number; e4m3 only has NaN.
    rest = b("sub", size, 0x7C if type_ == "e5m2" else 0)
    rest = b("or", b("shl", rest, 21), 0x7F800000)
    found = b.select(special, rest, f.to_int(number))
    return f.to_float(b("or", found, sign))


def to_eight(t, s, type_, number):
    """Return float32 numbers rounded to 8 bits and saturated; NaN becomes 0x7f."""
    f = Typed(t, s, "f32")
    b = f.bitwise
    fraction = _FRACTION[type_]
    drop, least = 23 - fraction, 1 - _BIAS[type_]
    bits = f.to_int(number)
    size = b("and", bits, 0x7FFFFFFF)
    sign = b("and", b("lshr", bits, 24), 128)
    odd = b("and", b("lshr", size, drop), 1)
    up = b("add", b("add", size, odd), (1 << (drop - 1)) - 1)
    up = b("lshr", up, drop)
    plain = b("sub", up, (127 - _BIAS[type_]) << fraction)
    # Subnormal numbers are multiples of the smallest.
    scaled = f("fmul", f.to_float(size), f.number(2.0 ** (fraction - least)))
    near = f.call("roundeven", scaled)
    small = f("fcmp olt", f.to_float(size), 2.0**least)
    few = f.call("minnum", near, 2.0**fraction)
    few = f.cast("fptoui", few, f.int)
    found = b.select(small, few, plain)
    found = b.call("umin", found, _LARGEST[type_])
    found = b("or", found, sign)
    unordered = f("fcmp uno", number, number)
    return b.select(unordered, 127, found)


def convert_eights(t, instruction):
    """Write a conversion of pairs to or from 8-bit numbers."""
    want, have = instruction.opcode[-2:]
    names = instruction.operands[1:]

    def half(s):
        return Typed(t, s, "f16")

    def widen(s, both):
        i, g, halves = Integers(t, s, 32), half(s), []
        wide = i.resized(both, 16)
        for shift in (0, 8):
            number = from_eight(t, s, have[:-2], i("lshr", wide, shift))
            number = Typed(t, s, "f32").cast("fptrunc", number, g.float)
            number = g.relu(number) if "relu" in instruction.opcode else number
            halves.append(i.resized(g.to_int(number), 16))
        return i("or", i("shl", halves[1], 16), halves[0])

    def narrow(s, *given):
        f, i = Typed(t, s, "f32"), Integers(t, s, 32)
        if have == "f16x2":
            parts = [i("lshr", given[0], shift) for shift in (16, 0)]
            parts = [half(s).to_float(i.of(16).resized(part, 32)) for part in parts]
            numbers = [half(s).cast("fpext", part, f.float) for part in parts]
        else:
            numbers = [f.to_float(one) for one in given]
        if "relu" in instruction.opcode:
            numbers = [f.relu(number) for number in numbers]
        high, low = (to_eight(t, s, want[:-2], number) for number in numbers)
        return i.of(16).resized(i("or", i("shl", high, 8), low), 32)

    bits = 16 if want == "f16x2" else 32
    t.set(widen if want == "f16x2" else narrow, *[(t.operand(name, f"b{bits}"), bits) for name in names])
