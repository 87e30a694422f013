"""The memory of a simulated kernel: poisoned where a GPU has garbage, and with a GPU's limits.

`Memory` hands out shared and local arrays. Every array passes through `Memory.wrap` on its way into the
kernel; `gpuless.access.recording` overrides that to log every access.
"""

import functools

import numpy as np

from gpuless.limits import CONSTANT_LIMIT, LOCAL_LIMIT, SHARED_LIMIT, LaunchError
from gpuless.simulator.arithmetic import Unsigned, as_dtype, typed
from gpuless.simulator.arrays import typed_array
from gpuless.source.instructions import assigned_name, instruction_start, site

# Values that no kernel computes: a NaN with a payload, and integers near the extreme, which fail as an index.
_DISTANCES = {1: 2, 2: 0xDE, 4: 0xDEAD, 8: 0xDEAD}
_EMULATED = b"\xff\x7f"  # repeated, the poison of the emulated GPU's memory
_NAN_BITS = {2: 0x7EAD, 4: 0x7FC0DEAD, 8: 0x7FF8DEADDEADDEAD}


@functools.cache
def poison(dtype):
    """Return the value of unwritten memory: NaN for floats, near the extreme for integers, True for bool.

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
    """Return an array full of `poison`, in the order "C" or "F"."""
    array = np.empty(shape, dtype, order)
    array[...] = poison(array.dtype)
    return array


def is_poison(array):
    """Return a mask of the elements that still hold `poison`, bit for bit.

    A kernel may well compute any integer of one or two bytes: in such arrays, all elements count or none.
    """
    dtype = array.dtype
    if dtype.kind not in "fiu" or array.size == 0:
        return np.zeros(array.shape, bool)
    bits = array.view(f"u{dtype.itemsize}")
    same = bits == np.array(poison(dtype)).view(bits.dtype)
    if dtype.itemsize > 1:
        same |= bits == np.frombuffer(_EMULATED * (dtype.itemsize // 2), bits.dtype)
    return same if dtype.kind == "f" or dtype.itemsize >= 4 else np.full(array.shape, same.all())


def address_of(array):
    """Return the address of an array's first element."""
    return array.__array_interface__["data"][0]


def owner_of(array):
    """Return the array that owns the memory of another one."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


class Memory:
    """Shared, local and constant memory for the blocks of one launch, one block after another."""

    log_entries = 0  # this class logs nothing

    def __init__(self, dynamic_bytes=0):
        self.dynamic_bytes = dynamic_bytes
        self._constants = {}
        self.begin_block()

    def begin_block(self):
        """Drop the shared arrays: the next block gets newly poisoned ones."""
        self._shared = {}
        self._shared_bytes = {}
        self._dynamic = None

    def wrap(self, array, space, name=None, code=None, offset=None):
        """Return what the kernel gets for an array of one of the four spaces; here a `typed_array`.

        The name is that of an argument or a global; for an array that a kernel allocates, code and offset
        are the instruction that does.
        """
        return typed_array(array)

    def shared(self, frame, shape, dtype):
        """Return the shared array of this call in the source, the same for all threads.

        All arrays of shape 0 are the same memory, the dynamic one.
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
        """Return a new array of the calling thread."""
        array = poisoned(_checked(shape, "local"), as_dtype(dtype))
        if array.nbytes > LOCAL_LIMIT:
            raise LaunchError(
                f"a thread may have {LOCAL_LIMIT} bytes (512 KB) of local memory, "
                f"and this array of shape {array.shape} takes {array.nbytes}"
            )
        return self.wrap(array, "local", None, frame.f_code, frame.f_lasti)

    def constant(self, array, name):
        """Return a read-only array: a global array in a kernel."""
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
            return array  # wrapped already, as a global
        return self.constant(array, assigned_name(code, offset) or "constant array")

    def update(self, array, index, new, value):
        """Set an element to ``new(old, value)`` atomically; return the old one."""
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
        """Note that these lanes have passed `syncwarp`; does nothing here."""

    def lanes_missing(self, threads, finished):
        """Note an operation of a warp whose mask names lanes that have finished; does nothing here."""

    def absent_lane(self, thread, source, own):
        """Return what a shuffle reads from an absent lane: poison, in the type of the lane's own value."""
        own = np.uint64(own) if isinstance(own, Unsigned) else own
        dtype = "int64" if type(own) is int else np.asarray(own).dtype
        return typed(poison(np.dtype(dtype)))

    def fence(self):
        """Order the thread's writes before its next accesses, as other threads see them; they always are."""


def _checked(shape, space):
    """Return a shape if all its sizes are positive integers, else raise."""
    for size in shape if isinstance(shape, tuple) else (shape,):
        if not isinstance(size, (int, np.integer)) or size <= 0:
            raise LaunchError(f"the shape of a {space} array is made of positive integers, got {shape}")
    return shape
