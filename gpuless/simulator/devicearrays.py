"""Arrays of the simulated device, which the host copies to and from, as on a GPU."""

import contextlib
import weakref

import numpy as np

from gpuless.simulator.memory import address_of, owner_of, poison

#: Exported by `numba.cuda`.
__all__ = [
    *("as_cuda_array", "device_array", "device_array_like", "from_cuda_array_interface", "is_cuda_array"),
    *("managed_array", "mapped", "mapped_array", "mapped_array_like", "pinned", "pinned_array"),
    *("pinned_array_like", "to_device"),
]
#: Allocated memory by address, to find an array again that comes back as an address.
_allocations: weakref.WeakValueDictionary = weakref.WeakValueDictionary()


class DeviceArray:
    """An array on the device.

    Attributes
    ----------
    shape, strides, dtype, ndim, size, nbytes, flags
        As in an ndarray.
    stream : object
        The stream that the array was made with.
    """

    __cuda_memory__ = __cuda_ndarray__ = True

    def __init__(self, array, stream=0):
        self._ary, self.stream = array, stream

    shape = property(lambda self: self._ary.shape)
    strides = property(lambda self: self._ary.strides)
    dtype = property(lambda self: self._ary.dtype)
    ndim = property(lambda self: self._ary.ndim)
    size = property(lambda self: self._ary.size)
    nbytes = alloc_size = property(lambda self: self._ary.nbytes)
    flags = property(lambda self: self._ary.flags)
    T = property(lambda self: self.transpose())

    def __repr__(self):
        return f"<device array of shape {self.shape}, {self.dtype}>"

    def __len__(self):
        return len(self._ary)

    def __getattr__(self, name):
        if hasattr(np.ndarray, name):
            raise AttributeError(f"a device array has no attribute '{name}': copy it with copy_to_host()")
        raise AttributeError(f"a device array has no attribute '{name}'")

    def __array__(self, dtype=None, copy=None):
        if copy is False:
            raise ValueError("the elements of a device array are copied to the host")
        return self._ary.astype(dtype or self.dtype)

    @property
    def __cuda_array_interface__(self):
        given = self._ary.__array_interface__
        return {
            "shape": self.shape,
            "strides": given["strides"],
            "data": (given["data"][0] if self.size else 0, False),
            "typestr": self.dtype.str,
            "stream": None,
            "version": 3,
        }

    def is_c_contiguous(self):
        """Return whether the last axis varies fastest in memory, without gaps."""
        return self.flags.c_contiguous

    def is_f_contiguous(self):
        """Return whether the first axis varies fastest in memory, without gaps."""
        return self.flags.f_contiguous

    def bind(self, stream=0):
        """Return the same memory with another stream."""
        return DeviceArray(self._ary, stream)

    def copy_to_host(self, ary=None, stream=0):
        """Copy the elements to an array on the host, a new one by default, and return it."""
        if any(stride < 0 for stride in self.strides):
            raise NotImplementedError(f"an array with negative strides cannot be copied: {self.strides}")
        if ary is None:
            return self._ary.copy(order="K")
        _check_alike(self._ary, ary)
        np.copyto(ary, self._ary)
        return ary

    def copy_to_device(self, ary, stream=0):
        """Copy the elements of an array of the host or of the device into this one."""
        ary = _elements(ary)
        if ary.size == 0:
            return
        mine, theirs = _core(self._ary), _core(ary)
        _check_contiguous(mine)
        if not isinstance(ary, DeviceArray):
            theirs = np.asarray(theirs, order="C" if mine.flags.c_contiguous else "F")
        _check_alike(mine, theirs)
        np.copyto(mine, theirs)

    def __getitem__(self, index):
        found = self._ary[_index(index)]
        is_part = isinstance(found, (np.ndarray, np.void))
        return DeviceArray(np.asarray(found), self.stream) if is_part else found

    def __setitem__(self, index, value):
        self._ary[_index(index)] = _elements(value)

    def getitem(self, item, stream=0):
        """Return an element, or a part."""
        return self[item]

    def setitem(self, key, value, stream=0):
        """Set an element, or a part."""
        self[key] = value

    def reshape(self, *newshape, order="C"):
        """Return the same memory with another shape."""
        found = self._ary.reshape(*newshape, order=order)
        if found.shape != self.shape and not (self.flags.c_contiguous or self.flags.f_contiguous):
            raise NotImplementedError("operation requires copying: the array is not contiguous")
        return self._without_copying(found)

    def ravel(self, order="C", stream=0):
        """Return the same memory as an array of one axis."""
        return self._without_copying(self._ary.ravel(order=order))

    def _without_copying(self, array):
        if self.size and not np.shares_memory(array, self._ary):
            raise NotImplementedError("operation requires copying: the array is not contiguous")
        return DeviceArray(array, self.stream)

    def view(self, dtype):
        """Return the same bytes as elements of another type."""
        return DeviceArray(self._ary.view(np.dtype(dtype)), self.stream)

    def squeeze(self, axis=None, stream=0):
        """Return the same memory without axes of one element."""
        return DeviceArray(self._ary.squeeze(axis), self.stream)

    def transpose(self, axes=None):
        """Return a new array with its two axes exchanged."""
        if axes and tuple(axes) == tuple(range(self.ndim)):
            return self
        if self.ndim != 2:
            raise NotImplementedError("only arrays of two axes can be transposed")
        if axes is not None and set(axes) != {0, 1}:
            raise ValueError(f"invalid axes list {axes!r}")
        return _new(np.ascontiguousarray(self._ary.T))

    def split(self, section, stream=0):
        """Yield parts of `section` elements of an array of one axis; the last may be shorter."""
        if self.ndim != 1 or self.strides[0] != self.dtype.itemsize:
            raise ValueError("only arrays of one axis without gaps can be split")
        for start in range(0, self.size, section):
            yield self[start : start + section]


class MappedArray(np.ndarray):
    """An array that host and device share."""

    __cuda_memory__ = __cuda_ndarray__ = True

    @property
    def _ary(self):
        return self.view(np.ndarray)

    stream = 0
    __cuda_array_interface__ = DeviceArray.__cuda_array_interface__
    copy_to_host, copy_to_device = DeviceArray.copy_to_host, DeviceArray.copy_to_device


def _index(index):
    """Return an index if a device array takes it, else raise TypeError."""
    parts = index if isinstance(index, tuple) else (index,)
    if not all(isinstance(part, (int, np.integer, slice)) for part in parts):
        kinds = ", ".join(type(part).__name__ for part in parts)
        raise TypeError(
            f"a device array is indexed with integers and slices, not {kinds}: copy_to_host() first"
        )
    return index


def _elements(array):
    """Return an array of the host or the device as an ndarray."""
    if getattr(array, "__cuda_ndarray__", False):
        return array._ary
    if hasattr(array, "__cuda_array_interface__"):
        return as_cuda_array(array)._ary
    return np.asarray(array)


def _new(array, stream=0):
    """Return a device array of newly allocated memory."""
    memory = owner_of(array)
    _allocations[address_of(memory)] = memory
    return DeviceArray(array, stream)


def _core(array):
    """Return an array with axes of stride 0 removed."""
    if 0 not in array.strides or not array.size:
        return array
    return array[tuple(0 if stride == 0 else slice(None) for stride in array.strides)]


def _check_contiguous(array):
    flags = array.flags
    if not flags.c_contiguous and not flags.f_contiguous:
        raise ValueError(
            "Array contains non-contiguous buffer and cannot be transferred as a single memory region. "
            "Please ensure contiguous buffer with numpy .ascontiguousarray()"
        )


def _check_alike(one, other):
    """Raise if two arrays differ in more than axes of one element."""
    if one.dtype != other.dtype:
        raise TypeError(f"incompatible dtype: {one.dtype} vs. {other.dtype}")
    for what in ("shape", "strides"):
        if getattr(one.squeeze(), what) != getattr(other.squeeze(), what):
            raise ValueError(f"incompatible {what}: {getattr(one, what)} vs. {getattr(other, what)}")


def _empty(shape, dtype, strides=None, order="C"):
    """Return a new array on the host, with any strides."""
    array = np.empty(shape, dtype, order)
    if strides is None:
        return array
    reach = sum((size - 1) * abs(stride) for size, stride in zip(array.shape, strides, strict=True))
    return np.ndarray(array.shape, array.dtype, np.empty(reach + array.itemsize, np.uint8), 0, strides)


def to_device(obj, stream=0, copy=True, to=None):
    """Return a device array with the elements of an array, or copy them into the array `to`."""
    if to is not None:
        if copy:
            to.copy_to_device(obj, stream)
        return to
    if is_cuda_array(obj):
        return as_cuda_array(obj)
    array = np.asarray(obj)
    core = _core(array)
    _check_contiguous(core)
    copied = core.copy(order="K")
    if core is not array:
        copied = np.lib.stride_tricks.as_strided(copied, array.shape, array.strides)
    return _new(copied, stream)


def device_array(shape, dtype=np.float64, strides=None, order="C", stream=0):
    """Return a new array on the device; it is poisoned, as new memory of a GPU holds garbage."""
    array = _empty(shape, dtype, strides, order)
    array[...] = poison(array.dtype)
    return _new(array, stream)


def device_array_like(ary, stream=0):
    """Return a new array on the device like another one."""
    like = np.empty_like(_elements(ary), order="K", subok=False)
    like[...] = poison(like.dtype)
    return _new(like, stream)


def pinned_array(shape, dtype=np.float64, strides=None, order="C"):
    """Return an array on the host."""
    return _empty(shape, dtype, strides, order)


def pinned_array_like(ary):
    """Return a new array on the host like another one."""
    return np.empty_like(_elements(ary), order="K", subok=False)


def mapped_array(shape, dtype=np.float64, strides=None, order="C", stream=0, portable=False, wc=False):
    """Return an array that host and device share."""
    return _empty(shape, dtype, strides, order).view(MappedArray)


def mapped_array_like(ary, stream=0, portable=False, wc=False):
    """Return a new array that host and device share, like another one."""
    return pinned_array_like(ary).view(MappedArray)


def managed_array(shape, dtype=np.float64, strides=None, order="C", stream=0, attach_global=True):
    """Return an array that host and device share."""
    return mapped_array(shape, dtype, strides, order)


@contextlib.contextmanager
def pinned(*arylist):
    """Do nothing: host memory needs no pinning."""
    yield


@contextlib.contextmanager
def mapped(*arylist, **options):
    """Share arrays of the host with the device within a ``with`` block, which gets them as `MappedArray`."""
    shared = [array.view(MappedArray) for array in arylist]
    yield shared[0] if len(shared) == 1 else shared


def is_cuda_array(obj):
    """Return whether an object is an array in device memory."""
    return hasattr(obj, "__cuda_array_interface__") or getattr(obj, "__cuda_ndarray__", False)


def as_cuda_array(obj, sync=True):
    """Return an array in device memory as a `DeviceArray`; TypeError for anything else."""
    if getattr(obj, "__cuda_ndarray__", False):
        return obj
    if not hasattr(obj, "__cuda_array_interface__"):
        raise TypeError(f"a {type(obj).__name__} is not in device memory: use cuda.to_device")
    return from_cuda_array_interface(obj.__cuda_array_interface__, obj, sync)


def from_cuda_array_interface(desc, owner=None, sync=True):
    """Return the device array that an interface describes; `owner` is used in messages only."""
    address, dtype = desc["data"][0] or 0, np.dtype(desc["typestr"])
    if 0 in desc["shape"]:
        return DeviceArray(np.empty(desc["shape"], dtype))
    for start, memory in list(_allocations.items()):
        if start <= address < start + memory.nbytes:
            flat = memory.reshape(-1, order="A").view(np.uint8)
            return DeviceArray(np.ndarray(desc["shape"], dtype, flat, address - start, desc.get("strides")))
    name = "something" if owner is None else f"a {type(owner).__name__}"
    raise TypeError(f"{name} is in memory that is not the simulated device's: copy it to the host first")
