"""Read a kernel's memory from the host without faults."""

import ctypes
import errno
import os
import threading

from gpuless.emulator.translate.layout import ARENA_SPAN


class Wild(Exception):
    """The kernel's memory is not readable at an address of this process."""


class Memory:
    """The memory of a kernel; reads raise `Wild` if it is not readable.

    `arena`: the address of its beginning; kernels' addresses wrap around within it.
    """

    def __init__(self, arena):
        self.arena, self._pieces = arena, {}

    def read(self, address, size):
        """Return `size` bytes at an address."""
        found, at = b"", address
        while len(found) < size:
            found += self._rest(at)
            at = address + len(found)
        return found[:size]

    def string(self, address):
        """Return the bytes up to a zero, or about `LONGEST` bytes."""
        found = b""
        while len(found) < LONGEST:
            text, *ended = self._rest(address + len(found)).split(b"\0", 1)
            found += text
            if ended:
                break
        return found

    def _rest(self, address):
        """Return the bytes from an address to the end of its piece."""
        place = self.arena + address % ARENA_SPAN
        start = place - place % _PIECE
        if start not in self._pieces:
            try:
                self._pieces[start] = _copied(start)
            except OSError as error:
                if error.errno != errno.EFAULT:
                    raise
                raise Wild(place) from None
        return self._pieces[start][place - start :]


LONGEST = 1 << 20  # bytes of a text: a GPU's buffer for all printed text is as large
_PIECE = 4096  # pages are multiples of it, and a pipe can hold it
_pipe, _pipe_lock = [], threading.Lock()


def _copied(start):
    """Return a piece of memory, copied by the operating system; OSError if it is not readable."""
    with _pipe_lock:
        if not _pipe:
            _pipe.extend(os.pipe())
        os.write(_pipe[1], (ctypes.c_char * _PIECE).from_address(start))
        return os.read(_pipe[0], _PIECE)
