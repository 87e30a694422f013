"""What numba-cuda has found of the types in a kernel: its statements, and which types are of what kind."""

from numba.cuda import types
from numba.cuda.core import ir
from numba.cuda.core.bytecode import _FIXED_OFFSET
from numba.cuda.descriptor import cuda_target

__all__ = ["FIRST_INSTRUCTION", "float32", "ir", "is_float64", "is_integer", "typing_context"]

float32 = types.float32
#: Where Numba counts the instructions of a function's bytecode from.
FIRST_INSTRUCTION = _FIXED_OFFSET


def is_float64(kind):
    """Return whether a type is float64, or of an array or a tuple that holds it."""
    if isinstance(kind, types.BaseTuple):
        return any(map(is_float64, kind))
    return (kind.dtype if isinstance(kind, types.Array) else kind) == types.float64


def is_integer(kind):
    """Return whether a type is one of integers or truth values."""
    return isinstance(kind, (types.Integer, types.IntegerLiteral, types.Boolean))


def typing_context():
    """Return what knows the types that functions and operators give."""
    return cuda_target.typing_context
