"""What notebook 17 writes intrinsics with, and stand-ins for the simulator, which knows no PTX."""

from llvmlite import ir

from cnn_numba import device

if device.simulated():
    from numba import types

    class intrinsic:
        """A function that writes PTX, which the simulator does not run."""

        def __init__(self, generator):
            self._defn = generator
else:
    from numba.cuda import types
    from numba.cuda.extending import intrinsic

__all__ = ["generator_of", "intrinsic", "ir", "types", "written"]


def generator_of(attempt):
    """Return the function below ``@intrinsic``; None if it is no intrinsic."""
    return getattr(attempt, "_defn", None)


def written(code, signature):
    """Return the value that the code of an intrinsic returns, as LLVM's.

    Raises AttributeError if the code needs a whole compiler.

    Parameters
    ----------
    code : callable
        Takes context, builder, signature and arguments; here of one float32 number.
    signature : numba.core.typing.Signature
    """
    function = ir.Function(ir.Module(), ir.FunctionType(ir.VoidType(), [ir.FloatType()]), "written")
    builder = ir.IRBuilder(function.append_basic_block())
    return code(None, builder, signature, tuple(function.args))
