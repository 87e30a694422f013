"""Instructions that Numba does not know, each with a Python function beside it that says what it does."""

from numba import cuda

from cnn_numba import device

if device.simulated():
    types = None  # nobody asks for any
else:
    from numba.cuda import types
    from numba.cuda.extending import intrinsic

__all__ = ["instruction", "types"]


def instruction(python):
    """Return a decorator for what types and generates an instruction, as `intrinsic` takes it.

    It returns what kernels call: the intrinsic, or in the simulator the Python function, which the sanitizer
    runs as well, on machines with a GPU too. That one is for no compiler.
    """
    python.stands_in = True

    def decorate(generator):
        if device.simulated():
            return cuda.jit(device=True)(python)
        made = intrinsic(generator)
        made.py_func = python
        return made

    return decorate
