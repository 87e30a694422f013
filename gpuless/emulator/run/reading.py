"""A kernel's memory, read by the host only where that can be."""

import ctypes
import errno
import os
import threading

from gpuless.emulator.translate.layout import ARENA_SPAN


class Wild(Exception):
    """Memory of the kernel cannot be read, at an address of this process."""


class Memory:
    """What a kernel has in its memory, read only where that can be.

    `arena`: where its memory begins: whatever address a kernel makes up is one of it.
    """

    def __init__(self, arena):
        self.arena, self._pieces = arena, {}

    def read(self, address, size):
        """Return bytes."""
        found, at = b"", address
        while len(found) < size:
            found += self._rest(at)
            at = address + len(found)
        return found[:size]

    def string(self, address):
        """Return the bytes up to a zero, or as many as a text may have."""
        found = b""
        while len(found) < LONGEST:
            text, *ended = self._rest(address + len(found)).split(b"\0", 1)
            found += text
            if ended:
                break
        return found

    def _rest(self, address):
        """Return what lies from an address on, up to the end of the piece that it is in."""
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


LONGEST = 1 << 20  # bytes of a text: a GPU has as much room for all that is printed
_PIECE = 4096  # pages are multiples of it, and a pipe holds as much
_pipe, _pipe_lock = [], threading.Lock()


def _copied(start):
    """Return a piece of memory; OSError if it cannot be read, which the operating system finds out."""
    with _pipe_lock:
        if not _pipe:
            _pipe.extend(os.pipe())
        os.write(_pipe[1], (ctypes.c_char * _PIECE).from_address(start))
        return os.read(_pipe[0], _PIECE)
