"""What a kernel asks its host for: functions that CUDA provides and no instruction stands for.

`printf`, `malloc`, `assert` and the barrier of a whole grid are calls of functions that PTX only declares. A
warp writes down what it wants, a request, and calls a function of this process, which serves its lanes one
by one.

Strings and the numbers of a printf lie where the kernel says. What cannot be read there is for the kernel to
run into: its thread touches it after the call, and that is a fault as any other.
"""

import contextlib
import ctypes
import sys
import threading
from queue import SimpleQueue

from gpuless.emulator.analysis.lanes import WARP
from gpuless.emulator.run.printf import format_text
from gpuless.emulator.run.reading import Memory, Wild
from gpuless.emulator.translate.host import FUNCTIONS, REQUEST
from gpuless.emulator.translate.layout import MAX_WARPS, OFFSET

_served = {}  # (function, what serves it) by its number in requests


def _serves(name):
    """Register what serves a function."""

    def register(serve):
        _served[FUNCTIONS[name].number] = FUNCTIONS[name], serve
        return serve

    return register


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
        except Wild as error:
            (wild.value,) = error.args
            request.blame(lane)
            return
        if results is not None:
            results[lane] = result


def address():
    """Return the address of the function that serves requests."""
    return ctypes.cast(_host, ctypes.c_void_p).value


# --- printf -------------------------------------------------------------------------------------------------

_lines, _lock = [], threading.Lock()


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

    `parameters`: the address of the launch's parameters, which distinguishes launches.
    """
    found = _failures[parameters] = []
    try:
        yield found
    finally:
        del _failures[parameters]


# --- malloc -------------------------------------------------------------------------------------------------


class Heap:
    """Memory that threads of kernels allocate from, in sizes that are powers of two.

    `size`: bytes, all of them.
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
    """Where a given number of blocks wait for each other, again and again.

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

    `parameters`: the address of the launch's parameters, which distinguishes launches.
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
