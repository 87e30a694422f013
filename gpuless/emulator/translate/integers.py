"""Arithmetic and logic of integers, in IR. Nothing traps, not even a division by zero."""

from gpuless.emulator.analysis.lanes import VARYING
from gpuless.emulator.analysis.rules import is_widened
from gpuless.emulator.ptx import BITS
from gpuless.emulator.translate.bitfields import sign_check
from gpuless.emulator.translate.doubts import wrapped
from gpuless.emulator.translate.floats import float_arithmetic, float_divide, float_minimum, fma
from gpuless.emulator.translate.packed import packed_halves
from gpuless.emulator.translate.typed import Integers, Typed, computes, is_float, operands_of, resize, widen
from gpuless.emulator.translate.values import ALL, Value, translates


@translates("and", "or", "xor")
def _logic(t, instruction):
    word, type_ = instruction.opcode[0], instruction.opcode[-1]
    _, assumed = next(iter(t.analysis.results(instruction)))

    def make(s, a, b):
        if s.ahead and not assumed.uniform:  # the lower half of an address
            return widen(t, s, resize(t, s, a, 64, 32), 32, 64)
        return Integers(t, s, BITS[type_])(word, a, b)

    operands = operands_of(t, instruction, type_, type_)
    wraps = wrapped(t, operands[0][0], 64, 32, False) if is_widened(instruction) else None
    t.set(make, *operands, check=sign_check(t, instruction, operands), wrapped=wraps)


@computes("not", "t")
def _not(i, opcode, a):
    return i("xor", a, -1 if i.bits > 1 else True)


@computes("cnot", "t")
def _cnot(i, opcode, a):
    return i.resized(i("icmp eq", a, 0), 1)


@translates("add", "sub", "mul")
def _add(t, instruction):
    opcode, name, type_ = instruction.opcode, instruction.opcode[0], instruction.opcode[-1]
    if is_float(type_):
        float_arithmetic(t, instruction, name)
    elif type_.endswith("x2"):
        packed_halves(t, instruction)
    elif "cc" in opcode:
        _with_carry(t, instruction, name, False)
    else:

        def make(s, a, b):
            i = Integers(t, s, BITS[type_], type_[0] == "s")
            return i.call(f"s{name}.sat", a, b) if "sat" in opcode else _product(i, opcode, a, b, name)

        values = operands_of(t, instruction, type_, type_)
        t.set(make, *values, wrapped=_wrapped_factors(t, type_, values) if "wide" in opcode else None)


def _product(i, opcode, a, b, name="mul"):
    """Return a product, its upper half (hi) or both halves (wide); or the result of another instruction."""
    if "wide" in opcode:
        return _wide_product(i, a, b)
    if "hi" in opcode:
        return i.resized(i.of(2 * i.bits)("lshr", _wide_product(i, a, b), i.bits), 2 * i.bits)
    return i(name, a, b)


def _wide_product(i, a, b):
    a, b = (widen(i.t, i.shape, x, i.bits, 2 * i.bits, i.signed, operand) for operand, x in enumerate((a, b)))
    return i.of(2 * i.bits)("mul", a, b)


def _wrapped_factors(t, type_, factors):
    """Return a mask of the lanes in which a factor has wrapped around, None if none can."""
    return t.any_of(*(wrapped(t, value, bits, bits, type_[0] == "s") for value, bits in factors))


@translates("mad")
def _mad(t, instruction):
    opcode, type_ = instruction.opcode, instruction.opcode[-1]
    if is_float(type_):
        fma(t, instruction)
        return
    if "cc" in opcode:
        _mad_with_carry(t, instruction, False)
        return
    bits, wide = BITS[type_], "wide" in opcode

    def make(s, a, b, c):
        i = Integers(t, s, bits, type_[0] == "s")
        return _sum(i.of(2 * bits) if wide else i, opcode, _product(i, opcode, a, b), c)

    operands = operands_of(t, instruction, type_, type_, f"{type_[0]}{2 * bits}" if wide else type_)
    t.set(make, *operands, wrapped=_wrapped_factors(t, type_, operands[:2]) if wide else None)


def _sum(i, opcode, a, b):
    return i.call("sadd.sat", a, b) if "sat" in opcode else i("add", a, b)


@computes("mad24 mul24", "t t t")
def _product24(i, opcode, a, b, c=None):
    a, b = (i.shift_right(i("shl", x, 8), 8) for x in (a, b))
    product = _wide_product(i, a, b)
    if "hi" in opcode:
        product = i.of(64)("lshr", product, 16)
    product = i.resized(product, 64)
    return product if c is None else _sum(i, opcode, product, c)


@translates("addc", "subc")
def _addc(t, instruction):
    _with_carry(t, instruction, instruction.opcode[0][:3], True)


@translates("madc")
def _madc(t, instruction):
    _mad_with_carry(t, instruction, True)


def _with_carry(t, instruction, name, carry_in):
    type_ = instruction.opcode[-1]
    (a, bits), (b, _) = operands_of(t, instruction, type_, type_)
    a, b = t.vector(a, bits), t.vector(b, bits)
    _set_with_carry(t, instruction, name, bits, a, b, carry_in)


def _set_with_carry(t, instruction, name, bits, a, b, carry_in):
    int_ = ALL.int(bits)
    word = "uadd" if name == "add" else "usub"
    pair, function = f"{{ {int_}, {ALL.int(1)} }}", f"@llvm.{word}.with.overflow.{ALL.suffix(f'i{bits}')}"
    t.module.declare(f"{pair} {function}({int_}, {int_})")

    def step(x, y):
        both = t.new(f"call {pair} {function}({int_} {x}, {int_} {y})")
        return t.new(f"extractvalue {pair} {both}, 0"), t.new(f"extractvalue {pair} {both}, 1")

    result, carry = step(a, b)
    if carry_in:
        before = t.vector(t.read("%cc"), 1)
        result, more = step(result, t.new(f"zext {ALL.int(1)} {before} to {int_}"))
        carry = t.new(f"or {ALL.int(1)} {carry}, {more}")
    t.write(instruction.operands[0], Value(VARYING, None, result))
    if "cc" in instruction.opcode:
        t.write("%cc", Value(VARYING, None, carry))


def _mad_with_carry(t, instruction, carry_in):
    type_ = instruction.opcode[-1]
    bits = BITS[type_]
    a, b, c = (t.vector(value, bits) for value, _ in operands_of(t, instruction, type_, type_, type_))
    product = _product(Integers(t, ALL, bits, type_[0] == "s"), instruction.opcode, a, b)
    _set_with_carry(t, instruction, "add", bits, product, c, carry_in)


@translates("div", "rem")
def _div(t, instruction):
    name, type_ = instruction.opcode[0], instruction.opcode[-1]
    if is_float(type_):
        float_divide(t, instruction)
        return
    bits, signed = BITS[type_], type_[0] == "s"

    def make(s, a, b):
        i, flag = Integers(t, s, bits), Integers(t, s, 1)
        # Nothing may trap, neither lanes that are off nor a division by zero. Lanes that are off may be
        # undefined: without the freeze LLVM could check one value and divide by another.
        if s is ALL and t.masked:
            b = i.select(t.mask_vector(), b, 1)
        a, b = t.new(f"freeze {i.type} {a}"), t.new(f"freeze {i.type} {b}")
        bad = i("icmp eq", b, 0)
        if signed:
            least, minus = i("icmp eq", a, -(1 << (bits - 1))), i("icmp eq", b, -1)
            bad = flag("or", bad, flag("and", least, minus))
        chosen = i.select(bad, 1, b)
        if s is ALL and bits == 32 and not signed:
            return _divide_in_double(t, name, a, chosen)
        return i(f"{'s' if signed else 'u'}{name}", a, chosen)

    t.set(make, *operands_of(t, instruction, type_, type_))


def _divide_in_double(t, name, a, b):
    """Divide 32-bit vectors, for which processors have no instruction; 53 bits are enough to be exact."""
    int_, double = ALL.int(32), ALL.float(64)
    x, y = (t.new(f"uitofp {int_} {z} to {double}") for z in (a, b))
    quotient = t.new(f"fptoui {double} {t.new(f'fdiv {double} {x}, {y}')} to {int_}")
    if name == "div":
        return quotient
    return t.new(f"sub {int_} {a}, {t.new(f'mul {int_} {quotient}, {b}')}")


@translates("min", "max")
def _min(t, instruction):
    opcode, type_ = instruction.opcode, instruction.opcode[-1]
    if is_float(type_):
        float_minimum(t, instruction)
    elif type_.endswith("x2"):
        packed_halves(t, instruction)
    else:

        def make(s, a, b):
            i = Integers(t, s, BITS[type_])
            found = i.call(("s" if type_[0] == "s" else "u") + opcode[0], a, b)
            return i.call("smax", found, 0) if "relu" in opcode else found

        t.set(make, *operands_of(t, instruction, type_, type_))


@computes("neg abs", "t")
def _neg(i, opcode, a):
    if not is_float(opcode[-1]):
        return i("sub", 0, a) if opcode[0] == "neg" else i.call("abs", a, "false")
    f = Typed(i.t, i.shape, opcode[-1])
    a = f.to_float(f.flush(a))
    return f.to_int(i.t.new(f"fneg {f.float} {a}") if opcode[0] == "neg" else f.call("fabs", a))


@computes("sad", "t t t")
def _sad(i, opcode, a, b, c):
    more, less = (i.call(f"{'s' if i.signed else 'u'}{word}", a, b) for word in ("max", "min"))
    return i("add", c, i("sub", more, less))
