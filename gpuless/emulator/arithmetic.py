"""Arithmetic, comparisons, conversions and moves, in IR.

Registers are integers of their width; floating point instructions look at the bits as numbers. Where PTX
promises IEEE
754 that is what is computed; approximate instructions are computed better than they promise.
"""

from gpuless.emulator import lanes
from gpuless.emulator.lanes import VARYING, WARP
from gpuless.emulator.ptx import BITS
from gpuless.emulator.translate import ALL, Value, translates

_FLOAT = ("f", "bf")


def is_float(type_):
    """Return whether a PTX type is a floating point one."""
    return type_.startswith(_FLOAT)


def parts_of(instruction):
    """Return the modifiers of an instruction."""
    return instruction.opcode[1:]


class Typed:
    """Write expressions of one PTX type for a `Shape`: integers of its width, and floating point numbers."""

    def __init__(self, translator, shape, type_):
        self.t, self.shape, self.type_ = translator, shape, type_
        self.bits = BITS[type_]
        self.int = shape.int(self.bits)
        self.bfloat = type_.startswith("bf")
        if is_float(type_):
            self.packed = type_.endswith("x2")
            width = 16 if self.packed else self.bits
            self.element = "bfloat" if self.bfloat else {16: "half", 32: "float", 64: "double"}[width]
            count = shape.lanes * (2 if self.packed else 1)
            self.float = self.element if count == 1 else f"<{count} x {self.element}>"
            short = {"half": "f16", "float": "f32", "double": "f64", "bfloat": "bf16"}[self.element]
            self.suffix = short if count == 1 else f"v{count}{short}"
            self.count = count

    def to_float(self, name):
        """Return the bits of a register as a number."""
        return self.t.new(f"bitcast {self.int} {name} to {self.float}")

    def to_int(self, name):
        """Return a number as the bits of a register."""
        return self.t.new(f"bitcast {self.float} {name} to {self.int}")

    def number(self, value):
        """Return a floating point constant."""
        text = float_literal(value, self.element)
        return text if self.count == 1 else f"splat ({self.element} {text})"

    def call(self, function, *operands):
        """Call an intrinsic function on numbers."""
        name = f"@llvm.{function}.{self.suffix}"
        self.t.module.declare(f"{self.float} {name}({', '.join([self.float] * len(operands))})")
        arguments = ", ".join(f"{self.float} {operand}" for operand in operands)
        return self.t.new(f"call {self.float} {name}({arguments})")


def float_literal(value, element):
    """Return a number as LLVM writes constants."""
    import struct

    if element == "half":
        return "0xH" + struct.pack(">e", value).hex().upper()
    if element == "bfloat":
        return "0xR" + struct.pack(">f", value).hex()[:4].upper()
    if element == "float":
        value = struct.unpack("<f", struct.pack("<f", value))[0]
    return "0x" + struct.pack(">d", value).hex().upper()


def call_int(t, shape, function, bits, *operands):
    """Call an intrinsic function on integers."""
    type_ = shape.int(bits)
    suffix = shape.suffix(f"i{bits}")
    flags = [operand for operand in operands if operand in ("true", "false")]
    plain = [operand for operand in operands if operand not in ("true", "false")]
    signature = ", ".join([type_] * len(plain) + ["i1"] * len(flags))
    t.module.declare(f"{type_} @llvm.{function}.{suffix}({signature})")
    arguments = ", ".join([f"{type_} {operand}" for operand in plain] + [f"i1 {flag}" for flag in flags])
    return t.new(f"call {type_} @llvm.{function}.{suffix}({arguments})")


def operands_of(t, instruction, *types):
    """Return the operands after the first as (Value, width)."""
    return [
        (t.operand(operand, type_), BITS[type_])
        for operand, type_ in zip(instruction.operands[1:], types, strict=False)
    ]


# --- Integers and logic -------------------------------------------------------------------------------------

_PLAIN = {"and": "and", "or": "or", "xor": "xor", "add": "add", "sub": "sub", "mul": "mul"}


@translates("and", "or", "xor")
def _logic(t, instruction):
    type_ = instruction.opcode[-1]
    word = instruction.opcode[0]

    def make(s, a, b):
        if s.ahead:  # the lower half of an address
            return widen(t, s, _resize(t, s, a, 64, 32), 32, 64)
        return t.new(f"{word} {s.int(BITS[type_])} {a}, {b}")

    t.set(make, *operands_of(t, instruction, type_, type_))


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
        _float_arithmetic(t, instruction, name)
        return
    bits, modifiers = BITS[type_], parts_of(instruction)
    values = operands_of(t, instruction, type_, type_)
    if "wide" in modifiers:
        t.set(lambda s, a, b: _wide_product(t, s, type_, a, b), *values)
    elif "hi" in modifiers:
        t.set(lambda s, a, b: _high_product(t, s, type_, a, b), *values)
    elif "sat" in modifiers:
        t.set(lambda s, a, b: call_int(t, s, f"s{name}.sat", bits, a, b), *values)
    elif "cc" in modifiers:
        _with_carry(t, instruction, name, False)
    elif type_ in ("u16x2", "s16x2"):
        t.refuse()
    else:
        t.set(lambda s, a, b: t.new(f"{name} {s.int(bits)} {a}, {b}"), *values)


def _wide_product(t, s, type_, a, b):
    bits = BITS[type_]
    signed = type_[0] == "s"
    a, b = (widen(t, s, x, bits, 2 * bits, signed, operand) for operand, x in enumerate((a, b)))
    return t.new(f"mul {s.int(2 * bits)} {a}, {b}")


def _high_product(t, s, type_, a, b):
    bits = BITS[type_]
    product = _wide_product(t, s, type_, a, b)
    high = t.new(f"lshr {s.int(2 * bits)} {product}, {s.literal(bits, f'i{2 * bits}')}")
    return t.new(f"trunc {s.int(2 * bits)} {high} to {s.int(bits)}")


@translates("mad", "mad24", "mul24")
def _mad(t, instruction):
    opcode, type_ = instruction.opcode, instruction.opcode[-1]
    if is_float(type_):
        _fma(t, instruction)
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

    t.set(make, *operands_of(t, instruction, type_, type_, third))


def _product24(t, s, opcode, a, b, c=None):
    signed = opcode[-1][0] == "s"
    eight = s.literal(8, "i32")
    word = "ashr" if signed else "lshr"
    a, b = (t.new(f"{word} {s.int(32)} {t.new(f'shl {s.int(32)} {x}, {eight}')}, {eight}") for x in (a, b))
    product = _wide_product(t, s, opcode[-1], a, b)
    if "hi" in opcode:
        product = t.new(f"lshr {s.int(64)} {product}, {s.literal(16, 'i64')}")
    product = t.new(f"trunc {s.int(64)} {product} to {s.int(32)}")
    return product if c is None else t.new(f"add {s.int(32)} {product}, {c}")


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
        _float_divide(t, instruction)
        return
    bits, signed = BITS[type_], type_[0] == "s"

    def make(s, a, b):
        int_, one = s.int(bits), s.literal(1, f"i{bits}")
        # Nothing may trap: neither lanes that are off nor a kernel that divides by zero.
        bad = t.new(f"icmp eq {int_} {b}, {s.literal(0, f'i{bits}')}")
        if signed:
            least = t.new(f"icmp eq {int_} {a}, {s.literal(-(1 << (bits - 1)), f'i{bits}')}")
            minus = t.new(f"icmp eq {int_} {b}, {s.literal(-1, f'i{bits}')}")
            over = t.new(f"and {s.int(1)} {least}, {minus}")
            bad = t.new(f"or {s.int(1)} {bad}, {over}")
        chosen = t.new(f"select {s.int(1)} {bad}, {int_} {one}, {int_} {b}")
        chosen = t.new(f"freeze {int_} {chosen}")
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
        _float_minimum(t, instruction)
        return
    word = ("s" if type_[0] == "s" else "u") + name
    t.set(lambda s, a, b: call_int(t, s, word, BITS[type_], a, b), *operands_of(t, instruction, type_, type_))


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
        a = f.to_float(_flush(t, f, instruction, a))
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
        b_wide = _resize(t, s, capped, 32, bits)
        shifted = t.new(f"{word} {int_} {a}, {b_wide}")
        if word == "ashr":
            return shifted
        inside = t.new(f"icmp ult {s.int(32)} {b}, {s.literal(bits, 'i32')}")
        return t.new(f"select {s.int(1)} {inside}, {int_} {shifted}, {int_} {s.literal(0, f'i{bits}')}")

    t.set(make, *operands_of(t, instruction, type_, "u32"))


def _resize(t, s, name, have, want, signed=False):
    if have == want:
        return name
    word = "trunc" if want < have else "sext" if signed else "zext"
    return t.new(f"{word} {s.int(have)} {name} to {s.int(want)}")


def widen(t, s, name, have, want, signed=False, operand=0):
    """Return an integer in more bits, such that lanes that are near each other stay so.

    Of the lanes of an unsigned number, those that would be below zero wrap around, and are off where the
    number is an index: the foremost lane tells what the others are meant to be.
    """
    ahead = s.ahead[operand] if s.ahead and not signed else 0
    if not ahead:
        return _resize(t, s, name, have, want, signed)
    foremost = t.new(f"add i{have} {name}, {ahead}")
    return t.new(f"sub i{want} {t.new(f'zext i{have} {foremost} to i{want}')}, {ahead}")


@translates("shf")
def _funnel(t, instruction):
    opcode = instruction.opcode

    def make(s, a, b, c):
        limit = s.literal(31, "i32")
        if "clamp" in opcode:
            c = call_int(t, s, "umin", 32, c, s.literal(32, "i32"))
            c64 = _resize(t, s, c, 32, 64)
        else:
            c64 = _resize(t, s, t.new(f"and {s.int(32)} {c}, {limit}"), 32, 64)
        high, low = _resize(t, s, b, 32, 64), _resize(t, s, a, 32, 64)
        both = t.new(f"or {s.int(64)} {t.new(f'shl {s.int(64)} {high}, ' + s.literal(32, 'i64'))}, {low}")
        if "l" in opcode:
            shifted = t.new(f"shl {s.int(64)} {both}, {c64}")
            shifted = t.new(f"lshr {s.int(64)} {shifted}, {s.literal(32, 'i64')}")
        else:
            shifted = t.new(f"lshr {s.int(64)} {both}, {c64}")
        return _resize(t, s, shifted, 64, 32)

    t.set(make, *operands_of(t, instruction, "b32", "b32", "u32"))


@translates("popc", "clz", "brev")
def _bits(t, instruction):
    name, type_ = instruction.opcode[0], instruction.opcode[-1]
    bits = BITS[type_]

    def make(s, a):
        if name == "brev":
            return call_int(t, s, "bitreverse", bits, a)
        found = call_int(t, s, *(("ctpop", bits, a) if name == "popc" else ("ctlz", bits, a, "false")))
        return _resize(t, s, found, bits, 32)

    t.set(make, *operands_of(t, instruction, type_))


@translates("bfind")
def _bfind(t, instruction):
    type_ = instruction.opcode[-1]
    bits = BITS[type_]

    def make(s, a):
        if type_[0] == "s":
            sign = t.new(f"ashr {s.int(bits)} {a}, {s.literal(bits - 1, f'i{bits}')}")
            a = t.new(f"xor {s.int(bits)} {a}, {sign}")
        leading = _resize(t, s, call_int(t, s, "ctlz", bits, a, "false"), bits, 32)
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
        position, length = (_resize(t, s, x, 32, 2 * bits) for x in (position, length))
        shifted = t.new(f"lshr {wide} {_resize(t, s, a, bits, 2 * bits, signed)}, {position}")
        rest = t.new(f"sub {wide} {s.literal(2 * bits, f'i{2 * bits}')}, {length}")
        none = t.new(f"icmp eq {wide} {length}, {s.literal(0, f'i{2 * bits}')}")
        rest = t.new(f"select {s.int(1)} {none}, {wide} {s.literal(0, f'i{2 * bits}')}, {wide} {rest}")
        up = t.new(f"shl {wide} {shifted}, {rest}")
        down = t.new(f"{'ashr' if signed else 'lshr'} {wide} {up}, {rest}")
        down = t.new(f"select {s.int(1)} {none}, {wide} {s.literal(0, f'i{2 * bits}')}, {wide} {down}")
        return _resize(t, s, down, 2 * bits, bits)

    t.set(make, *operands_of(t, instruction, type_, "u32", "u32"))


@translates("bfi")
def _bfi(t, instruction):
    bits = BITS[instruction.opcode[-1]]
    wide = 2 * bits

    def make(s, a, b, position, length):
        byte = s.literal(255, "i32")
        position, length = (t.new(f"and {s.int(32)} {x}, {byte}") for x in (position, length))
        position, length = (call_int(t, s, "umin", 32, x, s.literal(bits, "i32")) for x in (position, length))
        position, length = (_resize(t, s, x, 32, wide) for x in (position, length))
        one = s.literal(1, f"i{wide}")
        mask = t.new(f"sub {s.int(wide)} {t.new(f'shl {s.int(wide)} {one}, {length}')}, {one}")
        mask = t.new(f"shl {s.int(wide)} {mask}, {position}")
        inserted = t.new(f"shl {s.int(wide)} {_resize(t, s, a, bits, wide)}, {position}")
        inserted, mask = (_resize(t, s, x, wide, bits) for x in (inserted, mask))
        inserted = t.new(f"and {s.int(bits)} {inserted}, {mask}")
        rest = t.new(f"xor {s.int(bits)} {mask}, {s.literal(-1, f'i{bits}')}")
        return t.new(f"or {s.int(bits)} {inserted}, {t.new(f'and {s.int(bits)} {b}, {rest}')}")

    type_ = instruction.opcode[-1]
    t.set(make, *operands_of(t, instruction, type_, type_, "u32", "u32"))


@translates("prmt")
def _prmt(t, instruction):
    if len(instruction.opcode) > 2:
        t.refuse()  # the modes f4e and so on: nothing that was seen emits them

    def make(s, a, b, c):
        wide = s.int(64)
        both = t.new(f"shl {wide} {_resize(t, s, b, 32, 64)}, {s.literal(32, 'i64')}")
        both = t.new(f"or {wide} {both}, {_resize(t, s, a, 32, 64)}")
        result = s.literal(0, "i32")
        for i in range(4):
            nibble = t.new(f"lshr {s.int(32)} {c}, {s.literal(4 * i, 'i32')}")
            which = t.new(f"and {s.int(32)} {nibble}, {s.literal(7, 'i32')}")
            amount = _resize(t, s, t.new(f"shl {s.int(32)} {which}, {s.literal(3, 'i32')}"), 32, 64)
            byte = _resize(t, s, t.new(f"lshr {wide} {both}, {amount}"), 64, 8)
            sign = t.new(f"ashr {s.int(8)} {byte}, {s.literal(7, 'i8')}")
            flag = _resize(t, s, t.new(f"lshr {s.int(32)} {nibble}, {s.literal(3, 'i32')}"), 32, 1)
            byte = t.new(f"select {s.int(1)} {flag}, {s.int(8)} {sign}, {s.int(8)} {byte}")
            placed = t.new(f"shl {s.int(32)} {_resize(t, s, byte, 8, 32)}, {s.literal(8 * i, 'i32')}")
            result = t.new(f"or {s.int(32)} {result}, {placed}")
        return result

    t.set(make, *operands_of(t, instruction, "b32", "b32", "b32"))


@translates("lop3")
def _lop3(t, instruction):
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


# --- Floating point -----------------------------------------------------------------------------------------


def _flush(t, f, instruction, name):
    """Return the bits of a number, those of a denormal as zero where the instruction says so."""
    if "ftz" not in instruction.opcode or f.bits != 32:
        return name
    s = f.shape
    exponent = t.new(f"and {f.int} {name}, {s.literal(0x7F800000, 'i32')}")
    small = t.new(f"icmp eq {f.int} {exponent}, {s.literal(0, 'i32')}")
    zero = t.new(f"and {f.int} {name}, {s.literal(-(1 << 31), 'i32')}")
    return t.new(f"select {s.int(1)} {small}, {f.int} {zero}, {f.int} {name}")


def _saturate(t, f, name):
    """Return a number between 0 and 1, a NaN as 0."""
    name = f.call("maxnum", name, f.number(0.0))
    name = f.call("minnum", name, f.number(1.0))
    # maxnum may give either zero; PTX gives the positive one.
    return t.new(f"fadd {f.float} {name}, {f.number(0.0)}")


def _float(t, instruction, compute, type_=None, count=2):
    """Set a floating point result: operands flushed and turned, the result turned back."""
    type_ = type_ or instruction.opcode[-1]

    def make(s, *names):
        f = Typed(t, s, type_)
        numbers = [f.to_float(_flush(t, f, instruction, name)) for name in names]
        result = compute(f, *numbers)
        if "sat" in instruction.opcode:
            result = _saturate(t, f, result)
        if "relu" in instruction.opcode:
            result = _relu(t, f, result)
        return _flush(t, f, instruction, f.to_int(result))

    t.set(make, *operands_of(t, instruction, *[type_] * count))


def _relu(t, f, name):
    return f.call("maximum", name, f.number(0.0))


_WORDS = {"add": "fadd", "sub": "fsub", "mul": "fmul"}
_ROUNDING = {"rz", "rm", "rp", "rni"}


def _float_arithmetic(t, instruction, name):
    rounding = next((part for part in instruction.opcode if part in ("rz", "rm", "rp")), None)

    def compute(f, a, b):
        if rounding:
            return rounded(t, f, name, rounding, a, b)
        return t.new(f"{_WORDS[name]} {f.float} {a}, {b}")

    _float(t, instruction, compute)


def rounded(t, f, name, rounding, a, b, c=None):
    """Return a result rounded towards zero (rz), down (rm) or up (rp).

    It is rounded to the nearest first; then the exact error tells on which side of the true result that
    lies. The
    error of a sum and of a product are numbers of the same type: Dekker, "A floating-point technique for
    extending the
    available precision" (1971).
    """
    if name == "sub":
        b = t.new(f"fneg {f.float} {b}")
    if name in ("add", "sub"):
        near = t.new(f"fadd {f.float} {a}, {b}")
        error = _error_of_sum(t, f, a, b, near)
    elif name == "mul":
        near = t.new(f"fmul {f.float} {a}, {b}")
        error = f.call("fma", a, b, t.new(f"fneg {f.float} {near}"))
    else:
        near = f.call("fma", a, b, c)
        error = _error_of_fma(t, f, a, b, c, near)
    return _toward(t, f, rounding, near, error)


def _error_of_fma(t, f, a, b, c, near):
    """Return a number with the sign of ``a * b + c - near``, or its value."""
    if f.bits == 32:
        # In double precision the product is exact, and none is too small.
        g = Typed(t, f.shape, "f64")
        a, b, c, near = (t.new(f"fpext {f.float} {x} to {g.float}") for x in (a, b, c, near))
        product, low = t.new(f"fmul {g.float} {a}, {b}"), g.number(0.0)
    else:
        g = f
        product = t.new(f"fmul {g.float} {a}, {b}")
        low = g.call("fma", a, b, t.new(f"fneg {g.float} {product}"))
        # Of a product too small for any number its sign is left.
        one, other = (g.call("copysign", g.number(1.0), x) for x in (a, b))
        sign = t.new(f"fmul {g.float} {one}, {other}")
        flag = f.shape.int(1)
        some = [t.new(f"fcmp one {g.float} {x}, {g.number(0.0)}") for x in (a, b)]
        lost = t.new(f"and {flag} {some[0]}, {some[1]}")
        lost = t.new(f"and {flag} {lost}, {t.new(f'fcmp oeq {g.float} {product}, ' + g.number(0.0))}")
        low = t.new(f"select {flag} {lost}, {g.float} {sign}, {g.float} {low}")
    total = t.new(f"fadd {g.float} {product}, {c}")
    rest = _error_of_sum(t, g, product, c, total)
    off = t.new(f"fsub {g.float} {total}, {near}")
    error = t.new(f"fadd {g.float} {t.new(f'fadd {g.float} {off}, {rest}')}, {low}")
    if g is f:
        return error
    # Its sign is all that is wanted, and must not be lost on the way back.
    flag, zero = f.shape.int(1), g.number(0.0)
    above, below = (t.new(f"fcmp {word} {g.float} {error}, {zero}") for word in ("ogt", "olt"))
    found = t.new(f"select {flag} {above}, {f.float} {f.number(1.0)}, {f.float} {f.number(0.0)}")
    return t.new(f"select {flag} {below}, {f.float} {f.number(-1.0)}, {f.float} {found}")


def _error_of_sum(t, f, a, b, total):
    # Knuth, "The art of computer programming", volume 2, 4.2.2, theorem B.
    late = t.new(f"fsub {f.float} {total}, {a}")
    early = t.new(f"fsub {f.float} {total}, {late}")
    return t.new(
        f"fadd {f.float} {t.new(f'fsub {f.float} {a}, {early}')}, {t.new(f'fsub {f.float} {b}, {late}')}"
    )


def _toward(t, f, rounding, near, error):
    """Return the neighbour of a rounded result, where the error says that it lies on the wrong side."""
    s, one = f.shape, f"i{f.bits}"
    zero, flag = f.number(0.0), s.int(1)
    below = t.new(f"fcmp olt {f.float} {error}, {zero}")  # the true result is below
    above = t.new(f"fcmp ogt {f.float} {error}, {zero}")
    negative = t.new(f"fcmp olt {f.float} {near}, {zero}")
    if rounding == "rm":
        wrong, away = below, negative
    elif rounding == "rp":
        wrong, away = above, t.new(f"xor {flag} {negative}, {s.literal('true', 'i1')}")
    else:
        wrong = t.new(f"select {flag} {negative}, {flag} {above}, {flag} {below}")
        away = s.literal("false", "i1")
    bits = f.to_int(near)
    step = t.new(f"select {flag} {away}, {f.int} {s.literal(1, one)}, {f.int} {s.literal(-1, one)}")
    moved = t.new(f"add {f.int} {bits}, {step}")
    chosen = t.new(f"select {flag} {wrong}, {f.int} {moved}, {f.int} {bits}")
    return f.to_float(chosen)


@translates("fma")
def _fma(t, instruction):
    rounding = next((part for part in instruction.opcode if part in ("rz", "rm", "rp")), None)

    def compute(f, a, b, c):
        if rounding:
            return rounded(t, f, "fma", rounding, a, b, c)
        return f.call("fma", a, b, c)

    _float(t, instruction, compute, count=3)


def _float_divide(t, instruction):
    _float(t, instruction, lambda f, a, b: t.new(f"fdiv {f.float} {a}, {b}"))


@translates("rcp")
def _rcp(t, instruction):
    _float(t, instruction, lambda f, a: t.new(f"fdiv {f.float} {f.number(1.0)}, {a}"), count=1)


@translates("sqrt", "rsqrt")
def _sqrt(t, instruction):
    def compute(f, a):
        root = f.call("sqrt", a)
        return root if instruction.opcode[0] == "sqrt" else t.new(f"fdiv {f.float} {f.number(1.0)}, {root}")

    _float(t, instruction, compute, count=1)


def _float_minimum(t, instruction):
    opcode = instruction.opcode
    word = ("minimum" if opcode[0] == "min" else "maximum") if "NaN" in opcode else opcode[0] + "num"

    def compute(f, a, b):
        if "xorsign" in opcode:
            sign = t.new(f"xor {f.int} {f.to_int(a)}, {f.to_int(b)}")
            found = f.call(word, f.call("fabs", a), f.call("fabs", b))
            return f.call("copysign", found, f.to_float(sign))
        found = f.call(word, a, b)
        if "NaN" in opcode:
            return found
        # Of two zeros the negative one is the smaller.
        exact = f.call("minimum" if opcode[0] == "min" else "maximum", a, b)
        same = t.new(f"fcmp oeq {f.float} {a}, {b}")
        flag = "i1" if f.count == 1 else f"<{f.count} x i1>"
        return t.new(f"select {flag} {same}, {f.float} {exact}, {f.float} {found}")

    _float(t, instruction, compute)


@translates("copysign")
def _copysign(t, instruction):
    _float(t, instruction, lambda f, a, b: f.call("copysign", b, a))


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
        total = f.call("fma", total, x, f.number(coefficient))
    return total


# 2^x on [-1/2, 1/2]: the series of exp(x ln 2), whose error there is below 2^-26 from the seventh power on.
_EX2 = (
    1.5252733804e-5,
    1.5403530394e-4,
    1.3333558146e-3,
    9.6181291076e-3,
    5.5504108665e-2,
    0.24022650696,
    0.69314718056,
    1.0,
)


@translates("ex2")
def _ex2(t, instruction):
    type_ = instruction.opcode[-1]
    if BITS[type_] == 16 or type_.endswith("x2"):
        _float(t, instruction, lambda f, a: f.call("exp2", a), count=1)
        return

    def compute(f, a):
        s = f.shape
        # Beyond these ends all is infinite or zero; a NaN comes through.
        low, high = f.number(-160.0), f.number(160.0)
        below, above = (
            t.new(f"fcmp {word} {f.float} {a}, {end}") for word, end in (("olt", low), ("ogt", high))
        )
        x = t.new(f"select {s.int(1)} {below}, {f.float} {low}, {f.float} {a}")
        x = t.new(f"select {s.int(1)} {above}, {f.float} {high}, {f.float} {x}")
        whole = f.call("roundeven", x)
        fraction = t.new(f"fsub {f.float} {x}, {whole}")
        power = _polynomial(t, f, fraction, _EX2)
        suffix = s.suffix("i32")
        t.module.declare(f"{s.int(32)} @llvm.fptosi.sat.{suffix}.{f.suffix}({f.float})")
        exponent = t.new(f"call {s.int(32)} @llvm.fptosi.sat.{suffix}.{f.suffix}({f.float} {whole})")
        # In two halves, so that neither leaves the range of exponents.
        half = t.new(f"ashr {s.int(32)} {exponent}, {s.literal(1, 'i32')}")
        rest = t.new(f"sub {s.int(32)} {exponent}, {half}")
        for part in (half, rest):
            bits = t.new(f"add {s.int(32)} {part}, {s.literal(127, 'i32')}")
            scale = t.new(f"shl {s.int(32)} {bits}, {s.literal(23, 'i32')}")
            power = t.new(f"fmul {f.float} {power}, {f.to_float(scale)}")
        return power

    _float(t, instruction, compute, count=1)


@translates("lg2")
def _lg2(t, instruction):
    _in_double(t, instruction, "log2")


@translates("sin", "cos", "tanh")
def _trigonometry(t, instruction):
    _in_double(t, instruction, instruction.opcode[0])


def _in_double(t, instruction, function):
    """Compute a rare function by the processor's mathematics, lane by lane, in double precision."""

    def compute(f, a):
        double = "double" if f.count == 1 else f"<{f.count} x double>"
        suffix = "f64" if f.count == 1 else f"v{f.count}f64"
        if f.element != "double":
            a = t.new(f"fpext {f.float} {a} to {double}")
        t.module.declare(f"{double} @llvm.{function}.{suffix}({double})")
        found = t.new(f"call {double} @llvm.{function}.{suffix}({double} {a})")
        return found if f.element == "double" else t.new(f"fptrunc {double} {found} to {f.float}")

    _float(t, instruction, compute, count=1)


# --- Comparisons and choices --------------------------------------------------------------------------------

_INTEGER = {"eq": "eq", "ne": "ne", "lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge"}
_ORDERED = {
    "eq": "oeq",
    "ne": "one",
    "lt": "olt",
    "le": "ole",
    "gt": "ogt",
    "ge": "oge",
    "num": "ord",
    "nan": "uno",
}
_ORDERED |= {"equ": "ueq", "neu": "une", "ltu": "ult", "leu": "ule", "gtu": "ugt", "geu": "uge"}


def _comparison(t, s, instruction, a, b):
    how, type_ = instruction.opcode[1], instruction.opcode[-1]
    if is_float(type_):
        f = Typed(t, s, type_)
        a, b = (f.to_float(_flush(t, f, instruction, x)) for x in (a, b))
        return t.new(f"fcmp {_ORDERED[how]} {f.float} {a}, {b}")
    word = _INTEGER.get(how) or ("s" if type_[0] == "s" else "u") + how
    return t.new(f"icmp {word} {s.int(BITS[type_])} {a}, {b}")


@translates("setp", "set")
def _setp(t, instruction):
    opcode, type_ = instruction.opcode, instruction.opcode[-1]
    if type_.endswith("x2"):
        _setp_packed(t, instruction)
        return
    if opcode[0] == "set":
        _set(t, instruction)
        return
    first = instruction.operands[0]
    names = first if isinstance(first, tuple) else (first,)
    combine = next((part for part in opcode[2:-1] if part in ("and", "or", "xor")), None)
    values = operands_of(t, instruction, type_, type_)
    kinds = list(t.analysis.results(instruction))
    found = t.compute(lambda s, a, b: _comparison(t, s, instruction, a, b), values, 1, kinds[0][0])
    for i, name in enumerate(names):
        value = found if i == 0 else _inverse(t, found)
        if combine:
            other = t.operand(instruction.operands[3], "pred")
            kind = lanes.UNIFORM if lanes.uniform(value.kind) and lanes.uniform(other.kind) else VARYING
            value = t.compute(
                lambda s, a, b: t.new(f"{combine} {s.int(1)} {a}, {b}"), [(value, 1), (other, 1)], 1, kind
            )
        t.write(name, value)


def _inverse(t, value):
    kind = lanes.UNIFORM if lanes.uniform(value.kind) else VARYING
    return t.compute(
        lambda s, a: t.new(f"xor {s.int(1)} {a}, {s.literal('true', 'i1')}"), [(value, 1)], 1, kind
    )


def _setp_packed(t, instruction):
    type_ = instruction.opcode[-1]
    f = Typed(t, ALL, type_)
    a, b = (f.to_float(t.vector(value, 32)) for value, _ in operands_of(t, instruction, type_, type_))
    both = t.new(f"fcmp {_ORDERED[instruction.opcode[1]]} {f.float} {a}, {b}")
    for i, name in enumerate(instruction.operands[0]):
        one = t.shuffle(both, None, "i1", 2 * WARP, range(i, 2 * WARP, 2))
        t.write(name, Value(VARYING, None, one))


def _set(t, instruction):
    want, type_ = instruction.opcode[-2], instruction.opcode[-1]

    def make(s, a, b):
        flag = _comparison(t, s, instruction, a, b)
        if is_float(want):
            f = Typed(t, s, want)
            return f.to_int(t.new(f"uitofp {s.int(1)} {flag} to {f.float}"))
        return t.new(f"sext {s.int(1)} {flag} to {s.int(BITS[want])}")

    t.set(make, *operands_of(t, instruction, type_, type_))


@translates("selp")
def _selp(t, instruction):
    type_ = instruction.opcode[-1]
    bits = BITS[type_]
    (a, _), (b, _) = operands_of(t, instruction, type_, type_)
    condition = t.operand(instruction.operands[3], "pred")
    kind, assumed = next(iter(t.analysis.results(instruction)))
    if kind is not VARYING and kind.constant:
        return
    if lanes.uniform(condition.kind) and kind is VARYING:
        flag = condition.scalar
        x, y = t.vector(a, bits), t.vector(b, bits)
        vector = t.new(f"select i1 {flag}, {ALL.int(bits)} {x}, {ALL.int(bits)} {y}")
        scalar = None
        if assumed is not None:
            scalar = t.new(f"select i1 {flag}, i{bits} {a.scalar}, i{bits} {b.scalar}")
        t.write(instruction.operands[0], Value(VARYING, scalar, vector, assumed))
        return
    t.set(
        lambda s, x, y, flag: t.new(f"select {s.int(1)} {flag}, {s.int(bits)} {x}, {s.int(bits)} {y}"),
        (a, bits),
        (b, bits),
        (condition, 1),
    )


@translates("slct")
def _slct(t, instruction):
    type_, by = instruction.opcode[-2], instruction.opcode[-1]
    bits = BITS[type_]

    def make(s, a, b, c):
        if by == "f32":
            f = Typed(t, s, by)
            flag = t.new(f"fcmp oge {f.float} {f.to_float(c)}, {f.number(0.0)}")
        else:
            flag = t.new(f"icmp sge {s.int(32)} {c}, {s.literal(0, 'i32')}")
        return t.new(f"select {s.int(1)} {flag}, {s.int(bits)} {a}, {s.int(bits)} {b}")

    t.set(make, *operands_of(t, instruction, type_, type_, by))


# --- Moves and conversions ----------------------------------------------------------------------------------


@translates("mov")
def _mov(t, instruction):
    first, second = instruction.operands
    type_ = instruction.opcode[-1]
    if isinstance(second, tuple):
        _pack(t, first, second, instruction)
    elif isinstance(first, tuple):
        _unpack(t, first, second, instruction)
    else:
        t.write(first, _as_width(t, t.operand(second, type_), second, BITS[type_]))


def _as_width(t, value, name, bits):
    return value


def _pack(t, target, names, instruction):
    bits = BITS[instruction.opcode[-1]]
    part = bits // len(names)

    def make(s, *parts):
        total = s.literal(0, f"i{bits}")
        for i, name in enumerate(parts):
            wide = _resize(t, s, name, part, bits)
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
            return _resize(t, s, shifted, bits, part)

        if target != "_":
            t.write(target, t.compute(make, [(value, bits)], part, kind))


@translates("cvt")
def _cvt(t, instruction):
    want, have = instruction.opcode[-2:]
    if instruction.opcode[1] == "pack":
        _pack_integers(t, instruction)
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

    t.set(make, (t.operand(instruction.operands[1], have), _width(t, instruction.operands[1], have)))


def _width(t, name, type_):
    """Return the width of a register, which may be larger than the type that is read from it."""
    return t.function.registers.get(name, BITS[type_])


def _between_integers(t, s, instruction, want, have, a):
    width = _width(t, instruction.operands[1], have)
    target = t.function.registers[instruction.operands[0]]
    a = _resize(t, s, a, width, BITS[have])
    if "sat" in instruction.opcode:
        a = _saturate_integer(t, s, want, have, a)
    resize = widen if BITS[want] > BITS[have] else _resize
    a = resize(t, s, a, BITS[have], BITS[want], have[0] == "s")
    return _resize(t, s, a, BITS[want], target, want[0] == "s")


def _saturate_integer(t, s, want, have, a):
    bits = BITS[want]
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if want[0] == "s" else (0, (1 << bits) - 1)
    type_, most = f"i{BITS[have]}", (1 << (BITS[have] - (have[0] == "s"))) - 1
    if have[0] == "s":
        a = call_int(t, s, "smax", BITS[have], a, s.literal(max(low, -most - 1), type_))
        return call_int(t, s, "smin", BITS[have], a, s.literal(min(high, most), type_))
    return call_int(t, s, "umin", BITS[have], a, s.literal(min(high, most), type_))


def _pack_integers(t, instruction):
    t.refuse()


_TO_WHOLE = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


def _from_float(t, s, instruction, want, have, a):
    opcode = instruction.opcode
    width = _width(t, instruction.operands[1], have)
    a = _resize(t, s, a, width, BITS[have])
    f = Typed(t, s, have)
    if "ftz" in opcode:
        a = _flush(t, f, instruction, a)
    x = f.to_float(a)
    whole = next((part for part in opcode if part in _TO_WHOLE), None)
    if whole:
        x = f.call(_TO_WHOLE[whole], x)
    if is_float(want) or want == "tf32":
        return _between_floats(t, s, instruction, f, want, x)
    bits, target = BITS[want], t.function.registers[instruction.operands[0]]
    word = f"fpto{'s' if want[0] == 's' else 'u'}i.sat"
    suffix = s.suffix(f"i{bits}")
    t.module.declare(f"{s.int(bits)} @llvm.{word}.{suffix}.{f.suffix}({f.float})")
    found = t.new(f"call {s.int(bits)} @llvm.{word}.{suffix}.{f.suffix}({f.float} {x})")
    if bits == 64 or f.bits == 64:
        # Conversions of, and to, 64 bits make the largest negative number of a NaN, others make zero.
        unordered = t.new(f"fcmp uno {f.float} {x}, {x}")
        nan = s.literal(-(1 << (bits - 1)), f"i{bits}")
        found = t.new(f"select {s.int(1)} {unordered}, {s.int(bits)} {nan}, {s.int(bits)} {found}")
    return _resize(t, s, found, bits, target, want[0] == "s")


def _between_floats(t, s, instruction, f, want, x):
    opcode = instruction.opcode
    if want == "tf32":
        bits = f.to_int(x)
        half = t.new(f"add {f.int} {bits}, {s.literal(0x1000, 'i32')}")
        return t.new(f"and {f.int} {half}, {s.literal(-0x2000, 'i32')}")
    g = Typed(t, s, want)
    rounding = next((part for part in opcode if part in ("rz", "rm", "rp")), None)
    if g.bits < f.bits or (g.bits == f.bits and g.bfloat != f.bfloat):
        y = t.new(f"fptrunc {f.float} {x} to {g.float}")
        if rounding:
            back = t.new(f"fpext {g.float} {y} to {f.float}")
            error = t.new(f"fsub {f.float} {x}, {back}")
            y = _toward_narrow(t, g, f, rounding, y, error)
    elif g.bits > f.bits:
        y = t.new(f"fpext {f.float} {x} to {g.float}")
    else:
        y = x
    if "sat" in opcode:
        y = _saturate(t, g, y)
    if "relu" in opcode:
        y = _relu(t, g, y)
    bits = g.to_int(y)
    if "ftz" in opcode:
        bits = _flush(t, g, instruction, bits)
    return bits


def _toward_narrow(t, g, f, rounding, near, error):
    sign = t.new(f"fcmp olt {f.float} {error}, {f.number(0.0)}")
    positive = t.new(f"fcmp ogt {f.float} {error}, {f.number(0.0)}")
    flag = g.shape.int(1)
    one, minus = g.number(1.0), g.number(-1.0)
    narrow = t.new(f"select {flag} {positive}, {g.float} {one}, {g.float} {g.number(0.0)}")
    narrow = t.new(f"select {flag} {sign}, {g.float} {minus}, {g.float} {narrow}")
    return _toward(t, g, rounding, near, narrow)


def _to_float(t, s, instruction, want, have, a):
    opcode = instruction.opcode
    width = _width(t, instruction.operands[1], have)
    a = _resize(t, s, a, width, BITS[have])
    g = Typed(t, s, want)
    signed = have[0] == "s"
    y = t.new(f"{'s' if signed else 'u'}itofp {s.int(BITS[have])} {a} to {g.float}")
    rounding = next((part for part in opcode if part in ("rz", "rm", "rp")), None)
    if rounding and BITS[have] > {16: 11, 32: 24, 64: 53}[g.bits]:
        y = _rounded_integer(t, s, g, rounding, a, BITS[have], signed, y)
    if "sat" in opcode:
        y = _saturate(t, g, y)
    return g.to_int(y)


def _rounded_integer(t, s, g, rounding, a, bits, signed, near):
    """Round an integer to a number otherwise than to the nearest, `near`."""
    # What was rounded away, in double precision: both halves of the integer are exact there, and so is what
    # is left when the nearest number is taken from the upper one.
    double, wide = s.float(64), s.int(64)
    word = "s" if signed else "u"
    a = _resize(t, s, a, bits, 64, signed)
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
    return _toward(t, g, rounding, near, error)


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
        upper = t.new(f"shl {s.int(32)} {_resize(t, s, halves[0], 16, 32)}, {s.literal(16, 'i32')}")
        return t.new(f"or {s.int(32)} {upper}, {_resize(t, s, halves[1], 16, 32)}")

    t.set(make, *[(t.operand(name, have), BITS[have]) for name in names])
