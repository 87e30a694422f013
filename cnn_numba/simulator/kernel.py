"""From ``kernel[grid, block](*arguments)`` to threads in the scheduler.

All that is needed of a kernel is its Python function, so this works on kernels compiled for a real GPU as
well, and without `numba.cuda`'s own simulator.
"""

import threading
import types
from contextlib import contextmanager
from numbers import Integral

import numpy as np

from cnn_numba.simulator.arguments import argument_names, device_arguments, memory_argument
from cnn_numba.simulator.errors import LaunchError
from cnn_numba.simulator.memory import SHARED_LIMIT, Memory
from cnn_numba.simulator.namespace import Cuda
from cnn_numba.simulator.scheduler import Scheduler
from cnn_numba.simulator.twins import Twins

THREADS_LIMIT = 1024
BLOCK_LIMITS = (1024, 1024, 64)
GRID_LIMITS = (2**31 - 1, 65535, 65535)

_running = threading.local()


def python_function(kernel):
    """Return the Python function of a kernel, whichever Numba made it.

    Parameters
    ----------
    kernel : kernel or function

    Returns
    -------
    function

    Raises
    ------
    TypeError
        If it is neither.
    """
    function = getattr(kernel, "py_func", kernel)
    if not isinstance(function, types.FunctionType):
        raise TypeError(f"expected a kernel made by cuda.jit, got {kernel!r}")
    return function


def running_twins():
    """Return the twins of the kernel that runs in this thread of the operating system, None if none does."""
    return getattr(_running, "twins", None)


@contextmanager
def _running_with(twins):
    if running_twins() is not None:
        raise LaunchError("a kernel cannot launch another kernel")
    _running.twins = twins
    try:
        yield
    finally:
        _running.twins = None


def check_dimensions(sizes, name, limits):
    """Return a grid or block as (x, y, z) if a GPU can have it.

    Parameters
    ----------
    sizes : int or sequence of one to three int
    name : str
        "grid" or "block".
    limits : tuple of (int, int, int)

    Returns
    -------
    tuple of (int, int, int)

    Raises
    ------
    TypeError
        If they are no integers.
    LaunchError
        If there are too many or too few, or a size is zero, negative or too large.

    Examples
    --------
    >>> check_dimensions((4, 2), "grid", GRID_LIMITS)
    (4, 2, 1)
    """
    given = tuple(sizes) if isinstance(sizes, (tuple, list)) else (sizes,)
    if not 1 <= len(given) <= 3:
        raise LaunchError(f"a {name} has 1, 2 or 3 dimensions, got {sizes}")
    if not all(isinstance(size, Integral) for size in given):
        raise TypeError(f"the {name} is made of integers, got {sizes}; use // or math.ceil to divide")
    for axis, size, limit in zip("xyz", given, limits, strict=False):
        if size < 1:
            raise LaunchError(f"{name} {given}: {axis} is {size} and must be at least 1 (is an array empty?)")
        if size > limit:
            raise LaunchError(f"{name} {given}: {axis} is {size}, and a GPU allows {limit}")
    return tuple(int(size) for size in given) + (1,) * (3 - len(given))


class Launch:
    """One kernel with its grid and block, to be called with its arguments.

    Parameters
    ----------
    kernel : kernel or function
    grid, block : int or tuple of int
    stream : object
        Ignored: everything happens at once.
    dynamic_bytes : int
        Dynamic shared memory.

    Raises
    ------
    LaunchError
        If no GPU could run it.
    """

    def __init__(self, kernel, grid, block, stream=0, dynamic_bytes=0):
        self.function = python_function(kernel)
        self.name = self.function.__name__
        self.extensions = getattr(kernel, "extensions", None) or ()
        self.grid = check_dimensions(grid, "grid", GRID_LIMITS)
        self.block = check_dimensions(block, "block", BLOCK_LIMITS)
        self.dynamic_bytes = int(dynamic_bytes)
        threads = int(np.prod(self.block))
        bounds = getattr(kernel, "targetoptions", {}).get("launch_bounds") or THREADS_LIMIT
        limit = bounds[0] if isinstance(bounds, (tuple, list)) else bounds
        if threads > limit:
            whose = "a GPU allows" if limit == THREADS_LIMIT else "launch_bounds allow"
            raise LaunchError(f"block {self.block} has {threads} threads, and {whose} {limit}")
        if not 0 <= self.dynamic_bytes <= SHARED_LIMIT:
            raise LaunchError(
                f"a block may have {SHARED_LIMIT} bytes (48 KB) of shared memory, not {dynamic_bytes}"
            )

    def __call__(self, *arguments):
        """Run the kernel on the arguments, as a launch on a GPU would."""
        with device_arguments(self, arguments) as on_device:
            self.run(on_device)

    def run(self, arguments, memory=None, order="forwards", seed=0, observe=None):
        """Run the kernel on arguments that are where the kernel can reach them.

        Parameters
        ----------
        arguments : sequence
        memory : Memory, optional
        order, seed, observe
            As in `Scheduler`.
        """
        memory = memory or Memory(self.dynamic_bytes)
        cuda = Cuda(self.grid, self.block, memory)
        twins = Twins(cuda, memory)
        names = argument_names(self.function, len(arguments))
        wrapped = tuple(map(memory_argument, arguments, names, [memory] * len(arguments)))
        scheduler = Scheduler(self.name, self.grid, self.block, cuda, memory, order, seed, observe)
        with _running_with(twins):
            scheduler.run(twins.function(self.function, device=False), wrapped)
