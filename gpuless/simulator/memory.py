"""The memory a simulated kernel sees: poisoned where a GPU has garbage, limited where a GPU is limited.

`Memory` hands out shared and local arrays as ndarrays. `gpuless.access.recording` derives the memory
that also notes every access; it overrides `Memory.wrap`, through which every array passes on its way into
the kernel.
"""

import functools

import numpy as np

from gpuless.limits import CONSTANT_LIMIT, LOCAL_LIMIT, SHARED_LIMIT, LaunchError
from gpuless.simulator.arithmetic import Unsigned, as_dtype, typed
from gpuless.simulator.arrays import typed_array
from gpuless.source.instructions import assigned_name, instruction_start, site

# Values nobody computes: a NaN with a payload, and integers near the extreme, which crash as an index.
_DISTANCES = {1: 2, 2: 0xDE, 4: 0xDEAD, 8: 0xDEAD}
_EMULATED = b"\xff\x7f"  # again and again, in the memory of the emulated GPU
_NAN_BITS = {2: 0x7EAD, 4: 0x7FC0DEAD, 8: 0x7FF8DEADDEADDEAD}


@functools.cache
def poison(dtype):
    """Return the value that stands for memory nobody has written.

    It is NaN for floats, a value near the extreme for integers, True for bool.

    >>> poison(np.dtype("float32")), poison(np.dtype("int32")) < -(2**30)
    (np.float32(nan), np.True_)
    """
    if dtype.kind == "f" and dtype.itemsize in _NAN_BITS:
        return np.array(_NAN_BITS[dtype.itemsize], f"u{dtype.itemsize}").view(dtype)[()]
    if dtype.kind == "c":
        return dtype.type(complex(np.nan, np.nan))
    if dtype.kind in "iu":
        limits, distance = np.iinfo(dtype), _DISTANCES[dtype.itemsize]
        return dtype.type(limits.min + distance if dtype.kind == "i" else limits.max - distance)
    return np.frombuffer(b"\x01" * dtype.itemsize, dtype)[0]


def poisoned(shape, dtype, order="C"):
    """Return an array full of `poison`.

    Parameters
    ----------
    shape : int or tuple of int
    dtype : dtype
    order : {"C", "F"}

    Returns
    -------
    ndarray
    """
    array = np.empty(shape, dtype, order)
    array[...] = poison(array.dtype)
    return array


def is_poison(array):
    """Return which elements still hold `poison`, bit for bit.

    Integers of one or two bytes have no value to spare: there an element only counts if all do.
    """
    dtype = array.dtype
    if dtype.kind not in "fiu" or array.size == 0:
        return np.zeros(array.shape, bool)
    bits = array.view(f"u{dtype.itemsize}")
    same = bits == np.array(poison(dtype)).view(bits.dtype)
    if dtype.itemsize > 1:
        same |= bits == np.frombuffer(_EMULATED * (dtype.itemsize // 2), bits.dtype)
    return same if dtype.kind == "f" or dtype.itemsize >= 4 else np.full(array.shape, same.all())


class Memory:
    """Shared, local and constant memory for the blocks of one launch, one block after another."""

    log_entries = 0  # nothing is logged here

    def __init__(self, dynamic_bytes=0):
        self.dynamic_bytes = dynamic_bytes
        self._constants = {}
        self.begin_block()

    def begin_block(self):
        """Forget the shared arrays: the next block gets its own, poisoned afresh."""
        self._shared = {}
        self._shared_bytes = {}
        self._dynamic = None

    def wrap(self, array, space, name=None, code=None, offset=None):
        """Turn an array of one of the four spaces into what the kernel gets; here that is `typed_array`.

        The name is that of the argument or of the global variable; code and offset say where the kernel asked
        for an array that has no name yet.
        """
        return typed_array(array)

    def shared(self, frame, shape, dtype):
        """Return the shared array that belongs to this call in the source, the same for all threads.

        The place of the call names the array, as in the compiled kernel. All arrays of shape 0 are the same,
        dynamic, memory.
        """
        code = frame.f_code
        key = id(code), instruction_start(code, frame.f_lasti)
        array = self._shared.get(key)
        if array is None:
            array = self._allocate_shared(code, frame.f_lasti, shape, as_dtype(dtype))
            self._shared[key] = array
        return array

    def _allocate_shared(self, code, offset, shape, dtype):
        if shape in (0, (0,)):
            return self.wrap(self._dynamic_view(dtype), "shared", None, code, offset)
        array = poisoned(_checked(shape, "shared"), dtype)
        name = assigned_name(code, offset) or "an array without a name"
        self._shared_bytes[name] = self._shared_bytes.get(name, 0) + array.nbytes
        used = sum(self._shared_bytes.values())
        if used + self.dynamic_bytes > SHARED_LIMIT:
            parts = ", ".join(f"{name} {size}" for name, size in self._shared_bytes.items())
            if self.dynamic_bytes:
                parts += f", dynamic {self.dynamic_bytes}"
            raise LaunchError(
                f"a block may have {SHARED_LIMIT} bytes (48 KB) of shared memory, "
                f"and this kernel needs {used + self.dynamic_bytes}: {parts}"
            )
        return self.wrap(array, "shared", None, code, offset)

    def _dynamic_view(self, dtype):
        if self.dynamic_bytes == 0:
            raise LaunchError(
                "an array of dynamic shared memory (shape 0) needs its bytes at the launch: "
                "kernel[grid, block, stream, bytes](...)"
            )
        if self._dynamic is None:
            self._dynamic = np.full(self.dynamic_bytes, 0xFF, np.uint8)
        count = self.dynamic_bytes // dtype.itemsize
        # All ones is NaN in every float type.
        return self._dynamic[: count * dtype.itemsize].view(dtype)

    def local(self, frame, shape, dtype):
        """Return a new array of the calling thread's own."""
        array = poisoned(_checked(shape, "local"), as_dtype(dtype))
        if array.nbytes > LOCAL_LIMIT:
            raise LaunchError(
                f"a thread may have {LOCAL_LIMIT} bytes (512 KB) of local memory, "
                f"and this array of shape {array.shape} takes {array.nbytes}"
            )
        return self.wrap(array, "local", None, frame.f_code, frame.f_lasti)

    def constant(self, array, name):
        """Return a read-only array: what a kernel gets to see of a global one."""
        view = np.ascontiguousarray(array).view()
        view.flags.writeable = False
        return self.wrap(view, "constant", name)

    def constant_like(self, frame, array):
        """Return an array, usually a global one, as constant memory: `cuda.const.array_like`."""
        code, offset = frame.f_code, frame.f_lasti
        self._constants[id(code), instruction_start(code, offset)] = array.nbytes
        used = sum(self._constants.values())
        if used > CONSTANT_LIMIT:
            raise LaunchError(
                f"a kernel may have {CONSTANT_LIMIT} bytes (64 KB) of constant memory, not {used} "
                f"({site(code, offset)})"
            )
        if not isinstance(array, np.ndarray):
            return array  # seen already, as a global
        return self.constant(array, assigned_name(code, offset) or "constant array")

    def update(self, array, index, new, value):
        """Replace one element by a function of itself and a value in one atomic step; return the old one."""
        old = array[index]
        array[index] = new(old, value)
        return old

    def load(self, array, index):
        """Return one element: ``cuda.ldcg`` and its kind."""
        return array[index]

    def store(self, array, index, value):
        """Set one element: ``cuda.stcg`` and its kind."""
        array[index] = value

    def synchronise_warp(self, threads):
        """Note that these lanes have passed `syncwarp`: nothing to do here."""

    def lanes_missing(self, threads, finished):
        """Note that lanes met without others that their mask names: nothing to do here."""

    def absent_lane(self, thread, source, own):
        """Return what a shuffle reads from a lane that is not there, in the type of the lane's own value."""
        own = np.uint64(own) if isinstance(own, Unsigned) else own
        dtype = "int64" if type(own) is int else np.asarray(own).dtype
        return typed(poison(np.dtype(dtype)))

    def fence(self):
        """Order the thread's writes before what it does next, as seen by others: they always are here."""


def _checked(shape, space):
    """Return a shape if it is one that a compiler could have known."""
    for size in shape if isinstance(shape, tuple) else (shape,):
        if not isinstance(size, (int, np.integer)) or size <= 0:
            raise LaunchError(f"the shape of a {space} array is made of positive integers, got {shape}")
    return shape
