"""Instructions without a function in Numba, each with a Python function that does the same.

An instruction is a line of PTX, declared once. `emitted_by_numba_cuda` and `emitted_by_mlir` write it for
their compilers.
"""

import inspect

from cnn_numba import device
from cnn_numba.device.compiler import cuda, intrinsic
from cnn_numba.ops.shared import emitted_by_mlir, emitted_by_numba_cuda

emitted = emitted_by_mlir if device.COMPILER == "mlir" else emitted_by_numba_cuda

#: Two arguments of any types: a one-dimensional array and an index. The line gets the element's address.
ELEMENT = None, None


def ptx(python, line, constraints, returned, *takes, always=False):
    """Return a function for kernels that executes a line of PTX.

    Parameters
    ----------
    python : callable
        Does the same in Python: see `instruction`.
    line, constraints : str
        As LLVM takes them. The constraints are the kinds of registers of results and arguments, and
        "~{memory}" if the line changes memory. An address takes 64 bits ("l") in global memory, 32 ("r") in
        shared memory.
    returned : type
        ``types.void``, a number, or a tuple of numbers of one type.
    *takes : type or None
        The types of the arguments. A tuple counts as several numbers; `ELEMENT` is an array and an index.
    always : bool
        Whether it is executed even if its result is unused.
    """
    registers = constraints.split(",")
    outputs = [each[1:] for each in registers if each.startswith("=")]
    inputs = [each for each in registers if each.isalpha()]

    def typed(*given):
        return returned(*(kind or its for kind, its in zip(takes, given, strict=True)))

    def generated(emitted):
        return emitted.assembly(line, constraints, outputs, inputs, always)

    return instruction(python, typed, generated)


def instruction(python, typed, generated):
    """Return an instruction for kernels: an intrinsic of the compiler in use.

    The simulator and the sanitizer call the Python function instead; it is never compiled.

    Parameters
    ----------
    python : callable
        Does the same in Python.
    typed : callable
        ``(*types)``: return the signature for arguments of these types, None if there is none.
    generated : callable
        Takes one of the modules `emitted_by_*`, and returns the generator of the instruction.
    """
    python.stands_in = True
    if device.simulated():
        return cuda.jit(device=True)(python)
    code = generated(emitted)

    def define(context, *given):
        # Numba also tries other types while it looks for a match.
        signature = typed(*given)
        return signature and (signature, code)

    context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    define.__signature__ = inspect.Signature([context, *inspect.signature(python).parameters.values()])
    define.__name__ = python.__name__
    made = intrinsic(define)
    made.py_func = python
    return made
