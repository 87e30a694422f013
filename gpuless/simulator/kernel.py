"""Launches: from ``kernel[grid, block](*arguments)`` to threads in the scheduler.

A launch needs only the kernel's Python function, so it also works on kernels compiled for a real GPU, and
without `numba.cuda`'s own simulator.
"""

import reprlib
import time
import types
from collections.abc import Callable
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Generic, NoReturn, TypeVar

import numpy as np

from gpuless.causes import Cause
from gpuless.limits import THREADS_LIMIT, LaunchError, check_launch
from gpuless.simulator.arguments import argument_names, argument_types, device_arguments, memory_argument
from gpuless.simulator.coroutines import Coroutine
from gpuless.simulator.judge import judge
from gpuless.simulator.memory import Memory
from gpuless.simulator.namespace import IN_STEP, Cuda, missed
from gpuless.simulator.scheduler import Scheduler, order_of_launches
from gpuless.simulator.twins import Twins

_running: ContextVar["Twins | None"] = ContextVar("running", default=None)
_Result = TypeVar("_Result")


def python_function(kernel):
    """Return the Python function of a kernel, from any version of Numba, or of a function itself."""
    function = getattr(kernel, "py_func", kernel)
    if not isinstance(function, types.FunctionType):
        raise TypeError(f"expected a kernel made by cuda.jit, got {reprlib.repr(kernel)}")
    return function


def running_twins():
    """Return the twins of the kernel that runs in this context, None if none does."""
    return _running.get()


@contextmanager
def _running_with(twins):
    if running_twins() is not None:
        raise LaunchError("a kernel cannot launch another kernel")
    before = _running.set(twins)
    try:
        yield
    finally:
        _running.reset(before)


def configuration_of(given):
    """Check and return the brackets of a launch: grid and block, and perhaps stream and shared bytes."""
    if not isinstance(given, tuple) or not 2 <= len(given) <= 4:
        raise LaunchError(
            "a launch is configured as kernel[grid, block] or kernel[grid, block, stream, shared bytes], "
            f"got [{given}]"
        )
    return given


def unconfigured(name):
    """Return the error for a kernel that is called without grid and block."""
    error = LaunchError(f"kernel {name} needs a grid and a block: {name}[grid, block](...)")
    error.cause = Cause("not configured")
    return error


class Launch:
    """One kernel with its grid and block, to be called with its arguments.

    Parameters
    ----------
    kernel : kernel or function
    grid, block : int or tuple of int
    stream : object
        Ignored: a launch is done when it returns.
    dynamic_bytes : int
        Bytes of dynamic shared memory.

    Raises
    ------
    LaunchError
        If no GPU could run it.
    """

    def __init__(self, kernel, grid, block, stream=0, dynamic_bytes=0):
        self.kernel, self.function = kernel, python_function(kernel)
        self.name = self.function.__name__
        self.extensions = getattr(kernel, "extensions", None) or ()
        self.dynamic_bytes = int(dynamic_bytes)
        self.grid, self.block = check_launch(grid, block, self.dynamic_bytes)
        threads = int(np.prod(self.block))
        bounds = getattr(kernel, "targetoptions", {}).get("launch_bounds") or THREADS_LIMIT
        limit = bounds[0] if isinstance(bounds, (tuple, list)) else bounds
        if threads > limit:
            raise LaunchError(f"block {self.block} has {threads} threads, and launch_bounds allow {limit}")

    def __call__(self, *arguments):
        """Run the kernel on the arguments, as a launch on a GPU would."""
        with device_arguments(self, arguments) as on_device:
            self.run(on_device, order=order_of_launches())

    def run(self, arguments, memory=None, order="forwards", seed=0, observe=None):
        """Run the kernel on arguments in device memory; the other parameters are those of `Scheduler`."""
        memory = memory or Memory(self.dynamic_bytes)
        cuda = Cuda(self.grid, self.block, memory)
        names, kinds = argument_names(self.function, len(arguments)), argument_types(arguments)
        scheduler = Scheduler(self.name, self.grid, self.block, cuda, memory, order, seed, observe)
        ask = partial(judge, self.kernel, self.function, arguments, kinds)
        twins = Twins(cuda, memory, kinds, ask, scheduler.watch, order == IN_STEP)
        wrapped = tuple(map(memory_argument, arguments, names, [memory] * len(arguments)))
        if conversion := getattr(self.kernel, "conversion", None):
            wrapped = conversion.of_launch(wrapped)
        with _running_with(twins):
            known = tuple(zip(names, kinds, strict=True))
            function = twins.function(self.function, device=False, parameters=known)
            if twins.need_threads(self.function):
                function, scheduler.watch.clock = partial(_coroutine, function), time.process_time
            scheduler.run(function, wrapped)


def _coroutine(function, *arguments):
    """Return a kernel's call as a coroutine; an error if the operating system has no threads."""
    try:
        return Coroutine(function, *arguments)
    except RuntimeError:
        raise missed(function.__name__) from None


class Observed(Generic[_Result]):
    """A kernel whose launch, ``observed[grid, block](*arguments)``, returns what was observed.

    Parameters
    ----------
    kernel : kernel or function
    run : callable
        Takes a `Launch` and its arguments in device memory; the launch returns its result.
    """

    def __init__(self, kernel: Any, run: Callable[..., _Result]) -> None:
        self._kernel, self._run = kernel, run

    def __call__(self, *arguments: Any) -> NoReturn:
        """Raise an error that says how a kernel is launched."""
        raise unconfigured(python_function(self._kernel).__name__)

    def __getitem__(self, configuration: tuple) -> Callable[..., _Result]:
        launch = Launch(self._kernel, *configuration_of(configuration))

        def run(*arguments):
            with device_arguments(launch, arguments) as on_device:
                return self._run(launch, on_device)

        return run


def simulate(kernel: Any, order: str = "forwards") -> Observed:
    """Return a kernel whose launch runs as Python code, thread by thread, even if there is a GPU.

    Parameters
    ----------
    kernel : kernel or function
    order : {"forwards", "reversed", "shuffled", "in step"}
        The order of the blocks, and of the threads between two barriers. With "in step", the lanes of a warp
        store together, so that a race between them loses updates as on a GPU.

    Returns
    -------
    object
        Launched like the kernel: ``simulate(kernel)[grid, block](*arguments)``. A mistake raises an exception
        that names kernel, line, block and thread.

    Examples
    --------
    >>> from numba import cuda
    >>> @cuda.jit
    ... def fill(x):
    ...     x[cuda.grid(1)] = 1
    >>> simulate(fill)[1, 4](cuda.to_device(np.zeros(3)))
    Traceback (most recent call last):
        ...
    IndexError: index 3 is out of bounds for axis 0 with size 3
      in kernel fill, line 3: x[cuda.grid(1)] = 1
      block 0, thread 3
    """
    return Observed(kernel, lambda launch, arguments: launch.run(arguments, order=order))
