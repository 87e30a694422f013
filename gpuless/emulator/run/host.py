"""What a kernel asks its host for: functions that CUDA provides and no instruction stands for.

`printf`, `malloc`, `assert` and the barrier of a whole grid are calls of functions that PTX only declares. A
warp writes down what it wants, a request, and calls a function of this process, which serves its lanes one
by one.

Strings and the numbers of a printf lie where the kernel says. What cannot be read there is for the kernel to
run into: its thread touches it after the call, and that is a fault as any other.
"""

import contextlib
import ctypes
import errno
import locale
import os
import re
import sys
import threading
from queue import SimpleQueue

from gpuless.emulator.analysis.lanes import WARP
from gpuless.emulator.translate.host import FUNCTIONS, REQUEST
from gpuless.emulator.translate.layout import ARENA_SPAN, MAX_WARPS, OFFSET

_served = {}  # (function, what serves it) by its number in requests


def _serves(name):
    """Register what serves a function."""

    def register(serve):
        _served[FUNCTIONS[name].number] = FUNCTIONS[name], serve
        return serve

    return register


# --- On the host --------------------------------------------------------------------------------------------


class _Wild(Exception):
    """Memory of the kernel cannot be read, at an address of this process."""


class Memory:
    """What a kernel has in its memory, read only where that can be.

    Parameters
    ----------
    arena : int
        Where its memory begins: whatever address a kernel makes up is one of it.
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
        while len(found) < _LONGEST:
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
                raise _Wild(place) from None
        return self._pieces[start][place - start :]


_LONGEST = 1 << 20  # bytes of a text: a GPU has as much room for all that is printed
_PIECE = 4096  # pages are multiples of it, and a pipe holds as much
_pipe, _pipe_lock = [], threading.Lock()


def _copied(start):
    """Return a piece of memory; OSError if it cannot be read, which the operating system finds out."""
    with _pipe_lock:
        if not _pipe:
            _pipe.extend(os.pipe())
        os.write(_pipe[1], (ctypes.c_char * _PIECE).from_address(start))
        return os.read(_pipe[0], _PIECE)


class _Request:
    """What a warp asks for."""

    def __init__(self, block, address):
        self.block = block
        numbers = (ctypes.c_uint64 * REQUEST).from_address(address)
        self.number, mask, self.warp, self.shape, self.result, *self.given = numbers
        self.parameters = ctypes.c_uint64.from_address(block + OFFSET["params"]).value
        self.memory = Memory(ctypes.c_uint64.from_address(block + OFFSET["arena"]).value)
        self.lanes = [lane for lane in range(WARP) if mask >> lane & 1]

    def thread(self, lane):
        """Return (block, thread), each with three coordinates."""
        x, y = self.shape & 0xFFFF, self.shape >> 16 & 0xFFFF
        at = WARP * self.warp + lane
        block = (ctypes.c_uint32 * 3).from_address(self.block + OFFSET["ctaid.x"])
        return tuple(block), (at % x, at // x % y, at // (x * y))

    def blame(self, lane):
        """Note for a trace, if the block is run to have one, that it is this lane that fails."""
        masks = (ctypes.c_uint32 * MAX_WARPS).from_address(self.block + OFFSET["mask"])
        masks[self.warp] = 1 << lane


_TYPES = {4: ctypes.c_uint32, 8: ctypes.c_uint64}


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
def _host(block, address):
    request = _Request(block, address)
    function, serve = _served[request.number]
    columns = [
        (_TYPES[size] * WARP).from_address(column)
        for size, column in zip(function.given, request.given, strict=False)  # a request has room for more
    ]
    results = (_TYPES[function.results] * WARP).from_address(request.result) if request.result else None
    wild = ctypes.c_uint64.from_address(address)
    wild.value = 0
    for lane in request.lanes:
        try:
            result = serve(request, lane, *(column[lane] for column in columns))
        except _Wild as error:
            (wild.value,) = error.args
            request.blame(lane)
            return
        if results is not None:
            results[lane] = result


def address():
    """Return the address of the function that serves requests."""
    return ctypes.cast(_host, ctypes.c_void_p).value


# --- printf -------------------------------------------------------------------------------------------------

_DIRECTIVE = re.compile(rb"%([-+ #0]*)(\*|\d+)?(\.(?:\*|\d*))?(hh|h|ll|l|j|z|t|L)?([diouxXeEfFgGaAcspn%])")
_lines, _lock = [], threading.Lock()


_libc = ctypes.CDLL(None)
_libc.newlocale.restype = _libc.uselocale.restype = ctypes.c_void_p
_libc.newlocale.argtypes = ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p
_libc.uselocale.argtypes = (ctypes.c_void_p,)
_libc.snprintf.argtypes = ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p
_PLAIN = _libc.newlocale(1 << locale.LC_NUMERIC, b"C", None)  # whatever the program's is: 1.5, not 1,5


class _Given:
    """The numbers that a printf is given, as they lie in memory."""

    def __init__(self, at, memory):
        self.at, self.memory = at, memory

    def take(self, type_):
        """Return the next one."""
        size = ctypes.sizeof(type_)
        self.at = -(-self.at // size) * size
        value = type_.from_buffer_copy(self.memory.read(self.at, size))
        self.at += size
        return value


def format_text(form, at, memory):
    """Return what printf makes of numbers in memory, and how many they are.

    Parameters
    ----------
    form : bytes
    at : int
        The address of the first.
    memory : Memory

    Returns
    -------
    text : str
    count : int

    Examples
    --------
    >>> numbers = (ctypes.c_int64 * 2)(-3, 255)
    >>> at = ctypes.addressof(numbers)
    >>> format_text(b"%lld of %#6llx%%", at, Memory(at - at % ARENA_SPAN))
    ('-3 of   0xff%', 2)
    """
    given, count = _Given(at, memory), 0

    def convert(match):
        nonlocal count
        flags, width, precision, length, kind = match.groups(b"")
        if kind == b"%":
            return b"%"
        if width == b"*":
            width = b"%d" % given.take(ctypes.c_int).value
        if precision == b".*":
            precision = b".%d" % given.take(ctypes.c_int).value
        if width[:1] == b"-":
            flags, width = flags + b"-", width[1:]
        if precision[:2] == b".-":
            precision = b""  # none at all
        width, precision = _bounded(width), b"." * bool(precision) + _bounded(precision[1:])
        count += 1
        return _convert(b"%" + flags + width + precision, length, kind, given)

    text = _DIRECTIVE.sub(convert, form)
    return text.decode(errors="replace"), count


def _bounded(digits):
    return b"%d" % min(int(digits), _LONGEST) if digits else b""


def _convert(head, length, kind, given):
    """Return what C makes of the next number."""
    if kind in b"eEfFgGaA":
        return _printed(head + kind, given.take(ctypes.c_double))
    if kind == b"s":
        at = given.take(ctypes.c_uint64).value
        return _printed(head + kind, ctypes.c_char_p(given.memory.string(at) if at else b"(null)"))
    if kind == b"n":
        return b""
    if kind == b"c":
        return _printed(head + kind, given.take(ctypes.c_int))
    if kind == b"p":
        return _printed(head + kind, given.take(ctypes.c_void_p))
    if length in (b"l", b"ll", b"j", b"z", b"t"):
        return _printed(head + b"ll" + kind, given.take(ctypes.c_int64))
    return _printed(head + length.replace(b"L", b"") + kind, given.take(ctypes.c_int))


def _printed(directive, value):
    """Return what C's own printf makes of one directive."""
    before, size, room = _libc.uselocale(_PLAIN), 128, 0
    try:
        while size > room:  # the second time there is room enough
            room, buffer = size, ctypes.create_string_buffer(size)
            size = min(_libc.snprintf(buffer, room, directive, value), _LONGEST) + 1
        return buffer.raw[: max(size - 1, 0)]
    finally:
        _libc.uselocale(before)


@_serves("vprintf")
def _printf(request, lane, form, at):
    line, count = format_text(request.memory.string(form), at, request.memory)
    if request.parameters in _failures:
        with _lock:
            _lines.append(line)
    return count


def flush():
    """Print what kernels have printed: when a launch is over, so that it lands where the launch stands."""
    with _lock:
        lines, _lines[:] = list(_lines), []
    if lines:
        sys.stdout.write("".join(lines))
        sys.stdout.flush()


# --- assert -------------------------------------------------------------------------------------------------

_failures = {}


@_serves("__assertfail")
def _assert_fail(request, lane, message, file, line, function, size):
    message, file, function = (
        request.memory.string(one).decode(errors="replace") if one else "?"
        for one in (message, file, function)
    )
    block, thread = request.thread(lane)
    where = f"{file}:{line}: {function}: block: {list(block)}, thread: {list(thread)}"
    if request.parameters in _failures:
        _failures[request.parameters].append(f"{where} Assertion `{message}` failed.")


@contextlib.contextmanager
def heard(parameters):
    """Let a launch print; give a list that has which of its assertions have failed.

    One that is run again to see what it does is not heard.

    Parameters
    ----------
    parameters : int
        The address of the launch's parameters, which tells launches apart.
    """
    found = _failures[parameters] = []
    try:
        yield found
    finally:
        del _failures[parameters]


# --- malloc -------------------------------------------------------------------------------------------------


class Heap:
    """Memory that threads of kernels allocate from, in sizes that are powers of two.

    Parameters
    ----------
    arena : Arena
    size : int
        Bytes, all of them.
    """

    def __init__(self, arena, size):
        self._next = arena.allocate(size)
        self._end = self._next + size
        self._free, self._sizes, self._lock = {}, {}, threading.Lock()

    def allocate(self, size):
        """Return an address, 0 if there is no more memory."""
        length = max(16, 1 << max(size - 1, 0).bit_length())
        with self._lock:
            if self._free.get(length):
                at = self._free[length].pop()
            elif self._next + length <= self._end:
                at, self._next = self._next, self._next + length
            else:
                return 0
            self._sizes[at] = length
            return at

    def free(self, at):
        """Give memory back."""
        with self._lock:
            length = self._sizes.pop(at, None)
            if length is not None:
                self._free.setdefault(length, []).append(at)


class _Heaps:
    make = heap = None
    lock = threading.Lock()


def set_heap(make):
    """Say what makes the `Heap`, when a kernel first asks for it."""
    _Heaps.make = make


def _heap():
    with _Heaps.lock:
        if _Heaps.heap is None:
            _Heaps.heap = _Heaps.make()
        return _Heaps.heap


@_serves("malloc")
def _malloc(request, lane, size):
    try:
        return _heap().allocate(size)
    except MemoryError:  # the heap itself does not fit
        return 0


@_serves("free")
def _free(request, lane, at):
    _heap().free(at)


# --- The barrier of a grid ----------------------------------------------------------------------------------


class _Meeting:
    """Where so many blocks wait for each other, again and again.

    A `threading.Barrier` is left with a lock held if an interrupt comes at a bad moment of giving it up.
    """

    def __init__(self, blocks):
        self.blocks, self.waiting, self.given_up, self._lock = blocks, [], False, threading.Lock()

    def wait(self):
        """Wait until all have come, or nobody is to wait any more."""
        with self._lock:
            if self.given_up or len(self.waiting) + 1 == self.blocks:
                self._let_go()
                return
            turn = SimpleQueue()
            self.waiting.append(turn)
        turn.get()

    def give_up(self):
        """Let nobody wait any more."""
        with self._lock:
            self.given_up = True
            self._let_go()

    def _let_go(self):
        while self.waiting:  # an interrupt in between lets one go twice, and forgets none
            self.waiting[-1].put(None)
            self.waiting.pop()


_gathered = {}


@contextlib.contextmanager
def gathered(parameters, blocks):
    """Let blocks that run at once wait for each other.

    Parameters
    ----------
    parameters : int
        The address of the launch's parameters, which tells launches apart.
    blocks : int
    """
    _gathered[parameters] = _Meeting(blocks)
    try:
        yield _gathered[parameters]
    finally:
        del _gathered[parameters]


def waiting(records):
    """Return which of the blocks that run, by their records, wait for the others."""
    return [record for record in records if record in _waiting]


def gathering(parameters):
    """Return how many blocks of a launch wait for others that have not come; 0 once all have."""
    return len(_gathered[parameters].waiting) if parameters in _gathered else 0


def give_up(parameters):
    """Let no block of a launch wait for the others any more."""
    if parameters in _gathered:
        _gathered[parameters].give_up()


_passed, _waiting = {}, set()


def begin(record):
    """Forget what a block that did not come to its end has left."""
    _passed.pop(record, None)
    _waiting.discard(record)


@_serves("cudaCGGetIntrinsicHandle")
def _intrinsic_handle(request, lane, scope):
    return scope


@_serves("cudaCGSynchronize")
def _synchronize(request, lane, handle, flags):
    # All warps of the block have arrived, and all will call, each with its first lane: the first of them
    # waits, and with it the thread that runs the block.
    if lane != request.lanes[0]:
        return 0
    alive = ctypes.c_uint32.from_address(request.block + OFFSET["alive"]).value
    if not _passed.get(request.block):
        _passed[request.block] = alive
        _waiting.add(request.block)
        _gathered[request.parameters].wait()
        _waiting.discard(request.block)
    _passed[request.block] -= 1
    return 0
