"""How instructions of a PTX type are written in IR: the helpers of all that compute.

Registers are integers of their width; floating point instructions look at the bits as numbers.
"""

import struct

from gpuless.emulator.ptx import BITS

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
    foremost = t.new(f"add i{have} {name}, {ahead}")
    return t.new(f"sub i{want} {t.new(f'zext i{have} {foremost} to i{want}')}, {ahead}")


def flush(t, f, instruction, name):
    """Return the bits of a number, those of a denormal as zero where the instruction says so."""
    if "ftz" not in instruction.opcode or f.bits != 32:
        return name
    s = f.shape
    exponent = t.new(f"and {f.int} {name}, {s.literal(0x7F800000, 'i32')}")
    small = t.new(f"icmp eq {f.int} {exponent}, {s.literal(0, 'i32')}")
    zero = t.new(f"and {f.int} {name}, {s.literal(-(1 << 31), 'i32')}")
    return t.new(f"select {s.int(1)} {small}, {f.int} {zero}, {f.int} {name}")


def saturate(t, f, name):
    """Return a number between 0 and 1, a NaN as 0."""
    name = f.call("maxnum", name, f.number(0.0))
    name = f.call("minnum", name, f.number(1.0))
    # maxnum may give either zero; PTX gives the positive one.
    return t.new(f"fadd {f.float} {name}, {f.number(0.0)}")


def relu(t, f, name):
    """Return a number, a negative one as 0."""
    return f.call("maximum", name, f.number(0.0))
