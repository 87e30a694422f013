"""numba-cuda's typed IR of kernels, and predicates of its types."""

from numba.cuda import types
from numba.cuda.core import ir
from numba.cuda.core.bytecode import _FIXED_OFFSET
from numba.cuda.descriptor import cuda_target

__all__ = ["FIRST_INSTRUCTION", "float32", "ir", "is_float64", "is_integer", "typing_context"]

float32 = types.float32
#: The number of the first instruction when Numba counts a function's bytecode.
FIRST_INSTRUCTION = _FIXED_OFFSET


def is_float64(kind):
    """Return whether a type is float64, or an array or tuple that contains it."""
    if isinstance(kind, types.BaseTuple):
        return any(map(is_float64, kind))
    return (kind.dtype if isinstance(kind, types.Array) else kind) == types.float64


def is_integer(kind):
    """Return whether a type is an integer or a bool."""
    return isinstance(kind, (types.Integer, types.IntegerLiteral, types.Boolean))


def typing_context():
    """Return the context that types functions and operators."""
    return cuda_target.typing_context
