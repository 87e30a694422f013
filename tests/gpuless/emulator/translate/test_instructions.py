"""Each instruction, in lanes and as a scalar, against Python's integers and exact fractions."""

import functools
import itertools
import math
import struct
from fractions import Fraction

import numpy as np
import pytest
from ptx_programs import WIDTHS, apply, apply_all

from gpuless.emulator.translate import processor

INTEGERS = {
    bits: sorted(
        {value & ((1 << bits) - 1) for value in (0, 1, 2, 3, 7, 31, 32, 33, 100, -1, -2, -3, -100)}
        | {
            1 << (bits - 1),
            (1 << (bits - 1)) - 1,
            (1 << (bits - 1)) + 1,
            0x5A5A5A5A5A5A5A5A & ((1 << bits) - 1),
        }
    )
    for bits in (16, 32, 64)
}
FLOATS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    1.5,
    -2.5,
    0.1,
    -0.3,
    3.0,
    1e-3,
    1e10,
    -7.25e-12,
    65504.0,
    math.inf,
    -math.inf,
    math.nan,
]
TINY = {
    "f32": [1e-40, -3e-45, 1.17549435e-38, 3.4028235e38, 1.0000001],
    "f64": [5e-324, -1e-310, 1.7e308, -1e308, 1 + 2**-52],
}


def signed(value, bits):
    return value - (1 << bits) if value >> (bits - 1) & 1 else value


def bits_of(value, type_):
    form = {"f16": "<e", "f32": "<f", "f64": "<d"}[type_]
    return int.from_bytes(struct.pack(form, value), "little")


def number(bits, type_):
    form = {"f16": "<e", "f32": "<f", "f64": "<d"}[type_]
    return struct.unpack(form, bits.to_bytes(struct.calcsize(form), "little"))[0]


def operands(types):
    """Return all combinations of edge values, as one column for each operand."""
    columns = []
    for type_ in types:
        if type_ in ("f32", "f64"):
            columns.append([bits_of(value, type_) for value in FLOATS + TINY[type_]])
        else:
            columns.append(INTEGERS[int(type_[1:])])
    return list(zip(*itertools.product(*columns), strict=True))


def check(instruction, types, result, oracle):
    check_all([(instruction, types, result, oracle)])


def check_all(cases):
    """Check instructions with operands of the same width in one kernel, which compiles faster than many."""
    instructions, types, results, oracles = zip(*cases, strict=True)
    values = operands(types[0])
    for instruction, both, oracle in zip(
        instructions, apply_all(instructions, types[0], results, *values), oracles, strict=True
    ):
        wanted = [oracle(*given) for given in zip(*values, strict=True)]
        for found in both:
            for given, one, right in zip(zip(*values, strict=True), found, wanted, strict=True):
                if right is not None:
                    assert one == right, (instruction, [hex(x) for x in given], hex(one), hex(right))


# --- Integers ----------------------------------------------------------------------------------------------


def truncated(a, b):
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def integer_cases():
    for bits in (16, 32, 64):
        mask, s, u = (1 << bits) - 1, f"s{bits}", f"u{bits}"

        def of_signed(function, bits=bits, mask=mask):
            return lambda *x: function(*(signed(value, bits) for value in x)) & mask

        def plain(function, mask=mask):
            return lambda *x: function(*x) & mask

        yield f"add.{s} %d, %a, %b", [s, s], s, plain(lambda a, b: a + b)
        yield f"sub.{s} %d, %a, %b", [s, s], s, plain(lambda a, b: a - b)
        yield f"mul.lo.{s} %d, %a, %b", [s, s], s, plain(lambda a, b: a * b)
        yield f"mul.hi.{u} %d, %a, %b", [u, u], u, plain(lambda a, b, n=bits: a * b >> n)
        yield f"mul.hi.{s} %d, %a, %b", [s, s], s, of_signed(lambda a, b, n=bits: a * b >> n)
        yield f"mad.lo.{s} %d, %a, %b, %a", [s, s], s, plain(lambda a, b: a * b + a)
        yield f"min.{s} %d, %a, %b", [s, s], s, of_signed(min)
        yield f"max.{s} %d, %a, %b", [s, s], s, of_signed(max)
        yield f"min.{u} %d, %a, %b", [u, u], u, plain(min)
        yield f"max.{u} %d, %a, %b", [u, u], u, plain(max)
        yield f"neg.{s} %d, %a", [s], s, plain(lambda a: -a)
        yield f"abs.{s} %d, %a", [s], s, of_signed(abs)
        # Division by zero has no defined result, but must do no harm.
        yield f"div.{u} %d, %a, %b", [u, u], u, lambda a, b: a // b if b else None
        yield f"rem.{u} %d, %a, %b", [u, u], u, lambda a, b: a % b if b else None
        least = -(1 << (bits - 1))
        for name, function in (("div", truncated), ("rem", lambda a, b: a - b * truncated(a, b))):

            def oracle(a, b, function=function, bits=bits, mask=mask, least=least):
                x, y = signed(a, bits), signed(b, bits)
                return None if y == 0 or (x == least and y == -1) else function(x, y) & mask

            yield f"{name}.{s} %d, %a, %b", [s, s], s, oracle
        b = f"b{bits}"
        yield f"and.{b} %d, %a, %b", [b, b], b, plain(lambda x, y: x & y)
        yield f"or.{b} %d, %a, %b", [b, b], b, plain(lambda x, y: x | y)
        yield f"xor.{b} %d, %a, %b", [b, b], b, plain(lambda x, y: x ^ y)
        yield f"not.{b} %d, %a", [b], b, plain(lambda x: ~x)
        yield f"cnot.{b} %d, %a", [b], b, plain(lambda x: int(x == 0))
        yield f"shl.{b} %d, %a, %b", [b, "u32"], b, plain(lambda x, n, w=bits: x << n if n < w else 0)
        yield f"shr.{u} %d, %a, %b", [u, "u32"], u, plain(lambda x, n, w=bits: x >> n if n < w else 0)
        yield (
            f"shr.{s} %d, %a, %b",
            [s, "u32"],
            s,
            (lambda x, n, w=bits, m=mask: signed(x, w) >> min(n, w - 1) & m),
        )
        for how, function in (
            ("eq", "__eq__"),
            ("ne", "__ne__"),
            ("lt", "__lt__"),
            ("le", "__le__"),
            ("gt", "__gt__"),
        ):
            yield (
                f"setp.{how}.{s} %d, %a, %b",
                [s, s],
                "pred",
                (lambda x, y, f=function, w=bits: int(getattr(signed(x, w), f)(signed(y, w)))),
            )
            yield f"setp.{how}.{u} %d, %a, %b", [u, u], "pred", lambda x, y, f=function: int(getattr(x, f)(y))
        if bits < 64:
            wide = 2 * bits
            yield f"mul.wide.{u} %d, %a, %b", [u, u], f"u{wide}", lambda x, y: x * y
            yield (
                f"mul.wide.{s} %d, %a, %b",
                [s, s],
                f"s{wide}",
                (lambda x, y, n=bits: signed(x, n) * signed(y, n) & ((1 << 2 * n) - 1)),
            )
        if bits > 16:
            yield f"popc.{b} %d, %a", [b], "b32", lambda x: x.bit_count()
            yield f"clz.{b} %d, %a", [b], "b32", lambda x, n=bits: n - x.bit_length()
            yield f"brev.{b} %d, %a", [b], b, lambda x, n=bits: int(f"{x:0{n}b}"[::-1], 2)
            yield f"bfind.{u} %d, %a", [u], "u32", lambda x: x.bit_length() - 1 & 0xFFFFFFFF
            yield (
                f"bfind.{s} %d, %a",
                [s],
                "u32",
                (lambda x, n=bits: (~signed(x, n) if signed(x, n) < 0 else x).bit_length() - 1 & 0xFFFFFFFF),
            )
            yield f"bfe.{u} %d, %a, %b, 5", [u, "u32"], u, lambda x, p: x >> min(p & 255, 64) & 31
            yield f"bfi.{b} %d, %a, %b, 4, 8", [b, b], b, lambda x, y: y & ~0xFF0 | (x & 0xFF) << 4
    yield (
        "add.sat.s32 %d, %a, %b",
        ["s32", "s32"],
        "s32",
        (lambda a, b: max(-(1 << 31), min((1 << 31) - 1, signed(a, 32) + signed(b, 32))) & 0xFFFFFFFF),
    )
    for right, left in (("r", False), ("l", True)):

        def funnel(a, b, c, left=left):
            both, n = b << 32 | a, c & 31
            return (both << n >> 32 if left else both >> n) & 0xFFFFFFFF

        yield f"shf.{right}.wrap.b32 %d, %a, %b, %c", ["b32", "b32", "u32"], "b32", funnel

    def permute(a, b, c):
        given, result = [*a.to_bytes(4, "little"), *b.to_bytes(4, "little")], 0
        for i in range(4):
            nibble = c >> 4 * i & 15
            byte = given[nibble & 7]
            result |= (255 * (byte >> 7) if nibble & 8 else byte) << 8 * i
        return result

    yield "prmt.b32 %d, %a, %b, %c", ["b32", "b32", "b32"], "b32", permute
    for table in (0x96, 0xE8, 0xCA, 0x01):

        def look_up(a, b, c, table=table):
            return sum(
                (table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1) & 1) << i for i in range(32)
            )

        yield f"lop3.b32 %d, %a, %b, %c, {table}", ["b32", "b32", "b32"], "b32", look_up
    yield "sad.u32 %d, %a, %b, %a", ["u32", "u32"], "u32", lambda a, b: abs(a - b) + a & 0xFFFFFFFF
    yield (
        "sad.s32 %d, %a, %b, %a",
        ["s32", "s32"],
        "s32",
        (lambda a, b: abs(signed(a, 32) - signed(b, 32)) + a & 0xFFFFFFFF),
    )

    def dot(a, b, c):
        pairs = zip(a.to_bytes(4, "little"), b.to_bytes(4, "little"), strict=True)
        return c + sum(signed(x, 8) * signed(y, 8) for x, y in pairs) & 0xFFFFFFFF

    yield "dp4a.s32.s32 %d, %a, %b, %c", ["b32", "b32", "b32"], "b32", dot


def by_widths(cases):
    """Return lists of cases, by the width of their operands."""
    groups = {}
    for case in cases:
        groups.setdefault(tuple(WIDTHS[type_] for type_ in case[1]), []).append(case)
    return groups


INTEGER_CASES = by_widths(integer_cases())


@pytest.mark.parametrize("widths", INTEGER_CASES, ids=str)
def test_integer_instructions(widths):
    check_all(INTEGER_CASES[widths])


def integer_range(type_):
    """Return the least and the greatest integer of a type."""
    bits = int(type_[1:])
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if type_[0] == "s" else (0, (1 << bits) - 1)


@pytest.mark.parametrize("have", ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"])
def test_conversions_between_integers(have):
    size = int(have[1:])

    def case(want, saturate):
        def oracle(x):
            x &= (1 << size) - 1
            x = signed(x, size) if have[0] == "s" else x
            bits = int(want[1:])
            if saturate:
                low, high = integer_range(want)
                x = max(low, min(high, x))
            x &= (1 << bits) - 1
            return (signed(x, bits) if want[0] == "s" else x) & ((1 << max(16, bits)) - 1)

        instruction = f"cvt{'.sat' if saturate else ''}.{want}.{have} %d, %a"
        return instruction, [f"b{max(16, size)}"], f"b{max(16, int(want[1:]))}", oracle

    wanted = ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"]
    check_all([case(want, saturate) for want in wanted for saturate in (False, True)])


# --- Floating point ----------------------------------------------------------------------------------------


def nearest(exact, type_, mode="rn"):
    """Return the bits of a fraction rounded to a type, found among the neighbours of the nearest double."""
    with np.errstate(over="ignore"):
        guess = {"f32": np.float32, "f64": np.float64}[type_]
        try:
            start = guess(float(exact))
        except OverflowError:
            start = guess(math.inf if exact > 0 else -math.inf)
        around = [np.nextafter(start, guess(-math.inf)), start, np.nextafter(start, guess(math.inf))]
    most = np.finfo(guess).max
    finite = [x for x in around if math.isfinite(x)]
    if mode == "rn":
        if abs(exact) > Fraction(float(most)) or not finite:
            return None  # overflow is checked with numpy
        best = min(finite, key=lambda x: (abs(Fraction(float(x)) - exact), bits_of(float(x), type_) & 1))
        return bits_of(float(best), type_)
    if abs(exact) > Fraction(float(most)):
        endless = mode == ("rp" if exact > 0 else "rm")
        return bits_of((1 if exact > 0 else -1) * (math.inf if endless else float(most)), type_)
    if mode == "rm" or (mode == "rz" and exact > 0):
        return bits_of(float(max(x for x in finite if Fraction(float(x)) <= exact)), type_)
    return bits_of(float(min(x for x in finite if Fraction(float(x)) >= exact)), type_)


def float_oracle(function, type_, mode, addends=None):
    """Return an oracle that computes with fractions; the sign of zero comes from the terms."""

    def oracle(*given):
        values = [number(bits, type_) for bits in given]
        if not all(map(math.isfinite, values)):
            return None
        try:
            exact = function(*map(Fraction, values))
        except ZeroDivisionError:
            return None
        if exact:
            return nearest(exact, type_, mode)
        signs = {math.copysign(1, x) for x in addends(*values)}
        return bits_of(math.copysign(0.0, min(signs) if mode == "rm" else max(signs)), type_)

    return oracle


# The function, for fractions, and the last term, for floats.
ARITHMETIC = {
    "add": ("%a, %b", lambda a, b: a + b, lambda a, b: (a, b)),
    "sub": ("%a, %b", lambda a, b: a - b, lambda a, b: (a, -b)),
    "mul": ("%a, %b", lambda a, b: a * b, lambda a, b: (a * b,)),
    "fma": ("%a, %b, %c", lambda a, b, c: a * b + c, lambda a, b, c: (a * b, c)),
}


@pytest.fixture(params=["by the processor", "by its error"])
def direction(request, monkeypatch, tmp_path):
    """Round lanes by the processor if possible, or as on processors that cannot."""
    if request.param == "by its error":
        monkeypatch.setenv("GPULESS_CACHE", str(tmp_path))  # without machine code of the other case
        monkeypatch.setattr(processor, "embeds_rounding", lambda: False)
    elif not processor.embeds_rounding():
        pytest.skip("this processor's instructions do not say how they round")


@functools.cache
def arithmetic_cases(name, type_):
    """Return the checks of an operation. Fractions take long: the second direction reuses the results."""
    operands, *functions = ARITHMETIC[name]
    types = [type_] * operands.count("%")
    return [
        (
            f"{name}.{mode}.{type_} %d, {operands}",
            types,
            type_,
            functools.cache(float_oracle(functions[0], type_, mode, functions[1])),
        )
        for mode in ("rn", "rz", "rm", "rp")
    ]


@pytest.mark.usefixtures("direction")
@pytest.mark.parametrize("type_", ["f32", "f64"])
@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic_rounds_as_requested(name, type_):
    check_all(arithmetic_cases(name, type_))


@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_division_and_roots_are_rounded_to_nearest(type_):
    dtype = {"f32": np.float32, "f64": np.float64}[type_]
    with np.errstate(all="ignore"):
        check(f"div.rn.{type_} %d, %a, %b", [type_] * 2, type_, ieee(lambda a, b: a / b, dtype, type_))
        check(f"rcp.rn.{type_} %d, %a", [type_], type_, ieee(lambda a: dtype(1) / a, dtype, type_))
        check(f"sqrt.rn.{type_} %d, %a", [type_], type_, ieee(np.sqrt, dtype, type_))


@pytest.mark.usefixtures("direction")
@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_division_and_roots_round_as_requested(type_, mode):
    oracle = float_oracle(lambda a, b: a / b, type_, mode, lambda a, b: (a * math.copysign(1, b),))
    check(f"div.{mode}.{type_} %d, %a, %b", [type_] * 2, type_, oracle)
    check(f"rcp.{mode}.{type_} %d, %a", [type_], type_, float_oracle(lambda a: 1 / a, type_, mode))

    def root(bits):
        x = number(bits, type_)
        if not 0 < x < math.inf:
            return None
        dtype = {"f32": np.float32, "f64": np.float64}[type_]
        near = dtype(math.sqrt(x))
        around = [np.nextafter(near, dtype(-math.inf)), near, np.nextafter(near, dtype(math.inf))]
        squares = [(y, Fraction(float(y)) ** 2) for y in around]
        if mode == "rp":
            return bits_of(float(min(y for y, square in squares if square >= Fraction(x))), type_)
        return bits_of(float(max(y for y, square in squares if square <= Fraction(x))), type_)

    check(f"sqrt.{mode}.{type_} %d, %a", [type_], type_, root)


def ieee(function, dtype, type_):
    """Return an oracle that lets NumPy compute; a NaN is any NaN."""

    def oracle(*given):
        found = function(*(dtype(number(bits, type_)) for bits in given))
        return None if np.isnan(found) else bits_of(float(found), type_)

    return oracle


@pytest.mark.parametrize("type_", ["f32", "f64"])
@pytest.mark.parametrize("name", ["add", "mul", "min", "max"])
def test_zeros_infinities_and_overflow(name, type_):
    dtype = {"f32": np.float32, "f64": np.float64}[type_]
    functions = {"add": lambda a, b: a + b, "mul": lambda a, b: a * b}

    def smaller(a, b):
        if np.isnan(a) or np.isnan(b):
            return b if np.isnan(a) else a
        if a == b == 0:
            return a if np.signbit(a) == (name == "min") else b
        return min(a, b) if name == "min" else max(a, b)

    with np.errstate(all="ignore"):
        check(
            f"{name}.{type_} %d, %a, %b", [type_] * 2, type_, ieee(functions.get(name, smaller), dtype, type_)
        )


@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_comparisons_and_nans(type_):
    def case(how):
        def oracle(a, b):
            x, y = number(a, type_), number(b, type_)
            unordered = math.isnan(x) or math.isnan(y)
            if how in ("num", "nan"):
                return int(unordered == (how == "nan"))
            if unordered:
                return int(how.endswith("u"))
            return int({"eq": x == y, "ne": x != y, "lt": x < y, "ge": x >= y}[how[:2]])

        return f"setp.{how}.{type_} %d, %a, %b", [type_] * 2, "pred", oracle

    check_all(map(case, ["eq", "ne", "lt", "ge", "equ", "neu", "ltu", "geu", "num", "nan"]))


@pytest.mark.parametrize("mode", ["rzi", "rni", "rmi", "rpi"])
@pytest.mark.parametrize("have", ["f32", "f64"])
def test_conversions_to_integers_saturate(have, mode):
    rounding = {"rzi": math.trunc, "rni": round, "rmi": math.floor, "rpi": math.ceil}[mode]

    def case(want):
        bits = int(want[1:])
        low, high = integer_range(want)

        def oracle(a):
            x = number(a, have)
            if math.isnan(x):
                return None
            if math.isinf(x):
                return (high if x > 0 else low) & ((1 << bits) - 1)
            return max(low, min(high, rounding(x))) & ((1 << bits) - 1)

        return f"cvt.{mode}.{want}.{have} %d, %a", [have], want, oracle

    check_all(map(case, ["s32", "u32", "s64", "u64", "s16", "u16"]))


@pytest.mark.parametrize("have", ["s32", "u32", "s64", "u64"])
def test_conversions_of_integers_round_as_requested(have):
    bits = int(have[1:])

    def case(want, mode):
        def oracle(a):
            value = signed(a, bits) if have[0] == "s" else a
            return 0 if value == 0 else nearest(Fraction(value), want, mode)

        return f"cvt.{mode}.{want}.{have} %d, %a", [have], want, oracle

    check_all(case(want, mode) for want in ("f32", "f64") for mode in ("rn", "rz", "rm", "rp"))


def test_halves():
    values = [
        bits_of(value, "f16") for value in (0.0, -0.0, 1.0, -1.5, 65504.0, 6e-8, 0.1, math.inf, -math.inf)
    ]
    found = apply("cvt.f32.f16 %d, %a", ["f16"], "f32", values)
    assert found == ([bits_of(number(bits, "f16"), "f32") for bits in values],) * 2
    wide = [bits_of(value, "f32") for value in (0.1, 1e-8, 70000.0, -2.0009766, 3.14159, 6e-8)]
    with np.errstate(over="ignore"):
        right = [int(np.float16(number(bits, "f32")).view(np.uint16)) for bits in wide]
    assert apply("cvt.rn.f16.f32 %d, %a", ["f32"], "f16", wide) == (right, right)
    brain = [(bits + 0x7FFF + (bits >> 16 & 1)) >> 16 for bits in wide]
    assert apply("cvt.rn.bf16.f32 %d, %a", ["f32"], "bf16", wide) == (brain, brain)


@pytest.mark.parametrize(
    ("instruction", "function", "error"),
    [
        ("ex2.approx.ftz.f32", np.exp2, 2**-22),
        ("lg2.approx.ftz.f32", np.log2, 2**-22),
        ("rsqrt.approx.ftz.f32", lambda x: 1 / np.sqrt(x), 2**-22.4),
        ("rcp.approx.ftz.f32", lambda x: 1 / x, 2**-23),
        ("sqrt.approx.ftz.f32", np.sqrt, 2**-23),
    ],
)
def test_approximations_are_as_good_as_documented(instruction, function, error):
    x = np.concatenate([np.geomspace(1e-30, 1e30, 1500), np.linspace(0.01, 4, 1500)]).astype(np.float32)
    if "ex2" in instruction:
        x = np.concatenate([np.linspace(-126, 127.9, 4000), [-0.5, 0.5, 1e-20]]).astype(np.float32)
    bits = x.view(np.uint32).tolist()
    exact = function(x.astype(np.float64))
    for found in apply(f"{instruction} %d, %a", ["f32"], "f32", bits):
        near = np.array(found, np.uint32).view(np.float32).astype(np.float64)
        scale = np.maximum(np.abs(exact), 1 if "lg2" in instruction else 0)
        assert (np.abs(near - exact) / scale).max() <= error


def test_flushing_denormals():
    tiny = bits_of(1e-40, "f32")
    one = bits_of(1.0, "f32")
    assert apply("add.ftz.f32 %d, %a, %b", ["f32", "f32"], "f32", [tiny], [0]) == ([0], [0])
    assert apply("add.f32 %d, %a, %b", ["f32", "f32"], "f32", [tiny], [0]) == ([tiny], [tiny])
    assert apply("add.sat.f32 %d, %a, %b", ["f32", "f32"], "f32", [one], [one]) == ([one], [one])
    nan = bits_of(math.nan, "f32")
    assert apply("add.sat.f32 %d, %a, %b", ["f32", "f32"], "f32", [nan], [one]) == ([0], [0])
    for mode, types, given, right in (
        (".ftz", ("f32", "f16"), 0x0001, 0x33800000),
        (".rn.ftz", ("f16", "f32"), bits_of(2.0**-15, "f32"), 0x0200),
        (".rn.ftz", ("f16", "f32"), tiny, 0),
        (".rn.ftz", ("f32", "f64"), bits_of(1e-40, "f64"), 0),
        (".rn", ("f32", "f64"), bits_of(1e-40, "f64"), tiny),
        (".rpi.ftz", ("s32", "f32"), tiny, 0),
        (".rpi.ftz", ("s32", "f16"), 0x0001, 1),
    ):
        want, have = types
        assert apply(f"cvt{mode}.{want}.{have} %d, %a", [have], want, [given]) == ([right], [right]), types
