"""Arrays: made on the device and copied, and the checks of operations' arrays on host and device.

One rule about memory holds for every operation in every backend: **an output shares no memory with an input
or with another output, unless its docstring says which input it may be.** Then it may be exactly that one,
the same memory in the same shape; a partial overlap is always refused. An array that an operation updates in
place is an output.
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
    from typing_extensions import TypeIs  # a dependency of mypy; in Python from 3.13 on


class DeviceArray(Protocol):
    """An array of `numba.cuda` in the memory of the GPU, a real one or not."""

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
        """Return whether it is C-contiguous."""

    def reshape(self, *shape: Any) -> Any:
        """Return a view of the same elements in another shape."""

    def copy_to_host(self, *, stream: Any = 0) -> np.ndarray:
        """Return a copy on the host, complete when the stream is done."""

    def copy_to_device(self, source: Any, *, stream: Any = 0) -> None:
        """Copy the values of another array into it."""


_MOST_AXES, _ADDRESSES = 32, 2**48  # the limits of NumPy 1, and of a GPU's addresses

#: On the host or on the device.
Array = np.ndarray | DeviceArray
_Either = TypeVar("_Either", bound=Array)
#: The shape that a check expects: None stands for any length, or for any shape.
AnyShape = tuple[int | None, ...] | None


def is_device_array(array: object) -> "TypeIs[DeviceArray]":
    """Return whether an array is in the memory of the GPU, a real one or not.

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
    """Return a shape, or the length of a single axis, as a tuple of int."""
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
    # asarray keeps a scalar's shape (); ascontiguousarray would return shape (1,).
    array = np.asarray(array, order="C")
    # In NumPy an axis of length 1, as in x[None], may have any stride; Numba uses that stride.
    array = array.reshape(-1).reshape(array.shape)
    with _memory(array.shape, array.dtype):
        result = usable_cuda().to_device(array, stream=current_stream())
    if current_stream():
        synchronize()  # as in `copy`; on the default stream `to_device` has waited already
    return result


@contextmanager
def _memory(shape: tuple[int, ...], dtype: DTypeLike) -> Iterator[None]:
    """Turn the driver's error for too large an array into a MemoryError."""
    try:
        yield
    except Exception as error:
        if driver_status(error) != "CUDA_ERROR_OUT_OF_MEMORY":
            raise
        raise MemoryError(f"the GPU's memory has no room for {np.dtype(dtype)} of shape {shape}") from error


def to_host(array: Array) -> np.ndarray:
    """Return an array's values as a NumPy array, complete at once; a NumPy array itself."""
    if not is_device_array(array):
        return array
    values = array.copy_to_host(stream=current_stream())
    synchronize()
    return values


def copy(target: Array, source: Array) -> None:
    """Copy the values of an array into another of the same shape and dtype, each on host or device.

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


def first_rows(array: _Either, n: int) -> _Either:
    """Return the first n samples of a buffer, the buffer itself if it has just n."""
    part: Any = array if array.shape[0] == n else array[:n]
    return part


def pinned(shape: int | tuple[int, ...], dtype: DTypeLike = np.float32) -> np.ndarray:
    """Allocate a page-locked array on the host, uninitialised, for asynchronous copies."""
    return usable_cuda().pinned_array(_checked(shape), dtype)


def address(array: DeviceArray) -> int:
    """Return where an array on the device begins, in bytes."""
    simulator: Any = array
    return simulator._ary.ctypes.data if SELECTION.simulated else array.__cuda_array_interface__["data"][0]


def aligned(*arrays: DeviceArray) -> bool:
    """Return whether all begin at a multiple of 16 bytes, as 128-bit loads need; a slice may not."""
    # The address of a simulated array says nothing about a GPU, whose allocations are all aligned.
    return SELECTION.simulated or all(address(array) % 16 == 0 for array in arrays)


def extent(array: DeviceArray) -> tuple[int, int]:
    """Return where a C-contiguous array on the device begins and ends, in bytes."""
    begin = address(array)
    return begin, begin + array.nbytes


def overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    """Return whether two results of `extent` have a byte in common.

    It takes extents rather than arrays because looking up an address takes longer than the comparison.
    """
    return max(a[0], b[0]) < min(a[1], b[1])


def other_gpu(array: DeviceArray) -> int | None:
    """Return the number of the GPU that holds an array if it is not the current one, else None."""
    if SELECTION.simulated or len(nvidia.driver().gpus) <= 1 or not array.size:
        return None
    number = array.gpu_data.context.device.id
    return None if number == usable_cuda().get_current_device().id else number


#: The types of arrays that kernels take: a masked array would lose its mask, a matrix its product.
PLAIN = (np.ndarray, np.memmap)


def check_array(
    name: str, array: Any, shape: AnyShape, dtype: DTypeLike = np.float32, writeable: bool = False
) -> np.ndarray:
    """Return `array` if it is on the host, C-contiguous, and of this shape and dtype.

    Parameters
    ----------
    name : str
        Its name in an error message.
    array : ndarray
    shape : tuple
        None in it stands for any length; a shape of None for any shape.
    dtype : dtype
    writeable : bool
        Whether it must be writeable.

    Raises
    ------
    TypeError
        If it is not a plain array on the host (masked arrays and matrices are not), or of another dtype.
    ValueError
        If it has another shape, is not C-contiguous, or is read-only but must be writeable.
    """
    if type(array) not in PLAIN:
        problem = f"must be an array, got {type(array).__name__}: {shown(array)}"
        if is_device_array(array):
            problem = f"is an array on the device, shape {array.shape}: copy it with cnn_numba.device.to_host"
        elif isinstance(array, np.ndarray):
            kind, how = type(array).__name__, "np.asarray makes one, or filled() of a masked array"
            problem = f"must be a plain array, got {kind}: {how}"
        raise TypeError(f"{name} {problem}")
    _check_layout(name, array, shape, dtype, array.flags.c_contiguous, writeable)
    if writeable and not array.flags.writeable:
        raise ValueError(f"{name} must be writeable, but this array is read-only")
    return array


def _check_layout(
    name: str, array: Array, shape: AnyShape, dtype: DTypeLike, contiguous: bool, written: bool
) -> None:
    """Check dtype, shape and contiguity of an array on host or device."""
    if array.dtype != dtype:
        how = ""
        if dtype == np.uint8 and isinstance(array, np.ndarray):
            how = _as_pixels(name, array)
        elif np.can_cast(array.dtype, dtype, "same_kind"):
            # A float array made int32 would lose what it holds.
            how = _converted(array, written, f".astype(np.{np.dtype(dtype)})")
        raise TypeError(f"{name} must have dtype {np.dtype(dtype)}, got {shown(array.dtype)}{how}")
    if shape is not None and array.shape != shape:
        wanted = len(shape) == array.ndim and all(
            want is None or want == got for want, got in zip(shape, array.shape, strict=True)
        )
        if not wanted:
            axes = ", ".join("any" if want is None else str(want) for want in shape)
            axes += "," * (len(shape) == 1)
            raise ValueError(f"{name} must have shape ({axes}), got {array.shape}")
    if not contiguous:
        how = _converted(array, written, "np.ascontiguousarray")
        raise ValueError(
            f"{name} must be C-contiguous, got shape {array.shape} with strides {array.strides}{how}"
        )


def _converted(array: Array, written: bool, function: str) -> str:
    """Return the advice to convert an array; none for an output, as the result would be in the copy."""
    where = ", on the host" * is_device_array(array)
    return "" if written else f": convert it with {function}{where}"


def _as_pixels(name: str, array: np.ndarray) -> str:
    """Return the advice to make an array uint8, which depends on its range."""
    if not array.size or array.dtype.kind not in "biuf":
        return ""
    low, high = float(array.min()), float(array.max())
    is_integer = array.dtype.kind in "iu"
    from_0_to_1 = not is_integer and -0.5 <= 255 * low <= 255 * high < 255.5
    if not (from_0_to_1 or -0.01 < low <= high < 255.5):  # or NaN
        how = "scale them to that range, or pass them before they are normalised"
        return f": pixels are 0 to 255, these are {low:.9g} to {high:.9g}; {how}"
    numbers = name if is_integer else f"np.round({'255 * ' * from_0_to_1}{name})"
    return f": convert it with {numbers}.astype(np.uint8)"


def check_memory(written: Mapping[str, Any], read: Mapping[str, Any], may_be: Collection[str] = ()) -> None:
    """Check the rule at the top: arrays that an operation writes share no memory with its other arrays.

    Parameters
    ----------
    written, read : dict of str to array
        C-contiguous arrays by name, all on the host or all on the device; in `read` they may be None.
    may_be : sequence of str
        The names in `read` of the arrays that a written array may be.

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
    begin: Callable[[Any], int] = operator.attrgetter("ctypes.data")
    if type(next(iter(written.values()))) not in PLAIN:
        apart = {name: extent(array) for name, array in arrays.items() if array is not None}
        share, begin = overlap, address
    for name in written:
        mine = apart.pop(name)
        for other in [other for other, its in apart.items() if its is not None and share(mine, its)]:
            a, b, unless = arrays[name], arrays[other], " unless it is exactly that" * (other in may_be)
            if not (unless and a.shape == b.shape and begin(a) == begin(b)):
                shapes = f"(shapes {a.shape} and {b.shape})"
                raise ValueError(f"{name} must not share memory with {other}{unless} {shapes}")


def check_device_array(
    name: str, array: Any, shape: AnyShape, dtype: DTypeLike = np.float32, writeable: bool = False
) -> DeviceArray:
    """Return `array` if it is on the current GPU, C-contiguous, of this shape and dtype, and not too large.

    The arguments are as for `check_array`; on the GPU every array is writeable.
    """
    if not is_device_array(array):
        problem = f"must be an array on the device, got {type(array).__name__}: {shown(array)}"
        if isinstance(array, np.ndarray):
            problem = f"is an array on the host, shape {array.shape}: copy it with cnn_numba.device.to_device"
        raise TypeError(f"{name} {problem}")
    _check_layout(name, array, shape, dtype, array.is_c_contiguous(), writeable)
    if array.size > MOST_ELEMENTS:
        raise ValueError(f"{name} has {array.size} elements; the kernels count up to {MOST_ELEMENTS}")
    if (number := other_gpu(array)) is not None:
        raise ValueError(f"{name} is on GPU {number}, which is not the current one (shape {array.shape})")
    return array
