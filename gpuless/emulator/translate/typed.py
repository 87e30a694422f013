"""Helpers that write arithmetic of PTX types in IR.

Registers are integers of their width; floating point instructions reinterpret the bits.
"""

import struct

from gpuless.emulator.ptx import BITS
from gpuless.emulator.translate.values import Shape, translates
from gpuless.limits import WARP

_FLOAT = ("f", "bf")


def is_float(type_):
    """Return whether a PTX type is a floating point one."""
    return type_.startswith(_FLOAT)


class Integers:
    """Writes expressions of integers of one width for a `Shape`; Python's numbers are constants.

    ``i("add", a, 1)`` writes LLVM's instruction, ``i("icmp eq", a, 0)`` a comparison.
    """

    def __init__(self, translator, shape, bits, signed=False):
        self.t, self.shape, self.bits, self.signed = translator, shape, bits, signed
        self.type = shape.int(bits)

    def __call__(self, word, a, b):
        """Write an instruction with two operands."""
        return self.t.new(f"{word} {self.type} {self.number(a)}, {self.number(b)}")

    def number(self, value):
        """Return an operand; a number becomes a constant."""
        return self.shape.literal(str(value).lower(), f"i{self.bits}") if isinstance(value, int) else value

    def select(self, flag, a, b):
        """Choose between two numbers."""
        a, b = self.number(a), self.number(b)
        return self.t.new(f"select {self.shape.int(1)} {flag}, {self.type} {a}, {self.type} {b}")

    def call(self, function, *operands):
        """Call an intrinsic function."""
        return call_int(self.t, self.shape, function, self.bits, *map(self.number, operands))

    def shift_right(self, a, by):
        """Shift to the right: arithmetically if signed."""
        return self("ashr" if self.signed else "lshr", a, by)

    def of(self, bits):
        """Return an `Integers` of another width."""
        return Integers(self.t, self.shape, bits, self.signed)

    def resized(self, name, have, signed=False):
        """Convert an integer of `have` bits to this width."""
        return resize(self.t, self.shape, name, have, self.bits, signed)


def computes(names, types):
    """Register a function that computes the results of instructions.

    It gets the `Integers` of the first operand's type, the opcode, and the operands. `types` lists the
    operands' types, "t" for the instruction's own; an instruction may have fewer operands.
    """

    def register(function):
        @translates(*names.split())
        def translate(t, instruction):
            opcode = instruction.opcode
            listed = [opcode[-1] if type_ == "t" else type_ for type_ in types.split()]
            bits, signed = BITS[listed[0]], listed[0][0] == "s"
            t.set(
                lambda s, *operands: function(Integers(t, s, bits, signed), opcode, *operands),
                *operands_of(t, instruction, *listed),
            )

        return function

    return register


class Typed:
    """Writes expressions of one PTX type for a `Shape`: integers of its width, and floating point numbers.

    bfloat16 is computed as float32, whose upper half it is, and rounded when it is converted to bits.
    (Processors with bfloat16 instructions flush subnormal numbers, and LLVM doesn't support it on others.)
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
            self.count, self.flag = count, Shape(count).int(1)

    def __call__(self, word, a, b):
        """Write an instruction on two numbers; Python's are constants."""
        return self.t.new(f"{word} {self.float} {self.number(a)}, {self.number(b)}")

    def select(self, flag, a, b):
        """Choose between two numbers."""
        a, b = self.number(a), self.number(b)
        return self.t.new(f"select {self.flag} {flag}, {self.float} {a}, {self.float} {b}")

    def cast(self, word, name, type_):
        """Write a conversion of a number to another LLVM type."""
        return self.t.new(f"{word} {self.float} {name} to {type_}")

    @property
    def bitwise(self):
        """An `Integers` for the bits of numbers."""
        return Integers(self.t, self.shape, self.bits)

    def to_float(self, name):
        """Convert the bits of a register to a number."""
        if self.bfloat:
            return self._from_upper_half(name)
        return self.t.new(f"bitcast {self.int} {name} to {self.float}")

    def to_int(self, name):
        """Convert a number to the bits of a register."""
        if self.bfloat:
            return self._rounded_to_upper_half(name)
        return self.t.new(f"bitcast {self.float} {name} to {self.int}")

    def _from_upper_half(self, name):
        i = Integers(self.t, Shape(self.count), 32)
        if self.packed:
            name = self.t.new(f"bitcast {self.int} {name} to {i.of(16).type}")
        wide = i("shl", i.resized(name, 16), 16)
        return self.t.new(f"bitcast {i.type} {wide} to {self.float}")

    def _rounded_to_upper_half(self, name):
        i = Integers(self.t, Shape(self.count), 32)
        bits = self.cast("bitcast", name, i.type)
        half = i("add", i("and", i("lshr", bits, 16), 1), 0x7FFF)
        near = i("lshr", i("add", bits, half), 16)
        near = i.select(self("fcmp uno", name, name), 0x7FFF, near)
        found = i.of(16).resized(near, 32)
        return self.t.new(f"bitcast {i.of(16).type} {found} to {self.int}") if self.packed else found

    def number(self, value):
        """Return an operand; a number becomes a constant."""
        if isinstance(value, str):
            return value
        text = float_literal(value, self.element)
        return text if self.count == 1 else f"splat ({self.element} {text})"

    def call(self, function, *operands):
        """Call an intrinsic function on numbers."""
        name = f"@llvm.{function}.{self.suffix}"
        self.t.module.declare(f"{self.float} {name}({', '.join([self.float] * len(operands))})")
        arguments = ", ".join(f"{self.float} {self.number(operand)}" for operand in operands)
        return self.t.new(f"call {self.float} {name}({arguments})")

    def flush(self, name):
        """Return the bits of a number, with subnormal numbers as zero if the instruction has `.ftz`."""
        if "ftz" not in self.t.instruction.opcode or self.element == "double":
            return name
        bits, exponents = (
            (16, 0x7F80) if self.bfloat else {"float": (32, 0x7F800000), "half": (16, 0x7C00)}[self.element]
        )
        i = Integers(self.t, Shape(self.count), bits)  # two for each register if packed
        if self.packed:
            name = self.t.new(f"bitcast {self.int} {name} to {i.type}")
        small = i("icmp eq", i("and", name, exponents), 0)
        found = i.select(small, i("and", name, -(1 << (bits - 1))), name)
        return self.t.new(f"bitcast {i.type} {found} to {self.int}") if self.packed else found

    def odd(self, near, error):
        """Return a number rounded to odd, given the nearest and a rounding error with the right sign.

        Rounding it again, to a type with at least two bits fewer, gives the same as a single rounding: Boldo
        and Melquiond, "Emulation of FMA and correctly rounded sums" (2008).
        """
        flag = Integers(self.t, self.shape, 1)
        bits, rest = self.to_int(near), self.to_int(error)
        inexact = self("fcmp one", error, 0.0)
        last = self.bitwise("and", bits, 1)
        off = flag("and", inexact, self.bitwise("icmp eq", last, 0))
        same = self.bitwise("icmp sge", self.bitwise("xor", bits, rest), 0)
        step = self.bitwise.select(same, 1, -1)
        moved = self.bitwise("add", bits, step)
        return self.to_float(self.bitwise.select(off, moved, bits))

    def change(self, g, x):
        """Round numbers of this type to the nearest of another."""
        if self.element == "double" and g.bits == 16:
            h = Typed(self.t, Shape(self.count), "f32")
            near = self.cast("fptrunc", x, h.float)
            error = self("fsub", x, h.cast("fpext", near, self.float))
            # Only its sign and whether it is zero matter; a conversion must not lose them.
            size = self.call("minnum", self.call("maxnum", self.call("fabs", error), 1e-30), 1.0)
            none = self("fcmp ueq", error, 0.0)  # for infinity the error is a NaN
            size = self.select(none, error, self.call("copysign", size, error))
            return h.change(g, h.odd(near, self.cast("fptrunc", size, h.float)))
        if self.element != g.element:
            order = ["half", "float", "double"]
            wider = order.index(self.element) < order.index(g.element)
            x = self.cast("fpext" if wider else "fptrunc", x, g.float)
        return g.to_float(g.to_int(x)) if g.bfloat and not self.bfloat else x

    def saturate(self, name):
        """Clamp a number to the range from 0 to 1; a NaN becomes 0."""
        name = self.call("maxnum", name, 0.0)
        name = self.call("minnum", name, 1.0)
        # maxnum may give either zero; PTX gives the positive one.
        return self("fadd", name, 0.0)

    def relu(self, name):
        """Replace negative numbers by 0."""
        return self.call("maximum", name, 0.0)


def float_literal(value, element):
    """Return a number as a constant in LLVM's syntax."""
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


def in_all(t, s, flag):
    """Return whether a condition holds in all lanes of a shape."""
    if s.lanes == 1:
        return flag
    name = f"@llvm.vector.reduce.and.v{s.lanes}i1"
    t.module.declare(f"i1 {name}({s.int(1)})")
    return t.new(f"call i1 {name}({s.int(1)} {flag})")


def joined(t, vectors, type_, count=WARP):
    """Concatenate vectors, two by two; together they have `count` elements."""
    while len(vectors) > 1:
        size = count // len(vectors)
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [t.shuffle(one, other, type_, size, range(2 * size)) for one, other in pairs]
    return vectors[0]


def resize(t, s, name, have, want, signed=False):
    """Convert an integer of `have` bits to `want` bits."""
    if have == want:
        return name
    word = "trunc" if want < have else "sext" if signed else "zext"
    return t.new(f"{word} {s.int(have)} {name} to {s.int(want)}")


def widen(t, s, name, have, want, signed=False, operand=0):
    """Widen an integer so that lanes that are near each other stay so.

    Unsigned lanes that would be below zero have wrapped around, and are off if the number is an index. So the
    foremost lane is widened, and the others are computed from it.
    """
    ahead = s.ahead[operand] if s.ahead and not signed else 0
    if not ahead:
        return resize(t, s, name, have, want, signed)
    wide = resize(t, s, Integers(t, s, have)("add", name, ahead), have, want)
    return Integers(t, s, want)("sub", wide, ahead)
