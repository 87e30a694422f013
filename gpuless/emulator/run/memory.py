"""The memory of the emulated GPU: one range of addresses, in which only the allocated parts are accessible.

The range is reserved from the operating system, which provides real memory only for pages that are written.
Until then arrays are mapped to one small file, again and again, that is full of `POISON`. Everything else is
protected, so the processor detects wild addresses.
"""

import bisect
import ctypes
import mmap
import os
import threading
from typing import NamedTuple

from gpuless.emulator.translate.layout import (
    ARENA_BEFORE,
    ARENA_SPAN,
    ARENA_TAKEN,
    POISON,
    PRIVATE_MARGIN,
    PRIVATE_SPAN,
    WORKER_SPAN,
    WORKERS,
)

PAGE = mmap.PAGESIZE
# How many arrays are followed by a protected guard page; further arrays have none. Each takes an entry in the
# operating system's list of mappings, which is limited to 65,530 by default.
_GUARDED = 1 << 14
# Memory is mapped to the file in pieces; these are the logarithms of the smallest and the largest size. The
# file is as long as the largest piece so far. All pieces together take another 18,000 entries in that list.
_LEAST_PIECE, _LARGEST_PIECE, _PIECES_OF_A_SIZE = 18, 25, 256
# Arrays up to this size get their pages when they are allocated: many pages at once take half the time.
_SMALL = 1 << 20
_NONE, _READ_WRITE = 0, 3
_FIXED, _NO_RESERVE = 0x10, 0x4000
_POPULATE = 23  # MADV_POPULATE_WRITE, since Linux 5.14
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t) + (ctypes.c_int,) * 3 + (ctypes.c_long,)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class Allocation(NamedTuple):
    """An allocated part of the memory."""

    address: int
    size: int

    def away(self, address):
        """Return the distance of an address in bytes, 0 if it is inside."""
        return max(self.address - address, address - self.address - self.size + 1, 0)


class OutOfMemory(MemoryError):
    """The emulated GPU has no free memory of that size."""


def _protect(address, size, access):
    """Set the protection of a part of the memory."""
    if _libc.mprotect(address, size, access):
        raise _refused(size, ctypes.get_errno())


def _refused(size, number):
    """Return an `OutOfMemory` that explains why the operating system refuses memory."""
    return OutOfMemory(
        f"the operating system gives no {size} bytes more: {os.strerror(number)}. Do vm.max_map_count, "
        "vm.overcommit_memory or a limit of the process (ulimit) allow too little?"
    )


class _PoisonFile:
    """A file in memory, full of `POISON`, to which pieces of memory are mapped (copy on write)."""

    def __init__(self):
        self._file, self._size, self._pieces = _libc.memfd_create(b"gpuless", 1), 0, 0  # MFD_CLOEXEC

    def show(self, address):
        """Map the next piece of memory to the file; return the size of the piece."""
        size = 1 << min(_LEAST_PIECE + self._pieces // _PIECES_OF_A_SIZE, _LARGEST_PIECE)
        block = POISON.to_bytes(4, "little") * (1 << _LEAST_PIECE - 2)
        flags = mmap.MAP_PRIVATE | _FIXED | _NO_RESERVE
        try:
            while self._size < size:
                self._size += os.pwrite(self._file, block, self._size)
        except OSError as error:
            raise _refused(size, error.errno) from None
        if _libc.mmap(address, size, _NONE, flags, self._file, 0) != address:
            raise _refused(size, ctypes.get_errno())
        self._pieces += 1
        return size


class Arena:
    """The memory of a GPU; `capacity` bytes can be allocated."""

    def __init__(self, capacity):
        self.capacity, self.used = capacity, 0
        self._lock = threading.RLock()
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
        start = _libc.mmap(None, ARENA_TAKEN, _NONE, flags, -1, 0)
        if start == ctypes.c_void_p(-1).value:
            raise OutOfMemory("the operating system gives no addresses for the memory of an emulated GPU")
        self.base = -(-(start + ARENA_BEFORE) // ARENA_SPAN) * ARENA_SPAN
        self.end = self.base + ARENA_SPAN
        first = self.base + PRIVATE_MARGIN
        self._private = [first + i * WORKER_SPAN for i in reversed(range(WORKERS))]
        # Freed parts as (size, address), and the beginning of the part that was never used.
        self._free, self._fresh = [], self.base + PRIVATE_SPAN + PRIVATE_MARGIN
        self._poisoned, self._poison = self._fresh, _PoisonFile()
        self._sizes, self._starts, self._untouched = {}, [], set()
        self._rooms = {}  # sizes with guard pages, by address

    def reserve(self):
        """Return the address for the memory of one more worker; `provide` makes parts of it usable."""
        with self._lock:
            if not self._private:
                raise OutOfMemory(f"more than {WORKERS} blocks cannot run at once")
            return self._private.pop()

    def provide(self, address, size):
        """Make `size` bytes of a worker's memory accessible."""
        _protect(address, -(-size // PAGE) * PAGE, _READ_WRITE)

    def withdraw(self, address, size):
        """Protect `size` bytes of a worker's memory until they are provided again."""
        _protect(address, size, _NONE)

    def empty(self, address, size):
        """Discard `size` bytes of a worker's memory; return whether that succeeded."""
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _FIXED | _NO_RESERVE
        return not size or _libc.mmap(address, size, _NONE, flags, -1, 0) == address

    def release(self, address):
        """Take back all memory of a worker."""
        self.empty(address, WORKER_SPAN)
        with self._lock:
            self._private.append(address)

    def allocate(self, size):
        """Allocate `size` bytes, filled with `POISON`; return their address."""
        length = -(-max(size, 1) // PAGE) * PAGE
        with self._lock:
            if self.used + length > self.capacity:
                raise OutOfMemory(
                    f"{size} bytes do not fit: the emulated GPU has {self.capacity}, {self.used} in use"
                )
            # A guard page after the array, so that an access beyond its end is detected.
            guard = PAGE if len(self._starts) < _GUARDED else 0
            address = self._take(length + guard)
            if address is None:
                raise OutOfMemory(f"{size} bytes do not fit between what is in use")
            try:
                _protect(address, length, _READ_WRITE)
                if guard:
                    _protect(address + length, guard, _NONE)
            except OutOfMemory:
                _libc.mprotect(address, length, _NONE)
                self._free.append((length + guard, address))
                raise
            self.used += length
            self._sizes[address], self._rooms[address] = size, length + guard
            bisect.insort(self._starts, address)
            self._untouched.add(address)
        if length <= _SMALL:
            self.prepare(address, length)
        return address

    def prepare(self, address, size):
        """Populate the pages of an array at once, before it is first written to."""
        if size > PAGE and address in self._untouched:
            self._untouched.discard(address)
            _libc.madvise(address, size, _POPULATE)

    def _take(self, room):
        """Return the address of `room` free bytes, or None."""
        address = self._reuse(room)
        if address is None and self._fresh + room > self.end:
            self._merge()
            address = self._reuse(room, exactly=False)
        if address is None and self._fresh + room <= self.end:
            while self._poisoned < self._fresh + room:
                self._poisoned += self._poison.show(self._poisoned)
            address, self._fresh = self._fresh, self._fresh + room
        return address

    def _reuse(self, room, exactly=True):
        for i, (free, address) in enumerate(self._free):
            if free == room or (not exactly and free > room):
                del self._free[i]
                if free > room:
                    self._free.append((free - room, address + room))
                return address
        return None

    def _merge(self):
        """Merge adjacent freed parts."""
        merged = []
        for address, room in sorted((address, room) for room, address in self._free):
            if merged and sum(merged[-1]) == address:
                merged[-1] = merged[-1][0], merged[-1][1] + room
            else:
                merged.append((address, room))
        if merged and sum(merged[-1]) == self._fresh:
            self._fresh = merged.pop()[0]
        self._free = [(room, address) for address, room in merged]

    def free(self, address):
        """Free an allocation; from now on an access to it is a fault."""
        with self._lock:
            length, room = -(-max(self._sizes.pop(address), 1) // PAGE) * PAGE, self._rooms.pop(address)
            del self._starts[bisect.bisect_left(self._starts, address)]
            self._untouched.discard(address)
            self.used -= length
            if room > length:  # arrays without a guard page stay accessible, in one mapping
                _libc.mprotect(address, length, _NONE)
            _libc.madvise(address, length, 4)  # MADV_DONTNEED: back to the file's content
            self._free.append((room, address))

    def find(self, address):
        """Return the `Allocation` that an address lies in, or None."""
        with self._lock:
            i = bisect.bisect_right(self._starts, address) - 1
            if i >= 0 and address < self._starts[i] + max(self._sizes[self._starts[i]], 1):
                return Allocation(self._starts[i], self._sizes[self._starts[i]])
            return None

    def extent(self):
        """Return the beginning of the first allocation and the end of the last one."""
        with self._lock:
            if not self._starts:
                return self.base, self.base
            return self._starts[0], self._starts[-1] + self._sizes[self._starts[-1]]

    def usable(self, address):
        """Return whether a kernel may access an address; the workers' memory counts as accessible."""
        if self.base + PRIVATE_MARGIN <= address < self.base + PRIVATE_SPAN:
            return True
        with self._lock:
            i = bisect.bisect_right(self._starts, address) - 1
            return (
                i >= 0 and address - self._starts[i] < -(-max(self._sizes[self._starts[i]], 1) // PAGE) * PAGE
            )

    def nearest(self, address):
        """Return the `Allocation` nearest to an address, or None."""
        with self._lock:
            i = bisect.bisect_right(self._starts, address)
            around = [Allocation(at, self._sizes[at]) for at in self._starts[max(i - 1, 0) : i + 1]]
        return min(around, key=lambda allocation: allocation.away(address), default=None)
