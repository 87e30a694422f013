"""The parameters in which arrays are passed, and the values that follow from the arrays' types.

An array is a descriptor: two pointers, the offset of its first element, its shape, its strides in elements.
"""

import re

from gpuless.emulator.run.usual import noted


def count(type_):
    """Return how many parameters an argument of this type takes."""
    from numba_cuda_mlir import types

    if isinstance(type_, types.Array):
        return 3 + 2 * type_.ndim
    if isinstance(type_, types.BaseTuple):
        return sum(map(count, type_))
    return 1


def with_usual_strides(text, kernel, arguments):
    """Annotate a kernel's PTX with the values of parameters that the types of its arguments imply.

    The elements of a contiguous array's row are neighbours. But the compiler reads their distance at run
    time, so PTX alone doesn't show that the lanes of a warp read neighbours. It is only a hint:
    numba-cuda-mlir also launches a kernel for contiguous arrays with other arrays, if it has only that one.

    `arguments`: the types of the kernel's arguments.
    """
    if len(re.findall(r"\.param\s", _head(text, kernel))) != sum(map(count, arguments)):
        return text  # an argument is passed in an unknown way
    return noted(text, {f"{kernel}_param_{number}": value for number, value in _known(arguments)})


def _head(text, kernel):
    """Return the part of PTX that lists a kernel's parameters, "" if there is no such kernel."""
    found = re.search(rf"\.entry\s+{re.escape(kernel)}\s*\(([^)]*)\)", text)
    return found[1] if found else ""


def _known(arguments):
    """Yield the number and the value of each parameter that follows from the types."""
    from numba_cuda_mlir import types

    at = 0
    for type_ in arguments:
        if isinstance(type_, types.Array) and type_.layout in "CF" and type_.ndim:
            yield at + 2, 0  # the offset
            yield at + 3 + type_.ndim + (type_.ndim - 1 if type_.layout == "C" else 0), 1
        at += count(type_)
