"""Floating point instructions, in IR.

Results follow IEEE 754 wherever PTX does; approximate instructions are more accurate than PTX promises.
"""

import math

from gpuless.emulator.ptx import BITS
from gpuless.emulator.translate import processor
from gpuless.emulator.translate.typed import Integers, Typed, joined, operands_of
from gpuless.emulator.translate.values import Shape, translates


def set_float(t, instruction, compute, count=2):
    """Set a floating point result of `compute`, with flushing, saturation and ReLU as the opcode says."""
    type_ = instruction.opcode[-1]

    def make(s, *names):
        f = Typed(t, s, type_)
        numbers = [f.to_float(f.flush(name)) for name in names]
        result = compute(f, *numbers)
        if "sat" in instruction.opcode:
            result = f.saturate(result)
        if "relu" in instruction.opcode:
            result = f.relu(result)
        return f.flush(f.to_int(result))

    t.set(make, *operands_of(t, instruction, *[type_] * count))


_WORDS = {"add": "fadd", "sub": "fsub", "mul": "fmul"}


def float_arithmetic(t, instruction, name):
    """Write a sum, a difference or a product, with the instruction's rounding."""
    rounding = direction(instruction)

    def compute(f, a, b):
        if rounding:
            return rounded(t, f, name, rounding, a, b)
        return t.new(f"{_WORDS[name]} {f.float} {a}, {b}")

    set_float(t, instruction, compute)


def rounded(t, f, name, rounding, a, b, c=None):
    """Return a result rounded towards zero (rz), down (rm) or up (rp).

    If the processor has no instruction for that, it is rounded to the nearest first. The sign of the exact
    error then says on which side of the true result that is.
    """
    if _has_rounding(f):
        operands = (a, b) if c is None else (a, b, c)
        return _rounded_by_processor(t, f, name, rounding, *operands)
    if name in ("add", "sub"):
        a, b, c = a, f.number(1.0), t.new(f"fneg {f.float} {b}") if name == "sub" else b
        near = f("fadd", a, c)
    elif name == "mul":
        c = f.number(0.0)
        near = f("fmul", a, b)
    else:
        near = f.call("fma", a, b, c)
    error = _unless_too_large(t, f, near, _error_of_fma(t, f, a, b, c, near), a, b, c)
    found = toward(t, f, rounding, near, error)
    return found if rounding != "rm" or name == "mul" else _zero_below(t, f, found, near, error, a, b, c)


# Rounding control of AVX-512: the direction, and no exceptions.
_EMBEDDED = {"rm": 1 | 8, "rp": 2 | 8, "rz": 3 | 8}
_REGISTER = {"float": 16, "double": 8}  # numbers in a register


def _has_rounding(f):
    """Return whether the processor's instructions for this type have a rounding mode."""
    return f.element in _REGISTER and processor.embeds_rounding()


def _rounded_by_processor(t, f, name, rounding, *operands):
    """Return a result rounded in a direction by AVX-512; registers need not be full."""
    size, count = _REGISTER[f.element], f.count
    type_, word = f"<{size} x {f.element}>", "vfmadd" if name == "fma" else name
    suffix = "ps" if f.element == "float" else "pd"
    function = f"@llvm.x86.avx512.{word}.{suffix}.512"
    t.module.declare(f"{type_} {function}({', '.join([type_] * len(operands))}, i32)")
    if count == 1:
        operands = [t.new(f"insertelement <1 x {f.element}> poison, {f.float} {x}, i64 0") for x in operands]
    parts = []
    for first in range(0, count, size):
        picks = [place % count for place in range(first, first + size)]
        given = (t.shuffle(x, None, f.element, count, picks) for x in operands)
        arguments = ", ".join(f"{type_} {x}" for x in given)
        parts.append(t.new(f"call {type_} {function}({arguments}, i32 {_EMBEDDED[rounding]})"))
    size *= len(parts)
    whole = joined(t, parts, f.element, size)
    if count == 1:
        return t.new(f"extractelement <{size} x {f.element}> {whole}, i64 0")
    return whole if size == count else t.shuffle(whole, None, f.element, size, range(count))


def _error_of_fma(t, f, a, b, c, near):
    """Return ``a * b + c - near``, or just a number with its sign."""
    if f.bits == 32:
        # In double precision the product is exact and cannot underflow.
        g = Typed(t, f.shape, "f64")
        a, b, c, near = (f.cast("fpext", x, g.float) for x in (a, b, c, near))
        product, low = g("fmul", a, b), g.number(0.0)
    else:
        g = f
        a, b, c, near = _in_range(t, g, a, b, c, near)
        product = g("fmul", a, b)
        low = g.call("fma", a, b, t.new(f"fneg {g.float} {product}"))
        # A product that underflows to zero still has a sign.
        one, other = (g.call("copysign", 1.0, x) for x in (a, b))
        sign = g("fmul", one, other)
        flag = Integers(t, f.shape, 1)
        some = [g("fcmp one", x, 0.0) for x in (a, b)]
        lost = flag("and", flag("and", *some), g("fcmp oeq", product, 0.0))
        low = g.select(lost, sign, low)
    total = g("fadd", product, c)
    rest = _error_of_sum(g, product, c, total)
    off = g("fsub", total, near)
    error = g("fadd", g("fadd", off, rest), low)
    if g is f:
        return error
    # Only its sign is needed, which a conversion could lose.
    above, below = g("fcmp ogt", error, 0.0), g("fcmp olt", error, 0.0)
    return f.select(below, -1.0, f.select(above, 1.0, 0.0))


def _in_range(t, f, a, b, c, near):
    """Return the operands of a product and a sum, all scaled alike if its error would be lost.

    That happens if all of them are small, or if the product alone overflows.
    """
    flag, one = Integers(t, f.shape, 1), 1.0
    sizes = [f.call("fabs", x) for x in (near, c, f("fmul", a, b))]
    ends = [("olt", 2.0**-900), ("olt", 2.0**-700), ("oeq", math.inf)]
    little, beside, endless = (f(f"fcmp {word}", x, end) for x, (word, end) in zip(sizes, ends, strict=True))
    by = f.select(endless, 2.0**-600, one)
    by = f.select(flag("and", little, beside), 2.0**600, by)
    # Scale the factor that stays exact.
    growing = f("fcmp olt", f.call("fabs", a), one)
    first = flag("xor", growing, endless)
    scales = f.select(first, by, one), f.select(first, one, by), by, by
    return [f("fmul", x, scale) for x, scale in zip((a, b, c, near), scales, strict=True)]


def _error_of_sum(f, a, b, total):
    # Knuth, "The art of computer programming", volume 2, 4.2.2, theorem B.
    late = f("fsub", total, a)
    early = f("fsub", total, late)
    return f("fadd", f("fsub", a, early), f("fsub", b, late))


def _unless_too_large(t, f, near, error, *operands):
    """Return the error; if finite operands have an infinite result, one that leads back to finite numbers."""
    beyond = f("fcmp oeq", f.call("fabs", near), math.inf)
    for operand in operands:
        finite = f("fcmp one", f.call("fabs", operand), math.inf)
        beyond = Integers(t, f.shape, 1)("and", beyond, finite)
    return f.select(beyond, t.new(f"fneg {f.float} {near}"), error)


def _zero_below(t, f, found, near, error, a, b, c):
    """Return a sum rounded down: it is -0 if a product and a number with different signs add up to 0."""
    signs = f.bitwise("xor", f.to_int(a), f.to_int(b))
    signs = f.bitwise("xor", signs, f.to_int(c))
    unlike = f.bitwise("icmp slt", signs, 0)
    for number in (near, error):
        unlike = Integers(t, f.shape, 1)("and", unlike, f("fcmp oeq", number, 0.0))
    return f.select(unlike, -0.0, found)


def toward(t, f, rounding, near, error):
    """Return a rounded result, or its neighbour if the error says that it is on the wrong side."""
    flag = Integers(t, f.shape, 1)
    below = f("fcmp olt", error, 0.0)  # the true result is below
    above = f("fcmp ogt", error, 0.0)
    bits = f.to_int(near)
    negative = f.bitwise("icmp slt", bits, 0)  # zeros have signs, too
    if rounding == "rm":
        wrong, away = below, negative
    elif rounding == "rp":
        wrong, away = above, flag("xor", negative, True)
    else:
        wrong, away = flag.select(negative, above, below), flag.number(False)
    step = f.bitwise.select(away, 1, -1)
    moved = f.bitwise("add", bits, step)
    chosen = f.bitwise.select(wrong, moved, bits)
    return f.to_float(chosen)


@translates("fma")
def fma(t, instruction):
    """Write a fused multiply-add."""
    rounding = direction(instruction)

    def compute(f, a, b, c):
        if rounding:
            return rounded(t, f, "fma", rounding, a, b, c)
        return _fused_narrow(t, f, a, b, c) if f.packed or f.bits == 16 else f.call("fma", a, b, c)

    if "oob" in instruction.opcode:
        t.refuse()

    set_float(t, instruction, compute, count=3)


def _fused_narrow(t, f, a, b, c):
    """Return a fused multiply-add of 16-bit numbers, by way of float32 rounded to odd."""
    g = Typed(t, Shape(f.count), "f32")
    if f.element == "half":
        a, b, c = (f.cast("fpext", x, g.float) for x in (a, b, c))
    near = g.call("fma", a, b, c)
    found = g.odd(near, _error_of_fma(t, g, a, b, c, near))
    return found if f.bfloat else g.cast("fptrunc", found, f.float)


def float_divide(t, instruction):
    """Write a division."""
    set_float(t, instruction, lambda f, a, b: _quotient(t, f, instruction, a, b))


def _quotient(t, f, instruction, a, b):
    rounding = direction(instruction)
    if rounding and _has_rounding(f):
        return _rounded_by_processor(t, f, "div", rounding, a, b)
    near = f("fdiv", a, b)
    if not rounding:
        return near
    # The remainder has the sign of the error if the divisor is positive.
    over, minus, under = a, t.new(f"fneg {f.float} {near}"), b
    if f.bits == 64:
        over, minus, under = _enlarged(f, over, minus, under)
    rest = _error_of_fma(t, f, minus, under, over, f.number(0.0))
    sign = f.call("copysign", 1.0, b)
    error = f("fmul", rest, sign)
    divided = f("fcmp one", b, 0.0)  # a division by zero is infinite
    finite = _unless_too_large(t, f, near, error, a, b)
    error = f.select(divided, finite, error)
    return toward(t, f, rounding, near, error)


def _enlarged(f, a, near, b):
    """Return the operands of a remainder, scaled up if the remainder would underflow."""

    def factor(of, end, small, large):
        less = f("fcmp olt", f.call("fabs", of), end)
        return f.select(less, small, large)

    by = factor(a, 2.0**-400, 2.0**600, 1.0)
    scales = by, factor(b, 1.0, 1.0, by), factor(b, 1.0, by, 1.0)
    return [f("fmul", x, scale) for x, scale in zip((a, near, b), scales, strict=True)]


def direction(instruction):
    """Return the rounding direction of an instruction, None for the nearest."""
    return next((part for part in instruction.opcode if part in ("rz", "rm", "rp")), None)


@translates("rcp")
def _rcp(t, instruction):
    set_float(t, instruction, lambda f, a: _quotient(t, f, instruction, f.number(1.0), a), count=1)


@translates("sqrt", "rsqrt")
def _sqrt(t, instruction):
    def compute(f, a):
        rounding = direction(instruction)
        if rounding and _has_rounding(f):
            return _rounded_by_processor(t, f, "sqrt", rounding, a)
        root = f.call("sqrt", a)
        if instruction.opcode[0] == "rsqrt":
            return f("fdiv", 1.0, root)
        if not rounding:
            return root
        rest = _error_of_fma(t, f, t.new(f"fneg {f.float} {root}"), root, a, f.number(0.0))
        return toward(t, f, rounding, root, rest)

    set_float(t, instruction, compute, count=1)


def float_minimum(t, instruction):
    """Write a minimum or maximum; of a NaN and a number it is the number, unless the opcode has NaN."""
    opcode = instruction.opcode
    word = ("minimum" if opcode[0] == "min" else "maximum") if "NaN" in opcode else opcode[0] + "num"

    def compute(f, a, b):
        if "xorsign" in opcode:
            sign = f.bitwise("xor", f.to_int(a), f.to_int(b))
            found = f.call(word, f.call("fabs", a), f.call("fabs", b))
            return f.call("copysign", found, f.to_float(sign))
        found = f.call(word, a, b)
        if "NaN" in opcode:
            return found
        # -0 is smaller than +0.
        exact = f.call("minimum" if opcode[0] == "min" else "maximum", a, b)
        same = f("fcmp oeq", a, b)
        return f.select(same, exact, found)

    set_float(t, instruction, compute)


@translates("copysign")
def _copysign(t, instruction):
    set_float(t, instruction, lambda f, a, b: f.call("copysign", b, a))


@translates("testp")
def _testp(t, instruction):
    what, type_ = instruction.opcode[1], instruction.opcode[-1]
    classes = {
        "finite": 0x1F8,
        "infinite": 0x204,
        "number": 0x3FC,
        "notanumber": 0x3,
        "normal": 0x108,
        "subnormal": 0x90,
    }

    def make(s, a):
        f = Typed(t, s, type_)
        t.module.declare(f"{s.int(1)} @llvm.is.fpclass.{f.suffix}({f.float}, i32)")
        return t.new(
            f"call {s.int(1)} @llvm.is.fpclass.{f.suffix}({f.float} {f.to_float(a)}, i32 {classes[what]})"
        )

    t.set(make, *operands_of(t, instruction, type_))


# --- Approximations -----------------------------------------------------------------------------------------


def _polynomial(f, x, coefficients):
    """Return a polynomial by Horner's rule, the highest power first."""
    total = f.number(coefficients[0])
    for coefficient in coefficients[1:]:
        total = f.call("fma", total, x, coefficient)
    return total


# 2^x on [-1/2, 1/2]: the series of exp(x ln 2) up to the seventh power, with an error below 2^-26.
_EX2 = (1.5252733804e-5, 1.5403530394e-4, 1.3333558146e-3, 9.6181291076e-3, 5.5504108665e-2)
_EX2 += (0.24022650696, 0.69314718056, 1.0)


@translates("ex2")
def _ex2(t, instruction):
    type_ = instruction.opcode[-1]
    if BITS[type_] == 16 or type_.endswith("x2"):
        set_float(t, instruction, lambda f, a: f.call("exp2", a), count=1)
        return

    def compute(f, a):
        # Beyond these limits results are infinite or zero; a NaN stays a NaN.
        below, above = f("fcmp olt", a, -160.0), f("fcmp ogt", a, 160.0)
        x = f.select(above, 160.0, f.select(below, -160.0, a))
        whole = f.call("roundeven", x)
        fraction = f("fsub", x, whole)
        power = _polynomial(f, fraction, _EX2)
        # For a NaN it is any number: the power is a NaN anyway.
        i = Integers(t, f.shape, 32)
        exponent = t.new(f"freeze {i.type} {f.cast('fptosi', whole, i.type)}")
        # Two factors, so that neither leaves the range of exponents.
        half = i("ashr", exponent, 1)
        for part in (half, i("sub", exponent, half)):
            power = f("fmul", power, f.to_float(i("shl", i("add", part, 127), 23)))
        return power

    set_float(t, instruction, compute, count=1)


@translates("lg2")
def _lg2(t, instruction):
    _in_double(t, instruction, "log2")


@translates("sin", "cos", "tanh")
def _trigonometry(t, instruction):
    _in_double(t, instruction, instruction.opcode[0])


def _in_double(t, instruction, function):
    """Compute a rare function in double precision, lane by lane, with the C library."""

    def compute(f, a):
        g = Typed(t, Shape(f.count), "f64")
        return g.change(f, g.call(function, f.change(g, a)))

    set_float(t, instruction, compute, count=1)
