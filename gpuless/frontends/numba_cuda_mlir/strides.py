"""The parameters that arrays are passed as: where they are, and which of them follow from their types.

An array is a descriptor: two pointers, the offset of its first element, its shape, its strides in elements.
"""

import re

from gpuless.emulator.run.usual import noted


def count(type_):
    """Return how many parameters an argument takes."""
    from numba_cuda_mlir import types

    if isinstance(type_, types.Array):
        return 3 + 2 * type_.ndim
    if isinstance(type_, types.BaseTuple):
        return sum(map(count, type_))
    return 1


def with_usual_strides(text, kernel, arguments):
    """Return PTX of a kernel with a note of what the types of its arguments say about its parameters.

    Elements of a row of an array that is contiguous follow each other. The compiler asks for their distance
    as the kernel runs, so that nobody would know that the lanes of a warp read neighbours. A note it is, no
    more: numba-cuda-mlir launches the kernel for contiguous arrays with others as well, if it has that one.

    `arguments`: their types.
    """
    if len(re.findall(r"\.param\s", _head(text, kernel))) != sum(map(count, arguments)):
        return text  # it passes one of them in another way than is known here
    return noted(text, {f"{kernel}_param_{number}": value for number, value in _known(arguments)})


def _head(text, kernel):
    """Return the part of PTX that lists the parameters of a kernel, "" if it has no such kernel."""
    found = re.search(rf"\.entry\s+{re.escape(kernel)}\s*\(([^)]*)\)", text)
    return found[1] if found else ""


def _known(arguments):
    """Give the number of each parameter that follows from the types, and what it holds."""
    from numba_cuda_mlir import types

    at = 0
    for type_ in arguments:
        if isinstance(type_, types.Array) and type_.layout in "CF" and type_.ndim:
            yield at + 2, 0  # the offset
            yield at + 3 + type_.ndim + (type_.ndim - 1 if type_.layout == "C" else 0), 1
        at += count(type_)
