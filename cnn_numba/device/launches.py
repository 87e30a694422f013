"""Kernel launches: checked before they reach the GPU, on the current stream, and open to observers."""

import functools
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np

from cnn_numba.device.arrays import is_device_array
from cnn_numba.device.streams import current_stream
from cnn_numba.device.usable import driver_status
from gpuless import LaunchError, check_launch


def blocks(size: int, threads: int) -> int:
    """Return how many blocks of `threads` threads cover `size` elements.

    Examples
    --------
    >>> blocks(1000, 256)
    4
    """
    return -(-size // threads)


class Launch(NamedTuple):
    """The arguments of a call of `launch`, as an observer gets them."""

    kernel: Any
    grid: int | tuple[int, ...]
    block: int | tuple[int, ...]
    arguments: tuple[Any, ...]
    shared: int = 0

    @property
    def threads(self) -> int:
        """The number of threads in a block."""
        return math.prod(np.atleast_1d(self.block).tolist())

    def run(self) -> None:
        """Launch the kernel; inside an observer, without that observer."""
        launch(self.kernel, self.grid, self.block, *self.arguments, shared=self.shared)

    def examine(self, tool: Callable[[Any], Any]) -> Any:
        """Run it under a tool such as `gpuless.sanitize` or `gpuless.access_map`; return the result."""
        return tool(self.kernel)[self.grid, self.block, 0, self.shared](*self.arguments)


_observers: ContextVar[tuple[Callable[[Launch], object], ...]] = ContextVar("observers", default=())


@contextmanager
def observe_launches(observer: Callable[[Launch], object]) -> Iterator[None]:
    """Pass every launch to an observer, which decides whether it runs.

    Parameters
    ----------
    observer : callable
        Called with each `Launch` instead of running it. With several, the innermost is called first; a launch
        that it runs goes to the next one.

    Examples
    --------
    >>> from cnn_numba.device import to_device
    >>> from cnn_numba.ops.activation.gpu import relu_forward
    >>> noted = []
    >>> with observe_launches(noted.append):
    ...     out = relu_forward(to_device(np.ones(300, np.float32)))
    >>> [(launch.kernel.__name__, launch.threads) for launch in noted]
    [('relu_forward_vectorized_kernel', 256)]
    """
    token = _observers.set((*_observers.get(), observer))
    try:
        yield
    finally:
        _observers.reset(token)


def launch(
    kernel: Any, grid: int | tuple[int, ...], block: int | tuple[int, ...], *arguments: Any, shared: int = 0
) -> None:
    """Run a kernel on the current stream, after checking that a GPU can run it.

    Parameters
    ----------
    kernel : kernel
        Made by ``@cuda.jit``.
    grid, block : int or tuple of int
        Blocks of the grid and threads of a block, x first.
    *arguments
        Arrays must be on the device: Numba would copy a host array there and back.
    shared : int
        Bytes of dynamic shared memory.

    Raises
    ------
    TypeError
        If an argument is an array on the host, or grid or block are not integers.
    LaunchError
        If grid or block is empty or too large for any GPU, or the block needs more shared memory or registers
        than the GPU has.

    Examples
    --------
    >>> from numba import cuda
    >>> @cuda.jit
    ... def double_kernel(x):
    ...     i = cuda.grid(1)
    ...     if i < x.size:
    ...         x[i] *= 2
    >>> from cnn_numba.device import to_device, to_host
    >>> x = to_device(np.arange(5))
    >>> launch(double_kernel, blocks(x.size, 4), 4, x)
    >>> to_host(x).tolist()
    [0, 2, 4, 6, 8]
    """
    if observers := _observers.get():
        token = _observers.set(observers[:-1])
        try:
            observers[-1](Launch(kernel, grid, block, arguments, shared))
        finally:
            _observers.reset(token)
        return
    for argument in arguments:
        if isinstance(argument, np.ndarray) and not is_device_array(argument):
            how = "copy it with cnn_numba.device.to_device"
            raise TypeError(f"{_name(kernel)}: an array of shape {argument.shape} is on the host; {how}")
    grid, block = (tuple(size) if isinstance(size, list) else size for size in (grid, block))
    try:
        _configured(kernel, grid, block, current_stream(), shared)(*arguments)
    except Exception as error:
        if driver_status(error) != "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES":
            raise
        raise LaunchError(
            f"{_name(kernel)}: a block of {block} threads needs more registers or shared memory than the "
            f"GPU has (dynamic shared memory {shared} bytes); use smaller blocks"
        ) from error


def launch_for_each(kernel: Any, count: int, threads: int, *arguments: Any) -> None:
    """Run a kernel with one thread for each of `count` elements, if any, in blocks of `threads`."""
    if count:
        launch(kernel, blocks(count, threads), threads, *arguments)


def _name(kernel: Any) -> str:
    return getattr(kernel, "__name__", None) or kernel.py_func.__name__


@functools.lru_cache(maxsize=1024, typed=True)  # every training step makes the same launches
def _configured(
    kernel: Any, grid: int | tuple[int, ...], block: int | tuple[int, ...], on: Any, shared: int
) -> Any:
    grid, block = check_launch(grid, block, shared)
    with warnings.catch_warnings():
        # Numba warns of grids too small to fill a GPU, which small networks have.
        warnings.simplefilter("ignore")
        return kernel[grid, block, on, shared]
