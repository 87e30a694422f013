"""The memory of the emulated GPU: one range of addresses, of which the parts that are allocated can be used.

The range is reserved from the operating system, which backs with real memory only what is written to: until
then arrays show the pages of one small file, again and again, that is full of `POISON`.
Whatever is not allocated cannot be read or written, so that a wild address is found by the processor.
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
#: An array begins at a multiple of this, as NVIDIA's allocator has it.
ALIGN = 512
# How many arrays are followed by a page that nobody may use. The operating system keeps a list of such pages
# with a limit, 65,530 by default; the arrays beyond this number follow each other without such a page.
_GUARDED = 1 << 14
# Memory shows the file in pieces; these are the bits of their sizes, the least and the largest. The file is
# as long as the largest so far. All pieces together are another 18,000 entries in that list.
_LEAST_PIECE, _LARGEST_PIECE, _PIECES_OF_A_SIZE = 18, 25, 256
# Arrays up to this size get their pages when they are allocated: many at once take half the time.
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
    """A part of the memory that is in use."""

    address: int
    size: int

    def away(self, address):
        """Return how far an address is away, in bytes."""
        return max(self.address - address, address - self.address - self.size + 1, 0)


class OutOfMemory(MemoryError):
    """The emulated GPU has no more memory of that size."""


def _protect(address, size, access):
    """Say what may be done with a part of the memory."""
    if _libc.mprotect(address, size, access):
        raise _refused(size, ctypes.get_errno())


def _refused(size, number):
    """Return the `OutOfMemory` that says why the operating system gives no more memory."""
    return OutOfMemory(
        f"the operating system gives no {size} bytes more: {os.strerror(number)}. Do vm.max_map_count, "
        "vm.overcommit_memory or a limit of the process (ulimit) allow too little?"
    )


class _PoisonFile:
    """A file in memory, full of `POISON`, which pieces of memory show until they are written to."""

    def __init__(self):
        self._file, self._size, self._pieces = _libc.memfd_create(b"gpuless", 1), 0, 0  # MFD_CLOEXEC

    def show(self, address):
        """Let the next piece of memory show the file; return the size of the piece."""
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
    """The memory of a GPU, of which `capacity` bytes can be allocated."""

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
        # Freed parts by address, and where what was never used begins.
        self._free, self._fresh = [], self.base + PRIVATE_SPAN + PRIVATE_MARGIN
        self._poisoned, self._poison = self._fresh, _PoisonFile()
        self._sizes, self._starts, self._untouched = {}, [], set()
        self._rooms = {}  # with the page after it that nobody may use

    def reserve(self):
        """Return where the memory of one more worker is to be, of which `provide` makes parts usable."""
        with self._lock:
            if not self._private:
                raise OutOfMemory(f"more than {WORKERS} blocks cannot run at once")
            return self._private.pop()

    def provide(self, address, size):
        """Back `size` bytes of a worker's addresses with memory."""
        _protect(address, -(-size // PAGE) * PAGE, _READ_WRITE)

    def withdraw(self, address, size):
        """Let nobody use `size` bytes of a worker's, until they are provided again."""
        _protect(address, size, _NONE)

    def empty(self, address, size):
        """Take `size` bytes of a worker's back, and all that they hold; return whether that was possible."""
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _FIXED | _NO_RESERVE
        return not size or _libc.mmap(address, size, _NONE, flags, -1, 0) == address

    def release(self, address):
        """Take back all that a worker has."""
        self.empty(address, WORKER_SPAN)
        with self._lock:
            self._private.append(address)

    def allocate(self, size):
        """Return the address of `size` bytes that nobody else uses; they hold `POISON`."""
        length = -(-max(size, 1) // PAGE) * PAGE
        with self._lock:
            if self.used + length > self.capacity:
                raise OutOfMemory(
                    f"{size} bytes do not fit: the emulated GPU has {self.capacity}, {self.used} in use"
                )
            # A page between neighbours, that a step too far is seen.
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
        """Fetch the pages of an array at once that is about to be written to for the first time."""
        if size > PAGE and address in self._untouched:
            self._untouched.discard(address)
            _libc.madvise(address, size, _POPULATE)

    def _take(self, room):
        """Return where there are `room` bytes that nobody uses, None if there is no such place."""
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
        """Make one of freed parts that lie side by side."""
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
        """Give memory back; what is done with it from now on is a fault."""
        with self._lock:
            length, room = -(-max(self._sizes.pop(address), 1) // PAGE) * PAGE, self._rooms.pop(address)
            del self._starts[bisect.bisect_left(self._starts, address)]
            self._untouched.discard(address)
            self.used -= length
            if room > length:  # the others stay one piece for the operating system
                _libc.mprotect(address, length, _NONE)
            _libc.madvise(address, length, 4)  # MADV_DONTNEED: it shows the file again
            self._free.append((room, address))

    def find(self, address):
        """Return the `Allocation` that an address lies in, or None."""
        with self._lock:
            i = bisect.bisect_right(self._starts, address) - 1
            if i >= 0 and address < self._starts[i] + max(self._sizes[self._starts[i]], 1):
                return Allocation(self._starts[i], self._sizes[self._starts[i]])
            return None

    def extent(self):
        """Return where the first allocation begins, and the last one ends."""
        with self._lock:
            if not self._starts:
                return self.base, self.base
            return self._starts[0], self._starts[-1] + self._sizes[self._starts[-1]]

    def usable(self, address):
        """Return whether a kernel may access an address; one of the emulator's own memory counts as such."""
        if self.base + PRIVATE_MARGIN <= address < self.base + PRIVATE_SPAN:
            return True
        with self._lock:
            i = bisect.bisect_right(self._starts, address) - 1
            return (
                i >= 0 and address - self._starts[i] < -(-max(self._sizes[self._starts[i]], 1) // PAGE) * PAGE
            )

    def nearest(self, address):
        """Return the `Allocation` that is nearest to an address, or None if there is none."""
        with self._lock:
            i = bisect.bisect_right(self._starts, address)
            around = [Allocation(at, self._sizes[at]) for at in self._starts[max(i - 1, 0) : i + 1]]
        return min(around, key=lambda allocation: allocation.away(address), default=None)
