"""Values in IR and their shapes, one number for the warp or one for each lane; registered translations."""

from typing import NamedTuple

from gpuless.limits import WARP

FLOATS = {16: "half", 32: "float", 64: "double"}
INSTRUCTIONS = {}


def translates(*names):
    """Register a function that translates instructions with these names."""

    def register(function):
        INSTRUCTIONS.update(dict.fromkeys(names, function))
        return function

    return register


class Value(NamedTuple):
    """An operand in IR: if its kind is known, the `scalar` of lane 0, else a `vector`.

    A vector that is used in addresses may also have a scalar, of lane 0 or of the first lane of each row,
    with the kind that is `assumed`, the condition `check` under which that is true, and a mask of the lanes
    that have `wrapped` around and are elsewhere. Instead of a vector there may be a `sum`.
    """

    kind: object
    scalar: str | None
    vector: str | None = None
    assumed: object = None
    check: str | None = None
    wrapped: str | None = None
    sum: object = None


class Shape(NamedTuple):
    """The number of lanes that an instruction computes, and how types are written for it.

    If one number stands for lanes that are assumed to be near each other, `ahead` has, for each operand, the
    distance of the foremost lane from lane 0.
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
        """Return the suffix of intrinsic functions for a scalar type."""
        short = {"half": "f16", "float": "f32", "double": "f64"}.get(type_, type_)
        return short if self.lanes == 1 else f"v{self.lanes}{short}"


ONE, ALL = Shape(1), Shape(WARP)
#: The numbers of the lanes.
LANES = f"<{', '.join(f'i32 {lane}' for lane in range(WARP))}>"
