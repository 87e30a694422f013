"""`numba.cuda.types` where kernels run in the simulator: the types themselves, and their classes."""

from gpuless.simulator import types as _types
from gpuless.simulator.types import (
    Array,
    Boolean,
    Complex,
    Float,
    Integer,
    NoneType,
    Number,
    Opaque,
    Record,
    Tuple,
    Type,
    UniTuple,
    dim3,
    grid_group,
)

Dim3 = GridGroup = Opaque
globals().update(_types.NAMES)
