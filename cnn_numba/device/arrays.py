"""Arrays on the device: made, copied, and where they lie."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from cnn_numba.arguments import shown, sizes
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

    gpu_data: Any
    __cuda_array_interface__: dict[str, Any]

    def __len__(self) -> int: ...
    def __getitem__(self, index: Any) -> Any: ...
    def __setitem__(self, index: Any, value: Any) -> None: ...

    def reshape(self, *shape: Any) -> Any:
        """Return a view of the same elements in another shape."""

    def copy_to_host(self, *, stream: Any = 0) -> np.ndarray:
        """Return a copy on the host, which is there once the stream is done."""

    def copy_to_device(self, source: Any, *, stream: Any = 0) -> None:
        """Take over the values of another array."""


_MOST_AXES, _MOST_ELEMENTS = 32, 2**48  # more than NumPy of any version takes, and than there are addresses

#: On the host or on the device.
Array = np.ndarray | DeviceArray


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
    if len(checked) > _MOST_AXES or math.prod(checked) > _MOST_ELEMENTS:
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


def pinned(shape: int | tuple[int, ...], dtype: DTypeLike = np.float32) -> np.ndarray:
    """Allocate a page-locked array on the host, uninitialised, for copies while the host goes on."""
    return usable_cuda().pinned_array(_checked(shape), dtype)


def address(array: DeviceArray) -> int:
    """Return where an array on the device begins, in bytes."""
    simulator: Any = array
    return simulator._ary.ctypes.data if SELECTION.simulated else array.__cuda_array_interface__["data"][0]


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
