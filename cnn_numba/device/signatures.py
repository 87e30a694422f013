"""Notes on kernels: the types of their arguments, and the GPUs that they are for; NamedTuples for kernels."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

Function = TypeVar("Function", bound=Callable)


def signature(
    types: str, *, capability: str = "", allowed: Mapping[str, str] | None = None, name: str | None = None
) -> Callable[[Function], Function]:
    """Note the types of a kernel's arguments; goes below ``@cuda.jit``.

    Nothing is compiled: Numba compiles a kernel for the arguments of its first launch. The tests compare each
    launch with the note, and compile the kernel for each architecture by it; `cnn-numba inspect` and
    `gpuless.inspector.find_kernel` read it.

    Parameters
    ----------
    types : str
        A signature as Numba writes it. A NamedTuple is written by its name, and annotates its parameter.
    capability : str
        The compute capability of the GPUs that the kernel is for: ">= 8.0" or "< 8.0"; "" is all.
    allowed : dict, optional
        Things that the tests refuse in other kernels, "float64" or "spills", each with the reason.
    name : str, optional
        The kernel's name, where a function makes several.

    Examples
    --------
    >>> from numba import cuda
    >>> @cuda.jit
    ... @signature("void(float32[::1], float32)")
    ... def fill_kernel(out, value):
    ...     i = cuda.grid(1)
    ...     if i < out.size:
    ...         out[i] = value
    >>> fill_kernel.py_func.signature
    'void(float32[::1], float32)'
    """

    def note(function: Function) -> Function:
        vars(function).update(signature=types, capability=capability, allowed=dict(allowed or {}))
        if name:
            function.__name__ = function.__qualname__ = name
        return function

    return note


@functools.lru_cache(maxsize=1024, typed=True)  # every training step makes the same launches
def for_kernel(numbers: Any) -> Any:
    """Return a NamedTuple of ints as a kernel takes it, with the types of its annotations.

    A uint32 is taken modulo 2**32, as kernels count: so it may be negative, and the caller sees that others
    are smaller.
    """
    kinds = type(numbers).__annotations__.values()
    pairs = zip(kinds, numbers, strict=True)
    return type(numbers)(*(kind(value % 2**32 if kind is np.uint32 else value) for kind, value in pairs))
