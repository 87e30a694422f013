"""Instructions that compilers have no function for, each with a Python function that says what it does.

An instruction is a line of PTX, declared once. A compiler's own way to write it where it is called is in
`emitted_by_numba_cuda` and `emitted_by_mlir`.
"""

import inspect
from typing import NamedTuple

from cnn_numba import device
from cnn_numba.device.compiler import cuda

if device.COMPILER == "mlir":
    from cnn_numba.ops.shared import emitted_by_mlir as emitted
elif not device.simulated():
    from cnn_numba.ops.shared import emitted_by_numba_cuda as emitted

#: Two arguments of any types: an array with one axis, and the index of an element, whose address is passed.
ELEMENT = None, None


class Instruction(NamedTuple):
    """A line of PTX, as LLVM takes it."""

    line: str
    constraints: str
    """The kinds of registers of what it returns and of what it is given; "~{memory}" if it changes memory."""
    always: bool
    """Whether it is executed even if nobody uses what it returns."""

    @property
    def outputs(self):
        """The kind of register of each number that it returns."""
        return [each[1:] for each in self.constraints.split(",") if each.startswith("=")]

    @property
    def inputs(self):
        """The kind of register of each number that it is given."""
        return [each for each in self.constraints.split(",") if each.isalpha()]


def ptx(python, line, constraints, returned, *takes, always=False):
    """Return what kernels call for a line of PTX.

    Parameters
    ----------
    python : callable
        What it does, in Python: see `instruction`.
    line, constraints : str
        See `Instruction`. An address is 64 bits ("l") of global memory, or 32 ("r") of shared memory.
    returned : type
        What it returns: ``types.void``, a number, or a tuple of numbers of one type.
    *takes : type or None
        Its arguments. A tuple is as many numbers for the line; `ELEMENT` is an array and an index.
    always : bool
        See `Instruction`.
    """

    def typed(*given):
        return returned(*(kind or its for kind, its in zip(takes, given, strict=True)))

    def generated(emitted):
        return emitted.assembly(Instruction(line, constraints, always))

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
    made = emitted.intrinsic(define)
    made.py_func = python
    return made
