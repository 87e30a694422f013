"""Floating point instructions, in IR.

Where PTX promises IEEE 754 that is what is computed; approximate instructions are better than they promise.
"""

import math

from gpuless.emulator.ptx import BITS
from gpuless.emulator.translate import processor
from gpuless.emulator.translate.typed import Integers, Typed, operands_of
from gpuless.emulator.translate.values import Shape, translates


def set_float(t, instruction, compute, type_=None, count=2):
    """Set a floating point result: operands flushed and turned, the result turned back."""
    type_ = type_ or instruction.opcode[-1]

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
    """Write a sum, a difference or a product, rounded as asked for."""
    rounding = direction(instruction)

    def compute(f, a, b):
        if rounding:
            return rounded(t, f, name, rounding, a, b)
        return t.new(f"{_WORDS[name]} {f.float} {a}, {b}")

    set_float(t, instruction, compute)


def rounded(t, f, name, rounding, a, b, c=None):
    """Return a result rounded towards zero (rz), down (rm) or up (rp).

    Where no instruction of the processor does that, it is rounded to the nearest first; then the exact error
    tells on which side of the true result that lies.
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


# Of AVX-512: the direction, and that no exception is raised.
_EMBEDDED = {"rm": 1 | 8, "rp": 2 | 8, "rz": 3 | 8}
_REGISTER = {"float": 16, "double": 8}  # numbers of a register


def _has_rounding(f):
    """Return whether the processor's instructions for such numbers can say how they are rounded."""
    return f.element in _REGISTER and processor.embeds_rounding()


def _rounded_by_processor(t, f, name, rounding, *operands):
    """Return a result rounded as asked for, of vectors in registers that need not be full."""
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
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [t.shuffle(a, b, f.element, size, range(2 * size)) for a, b in pairs]
        size *= 2
    if count == 1:
        return t.new(f"extractelement <{size} x {f.element}> {parts[0]}, i64 0")
    return parts[0] if size == count else t.shuffle(parts[0], None, f.element, size, range(count))


def _error_of_fma(t, f, a, b, c, near):
    """Return a number with the sign of ``a * b + c - near``, or its value."""
    if f.bits == 32:
        # In double precision the product is exact, and none is too small.
        g = Typed(t, f.shape, "f64")
        a, b, c, near = (f.cast("fpext", x, g.float) for x in (a, b, c, near))
        product, low = g("fmul", a, b), g.number(0.0)
    else:
        g = f
        a, b, c, near = _in_range(t, g, a, b, c, near)
        product = g("fmul", a, b)
        low = g.call("fma", a, b, t.new(f"fneg {g.float} {product}"))
        # Of a product too small for any number its sign is left.
        one, other = (g.call("copysign", 1.0, x) for x in (a, b))
        sign = g("fmul", one, other)
        flag = Integers(t, f.shape, 1)
        some = [g("fcmp one", x, 0.0) for x in (a, b)]
        lost = flag("and", flag("and", *some), g("fcmp oeq", product, 0.0))
        low = g.select(lost, sign, low)
    total = g("fadd", product, c)
    rest = _error_of_sum(t, g, product, c, total)
    off = g("fsub", total, near)
    error = g("fadd", g("fadd", off, rest), low)
    if g is f:
        return error
    # Its sign is all that is wanted, and must not be lost on the way back.
    above, below = g("fcmp ogt", error, 0.0), g("fcmp olt", error, 0.0)
    return f.select(below, -1.0, f.select(above, 1.0, 0.0))


def _in_range(t, f, a, b, c, near):
    """Return the numbers of a product and a sum, all scaled alike where its error would be lost.

    That is so where all of them are small, and where the product alone is too large.
    """
    flag, one = Integers(t, f.shape, 1), 1.0
    sizes = [f.call("fabs", x) for x in (near, c, f("fmul", a, b))]
    ends = [("olt", 2.0**-900), ("olt", 2.0**-700), ("oeq", math.inf)]
    little, beside, endless = (f(f"fcmp {word}", x, end) for x, (word, end) in zip(sizes, ends, strict=True))
    by = f.select(endless, 2.0**-600, one)
    by = f.select(flag("and", little, beside), 2.0**600, by)
    # Of the factors, the one that stays exact.
    growing = f("fcmp olt", f.call("fabs", a), one)
    first = flag("xor", growing, endless)
    scales = f.select(first, by, one), f.select(first, one, by), by, by
    return [f("fmul", x, scale) for x, scale in zip((a, b, c, near), scales, strict=True)]


def _error_of_sum(t, f, a, b, total):
    # Knuth, "The art of computer programming", volume 2, 4.2.2, theorem B.
    late = f("fsub", total, a)
    early = f("fsub", total, late)
    return f("fadd", f("fsub", a, early), f("fsub", b, late))


def _unless_too_large(t, f, near, error, *operands):
    """Return the error; of finite operands whose result is infinite, one that leads back to finite ones."""
    beyond = f("fcmp oeq", f.call("fabs", near), math.inf)
    for operand in operands:
        finite = f("fcmp one", f.call("fabs", operand), math.inf)
        beyond = Integers(t, f.shape, 1)("and", beyond, finite)
    return f.select(beyond, t.new(f"fneg {f.float} {near}"), error)


def _zero_below(t, f, found, near, error, a, b, c):
    """Return a sum rounded down: it is -0 where a product and a number come to 0, one of them negative."""
    signs = f.bitwise("xor", f.to_int(a), f.to_int(b))
    signs = f.bitwise("xor", signs, f.to_int(c))
    unlike = f.bitwise("icmp slt", signs, 0)
    for number in (near, error):
        unlike = Integers(t, f.shape, 1)("and", unlike, f("fcmp oeq", number, 0.0))
    return f.select(unlike, -0.0, found)


def toward(t, f, rounding, near, error):
    """Return the neighbour of a rounded result, where the error says that it lies on the wrong side."""
    flag = Integers(t, f.shape, 1)
    below = f("fcmp olt", error, 0.0)  # the true result is below
    above = f("fcmp ogt", error, 0.0)
    bits = f.to_int(near)
    negative = f.bitwise("icmp slt", bits, 0)  # a zero has a side as well
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
    """Write a product and a sum, rounded once."""
    rounding = direction(instruction)

    def compute(f, a, b, c):
        if rounding:
            return rounded(t, f, "fma", rounding, a, b, c)
        return _fused_narrow(t, f, a, b, c) if f.packed or f.bits == 16 else f.call("fma", a, b, c)

    if "oob" in instruction.opcode:
        t.refuse()

    set_float(t, instruction, compute, count=3)


def _fused_narrow(t, f, a, b, c):
    """Return a product and a sum of numbers of 16 bits, rounded once: by way of float32, made odd."""
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
    # What is left over has the sign of the error where what is divided by is positive.
    over, minus, under = a, t.new(f"fneg {f.float} {near}"), b
    if f.bits == 64:
        over, minus, under = _enlarged(t, f, over, minus, under)
    rest = _error_of_fma(t, f, minus, under, over, f.number(0.0))
    sign = f.call("copysign", 1.0, b)
    error = f("fmul", rest, sign)
    divided = f("fcmp one", b, 0.0)  # by zero is infinite
    finite = _unless_too_large(t, f, near, error, a, b)
    error = f.select(divided, finite, error)
    return toward(t, f, rounding, near, error)


def _enlarged(t, f, a, near, b):
    """Return a number, and two whose product is near it, larger where what is left over would be lost."""

    def factor(of, end, small, large):
        less = f("fcmp olt", f.call("fabs", of), end)
        return f.select(less, small, large)

    by = factor(a, 2.0**-400, 2.0**600, 1.0)
    scales = by, factor(b, 1.0, 1.0, by), factor(b, 1.0, by, 1.0)
    return [f("fmul", x, scale) for x, scale in zip((a, near, b), scales, strict=True)]


def direction(instruction):
    """Return how an instruction rounds, None if to the nearest."""
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
    """Write the smaller or the larger of two numbers; of a NaN and a number, the number."""
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
        # Of two zeros the negative one is the smaller.
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


def _polynomial(t, f, x, coefficients):
    """Return a polynomial by Horner's rule, the highest power first."""
    total = f.number(coefficients[0])
    for coefficient in coefficients[1:]:
        total = f.call("fma", total, x, coefficient)
    return total


# 2^x on [-1/2, 1/2]: the series of exp(x ln 2), whose error there is below 2^-26 from the seventh power on.
_EX2 = (1.5252733804e-5, 1.5403530394e-4, 1.3333558146e-3, 9.6181291076e-3, 5.5504108665e-2)
_EX2 += (0.24022650696, 0.69314718056, 1.0)


@translates("ex2")
def _ex2(t, instruction):
    type_ = instruction.opcode[-1]
    if BITS[type_] == 16 or type_.endswith("x2"):
        set_float(t, instruction, lambda f, a: f.call("exp2", a), count=1)
        return

    def compute(f, a):
        # Beyond these ends all is infinite or zero; a NaN comes through.
        below, above = f("fcmp olt", a, -160.0), f("fcmp ogt", a, 160.0)
        x = f.select(above, 160.0, f.select(below, -160.0, a))
        whole = f.call("roundeven", x)
        fraction = f("fsub", x, whole)
        power = _polynomial(t, f, fraction, _EX2)
        # Of a NaN it is any number: what it is multiplied with stays a NaN.
        i = Integers(t, f.shape, 32)
        exponent = t.new(f"freeze {i.type} {f.cast('fptosi', whole, i.type)}")
        # In two halves, so that neither leaves the range of exponents.
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
    """Compute a rare function by the processor's mathematics, lane by lane, in double precision."""

    def compute(f, a):
        g = Typed(t, Shape(f.count), "f64")
        return g.change(f, g.call(function, f.change(g, a)))

    set_float(t, instruction, compute, count=1)
