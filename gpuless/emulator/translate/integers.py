"""Integer and logic instructions, in IR.

Nothing traps: not a division by zero, nor a shift by more than there are bits.
"""

from gpuless.emulator.analysis import lanes
from gpuless.emulator.analysis.lanes import VARYING
from gpuless.emulator.analysis.rules import is_sign, is_widened
from gpuless.emulator.ptx import BITS
from gpuless.emulator.translate.bitfields import packed_halves
from gpuless.emulator.translate.doubts import wrapped
from gpuless.emulator.translate.floats import float_arithmetic, float_divide, float_minimum, fma
from gpuless.emulator.translate.typed import (
    Typed,
    call_int,
    flush,
    is_float,
    operands_of,
    parts_of,
    resize,
    widen,
)
from gpuless.emulator.translate.values import ALL, Shape, Value, translates


@translates("and", "or", "xor")
def _logic(t, instruction):
    type_ = instruction.opcode[-1]
    word = instruction.opcode[0]
    _, assumed = next(iter(t.analysis.results(instruction)))

    def make(s, a, b):
        if s.ahead and not assumed.uniform:  # the lower half of an address
            return widen(t, s, resize(t, s, a, 64, 32), 32, 64)
        return t.new(f"{word} {s.int(BITS[type_])} {a}, {b}")

    operands = operands_of(t, instruction, type_, type_)
    wraps = wrapped(t, operands[0][0], 64, 32, False) if is_widened(instruction) else None
    t.set(make, *operands, check=_sign_check(t, instruction, operands), wrapped=wraps)


@translates("not")
def _not(t, instruction):
    bits = BITS[instruction.opcode[-1]]
    ones = "true" if bits == 1 else "-1"
    t.set(
        lambda s, a: t.new(f"xor {s.int(bits)} {a}, {s.literal(ones, f'i{bits}')}"),
        *operands_of(t, instruction, instruction.opcode[-1]),
    )


@translates("cnot")
def _cnot(t, instruction):
    bits = BITS[instruction.opcode[-1]]

    def make(s, a):
        zero = t.new(f"icmp eq {s.int(bits)} {a}, {s.literal(0, f'i{bits}')}")
        return t.new(f"zext {s.int(1)} {zero} to {s.int(bits)}")

    t.set(make, *operands_of(t, instruction, instruction.opcode[-1]))


@translates("add", "sub", "mul")
def _add(t, instruction):
    name, type_ = instruction.opcode[0], instruction.opcode[-1]
    if is_float(type_):
        float_arithmetic(t, instruction, name)
        return
    if type_.endswith("x2"):
        packed_halves(t, instruction)
        return
    bits, modifiers = BITS[type_], parts_of(instruction)
    values = operands_of(t, instruction, type_, type_)
    if "wide" in modifiers:
        t.set(
            lambda s, a, b: _wide_product(t, s, type_, a, b),
            *values,
            wrapped=_wrapped_factors(t, type_, values),
        )
    elif "hi" in modifiers:
        t.set(lambda s, a, b: _high_product(t, s, type_, a, b), *values)
    elif "sat" in modifiers:
        t.set(lambda s, a, b: call_int(t, s, f"s{name}.sat", bits, a, b), *values)
    elif "cc" in modifiers:
        _with_carry(t, instruction, name, False)
    else:
        t.set(lambda s, a, b: t.new(f"{name} {s.int(bits)} {a}, {b}"), *values)


def _wide_product(t, s, type_, a, b):
    bits = BITS[type_]
    signed = type_[0] == "s"
    a, b = (widen(t, s, x, bits, 2 * bits, signed, operand) for operand, x in enumerate((a, b)))
    return t.new(f"mul {s.int(2 * bits)} {a}, {b}")


def _wrapped_factors(t, type_, factors):
    """Return the lanes of which a factor has wrapped around, as 32 bits, None if none can."""
    return t.any_of(*(wrapped(t, value, bits, bits, type_[0] == "s") for value, bits in factors))


def _high_product(t, s, type_, a, b):
    bits = BITS[type_]
    product = _wide_product(t, s, type_, a, b)
    high = t.new(f"lshr {s.int(2 * bits)} {product}, {s.literal(bits, f'i{2 * bits}')}")
    return t.new(f"trunc {s.int(2 * bits)} {high} to {s.int(bits)}")


@translates("mad", "mad24", "mul24")
def _mad(t, instruction):
    opcode, type_ = instruction.opcode, instruction.opcode[-1]
    if is_float(type_):
        fma(t, instruction)
        return
    bits = BITS[type_]
    if opcode[0].endswith("24"):
        t.set(
            lambda s, a, b, *c: _product24(t, s, opcode, a, b, *c),
            *operands_of(t, instruction, type_, type_, type_),
        )
        return
    if "cc" in opcode:
        _mad_with_carry(t, instruction, False)
        return
    wide = "wide" in opcode
    third = f"{type_[0]}{2 * bits}" if wide else type_

    def make(s, a, b, c):
        if wide:
            product = _wide_product(t, s, type_, a, b)
        elif "hi" in opcode:
            product = _high_product(t, s, type_, a, b)
        else:
            product = t.new(f"mul {s.int(bits)} {a}, {b}")
        if "sat" in opcode:
            return call_int(t, s, "sadd.sat", bits, product, c)
        return t.new(f"add {s.int(BITS[third])} {product}, {c}")

    operands = operands_of(t, instruction, type_, type_, third)
    t.set(make, *operands, wrapped=_wrapped_factors(t, type_, operands[:2]) if wide else None)


def _product24(t, s, opcode, a, b, c=None):
    signed = opcode[-1][0] == "s"
    eight = s.literal(8, "i32")
    word = "ashr" if signed else "lshr"
    a, b = (t.new(f"{word} {s.int(32)} {t.new(f'shl {s.int(32)} {x}, {eight}')}, {eight}") for x in (a, b))
    product = _wide_product(t, s, opcode[-1], a, b)
    if "hi" in opcode:
        product = t.new(f"lshr {s.int(64)} {product}, {s.literal(16, 'i64')}")
    product = t.new(f"trunc {s.int(64)} {product} to {s.int(32)}")
    if c is None:
        return product
    if "sat" in opcode:
        return call_int(t, s, "sadd.sat", 32, product, c)
    return t.new(f"add {s.int(32)} {product}, {c}")


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
    pair = f"{{ {int_}, {ALL.int(1)} }}"
    suffix = ALL.suffix(f"i{bits}")
    t.module.declare(f"{pair} @llvm.{word}.with.overflow.{suffix}({int_}, {int_})")

    def step(x, y):
        both = t.new(f"call {pair} @llvm.{word}.with.overflow.{suffix}({int_} {x}, {int_} {y})")
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
    if "hi" in instruction.opcode:
        product = _high_product(t, ALL, type_, a, b)
    else:
        product = t.new(f"mul {ALL.int(bits)} {a}, {b}")
    _set_with_carry(t, instruction, "add", bits, product, c, carry_in)


@translates("div", "rem")
def _div(t, instruction):
    name, type_ = instruction.opcode[0], instruction.opcode[-1]
    if is_float(type_):
        float_divide(t, instruction)
        return
    bits, signed = BITS[type_], type_[0] == "s"

    def make(s, a, b):
        int_, one = s.int(bits), s.literal(1, f"i{bits}")
        # Nothing may trap: neither lanes that are off, nor a kernel that divides by zero. Lanes that are off
        # may hold nothing at all, of which LLVM makes one thing where it is checked, and another where it is
        # divided by.
        if s is ALL and t.masked:
            b = t.new(f"select {s.int(1)} {t.mask_vector()}, {int_} {b}, {int_} {one}")
        a, b = t.new(f"freeze {int_} {a}"), t.new(f"freeze {int_} {b}")
        bad = t.new(f"icmp eq {int_} {b}, {s.literal(0, f'i{bits}')}")
        if signed:
            least = t.new(f"icmp eq {int_} {a}, {s.literal(-(1 << (bits - 1)), f'i{bits}')}")
            minus = t.new(f"icmp eq {int_} {b}, {s.literal(-1, f'i{bits}')}")
            over = t.new(f"and {s.int(1)} {least}, {minus}")
            bad = t.new(f"or {s.int(1)} {bad}, {over}")
        chosen = t.new(f"select {s.int(1)} {bad}, {int_} {one}, {int_} {b}")
        if s is ALL and bits == 32 and not signed:
            return _divide_in_double(t, name, a, chosen)
        return t.new(f"{'s' if signed else 'u'}{name} {int_} {a}, {chosen}")

    t.set(make, *operands_of(t, instruction, type_, type_))


def _divide_in_double(t, name, a, b):
    """Divide vectors of 32 bits, for which processors have no instruction; 53 bits make it exact."""
    int_, double = ALL.int(32), ALL.float(64)
    x, y = (t.new(f"uitofp {int_} {z} to {double}") for z in (a, b))
    quotient = t.new(f"fptoui {double} {t.new(f'fdiv {double} {x}, {y}')} to {int_}")
    if name == "div":
        return quotient
    return t.new(f"sub {int_} {a}, {t.new(f'mul {int_} {quotient}, {b}')}")


@translates("min", "max")
def _min(t, instruction):
    name, type_ = instruction.opcode[0], instruction.opcode[-1]
    if is_float(type_):
        float_minimum(t, instruction)
        return
    if type_.endswith("x2"):
        packed_halves(t, instruction)
        return
    word, bits = ("s" if type_[0] == "s" else "u") + name, BITS[type_]

    def make(s, a, b):
        found = call_int(t, s, word, bits, a, b)
        return call_int(t, s, "smax", bits, found, s.literal(0, "i32")) if "relu" in opcode else found

    opcode = instruction.opcode
    t.set(make, *operands_of(t, instruction, type_, type_))


@translates("neg", "abs")
def _neg(t, instruction):
    name, type_ = instruction.opcode[0], instruction.opcode[-1]
    bits = BITS[type_]

    def make(s, a):
        if not is_float(type_):
            if name == "neg":
                return t.new(f"sub {s.int(bits)} {s.literal(0, f'i{bits}')}, {a}")
            return call_int(t, s, "abs", bits, a, "false")
        f = Typed(t, s, type_)
        a = f.to_float(flush(t, f, instruction, a))
        return f.to_int(t.new(f"fneg {f.float} {a}") if name == "neg" else f.call("fabs", a))

    t.set(make, *operands_of(t, instruction, type_))


@translates("shl", "shr")
def _shift(t, instruction):
    name, type_ = instruction.opcode[0], instruction.opcode[-1]
    bits, signed = BITS[type_], type_[0] == "s"
    amount = instruction.operands[2]

    def make(s, a, b):
        int_ = s.int(bits)
        word = "shl" if name == "shl" else "ashr" if signed else "lshr"
        if amount[0].isdigit():
            number = int(amount, 0)
            if number >= bits and word != "ashr":
                return t.new(f"and {int_} {a}, {s.literal(0, f'i{bits}')}")
            return t.new(f"{word} {int_} {a}, {s.literal(min(number, bits - 1), f'i{bits}')}")
        # PTX shifts by the width or more as one would think; LLVM does not say what it does.
        limit = bits - 1
        capped = call_int(t, s, "umin", 32, b, s.literal(limit, "i32"))
        b_wide = resize(t, s, capped, 32, bits)
        shifted = t.new(f"{word} {int_} {a}, {b_wide}")
        if word == "ashr":
            return shifted
        inside = t.new(f"icmp ult {s.int(32)} {b}, {s.literal(bits, 'i32')}")
        return t.new(f"select {s.int(1)} {inside}, {int_} {shifted}, {int_} {s.literal(0, f'i{bits}')}")

    operands = operands_of(t, instruction, type_, "u32")
    t.set(make, *operands, check=_sign_check(t, instruction, operands))


def _sign_check(t, instruction, operands):
    """Return the condition that a sign is the same in all lanes, None if the instruction takes none."""
    return _one_sign(t, *operands[0]) if is_sign(instruction) else None


def _one_sign(t, value, bits):
    """Return the condition that all lanes, which are near each other, are below zero or none is."""
    near = value.kind if value.kind is not VARYING else value.assumed
    if near is VARYING or near.constant or near.uniform or near.unit:
        return None
    distances = lanes.nearest(near.offsets, bits)
    low, high = min(distances), max(distances)
    if high - low >= 1 << (bits - 1):
        return "false"
    s = Shape(near.rows)
    int_ = s.int(bits)
    ends = [t.new(f"add {int_} {value.scalar}, {s.literal(end, f'i{bits}')}") for end in (low, high)]
    same = t.new(f"icmp sge {int_} {t.new(f'xor {int_} {ends[0]}, {ends[1]}')}, {s.literal(0, f'i{bits}')}")
    if near.rows == 1:
        return same
    t.module.declare(f"i1 @llvm.vector.reduce.and.v{near.rows}i1(<{near.rows} x i1>)")
    return t.new(f"call i1 @llvm.vector.reduce.and.v{near.rows}i1(<{near.rows} x i1> {same})")


@translates("shf")
def _funnel(t, instruction):
    opcode = instruction.opcode

    def make(s, a, b, c):
        limit = s.literal(31, "i32")
        if "clamp" in opcode:
            c = call_int(t, s, "umin", 32, c, s.literal(32, "i32"))
            c64 = resize(t, s, c, 32, 64)
        else:
            c64 = resize(t, s, t.new(f"and {s.int(32)} {c}, {limit}"), 32, 64)
        high, low = resize(t, s, b, 32, 64), resize(t, s, a, 32, 64)
        both = t.new(f"or {s.int(64)} {t.new(f'shl {s.int(64)} {high}, ' + s.literal(32, 'i64'))}, {low}")
        if "l" in opcode:
            shifted = t.new(f"shl {s.int(64)} {both}, {c64}")
            shifted = t.new(f"lshr {s.int(64)} {shifted}, {s.literal(32, 'i64')}")
        else:
            shifted = t.new(f"lshr {s.int(64)} {both}, {c64}")
        return resize(t, s, shifted, 64, 32)

    t.set(make, *operands_of(t, instruction, "b32", "b32", "u32"))


@translates("popc", "clz", "brev")
def _bits(t, instruction):
    name, type_ = instruction.opcode[0], instruction.opcode[-1]
    bits = BITS[type_]

    def make(s, a):
        if name == "brev":
            return call_int(t, s, "bitreverse", bits, a)
        found = call_int(t, s, *(("ctpop", bits, a) if name == "popc" else ("ctlz", bits, a, "false")))
        return resize(t, s, found, bits, 32)

    t.set(make, *operands_of(t, instruction, type_))


@translates("bfind")
def _bfind(t, instruction):
    type_ = instruction.opcode[-1]
    bits = BITS[type_]

    def make(s, a):
        if type_[0] == "s":
            sign = t.new(f"ashr {s.int(bits)} {a}, {s.literal(bits - 1, f'i{bits}')}")
            a = t.new(f"xor {s.int(bits)} {a}, {sign}")
        leading = resize(t, s, call_int(t, s, "ctlz", bits, a, "false"), bits, 32)
        found = leading
        if "shiftamt" not in instruction.opcode:
            found = t.new(f"sub {s.int(32)} {s.literal(bits - 1, 'i32')}, {leading}")
        none = t.new(f"icmp eq {s.int(32)} {leading}, {s.literal(bits, 'i32')}")
        return t.new(f"select {s.int(1)} {none}, {s.int(32)} {s.literal(-1, 'i32')}, {s.int(32)} {found}")

    t.set(make, *operands_of(t, instruction, type_))


@translates("bfe")
def _bfe(t, instruction):
    type_ = instruction.opcode[-1]
    bits, signed = BITS[type_], type_[0] == "s"

    def make(s, a, position, length):
        byte = s.literal(255, "i32")
        position, length = (t.new(f"and {s.int(32)} {x}, {byte}") for x in (position, length))
        position = call_int(t, s, "umin", 32, position, s.literal(bits, "i32"))
        length = call_int(t, s, "umin", 32, length, s.literal(bits, "i32"))
        wide = s.int(2 * bits)
        position, length = (resize(t, s, x, 32, 2 * bits) for x in (position, length))
        shifted = t.new(f"lshr {wide} {resize(t, s, a, bits, 2 * bits, signed)}, {position}")
        rest = t.new(f"sub {wide} {s.literal(2 * bits, f'i{2 * bits}')}, {length}")
        none = t.new(f"icmp eq {wide} {length}, {s.literal(0, f'i{2 * bits}')}")
        rest = t.new(f"select {s.int(1)} {none}, {wide} {s.literal(0, f'i{2 * bits}')}, {wide} {rest}")
        up = t.new(f"shl {wide} {shifted}, {rest}")
        down = t.new(f"{'ashr' if signed else 'lshr'} {wide} {up}, {rest}")
        down = t.new(f"select {s.int(1)} {none}, {wide} {s.literal(0, f'i{2 * bits}')}, {wide} {down}")
        return resize(t, s, down, 2 * bits, bits)

    t.set(make, *operands_of(t, instruction, type_, "u32", "u32"))


@translates("bfi")
def _bfi(t, instruction):
    bits = BITS[instruction.opcode[-1]]
    wide = 2 * bits

    def make(s, a, b, position, length):
        byte = s.literal(255, "i32")
        position, length = (t.new(f"and {s.int(32)} {x}, {byte}") for x in (position, length))
        position, length = (call_int(t, s, "umin", 32, x, s.literal(bits, "i32")) for x in (position, length))
        position, length = (resize(t, s, x, 32, wide) for x in (position, length))
        one = s.literal(1, f"i{wide}")
        mask = t.new(f"sub {s.int(wide)} {t.new(f'shl {s.int(wide)} {one}, {length}')}, {one}")
        mask = t.new(f"shl {s.int(wide)} {mask}, {position}")
        inserted = t.new(f"shl {s.int(wide)} {resize(t, s, a, bits, wide)}, {position}")
        inserted, mask = (resize(t, s, x, wide, bits) for x in (inserted, mask))
        inserted = t.new(f"and {s.int(bits)} {inserted}, {mask}")
        rest = t.new(f"xor {s.int(bits)} {mask}, {s.literal(-1, f'i{bits}')}")
        return t.new(f"or {s.int(bits)} {inserted}, {t.new(f'and {s.int(bits)} {b}, {rest}')}")

    type_ = instruction.opcode[-1]
    t.set(make, *operands_of(t, instruction, type_, type_, "u32", "u32"))


#: Which bytes the modes of `prmt` pick, by the lowest bits of its last operand: PTX ISA 9.7.9.7.
_ORDERS = {"f4e": (0x3210, 0x4321, 0x5432, 0x6543), "b4e": (0x5670, 0x6701, 0x7012, 0x0123)}
_ORDERS |= {"rc8": (0x0000, 0x1111, 0x2222, 0x3333), "rc16": (0x1010, 0x3232, 0x1010, 0x3232)}
_ORDERS |= {"ecl": (0x3210, 0x3211, 0x3222, 0x3333), "ecr": (0x0000, 0x1110, 0x2210, 0x3210)}


@translates("prmt")
def _prmt(t, instruction):
    orders = _ORDERS.get(instruction.opcode[-1])

    def make(s, a, b, c):
        if orders:
            which = t.new(f"and {s.int(32)} {c}, {s.literal(3, 'i32')}")
            c = s.literal(orders[0], "i32")
            for i, order in enumerate(orders[1:], 1):
                this = t.new(f"icmp eq {s.int(32)} {which}, {s.literal(i, 'i32')}")
                c = t.new(f"select {s.int(1)} {this}, {s.int(32)} {s.literal(order, 'i32')}, {s.int(32)} {c}")
        wide = s.int(64)
        both = t.new(f"shl {wide} {resize(t, s, b, 32, 64)}, {s.literal(32, 'i64')}")
        both = t.new(f"or {wide} {both}, {resize(t, s, a, 32, 64)}")
        result = s.literal(0, "i32")
        for i in range(4):
            nibble = t.new(f"lshr {s.int(32)} {c}, {s.literal(4 * i, 'i32')}")
            which = t.new(f"and {s.int(32)} {nibble}, {s.literal(7, 'i32')}")
            amount = resize(t, s, t.new(f"shl {s.int(32)} {which}, {s.literal(3, 'i32')}"), 32, 64)
            byte = resize(t, s, t.new(f"lshr {wide} {both}, {amount}"), 64, 8)
            sign = t.new(f"ashr {s.int(8)} {byte}, {s.literal(7, 'i8')}")
            flag = resize(t, s, t.new(f"lshr {s.int(32)} {nibble}, {s.literal(3, 'i32')}"), 32, 1)
            byte = t.new(f"select {s.int(1)} {flag}, {s.int(8)} {sign}, {s.int(8)} {byte}")
            placed = t.new(f"shl {s.int(32)} {resize(t, s, byte, 8, 32)}, {s.literal(8 * i, 'i32')}")
            result = t.new(f"or {s.int(32)} {result}, {placed}")
        return result

    t.set(make, *operands_of(t, instruction, "b32", "b32", "b32"))


@translates("lop3")
def _lop3(t, instruction):
    if len(instruction.opcode) > 2:
        t.refuse()  # the form that also gives a predicate
    table = int(instruction.operands[4], 0)

    def make(s, a, b, c):
        result, int_ = s.literal(0, "i32"), s.int(32)
        inverse = {x: t.new(f"xor {int_} {x}, {s.literal(-1, 'i32')}") for x in {a, b, c}}
        for i in range(8):
            if table >> i & 1:
                terms = [x if i >> place & 1 else inverse[x] for place, x in ((2, a), (1, b), (0, c))]
                term = t.new(f"and {int_} {t.new(f'and {int_} {terms[0]}, {terms[1]}')}, {terms[2]}")
                result = t.new(f"or {int_} {result}, {term}")
        return result

    t.set(make, *operands_of(t, instruction, "b32", "b32", "b32"))


@translates("sad")
def _sad(t, instruction):
    type_ = instruction.opcode[-1]
    bits, sign = BITS[type_], "s" if type_[0] == "s" else "u"

    def make(s, a, b, c):
        more, less = (call_int(t, s, f"{sign}{word}", bits, a, b) for word in ("max", "min"))
        return t.new(f"add {s.int(bits)} {c}, {t.new(f'sub {s.int(bits)} {more}, {less}')}")

    t.set(make, *operands_of(t, instruction, type_, type_, type_))


@translates("dp4a", "dp2a")
def _dot(t, instruction):
    name, opcode = instruction.opcode[0], instruction.opcode
    kind_a, kind_b = opcode[-2], opcode[-1]
    size_a = 8 if name == "dp4a" else 16

    def pick(s, x, size, i, signed):
        up = t.new(f"shl {s.int(32)} {x}, {s.literal(32 - size * (i + 1), 'i32')}")
        return t.new(f"{'ashr' if signed else 'lshr'} {s.int(32)} {up}, {s.literal(32 - size, 'i32')}")

    def make(s, a, b, c):
        first = 2 if "hi" in opcode else 0
        for i in range(4 if name == "dp4a" else 2):
            x = pick(s, a, size_a, i, kind_a[0] == "s")
            y = pick(s, b, 8, first + i, kind_b[0] == "s")
            c = t.new(f"add {s.int(32)} {c}, {t.new(f'mul {s.int(32)} {x}, {y}')}")
        return c

    t.set(make, *operands_of(t, instruction, "b32", "b32", "b32"))
