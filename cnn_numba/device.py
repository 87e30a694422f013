"""GPU or simulator? And the one place for what the host does with either: arrays, launches, streams, events.

Numba reads ``NUMBA_ENABLE_CUDASIM`` when `numba.cuda` is first imported. Without a GPU its simulator runs the
same kernels in Python, slowly, which is what learning and testing need; so where there is no GPU the package
selects it, once, when it is imported and before numba can be. Nothing is printed: `describe` tells.

Everything that is launched or copied goes to the current stream, which `use_stream` sets. Whether that stream
runs the work or records it for a CUDA graph makes no difference to the operations.
"""

import functools
import operator
import os
import platform
import sys
import warnings
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import numpy as np

from cnn_numba.nvidia import dotted, driver, installed, toolkit

_SIMULATOR = "NUMBA_ENABLE_CUDASIM"


class UnusableGpu(RuntimeError):
    """A GPU that does not work with the driver or toolkit that is installed; the message has the fix."""


class LaunchError(ValueError):
    """A launch, or an allocation within it, that no GPU would accept."""


class Selection(NamedTuple):
    """What numba.cuda will be in this process, and why."""

    simulator: bool
    reason: str


def select():
    """Select the simulator where there is no GPU, unless the user or an earlier import has decided.

    Called when `cnn_numba` is imported; calling it again changes nothing.

    Returns
    -------
    Selection

    Examples
    --------
    >>> select() == select()
    True
    """
    if "numba.cuda" in sys.modules:
        return _already_imported()
    wish = os.environ.get(_SIMULATOR, "").strip()
    problem = driver().problem
    # A process started by ours inherits the variable that is set below: without a GPU that is no wish.
    if wish and (problem is None or wish == "0"):
        return Selection(wish != "0", f"the environment variable {_SIMULATOR} is {wish}")
    if problem is None:
        return Selection(False, "a GPU was found")
    os.environ[_SIMULATOR] = "1"
    if "numba" in sys.modules:
        # numba has read its environment; numba.cuda will look here.
        sys.modules["numba"].config.ENABLE_CUDASIM = 1
    return Selection(True, problem)


def _already_imported():
    """Return what numba.cuda is, now that it can no longer be changed."""
    config = sys.modules.get("numba.cuda.core.config") or sys.modules["numba"].config
    if config.ENABLE_CUDASIM:
        return Selection(True, "numba.cuda was imported before cnn_numba, as the simulator")
    problem = driver().problem
    if problem is None:
        return Selection(False, "a GPU was found")
    reason = (
        f"numba.cuda was imported before cnn_numba, and {problem}: no kernel can run; "
        f"import cnn_numba first, or set {_SIMULATOR}=1"
    )
    # The first kernel would fail with an error about a driver, far from the line that is to be changed.
    warnings.warn(reason, RuntimeWarning, stacklevel=5)
    return Selection(False, reason)


def simulated():
    """Return whether kernels run in the simulator.

    Returns
    -------
    bool
    """
    return SELECTION.simulator


def threads():
    """Return how many threads the CPU room uses.

    Returns
    -------
    int
    """
    import numba

    return numba.get_num_threads()


def facts():
    """Return what this machine gives the package to work with.

    Returns
    -------
    dict of str to str
        In the order `describe` prints.

    Examples
    --------
    >>> list(facts())
    ['kernels', 'GPU', 'driver', 'CPU threads', 'Python', 'NumPy', 'numba', 'numba-cuda', 'CUDA toolkit']
    """
    found = driver()
    gpus = ", ".join(f"{gpu.name} (compute capability {dotted(gpu.capability)})" for gpu in found.gpus)
    return {
        "kernels": f"run {'in the simulator' if simulated() else 'on the GPU'}: {SELECTION.reason}",
        "GPU": gpus or f"none: {found.problem}",
        "driver": _driver_text(found),
        "CPU threads": str(threads()),
        "Python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        "NumPy": installed("numpy") or "not installed",
        "numba": installed("numba") or "not installed",
        "numba-cuda": installed("numba-cuda") or "not installed (numba's own simulator is used)",
        "CUDA toolkit": dotted(toolkit()) if toolkit() else "not installed",
    }


def _driver_text(found):
    if found.cuda is None and found.version is None:
        return "none"
    supports = f"supports CUDA {dotted(found.cuda)}" if found.cuda else "says no CUDA version"
    return f"{found.version or 'of unknown version'}, {supports}"


def describe():
    """Return one short paragraph, a fact a line, on GPU or simulator, driver, threads and versions.

    Returns
    -------
    str

    Examples
    --------
    >>> describe().splitlines()[0].startswith("kernels")
    True
    """
    lines = facts()
    width = max(map(len, lines))
    return "\n".join(f"{name:{width}}  {value}" for name, value in lines.items())


# Decided at import, once: whoever imports numba.cuda after this gets the one or the other.
SELECTION = select()


@functools.cache
def _cuda():
    """Return `numba.cuda`, imported at first use, once a GPU that it can work with is known to be there."""
    if not simulated():
        from cnn_numba.doctor import gpu_findings

        wrong = [finding for finding in gpu_findings() if not finding.healthy]
        if wrong:
            raise UnusableGpu("; ".join(f"{f.topic}: {f.text} (fix: {f.fix})" for f in wrong))
    from numba import cuda

    return cuda


# --- Arrays ------------------------------------------------------------------------------------------------


def is_device_array(array):
    """Return whether an array is in the memory of the GPU, or of the simulated one.

    Parameters
    ----------
    array : object

    Returns
    -------
    bool

    Examples
    --------
    >>> is_device_array(np.zeros(3)), is_device_array(zeros(3))
    (False, True)
    """
    return hasattr(array, "__cuda_ndarray__")


def empty(shape, dtype=np.float32):
    """Allocate an array on the device, uninitialised.

    Parameters
    ----------
    shape : int or tuple of int
    dtype : dtype

    Returns
    -------
    device array
    """
    with _memory(shape, dtype):
        return _cuda().device_array(shape, dtype)


def zeros(shape, dtype=np.float32):
    """Allocate an array on the device, full of zeros.

    Parameters
    ----------
    shape : int or tuple of int
    dtype : dtype

    Returns
    -------
    device array
    """
    return to_device(np.zeros(shape, dtype))


def to_device(array):
    """Copy an array to the device.

    Parameters
    ----------
    array : array_like
        On the host, in any layout.

    Returns
    -------
    device array
        C-contiguous.

    Examples
    --------
    >>> to_host(to_device(np.arange(6).reshape(2, 3).T)).tolist()
    [[0, 3], [1, 4], [2, 5]]
    """
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"a masked array, shape {array.shape}, would lose its mask: copy its filled()")
    # asarray with an order, not ascontiguousarray: that would make a scalar an array of one element.
    array = np.asarray(array, order="C")
    with _memory(array.shape, array.dtype):
        there = _cuda().to_device(array, stream=current_stream())
    if current_stream():
        synchronize()  # as in `copy`; without a stream it has waited already
    return there


@contextmanager
def _memory(shape, dtype):
    """Turn the driver's error for too large an array into Python's own."""
    try:
        yield
    except Exception as error:
        if "OUT_OF_MEMORY" not in str(error):
            raise
        raise MemoryError(f"the GPU's memory has no room for {np.dtype(dtype)} of shape {shape}") from error


def to_host(array):
    """Return the values of an array as a NumPy array, which the host may read at once.

    Parameters
    ----------
    array : ndarray or device array

    Returns
    -------
    ndarray
        `array` itself if it is one.
    """
    if not is_device_array(array):
        return array
    values = array.copy_to_host(stream=current_stream())
    synchronize()
    return values


def copy(target, source):
    """Copy the values of one array into another of the same shape and dtype, wherever the two are.

    Parameters
    ----------
    target, source : ndarray or device array

    Examples
    --------
    >>> target = zeros(3)
    >>> copy(target, np.array([1, 2, 3], np.float32))
    >>> to_host(target).tolist()
    [1.0, 2.0, 3.0]
    """
    if not is_device_array(target):
        target[...] = to_host(source)
    elif target.size:
        target.copy_to_device(source, stream=current_stream())
        if not is_device_array(source):
            synchronize()  # the caller may change `source` as soon as this returns


def pinned(shape, dtype=np.float32):
    """Allocate a host array that the GPU can copy from and to while the host goes on.

    Parameters
    ----------
    shape : int or tuple of int
    dtype : dtype

    Returns
    -------
    ndarray
        Page-locked, uninitialised.
    """
    return _cuda().pinned_array(shape, dtype)


def address(array):
    """Return where an array on the device begins, in bytes.

    Parameters
    ----------
    array : device array

    Returns
    -------
    int
    """
    return array._ary.ctypes.data if simulated() else array.__cuda_array_interface__["data"][0]


def extent(array):
    """Return where an array on the device begins and ends, in bytes.

    Parameters
    ----------
    array : device array
        C-contiguous.

    Returns
    -------
    tuple of (int, int)
    """
    begin = address(array)
    return begin, begin + array.nbytes


def overlap(a, b):
    """Return whether two extents have a byte in common; an empty one has none.

    Parameters
    ----------
    a, b : tuple of (int, int)
        From `extent`: looking up an address takes longer than this, so each array's is looked up once.

    Returns
    -------
    bool

    Examples
    --------
    >>> x = zeros(4)
    >>> overlap(extent(x[:2]), extent(x[2:])), overlap(extent(x[:3]), extent(x[2:]))
    (False, True)
    """
    return max(a[0], b[0]) < min(a[1], b[1])


def elsewhere(array):
    """Return the number of the GPU that holds an array if it is not the current one, else None.

    Parameters
    ----------
    array : device array

    Returns
    -------
    int or None
    """
    if simulated() or len(driver().gpus) == 1 or not array.size:
        return None
    number = array.gpu_data.context.device.id
    return None if number == _cuda().get_current_device().id else number


# --- Streams -----------------------------------------------------------------------------------------------

_stream = ContextVar("stream", default=0)


def stream():
    """Make a stream: what is launched on it runs in order, and beside what runs on others.

    Returns
    -------
    stream
        For `use_stream`.
    """
    return _cuda().stream()


def current_stream():
    """Return the stream that launches and copies go to; 0 is the default one.

    Returns
    -------
    stream or 0
    """
    return _stream.get()


@contextmanager
def use_stream(stream):
    """Send launches and copies to a stream, or into the graph that a builder records.

    Parameters
    ----------
    stream : stream, cuda.core.GraphBuilder or 0

    Examples
    --------
    >>> with use_stream(stream()):
    ...     x = to_device(np.ones(3, np.float32))
    >>> current_stream()
    0
    """
    token = _stream.set(stream)
    try:
        yield
    finally:
        _stream.reset(token)


def synchronize():
    """Wait until everything on the current stream is done."""
    current = current_stream()
    if current:
        current.synchronize()
    else:
        _cuda().synchronize()


def seconds(function, repeats=10, warm_up=3):
    """Time work on the GPU with its own clock, one pair of events for each repetition.

    Parameters
    ----------
    function : callable
        Launches the work.
    repeats, warm_up : int
        How often it is timed, and how often it is run before that.

    Returns
    -------
    list of float
        Seconds of each repetition.

    Raises
    ------
    RuntimeError
        In the simulator, whose times say nothing about a GPU.
    """
    if simulated():
        raise RuntimeError(f"a simulated GPU cannot be timed ({SELECTION.reason})")
    cuda, on = _cuda(), current_stream()
    for _ in range(warm_up):
        function()
    events = [(cuda.event(), cuda.event()) for _ in range(repeats)]
    for begin, end in events:
        begin.record(on)
        function()
        end.record(on)
    synchronize()
    return [begin.elapsed_time(end) / 1000 for begin, end in events]


# --- Launches ----------------------------------------------------------------------------------------------


def blocks(size, threads):
    """Return how many blocks of `threads` threads cover `size` elements.

    Parameters
    ----------
    size, threads : int

    Returns
    -------
    int

    Examples
    --------
    >>> blocks(1000, 256)
    4
    """
    return -(-size // threads)


def launch(kernel, grid, block, *arguments, shared=0):
    """Run a kernel on the current stream, once it is clear that a GPU can run it.

    Parameters
    ----------
    kernel : kernel
        Made by ``@cuda.jit``.
    grid, block : int or tuple of int
        Blocks of the grid and threads of a block, x first.
    *arguments
        What the kernel takes. Arrays must be on the device: Numba would copy a host array there and back.
    shared : int
        Bytes of dynamic shared memory.

    Raises
    ------
    TypeError
        If an argument is an array on the host, or grid or block are not integers.
    LaunchError
        If grid or block is empty or too large for any GPU, or the block needs more shared memory or
        registers than there are.

    Examples
    --------
    >>> from numba import cuda
    >>> @cuda.jit
    ... def double_kernel(x):
    ...     i = cuda.grid(1)
    ...     if i < x.size:
    ...         x[i] *= 2
    >>> x = to_device(np.arange(5))
    >>> launch(double_kernel, blocks(x.size, 4), 4, x)
    >>> to_host(x).tolist()
    [0, 2, 4, 6, 8]
    """
    for argument in arguments:
        if isinstance(argument, np.ndarray) and not is_device_array(argument):
            raise TypeError(
                f"{_name(kernel)}: an array of shape {argument.shape} is on the host; "
                "copy it with cnn_numba.device.to_device"
            )
    try:
        _configured(kernel, grid, block, current_stream(), shared)(*arguments)
    except Exception as error:
        if "LAUNCH_OUT_OF_RESOURCES" not in str(error):
            raise
        raise LaunchError(
            f"{_name(kernel)}: a block of {block} threads needs more registers or shared memory than the "
            f"GPU has (dynamic shared memory {shared} bytes); use smaller blocks"
        ) from error


def _name(kernel):
    return getattr(kernel, "__name__", None) or kernel.py_func.__name__


@functools.lru_cache(maxsize=1024, typed=True)  # a training step makes the same launches again and again
def _configured(kernel, grid, block, on, shared):
    grid, block = check_launch(grid, block, shared)
    with warnings.catch_warnings():
        # Numba warns of grids too small to fill a GPU. Small networks have small grids.
        warnings.simplefilter("ignore")
        return kernel[grid, block, on, shared]


#: What every GPU that numba-cuda supports allows: threads of a block, each axis of a block and of a grid, and
#: bytes of shared memory for a block.
THREADS_LIMIT = 1024
BLOCK_LIMITS = (1024, 1024, 64)
GRID_LIMITS = (2**31 - 1, 65535, 65535)
SHARED_LIMIT = 48 * 1024


def check_launch(grid, block, shared=0):
    """Return grid and block as (x, y, z) if a GPU can have them.

    Parameters
    ----------
    grid, block : int or sequence of one to three int
    shared : int
        Bytes of dynamic shared memory.

    Returns
    -------
    grid, block : tuple of (int, int, int)

    Raises
    ------
    TypeError
        If they are no integers.
    LaunchError
        If there are too many or too few of them, or one is zero, negative or too large.

    Examples
    --------
    >>> check_launch((4, 2), 256)
    ((4, 2, 1), (256, 1, 1))
    """
    grid = _check_dimensions(grid, "grid", GRID_LIMITS)
    block = _check_dimensions(block, "block", BLOCK_LIMITS)
    threads = block[0] * block[1] * block[2]
    if threads > THREADS_LIMIT:
        raise LaunchError(f"block {block} has {threads} threads, and a GPU allows {THREADS_LIMIT}")
    if not 0 <= shared <= SHARED_LIMIT:
        raise LaunchError(f"a block may have {SHARED_LIMIT} bytes (48 KB) of shared memory, not {shared}")
    return grid, block


def _check_dimensions(sizes, name, limits):
    given = tuple(sizes) if isinstance(sizes, (tuple, list)) else (sizes,)
    if not 1 <= len(given) <= 3:
        raise LaunchError(f"a {name} has 1, 2 or 3 dimensions, got {sizes}")
    try:
        given = tuple(map(operator.index, given))
    except TypeError:
        raise TypeError(
            f"the {name} is made of integers, got {sizes}; use // or math.ceil to divide"
        ) from None
    for axis, size, limit in zip("xyz", given, limits, strict=False):
        if size < 1:
            raise LaunchError(f"{name} {given}: {axis} is {size} and must be at least 1 (is an array empty?)")
        if size > limit:
            raise LaunchError(f"{name} {given}: {axis} is {size}, and a GPU allows {limit}")
    return given + (1,) * (3 - len(given))
