"""Instructions on parts of registers: bit fields, bytes, pairs of halves, numbers of 8 and of 16 bits."""

import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest
from ptx_programs import apply, results, run

ALL = 0xFFFFFFFF


def signed(value, bits):
    return value - (1 << bits) if value >> (bits - 1) & 1 else value


def split(word, bits):
    return [word >> at & ((1 << bits) - 1) for at in range(0, 32, bits)]


def join(parts, bits):
    return sum((part & ((1 << bits) - 1)) << bits * i for i, part in enumerate(parts))


def apply_all(instructions, given):
    """Return the results of each instruction for three words: in lanes, and as a scalar.

    They are written %a, %b, %c, the result %d; the lower halves are %h1, %h2, %h3, and %h7 is free.
    """
    count = len(given)
    text = f""".visible .entry f(.param .u64 p0, .param .u64 p1) {{
    .reg .b32 %a, %b, %c, %d, %r<9>; .reg .b64 %y<9>; .reg .b16 %h<9>; .reg .pred %p<9>;
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.s32 %r4, %r1, %r2, %r3;
    setp.ge.u32 %p1, %r4, {count};\n@%p1 bra END;\n
    ld.param.u64 %y1, [p0]; ld.param.u64 %y2, [p1]; mul.wide.u32 %y3, %r4, 4; add.s64 %y2, %y2, %y3;
    mul.wide.u32 %y3, %r4, 12; add.s64 %y1, %y1, %y3;
    ld.global.u32 %r5, [%y1]; ld.global.u32 %r6, [%y1+4]; ld.global.u32 %r7, [%y1+8];\n"""
    for i, instruction in enumerate(instructions):
        text += "mov.b32 %a, %r5; mov.b32 %b, %r6; mov.b32 %c, %r7; mov.b32 {%h1, %h4}, %a;"
        text += f"mov.b32 {{%h2, %h4}}, %b; mov.b32 {{%h3, %h4}}, %c; {instruction};"
        text += f"st.global.u32 [%y2+{4 * count * i}], %d;\n"
    arrays = [np.array(given, np.uint32), np.zeros((len(instructions), count), np.uint32)]
    lanes = run(text + "END: ret; }", arrays, (-(-count // 64), 1, 1), (64, 1, 1))[-1]
    uniform = text.replace("mad.lo.s32 %r4, %r1, %r2, %r3;", "mov.u32 %r4, %r1;")
    once = run(uniform + "END: ret; }", arrays, (count, 1, 1))[-1]
    return lanes.tolist(), once.tolist()


# --- Integers -----------------------------------------------------------------------------------------------


def bmsk(mode):
    """By the definition in the PTX manual."""

    def oracle(a, b):
        start, width = a & 31, b & 31
        first, end = ALL << start & ALL, start + width
        rest = ALL << end & ALL
        position_over = width_over = False
        if mode == "clamp":
            if a >= 32:
                position_over, first = True, 0
            width_over = b >= 32
        if end >= 32 or position_over or width_over:
            rest = 0
        elif width == 0:
            rest = ALL
        return first & ~rest & ALL

    return oracle


def szext(mode, type_):
    def oracle(a, b):
        n = b & 31
        large = b >= 32 and mode == "clamp"
        mask = 0 if large else ALL << n & ALL
        sign = 0 if n == 0 or large or type_ != "s32" else a >> (n - 1 & 31) & 1
        return (a & ~mask | (mask if sign else 0)) & ALL

    return oracle


def fns(mask, base, offset):
    base &= 31
    offset = signed(offset, 32)
    if offset == 0:
        return base if mask >> base & 1 else ALL
    at, count, step = base, abs(offset) - 1, 1 if offset > 0 else -1
    while 0 <= at < 32:
        if mask >> at & 1:
            if count == 0:
                return at
            count -= 1
        at += step
    return ALL


PERMUTATIONS = {  # which bytes, the lowest last
    "f4e": ("3210", "4321", "5432", "6543"),
    "b4e": ("5670", "6701", "7012", "0123"),
    "rc8": ("0000", "1111", "2222", "3333"),
    "ecl": ("3210", "3211", "3222", "3333"),
    "ecr": ("0000", "1110", "2210", "3210"),
    "rc16": ("1010", "3232", "1010", "3232"),
}


def permuted(mode):
    def oracle(a, b, c):
        given = split(a, 8) + split(b, 8)
        return join([given[int(digit)] for digit in reversed(PERMUTATIONS[mode][c & 3])], 8)

    return oracle


def pack(type_, count):
    bits, least = int(type_[1:]), -(1 << int(type_[1:]) - 1) if type_[0] == "s" else 0
    most = least + (1 << bits) - 1

    def oracle(a, b, c=0):
        x, y = (max(least, min(most, signed(value, 32))) & ((1 << bits) - 1) for value in (a, b))
        return (y | x << bits | (c << 2 * bits if count == 3 else 0)) & ALL

    return oracle


def halves(function, sign):
    def oracle(a, b):
        pairs = zip(split(a, 16), split(b, 16), strict=True)
        return join([function(*(signed(x, 16) if sign else x for x in pair)) for pair in pairs], 16)

    return oracle


def dot(signs, low=None):
    def oracle(a, b, c):
        first = [
            signed(x, 8 if low is None else 16) if signs[0] == "s" else x
            for x in split(a, 8 if low is None else 16)
        ]
        second = [signed(x, 8) if signs[1] == "s" else x for x in split(b, 8)]
        second = second if low is None else second[:2] if low else second[2:]
        return c + sum(x * y for x, y in zip(first, second, strict=True)) & ALL

    return oracle


def product24(high, sign):
    def oracle(a, b):
        x, y = (signed(value & 0xFFFFFF, 24) if sign else value & 0xFFFFFF for value in (a, b))
        return (x * y >> (16 if high else 0)) & ALL

    return oracle


def clamp32(x):
    return max(-(1 << 31), min((1 << 31) - 1, x)) & ALL


def integer_cases():
    for mode in ("clamp", "wrap"):
        yield f"bmsk.{mode}.b32 %d, %a, %b", bmsk(mode)
        for type_ in ("s32", "u32"):
            yield f"szext.{mode}.{type_} %d, %a, %b", szext(mode, type_)
    yield "and.b32 %b, %b, 31; fns.b32 %d, %a, %b, %c", fns
    for mode in PERMUTATIONS:
        yield f"prmt.b32.{mode} %d, %a, %b, %c", permuted(mode)
    for type_ in ("s16", "u16"):
        yield f"cvt.pack.sat.{type_}.s32 %d, %a, %b", pack(type_, 2)
    for type_ in ("s8", "u8", "s4", "u2"):
        yield f"cvt.pack.sat.{type_}.s32.b32 %d, %a, %b, %c", pack(type_, 3)
    for sign in "su":
        for name, function in (("add", lambda a, b: a + b), ("min", min), ("max", max)):
            yield f"{name}.{sign}16x2 %d, %a, %b", halves(function, sign == "s")
    yield "max.s16x2.relu %d, %a, %b", halves(lambda a, b: max(a, b, 0), True)
    yield "min.s32.relu %d, %a, %b", lambda a, b: max(min(signed(a, 32), signed(b, 32)), 0)
    for sign in "su":
        values = (lambda x, bits: [signed(y, bits) for y in split(x, bits)]) if sign == "s" else split

        def distances(a, b, values=values):
            return [abs(x - y) for x, y in zip(values(a, 8), values(b, 8), strict=True)]

        values2 = (
            (lambda x: [signed(y, 16) for y in split(x, 16)]) if sign == "s" else (lambda x: split(x, 16))
        )
        yield (
            f"vabsdiff2.u32.{sign}32.{sign}32 %d, %a, %b, %c",
            lambda a, b, c, f=values2: join([abs(x - y) for x, y in zip(f(a), f(b), strict=True)], 16),
        )
        yield f"vabsdiff4.u32.{sign}32.{sign}32 %d, %a, %b, %c", lambda a, b, c, f=distances: join(f(a, b), 8)
        yield (
            f"vabsdiff4.u32.{sign}32.{sign}32.add %d, %a, %b, %c",
            lambda a, b, c, f=distances: c + sum(f(a, b)) & ALL,
        )
    for signs in ("ss", "su", "us", "uu"):
        types = f"{signs[0]}32.{signs[1]}32"
        yield f"dp4a.{types} %d, %a, %b, %c", dot(signs)
        yield f"dp2a.lo.{types} %d, %a, %b, %c", dot(signs, True)
        yield f"dp2a.hi.{types} %d, %a, %b, %c", dot(signs, False)
    for sign in "su":
        for part in ("lo", "hi"):
            exact = product24(part == "hi", sign == "s")
            yield f"mul24.{part}.{sign}32 %d, %a, %b", exact
            yield f"mad24.{part}.{sign}32 %d, %a, %b, %c", lambda a, b, c, f=exact: f(a, b) + c & ALL
    yield (
        "mad24.hi.sat.s32 %d, %a, %b, %c",
        lambda a, b, c: clamp32(signed(product24(True, True)(a, b), 32) + signed(c, 32)),
    )
    yield "shf.l.clamp.b32 %d, %a, %b, %c", lambda a, b, c: ((b << 32 | a) << min(c, 32) >> 32) & ALL
    yield "shf.r.clamp.b32 %d, %a, %b, %c", lambda a, b, c: (b << 32 | a) >> min(c, 32) & ALL
    yield "slct.b32.s32 %d, %a, %b, %c", lambda a, b, c: a if signed(c, 32) >= 0 else b
    yield "slct.b32.f32 %d, %a, %b, %c", lambda a, b, c: a if as_float(c) >= 0 else b
    yield "set.lt.u32.s32 %d, %a, %b", lambda a, b: ALL * (signed(a, 32) < signed(b, 32))
    yield "set.ge.f32.u32 %d, %a, %b", lambda a, b: 0x3F800000 * (a >= b)
    yield (
        "setp.gt.u32 %p2, %c, 99; set.eq.xor.u32.u32 %d, %a, %b, !%p2",
        lambda a, b, c: ALL * ((a == b) ^ (not c > 99)),
    )


def as_float(bits):
    return float(np.uint32(bits).view(np.float32))


WORDS = [0, 1, 2, 5, 31, 32, 33, 64, 0x7F, 0x80, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, ALL, ALL - 4]
WORDS += [0x80808080, 0x7F7F8080, 0x12345678, 0xDEADBEEF, 0xFFFF8001, 0x7F800000, 0x7FC00000, 0xFFFFFF80]


def test_integers_in_parts_of_registers():
    rng, cases = random.Random(0), list(integer_cases())
    given = [(*pair, rng.choice(WORDS)) for pair in itertools.product(WORDS, repeat=2)]
    given += [tuple(rng.choices(WORDS, k=3)) for _ in range(200)]
    given += [tuple(rng.randrange(1 << 32) for _ in range(3)) for _ in range(100)]
    instructions = [instruction for instruction, _ in cases]
    for found in apply_all(instructions, given):
        for (instruction, oracle), column in zip(cases, found, strict=True):
            for values, one in zip(given, column, strict=True):
                right = oracle(*values if "%c" in instruction else values[:2])
                assert one == right, (instruction, [hex(x) for x in values], hex(one), hex(right))


# --- Floating point numbers of 16 bits ----------------------------------------------------------------------

FORMATS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "tf32": (8, 10), "e5m2": (5, 2), "e4m3": (4, 3)}


def value(bits, type_):
    """Return the number of some bits: a fraction, or a float if it is none or zero."""
    exponent_bits, fraction_bits = FORMATS[type_]
    negative = bits >> (exponent_bits + fraction_bits) & 1
    exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1)
    fraction = bits & ((1 << fraction_bits) - 1)
    bias = (1 << (exponent_bits - 1)) - 1
    if type_ == "e4m3" and exponent == 15:
        if fraction == 7:
            return math.nan
    elif exponent == (1 << exponent_bits) - 1:
        return math.nan if fraction else (-math.inf if negative else math.inf)
    if exponent:
        fraction |= 1 << fraction_bits
    if not fraction:
        return -0.0 if negative else 0.0
    return (-1) ** negative * fraction * Fraction(2) ** (max(exponent, 1) - bias - fraction_bits)


def encode(number, type_, finite=False, ties="even"):
    """Return the bits of the nearest number of a type, None for a NaN."""
    exponent_bits, fraction_bits = FORMATS[type_]
    if math.isnan(number):
        return None
    sign = number < 0 or math.copysign(1, number) < 0 if isinstance(number, float) else number < 0
    sign = sign << (exponent_bits + fraction_bits)
    infinite = (1 << exponent_bits) - 1 << fraction_bits
    most = infinite - 1 if type_ != "e4m3" else 0x7E
    if math.isinf(number):
        return sign | (most if finite else infinite)
    size, bias = abs(Fraction(number)), (1 << (exponent_bits - 1)) - 1
    if not size:
        return sign
    at = size.numerator.bit_length() - size.denominator.bit_length() - fraction_bits - 1
    at = max(1 - bias - fraction_bits, at)
    while size / Fraction(2) ** at >= 1 << (fraction_bits + 1):
        at += 1
    exact = size / Fraction(2) ** at
    whole = (
        round(exact)
        if ties == "even"
        else math.floor(exact + Fraction(1, 2))
        if ties == "away"
        else int(exact)
    )
    pattern = whole + (at - (1 - bias - fraction_bits) << fraction_bits)
    return sign | min(pattern, most if finite else infinite)


def arithmetic(name, a, b, c):
    """Return the exact result, or a float if there is none."""
    c = c if name == "fma" else 0.0
    if all(isinstance(x, Fraction) or x == 0 for x in (a, b, c)):
        x, y, z = map(Fraction, (a, b, c))
        found = {"add": x + y, "sub": x - y, "mul": x * y, "fma": x * y + z}[name]
        return found if found else zero(name, a, b, c)
    x, y, z = (
        float(number) if abs(number) < 1 << 200 or math.isnan(number) else number for number in (a, b, c)
    )
    return {"add": lambda: x + y, "sub": lambda: x - y, "mul": lambda: x * y, "fma": lambda: x * y + z}[
        name
    ]()


def zero(name, a, b, c):
    """Return the right zero for a result: its sign follows from the operands."""
    x, y, z = (math.copysign(0.0 if number == 0 else 1.0, number) for number in (a, b, c))
    if name == "mul":
        return x * y
    if name == "fma":
        return x * y + z if x * y == 0 and z == 0 else 0.0
    other = y if name == "add" else -y
    return x + other if x == other == 0 else 0.0


EDGES = {
    "f16": [
        0,
        0x8000,
        0x3C00,
        0xBC00,
        0x7C00,
        0xFC00,
        0x7E00,
        1,
        0x83FF,
        0x0400,
        0x7BFF,
        0xFBFF,
        0x3C01,
        0x1400,
    ]
}
EDGES["bf16"] = [
    0,
    0x8000,
    0x3F80,
    0xBF80,
    0x7F80,
    0xFF80,
    0x7FC0,
    1,
    0x807F,
    0x0080,
    0x7F7F,
    0xFF7F,
    0x3F81,
    0x0D00,
]


def finished(result, type_, modifier):
    """Return the bits of a result after `.sat` and `.relu`."""
    bits = encode(result, type_)
    if modifier == ".sat":
        return 0 if bits is None or result <= 0 else encode(min(result, Fraction(1)), type_)
    if modifier == ".relu" and bits is not None and bits >> 15:
        return 0
    return bits


def matches(found, right):
    """Return whether bits are right; any NaN is right for a NaN."""
    return found == right if right is not None else found & 0x7FFF > 0x7C00


ARITHMETIC = [("add", ""), ("sub", ""), ("mul", ""), ("fma", ""), ("fma", ".relu")]
SATURATED = [("add", ".sat"), ("mul", ".sat"), ("fma", ".sat")]  # not of bfloat16


def triples(type_):
    """Return triples of 16-bit numbers: edge cases and random ones."""
    rng = random.Random(type_)
    given = [(*pair, rng.choice(EDGES[type_])) for pair in itertools.product(EDGES[type_], repeat=2)]
    given += [tuple(rng.choices(EDGES[type_], k=3)) for _ in range(200)]
    given += [tuple(rng.randrange(1 << 16) for _ in range(3)) for _ in range(300)]
    # One rounding, not two: a product in the middle of two numbers, plus almost nothing.
    given += [(0x3F81, 0x3FC0, 0x0001), (0x3F81, 0x3FC0, 0x8001), (0x3F83, 0x3FC0, 0x8001)]
    return [*given, (0x3F83, 0x3FC0, 0x0001)]


def check_sixteen_bits(type_, cases):
    """Compare instructions on one number and on pairs with their oracles, which take three numbers."""
    given = triples(type_)
    words = [
        tuple(x | y << 16 for x, y in zip(*pair, strict=True))
        for pair in zip(given, given[::-1], strict=True)
    ]
    instructions = []
    for name, count, _ in cases:
        halves, pairs = ", ".join(["%h1", "%h2", "%h3"][:count]), ", ".join(["%a", "%b", "%c"][:count])
        instructions.append(f"{name}.{type_} %h7, {halves}; mov.b32 %d, {{%h7, %h7}}")
        instructions.append(f"{name}.{type_}x2 %d, {pairs}")
    for found in apply_all(instructions, words):
        for i, (name, _, oracle) in enumerate(cases):
            wanted = [oracle(*values) for values in given]
            for values, right, other, single, pair in zip(
                given, wanted, wanted[::-1], found[2 * i], found[2 * i + 1], strict=True
            ):
                case = name, [hex(x) for x in values], hex(single), hex(pair)
                assert matches(single & 0xFFFF, right), case
                assert matches(pair & 0xFFFF, right), case
                assert matches(pair >> 16, other), case


@pytest.mark.parametrize("type_", ["f16", "bf16"])
def test_arithmetic_of_sixteen_bits(type_):
    def oracle(name, modifier):
        def compute(*bits):
            return finished(arithmetic(name, *(value(one, type_) for one in bits)), type_, modifier)

        return compute

    cases = ARITHMETIC + (SATURATED if type_ == "f16" else [])
    check_sixteen_bits(
        type_,
        [
            (
                f"{name}{'.rn' if name == 'fma' else ''}{modifier}",
                3 if name == "fma" else 2,
                oracle(name, modifier),
            )
            for name, modifier in cases
        ],
    )


@pytest.mark.parametrize("type_", ["f16", "bf16"])
def test_the_smaller_and_the_larger_of_sixteen_bits(type_):
    def oracle(name):
        def compute(a, b, _):
            x, y = value(a, type_), value(b, type_)
            if math.isnan(x) or math.isnan(y):
                both = math.isnan(x) and math.isnan(y)
                return None if "NaN" in name or both else b if math.isnan(x) else a
            if x == y:
                return max(a, b) if name.startswith("min") else min(a, b)  # the sign of a zero
            return a if (x < y) == name.startswith("min") else b

        return compute

    check_sixteen_bits(type_, [(name, 2, oracle(name)) for name in ("min", "max", "min.NaN", "max.NaN")])


def test_denormal_halves_are_flushed_on_request():
    tiny, one, both = 0x8001, 0x3C00, 0x0001_8001
    assert apply("add.ftz.f16 %d, %a, %b", ["f16"] * 2, "f16", [tiny, tiny], [0, one]) == ([0, one],) * 2
    assert apply("add.f16 %d, %a, %b", ["f16"] * 2, "f16", [tiny], [0]) == ([tiny],) * 2
    assert apply("abs.ftz.f16x2 %d, %a", ["b32"], "b32", [both, 0x3C00_8001]) == ([0, 0x3C000000],) * 2
    assert (
        apply("mul.ftz.f16x2 %d, %a, %b", ["b32"] * 2, "b32", [0x0400_4000], [0x3800_3800]) == ([0x3C00],) * 2
    )
    assert apply("neg.ftz.f16 %d, %a", ["f16"], "f16", [tiny, one]) == ([0, 0xBC00],) * 2


@pytest.mark.parametrize("type_", ["f16", "bf16"])
def test_comparisons_of_pairs(type_):
    given = list(itertools.product(EDGES[type_], repeat=2))
    columns = [
        [x | y << 16 for x, y in zip(column, reversed(column), strict=True)]
        for column in zip(*given, strict=True)
    ]

    def less(a, b):
        x, y = value(a, type_), value(b, type_)
        return x < y

    wanted = [less(*pair) for pair in given]
    one = {"f16": 0x3C00, "bf16": 0x3F80}[type_]
    for instruction, yes, flag in (
        (f"set.lt.{type_}x2.{type_}x2 %d, %a, %b", one, None),
        (f"set.lt.u32.{type_}x2 %d, %a, %b", 0xFFFF, None),
        (
            f".reg .pred %p; setp.gt.u32 %p, %a, 0x80000000; set.lt.and.u32.{type_}x2 %d, %a, %b, %p",
            0xFFFF,
            "and",
        ),
        (
            f".reg .pred %p, %q; .reg .b32 %u, %v; setp.lt.{type_}x2 %p|%q, %a, %b; "
            "selp.b32 %u, 65535, 0, %p; selp.b32 %v, 0xffff0000, 0, %q; or.b32 %d, %u, %v",
            0xFFFF,
            None,
        ),
    ):
        for found in apply(instruction, ["b32"] * 2, "b32", *columns):
            for word, a, low, high in zip(found, columns[0], wanted, reversed(wanted), strict=True):
                both = a > 0x80000000 or not flag
                assert word == yes * (low and both) | yes * (high and both) << 16, instruction


# --- Conversions --------------------------------------------------------------------------------------------

PLAIN = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    0.1,
    65504.0,
    65519.9,
    65520.0,
    7e4,
    6e-8,
    2.9e-8,
    3e38,
    3.4e38,
    -1e-40,
    448.0,
    464.0,
]
PLAIN += [
    464.1,
    480.0,
    57344.0,
    61440.0,
    6.2e4,
    0.001953125,
    0.0009765625,
    0.00097657,
    0.015625,
    0.0146484375,
    math.inf,
    -math.inf,
    math.nan,
]
PLAIN += [1.00048828125, 1.0014648, 1.00390625, 1.01171875, -2.9, 1.5e-5, 2.3e-5, 7.7e-6, 1e-7]
SINGLES = [int(bits) for bits in np.array(PLAIN, np.float32).view(np.uint32)]
SINGLES += [0x3F801000, 0x3F803000, 0x3F800FFF, 0x7F7FF000, 0x7F7FFFFF, 0x3F808000, 0x3F818000]


def test_conversions_to_pairs():
    given = [(high, low, 0) for high, low in zip(SINGLES, SINGLES[1:] + SINGLES[:1], strict=True)]
    cases = [(type_, modifiers) for type_ in ("f16", "bf16") for modifiers in ("", ".relu", ".satfinite")]
    cases += [
        (type_, modifiers) for type_ in ("e4m3", "e5m2") for modifiers in (".satfinite", ".satfinite.relu")
    ]
    instructions = [
        f"cvt.rn{modifiers}.{type_}x2.f32 "
        + ("%d, %a, %b" if type_.endswith("f16") else "%h7, %a, %b; cvt.u32.u16 %d, %h7")
        for type_, modifiers in cases
    ]
    for found in apply_all(instructions, given):
        for (type_, modifiers), column in zip(cases, found, strict=True):
            size = sum(FORMATS[type_]) + 1
            for word, (high, low, _) in zip(column, given, strict=True):
                for part, bits in ((word >> size, high), (word & ((1 << size) - 1), low)):
                    right = encode(value(bits, "f32"), type_, "satfinite" in modifiers)
                    if right is None:
                        assert math.isnan(value(part, type_))
                    else:
                        right = 0 if "relu" in modifiers and bits >> 31 else right
                        assert part == right, (type_, modifiers, hex(bits), hex(part))


def test_numbers_of_eight_bits_made_halves():
    for type_ in ("e4m3", "e5m2"):
        pairs = [byte | (255 - byte) << 8 for byte in range(256)]
        for found in apply(f"cvt.rn.f16x2.{type_}x2 %d, %a", ["b16"], "b32", pairs):
            for pair, word in zip(pairs, found, strict=True):
                for byte, half in ((pair & 255, word & 0xFFFF), (pair >> 8, word >> 16)):
                    assert matches(half, encode(value(byte, type_), "f16")), (type_, hex(byte), hex(half))
        back = [
            encode(value(byte, type_), "f16") for byte in range(256) if not math.isnan(value(byte, type_))
        ]
        for found in apply(
            f"cvt.rn.satfinite.{type_}x2.f16x2 %d, %a", ["b32"], "b16", [x | 0x3C00_0000 for x in back]
        ):
            for half, word in zip(back, found, strict=True):
                assert word & 255 == encode(value(half, "f16"), type_, True)
                assert value(word >> 8, type_) == 1


def test_conversions_to_tf32():
    modes = {"rna": "away", "rn": "even", "rz": "down", "rna.satfinite": "away", "rn.relu": "even"}
    given = [(bits, 0, 0) for bits in SINGLES]
    for found in apply_all([f"cvt.{mode}.tf32.f32 %d, %a" for mode in modes], given):
        for (mode, ties), column in zip(modes.items(), found, strict=True):
            for bits, one in zip(SINGLES, column, strict=True):
                right = encode(value(bits, "f32"), "tf32", "satfinite" in mode, ties)
                if right is None:
                    assert one == (bits & 0xFFFFE000 if mode == "rna" else 0x7FFFFFFF)
                else:
                    assert one == (0 if "relu" in mode and bits >> 31 else right << 13), (
                        mode,
                        hex(bits),
                        hex(one),
                    )


def test_conversions_between_the_two_formats_of_sixteen_bits():
    for want, have in (("bf16", "f16"), ("f16", "bf16")):
        given = [*EDGES[have], *range(100, 1 << 16, 397)]
        for found in apply(f"cvt.rn.{want}.{have} %d, %a", [have], want, given):
            for bits, one in zip(given, found, strict=True):
                assert matches(one, encode(value(bits, have), want)), (have, hex(bits), hex(one))


@pytest.mark.parametrize(("want", "have"), [("bf16", "f16"), ("f16", "bf16")])
def test_conversions_between_the_two_formats_round_as_requested(want, have):
    given = [*EDGES[have], *range(100, 1 << 16, 397), 0x3BFF, 0xBBFF]
    for mode in ("rz", "rm", "rp"):
        lanes, scalars = apply(f"cvt.{mode}.{want}.{have} %d, %a", [have], want, given)
        for bits, one in zip(given * 2, lanes + scalars, strict=True):
            exact = value(bits, have)
            right = encode(exact, want, not isinstance(exact, float), "zero")
            if right is not None and value(right, want) != exact and mode == ("rp" if exact > 0 else "rm"):
                right += 1
            assert matches(one, right), (mode, hex(bits), hex(one))


@pytest.mark.parametrize("have", ["s32", "u32", "s64", "u64", "f64"])
@pytest.mark.parametrize("want", ["f16", "bf16"])
def test_conversions_to_sixteen_bits_round_once(want, have):
    bits = int(have[1:])
    given = [
        0,
        1,
        257,
        2049,
        65519,
        65520,
        0x8081,
        (1 << 24) + (1 << 16),
        (1 << 24) + (1 << 16) + 1,
        0x1017FFF,
    ]
    given += [(1 << 31) - 1, (1 << 32) - 1, 0x80800001, 0x80800000, 0x80000000, 0x0101_8000, 0x0101_8001]
    if bits == 64:
        given += [(1 << 63) + (1 << 55) + 1, (1 << 64) - 1, (1 << 62) + (1 << 54), (1 << 62) + (1 << 54) - 1]
    numbers = [signed(x, bits) if have[0] == "s" else x for x in given]
    if have == "f64":  # nearly in the middle of two numbers, closer than float32 can represent
        numbers = [
            1 + 2.0**-8,
            1 + 2.0**-8 + 2.0**-40,
            1 + 2.0**-11 + 2.0**-50,
            1 + 2.0**-11 - 2.0**-50,
            1e300,
        ]
        numbers += [-1e-300, 2.0**-25, 2.0**-25 + 2.0**-70, 2.0**-134, -(2.0**-134) - 2.0**-180, math.inf]
        given = [int(x) for x in np.array(numbers).view(np.uint64)]
    for found in apply(f"cvt.rn.{want}.{have} %d, %a", [f"b{bits}"], want, given):
        for x, one in zip(numbers, found, strict=True):
            assert matches(one, encode(x if x in (0, math.inf) else Fraction(x), want)), (x, hex(one))


@pytest.mark.parametrize("type_", ["f16", "bf16"])
def test_approximations_of_sixteen_bits(type_):
    given = [bits for bits in range(0, 1 << 16, 83) if not math.isnan(value(bits, type_))]
    plain = np.array([float(value(bits, type_)) for bits in given])
    with np.errstate(over="ignore"):
        exact = {"tanh.approx": np.tanh(plain), "ex2.approx": np.exp2(plain)}
    for name, error in (("tanh.approx", 2.0**-10.9), ("ex2.approx", 2.0**-9.9)):
        ftz = ".ftz" if (name, type_) == ("ex2.approx", "bf16") else ""
        error = error if type_ == "f16" else 2.0**-7
        for found in apply(f"{name}{ftz}.{type_} %d, %a", [type_], type_, given):
            near = np.array([float(value(bits, type_)) for bits in found])
            top = 65504.0 if type_ == "f16" else 3.38e38
            limited = np.minimum(exact[name], np.inf)
            with np.errstate(invalid="ignore"):  # of two infinities
                fine = np.abs(near - limited) <= error * np.maximum(np.abs(limited), 2.0**-14)
            assert (fine | (near == limited) | (limited > top)).all()


# --- Atomic operations on several numbers -------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["add", "min", "max"])
def test_atomic_operations_on_several_numbers(operation):
    """Each thread changes two pairs of halves; they are integers, so the order does not matter."""
    start = np.array([[100, -100], [0, 50]], np.float16)
    body = "cvt.rn.f16.s32 %h1, %t; sub.s32 %x1, 3, %t; cvt.rn.f16.s32 %h2, %x1; mov.b32 %x2, {%h1, %h2};"
    body += " mov.b32 %x3, {%h2, %h1};"
    body += f" atom.global.{operation}.noftz.v2.f16x2 {{%x4, %x5}}, [%a0], {{%x2, %x3}};"
    body += f" red.global.v2.noftz.{operation}.f16x2 [%a1], {{%x2, %x3}}; mov.u32 %x9, %x4;"
    body = ".reg .b16 %h<3>; " + body + "st.global.u32 [%out], %x9;"
    _, (first, second) = results(body, [start.view(np.uint32), start.view(np.uint32)])
    up, down = np.arange(32), 3 - np.arange(32)
    function = {
        "add": lambda x, y: x + y.sum(),
        "min": lambda x, y: min(x, y.min()),
        "max": lambda x, y: max(x, y.max()),
    }
    given = [[up, down], [down, up]]
    right = np.array(
        [[function[operation](float(start[i, j]), given[i][j]) for j in (0, 1)] for i in (0, 1)], np.float16
    )
    for found in (first, second):
        assert (np.array(found, np.uint32).view(np.float16).reshape(2, 2) == right).all()


def test_vectors_of_floats_are_added_one_by_one():
    body = "cvt.rn.f32.u32 %x1, %t; neg.f32 %x2, %x1; mov.f32 %x3, 0f3F800000;"
    body += (
        "atom.global.add.v4.f32 {%x4, %x5, %x6, %x7}, [%a0], {%x1, %x2, %x3, %x3}; cvt.rzi.u32.f32 %x9, %x6;"
    )
    found, (sums,) = results(
        body + "st.global.u32 [%out], %x9;", [np.array([1, 2, 3, 4], np.float32)], block=64
    )
    assert np.array(sums).tolist() == [1 + 2016, 2 - 2016, 3 + 64, 4 + 64]
    assert sorted(found) == list(range(3, 67))
