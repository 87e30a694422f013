"""How instructions of a PTX type are written in IR: the helpers of all that compute.

Registers are integers of their width; floating point instructions look at the bits as numbers.
"""

import struct

from gpuless.emulator.ptx import BITS
from gpuless.emulator.translate.values import Shape

_FLOAT = ("f", "bf")


def is_float(type_):
    """Return whether a PTX type is a floating point one."""
    return type_.startswith(_FLOAT)


def parts_of(instruction):
    """Return the modifiers of an instruction."""
    return instruction.opcode[1:]


class Typed:
    """Write expressions of one PTX type for a `Shape`: integers of its width, and floating point numbers.

    A bfloat16 number is computed with as float32, which it is the upper half of, and rounded when it becomes
    bits. (Processors that have such numbers flush the denormal ones, and LLVM knows none for the others.)
    """

    def __init__(self, translator, shape, type_):
        self.t, self.shape, self.type_ = translator, shape, type_
        self.bits = BITS[type_]
        self.int = shape.int(self.bits)
        self.bfloat = type_.startswith("bf")
        if is_float(type_):
            self.packed = type_.endswith("x2")
            width = 16 if self.packed else self.bits
            self.element = "float" if self.bfloat else {16: "half", 32: "float", 64: "double"}[width]
            count = shape.lanes * (2 if self.packed else 1)
            self.float = self.element if count == 1 else f"<{count} x {self.element}>"
            short = {"half": "f16", "float": "f32", "double": "f64"}[self.element]
            self.suffix = short if count == 1 else f"v{count}{short}"
            self.count = count

    def to_float(self, name):
        """Return the bits of a register as a number."""
        if self.bfloat:
            return self._from_upper_half(name)
        return self.t.new(f"bitcast {self.int} {name} to {self.float}")

    def to_int(self, name):
        """Return a number as the bits of a register."""
        if self.bfloat:
            return self._rounded_to_upper_half(name)
        return self.t.new(f"bitcast {self.float} {name} to {self.int}")

    def _from_upper_half(self, name):
        new, s = self.t.new, Shape(self.count)
        if self.packed:
            name = new(f"bitcast {self.int} {name} to {s.int(16)}")
        wide = new(f"zext {s.int(16)} {name} to {s.int(32)}")
        wide = new(f"shl {s.int(32)} {wide}, {s.literal(16, 'i32')}")
        return new(f"bitcast {s.int(32)} {wide} to {self.float}")

    def _rounded_to_upper_half(self, name):
        new, s = self.t.new, Shape(self.count)
        int_ = s.int(32)
        bits = new(f"bitcast {self.float} {name} to {int_}")
        last = new(f"and {int_} {new(f'lshr {int_} {bits}, ' + s.literal(16, 'i32'))}, {s.literal(1, 'i32')}")
        half = new(f"add {int_} {last}, {s.literal(0x7FFF, 'i32')}")
        near = new(f"lshr {int_} {new(f'add {int_} {bits}, {half}')}, {s.literal(16, 'i32')}")
        unordered = new(f"fcmp uno {self.float} {name}, {name}")
        near = new(f"select {s.int(1)} {unordered}, {int_} {s.literal(0x7FFF, 'i32')}, {int_} {near}")
        found = new(f"trunc {int_} {near} to {s.int(16)}")
        return new(f"bitcast {s.int(16)} {found} to {self.int}") if self.packed else found

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
    if element == "half":
        return "0xH" + struct.pack(">e", value).hex().upper()
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


def resize(t, s, name, have, want, signed=False):
    """Return a number in a register of another width."""
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
        return resize(t, s, name, have, want, signed)
    foremost = t.new(f"add {s.int(have)} {name}, {s.literal(ahead, f'i{have}')}")
    wide = resize(t, s, foremost, have, want)
    return t.new(f"sub {s.int(want)} {wide}, {s.literal(ahead, f'i{want}')}")


def flush(t, f, instruction, name):
    """Return the bits of a number, those of a denormal as zero where the instruction says so."""
    if "ftz" not in instruction.opcode or f.element == "double":
        return name
    bits, exponents = (
        (16, 0x7F80) if f.bfloat else {"float": (32, 0x7F800000), "half": (16, 0x7C00)}[f.element]
    )
    s = Shape(f.count)  # two where two numbers are in a register
    int_ = s.int(bits)
    if f.packed:
        name = t.new(f"bitcast {f.int} {name} to {int_}")
    exponent = t.new(f"and {int_} {name}, {s.literal(exponents, f'i{bits}')}")
    small = t.new(f"icmp eq {int_} {exponent}, {s.literal(0, f'i{bits}')}")
    zero = t.new(f"and {int_} {name}, {s.literal(-(1 << (bits - 1)), f'i{bits}')}")
    found = t.new(f"select {s.int(1)} {small}, {int_} {zero}, {int_} {name}")
    return t.new(f"bitcast {int_} {found} to {f.int}") if f.packed else found


def odd(t, f, near, error):
    """Return a rounded number, or its neighbour, such that it is odd where there is an error, by its sign.

    To round it once more, to a type with two bits less at least, gives what one rounding would: Boldo and
    Melquiond, "Emulation of FMA and correctly rounded sums" (2008).
    """
    s, one = f.shape, f"i{f.bits}"
    bits, rest = f.to_int(near), f.to_int(error)
    inexact = t.new(f"fcmp one {f.float} {error}, {f.number(0.0)}")
    last = t.new(f"and {f.int} {bits}, {s.literal(1, one)}")
    off = t.new(f"and {s.int(1)} {inexact}, {t.new(f'icmp eq {f.int} {last}, ' + s.literal(0, one))}")
    same = t.new(f"icmp sge {f.int} {t.new(f'xor {f.int} {bits}, {rest}')}, {s.literal(0, one)}")
    step = t.new(f"select {s.int(1)} {same}, {f.int} {s.literal(1, one)}, {f.int} {s.literal(-1, one)}")
    moved = t.new(f"add {f.int} {bits}, {step}")
    return f.to_float(t.new(f"select {s.int(1)} {off}, {f.int} {moved}, {f.int} {bits}"))


def change(t, f, g, x):
    """Return numbers of one type rounded to the nearest of another."""
    if f.element == "double" and g.bits == 16:
        h = Typed(t, Shape(f.count), "f32")
        near = t.new(f"fptrunc {f.float} {x} to {h.float}")
        error = t.new(f"fsub {f.float} {x}, {t.new(f'fpext {h.float} {near} to {f.float}')}")
        # Only its sign and whether there is any are asked for, and they are not to be lost.
        size = f.call("minnum", f.call("maxnum", f.call("fabs", error), f.number(1e-30)), f.number(1.0))
        none = t.new(f"fcmp ueq {f.float} {error}, {f.number(0.0)}")  # of infinity it is no number
        size = t.new(
            f"select {f.shape.int(1)} {none}, {f.float} {error}, {f.float} {f.call('copysign', size, error)}"
        )
        f, x = h, odd(t, h, near, t.new(f"fptrunc {f.float} {size} to {h.float}"))
    if f.element != g.element:
        word = (
            "fpext"
            if ["half", "float", "double"].index(f.element) < ["half", "float", "double"].index(g.element)
            else "fptrunc"
        )
        x = t.new(f"{word} {f.float} {x} to {g.float}")
    return g.to_float(g.to_int(x)) if g.bfloat and not f.bfloat else x


def saturate(t, f, name):
    """Return a number between 0 and 1, a NaN as 0."""
    name = f.call("maxnum", name, f.number(0.0))
    name = f.call("minnum", name, f.number(1.0))
    # maxnum may give either zero; PTX gives the positive one.
    return t.new(f"fadd {f.float} {name}, {f.number(0.0)}")


def relu(t, f, name):
    """Return a number, a negative one as 0."""
    return f.call("maximum", name, f.number(0.0))
