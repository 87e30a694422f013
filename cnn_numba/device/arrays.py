"""Arrays: on the device made and copied; wherever they are, what operations insist on.

One rule about memory holds for every operation in every backend: **an output shares no memory with an input
or with another output, unless its docstring says which input it may be.** Then it may be exactly that one,
the same memory in the same shape; a partial overlap is always refused. What is updated in place is an output.
"""

import math
import operator
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from cnn_numba.arguments import MOST_ELEMENTS, shown, sizes
from cnn_numba.device.selection import SELECTION
from cnn_numba.device.streams import current_stream, synchronize
from cnn_numba.device.usable import driver_status, usable_cuda
from gpuless import nvidia

if TYPE_CHECKING:
    from typing_extensions import TypeIs  # mypy brings it along; Python has it from 3.13 on


class DeviceArray(Protocol):
    """An array in the memory of the GPU, be it a real one or not, as `numba.cuda` makes it."""

    shape: tuple[int, ...]
    dtype: np.dtype
    ndim: int
    size: int
    nbytes: int
    strides: tuple[int, ...]

    gpu_data: Any
    __cuda_array_interface__: dict[str, Any]

    def __len__(self) -> int: ...
    def __getitem__(self, index: Any) -> Any: ...
    def __setitem__(self, index: Any, value: Any) -> None: ...

    def is_c_contiguous(self) -> bool:
        """Return whether its elements lie one after the other, those of the last axis first."""

    def reshape(self, *shape: Any) -> Any:
        """Return a view of the same elements in another shape."""

    def copy_to_host(self, *, stream: Any = 0) -> np.ndarray:
        """Return a copy on the host, which is there once the stream is done."""

    def copy_to_device(self, source: Any, *, stream: Any = 0) -> None:
        """Take over the values of another array."""


_MOST_AXES, _ADDRESSES = 32, 2**48  # what NumPy 1 takes, and what a GPU can address

#: On the host or on the device.
Array = np.ndarray | DeviceArray
_Either = TypeVar("_Either", bound=Array)
#: Which shape a check asks for: a None stands for any length, and in place of a shape for any shape.
AnyShape = tuple[int | None, ...] | None


def is_device_array(array: object) -> "TypeIs[DeviceArray]":
    """Return whether an array is in the memory of the GPU, be it a real one or not.

    Examples
    --------
    >>> is_device_array(np.zeros(3)), is_device_array(zeros(3))
    (False, True)
    """
    return hasattr(array, "__cuda_ndarray__")


def empty(shape: int | tuple[int, ...], dtype: DTypeLike = np.float32) -> DeviceArray:
    """Allocate an array on the device, uninitialised."""
    shape = _checked(shape)
    with _memory(shape, dtype):
        return usable_cuda().device_array(shape, dtype)


def _checked(shape: object) -> tuple[int, ...]:
    """Return a shape, or the length of the only axis, as a tuple of int."""
    shape = shape if isinstance(shape, (tuple, list)) else (shape,)
    checked = sizes(shape, "shape", maximum=None) if shape else ()
    if len(checked) > _MOST_AXES or math.prod(checked) > _ADDRESSES:
        raise ValueError(f"shape must be of an array that memory can hold, got {shown(checked)}")
    return checked


def zeros(shape: int | tuple[int, ...], dtype: DTypeLike = np.float32) -> DeviceArray:
    """Allocate an array on the device, full of zeros."""
    return to_device(np.zeros(_checked(shape), dtype))


def to_device(array: ArrayLike) -> DeviceArray:
    """Copy an array of any layout to the device, where it is C-contiguous.

    Examples
    --------
    >>> to_host(to_device(np.arange(6).reshape(2, 3).T)).tolist()
    [[0, 3], [1, 4], [2, 5]]
    """
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"a masked array, shape {array.shape}, would lose its mask: copy its filled()")
    # asarray with an order, not ascontiguousarray: that would make a scalar an array of one element.
    array = np.asarray(array, order="C")
    # An axis of length 1, as x[None] has, may have any stride in NumPy; Numba takes it at its word.
    array = array.reshape(-1).reshape(array.shape)
    with _memory(array.shape, array.dtype):
        there = usable_cuda().to_device(array, stream=current_stream())
    if current_stream():
        synchronize()  # as in `copy`; without a stream it has waited already
    return there


@contextmanager
def _memory(shape: tuple[int, ...], dtype: DTypeLike) -> Iterator[None]:
    """Turn the driver's error for too large an array into Python's own."""
    try:
        yield
    except Exception as error:
        if driver_status(error) != "CUDA_ERROR_OUT_OF_MEMORY":
            raise
        raise MemoryError(f"the GPU's memory has no room for {np.dtype(dtype)} of shape {shape}") from error


def to_host(array: Array) -> np.ndarray:
    """Return the values of an array as a NumPy array for the host to read at once: itself if it is one."""
    if not is_device_array(array):
        return array
    values = array.copy_to_host(stream=current_stream())
    synchronize()
    return values


def copy(target: Array, source: Array) -> None:
    """Copy the values of one array into another of the same shape and dtype, wherever the two are.

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


def head(array: _Either, n: int) -> _Either:
    """Return the first n samples of a buffer, the buffer itself if those are all."""
    part: Any = array if array.shape[0] == n else array[:n]
    return part


def pinned(shape: int | tuple[int, ...], dtype: DTypeLike = np.float32) -> np.ndarray:
    """Allocate a page-locked array on the host, uninitialised, for copies while the host goes on."""
    return usable_cuda().pinned_array(_checked(shape), dtype)


def address(array: DeviceArray) -> int:
    """Return where an array on the device begins, in bytes."""
    simulator: Any = array
    return simulator._ary.ctypes.data if SELECTION.simulated else array.__cuda_array_interface__["data"][0]


def aligned(*arrays: DeviceArray) -> bool:
    """Return whether all begin where 128 bits may be loaded at once; a slice may begin anywhere."""
    # Where a simulated array lies says nothing about a GPU, whose allocations all begin at such multiples.
    return SELECTION.simulated or all(address(array) % 16 == 0 for array in arrays)


def extent(array: DeviceArray) -> tuple[int, int]:
    """Return where a C-contiguous array on the device begins and ends, in bytes."""
    begin = address(array)
    return begin, begin + array.nbytes


def overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    """Return whether two extents have a byte in common; an empty one has none.

    Looking up an address takes longer than this, so the `extent` of each array is looked up once.

    Examples
    --------
    >>> x = zeros(4)
    >>> overlap(extent(x[:2]), extent(x[2:])), overlap(extent(x[:3]), extent(x[2:]))
    (False, True)
    """
    return max(a[0], b[0]) < min(a[1], b[1])


def elsewhere(array: DeviceArray) -> int | None:
    """Return the number of the GPU that holds an array if it is not the current one, else None."""
    if SELECTION.simulated or len(nvidia.driver().gpus) <= 1 or not array.size:
        return None
    number = array.gpu_data.context.device.id
    return None if number == usable_cuda().get_current_device().id else number


#: The types of arrays that kernels take: a masked array would lose its mask, a matrix its products.
PLAIN = (np.ndarray, np.memmap)


def check_array(
    name: str, array: Any, shape: AnyShape, dtype: DTypeLike = np.float32, writeable: bool = False
) -> np.ndarray:
    """Return `array` once it is known to be on the host, of this shape and dtype and C-contiguous.

    Parameters
    ----------
    name : str
        What to call it in an error.
    array : ndarray
    shape : tuple
        The shape it must have. A None stands for any length; a shape of None for any shape.
    dtype : dtype
        The dtype it must have.
    writeable : bool
        Whether it is going to be written to.

    Raises
    ------
    TypeError
        If it is not a plain array on the host (a masked array or a matrix is none), or of another dtype.
    ValueError
        If it has another shape, is not C-contiguous, or is read-only but going to be written to.

    Examples
    --------
    >>> check_array("bias", np.zeros(3, np.float32), (4,))
    Traceback (most recent call last):
        ...
    ValueError: bias must have shape (4,), got (3,)
    """
    if type(array) not in PLAIN:
        raise TypeError(_not_plain(name, array))
    _check_layout(name, array, shape, dtype, array.flags.c_contiguous)
    if writeable and not array.flags.writeable:
        raise ValueError(f"{name} must be writeable, but this array is read-only")
    return array


def _not_plain(name: str, array: object) -> str:
    """Say what is wrong with something that is not a plain array on the host."""
    kind = type(array).__name__
    if is_device_array(array):
        return f"{name} is an array on the device, shape {array.shape}: copy it with cnn_numba.device.to_host"
    if isinstance(array, np.ndarray):
        return (
            f"{name} must be a plain array, got {kind}: np.asarray makes one, or filled() of a masked array"
        )
    return f"{name} must be an array, got {kind}: {shown(array)}"


def _check_layout(name: str, array: Array, shape: AnyShape, dtype: DTypeLike, contiguous: bool) -> None:
    """Insist on a dtype, a shape and contiguity, for arrays wherever they are."""
    if array.dtype != dtype:
        raise TypeError(f"{name} must have dtype {np.dtype(dtype)}, got {shown(array.dtype)}")
    if shape is not None and array.shape != shape:
        wanted = len(shape) == array.ndim and all(
            want is None or want == got for want, got in zip(shape, array.shape, strict=True)
        )
        if not wanted:
            axes = ", ".join("any" if want is None else str(want) for want in shape)
            axes += "," * (len(shape) == 1)
            raise ValueError(f"{name} must have shape ({axes}), got {array.shape}")
    if not contiguous:
        raise ValueError(f"{name} must be C-contiguous, got shape {array.shape} with strides {array.strides}")


def check_memory(written: Mapping[str, Any], read: Mapping[str, Any], may_be: Collection[str] = ()) -> None:
    """Insist that what an operation writes shares no memory with its other arrays: the rule at the top.

    Parameters
    ----------
    written, read : dict of str to array
        C-contiguous arrays by their names, all on the host or all on the device; in `read` one may be None.
    may_be : sequence of str
        The names in `read` of those that a written array may be exactly.

    Examples
    --------
    >>> x = np.zeros(4, np.float32)
    >>> check_memory({"out": x}, {"x": x}, may_be=["x"])
    >>> check_memory({"out": x[1:]}, {"x": x[:-1]}, may_be=["x"])
    Traceback (most recent call last):
        ...
    ValueError: out must not share memory with x unless it is exactly that (shapes (3,) and (3,))
    """
    arrays = {**written, **read}
    apart: dict[str, Any] = dict(arrays)
    share: Callable[..., bool] = np.may_share_memory
    if type(next(iter(written.values()))) not in PLAIN:
        apart = {name: extent(array) for name, array in arrays.items() if array is not None}
        share = overlap
    for name in written:
        place = apart.pop(name)
        for other, that in apart.items():
            if that is not None and share(place, that):
                _insist_on_one(name, arrays[name], other, arrays[other], other in may_be)


def _insist_on_one(name: str, a: Any, other: str, b: Any, allowed: bool) -> None:
    """Raise, for two arrays that share memory, unless they are exactly one array and that is allowed."""
    begin = address if is_device_array(a) else operator.attrgetter("ctypes.data")
    if not (allowed and a.shape == b.shape and begin(a) == begin(b)):
        unless = " unless it is exactly that" if allowed else ""
        raise ValueError(
            f"{name} must not share memory with {other}{unless} (shapes {a.shape} and {b.shape})"
        )


def check_device_array(
    name: str, array: Any, shape: AnyShape, dtype: DTypeLike = np.float32, writeable: bool = False
) -> DeviceArray:
    """Return `array` once it is known to be on the current GPU, of this shape and dtype and C-contiguous.

    It has fewer than 2**31 elements, too: see `MOST_ELEMENTS`.

    Parameters
    ----------
    name, array, shape, dtype, writeable
        As for `check_array`; there, every array may be written to.

    Examples
    --------
    >>> check_device_array("x", np.zeros(3, np.float32), (3,))
    Traceback (most recent call last):
        ...
    TypeError: x is an array on the host, shape (3,): copy it with cnn_numba.device.to_device
    """
    if isinstance(array, np.ndarray) and not is_device_array(array):
        raise TypeError(
            f"{name} is an array on the host, shape {array.shape}: copy it with cnn_numba.device.to_device"
        )
    if not is_device_array(array):
        raise TypeError(f"{name} must be an array on the device, got {type(array).__name__}: {shown(array)}")
    _check_layout(name, array, shape, dtype, array.is_c_contiguous())
    if array.size > MOST_ELEMENTS:
        raise ValueError(f"{name} has {array.size} elements; the kernels count up to {MOST_ELEMENTS}")
    if (number := elsewhere(array)) is not None:
        raise ValueError(f"{name} is on GPU {number}, which is not the current one (shape {array.shape})")
    return array
