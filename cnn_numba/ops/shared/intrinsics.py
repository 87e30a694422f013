"""Instructions that compilers have no function for, each with a Python function that says what it does.

An instruction is a line of PTX, declared once. A compiler's own way to write it where it is called is in
`emitted_by_numba_cuda` and `emitted_by_mlir`.
"""

import inspect

from cnn_numba import device
from cnn_numba.device.compiler import cuda, intrinsic
from cnn_numba.ops.shared import emitted_by_mlir, emitted_by_numba_cuda

emitted = emitted_by_mlir if device.COMPILER == "mlir" else emitted_by_numba_cuda

#: Two arguments of any types: an array with one axis, and the index of an element, whose address is passed.
ELEMENT = None, None


def ptx(python, line, constraints, returned, *takes, always=False):
    """Return what kernels call for a line of PTX.

    Parameters
    ----------
    python : callable
        What it does, in Python: see `instruction`.
    line, constraints : str
        As LLVM takes them: the kinds of registers of what it returns and is given, "~{memory}" if it changes
        memory. An address is 64 bits ("l") of global memory, or 32 ("r") of shared memory.
    returned : type
        What it returns: ``types.void``, a number, or a tuple of numbers of one type.
    *takes : type or None
        Its arguments. A tuple is as many numbers for the line; `ELEMENT` is an array and an index.
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
    """Return what kernels call for an instruction: an intrinsic, which the compiler in use generates.

    In the simulator it is the Python function, which the sanitizer runs as well, on machines with a GPU too.
    That one is for no compiler.

    Parameters
    ----------
    python : callable
        What the instruction does, in Python.
    typed : callable
        ``(*types)``: return the signature for arguments of these types, None if there is none.
    generated : callable
        Given one of the modules `emitted_by_*`, return what generates the instruction there.
    """
    python.stands_in = True
    if device.simulated():
        return cuda.jit(device=True)(python)
    code = generated(emitted)

    def define(context, *given):
        # Numba asks with other types too, while it looks for a match.
        signature = typed(*given)
        return signature and (signature, code)

    context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    define.__signature__ = inspect.Signature([context, *inspect.signature(python).parameters.values()])
    define.__name__ = python.__name__
    made = intrinsic(define)
    made.py_func = python
    return made
