"""Values in IR, and their shapes: one number for the warp, or one for each lane."""

from typing import NamedTuple

from gpuless.emulator.analysis.lanes import WARP

FLOATS = {16: "half", 32: "float", 64: "double"}
INSTRUCTIONS = {}


def translates(*names):
    """Register a function that translates the instructions of these names."""

    def register(function):
        INSTRUCTIONS.update(dict.fromkeys(names, function))
        return function

    return register


class Value(NamedTuple):
    """What an operand is in the IR: lane 0's number if a kind says what follows from it, else a vector.

    Of a vector that makes up an address, lane 0's number may stand beside it, or those of the first lanes of
    a warp's rows, with the kind that is assumed, the condition under which that is true, if it is one, and
    the lanes, as 32 bits, whose number has wrapped around, and which are elsewhere. Instead of a vector there
    may be a `sum` that it is computed from.
    """

    kind: object
    scalar: str | None
    vector: str | None = None
    assumed: object = None
    check: str | None = None
    wrapped: str | None = None
    sum: object = None


class Shape(NamedTuple):
    """Whether an instruction computes one number or those of all lanes, which tells how types are written.

    Where one number stands for lanes that are assumed to be near each other, `ahead` tells of each operand
    how far the foremost lane is before lane 0.
    """

    lanes: int
    ahead: tuple = ()

    def int(self, bits):
        """Return the type of integers."""
        return f"i{bits}" if self.lanes == 1 else f"<{self.lanes} x i{bits}>"

    def float(self, bits):
        """Return the type of floating point numbers."""
        name = FLOATS[bits]
        return name if self.lanes == 1 else f"<{self.lanes} x {name}>"

    def literal(self, value, type_):
        """Return a constant of a scalar type, in all lanes."""
        return f"{value}" if self.lanes == 1 else f"splat ({type_} {value})"

    def suffix(self, type_):
        """Return how an intrinsic function names its type."""
        short = {"half": "f16", "float": "f32", "double": "f64"}.get(type_, type_)
        return short if self.lanes == 1 else f"v{self.lanes}{short}"


ONE, ALL = Shape(1), Shape(WARP)
#: The numbers of the lanes.
LANES = f"<{', '.join(f'i32 {lane}' for lane in range(WARP))}>"
