"""Functions of CUDA that the host executes for kernels: `printf`, `malloc`, `assert` and the grid's barrier.

PTX only declares them. A warp writes a request and calls a function of this process, which serves its lanes
one by one.

A kernel may pass a wild address, for a string or for the arguments of a printf. Then the kernel's thread
accesses that address after the call and runs into a normal fault.
"""

import contextlib
import ctypes
import sys
import threading
from queue import SimpleQueue

from gpuless.emulator.run.printf import format_text
from gpuless.emulator.run.reading import Memory, Wild
from gpuless.emulator.translate.host import FUNCTIONS, REQUEST
from gpuless.emulator.translate.layout import MAX_WARPS, OFFSET
from gpuless.limits import WARP

_served = {}  # (function, its implementation) by the number in requests


def _serves(name):
    """Register the implementation of a function."""

    def register(serve):
        _served[FUNCTIONS[name].number] = FUNCTIONS[name], serve
        return serve

    return register


class _Request:
    """A call by a warp."""

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
        """Note in the record, for a trace, that this lane fails."""
        masks = (ctypes.c_uint32 * MAX_WARPS).from_address(self.block + OFFSET["mask"])
        masks[self.warp] = 1 << lane


_TYPES = {4: ctypes.c_uint32, 8: ctypes.c_uint64}


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
def _host(block, address):
    request = _Request(block, address)
    function, serve = _served[request.number]
    columns = [
        (_TYPES[size] * WARP).from_address(column)
        for size, column in zip(function.given, request.given, strict=False)  # a request has spare fields
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
    """Write the output of kernels to stdout; after each launch, so that it is in the launch's cell."""
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
    """Let a launch print; give a list that gets a message for each assertion that fails.

    A block that is run again for a trace doesn't print.

    `parameters`: the address of the launch's parameters, which identifies it.
    """
    found = _failures[parameters] = []
    try:
        yield found
    finally:
        del _failures[parameters]


# --- malloc -------------------------------------------------------------------------------------------------


class Heap:
    """The heap of `size` bytes for malloc in kernels; blocks have sizes that are powers of two."""

    def __init__(self, arena, size):
        self._next = arena.allocate(size)
        self._end = self._next + size
        self._free, self._sizes, self._lock = {}, {}, threading.Lock()

    def allocate(self, size):
        """Return the address of a block, 0 if there is no memory left."""
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
        """Free a block; ignore other addresses."""
        with self._lock:
            length = self._sizes.pop(at, None)
            if length is not None:
                self._free.setdefault(length, []).append(at)


class _Heaps:
    make = heap = None
    lock = threading.Lock()


def set_heap(make):
    """Set the function that creates the `Heap` at the first malloc."""
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
    """A reusable barrier for a number of blocks.

    A `threading.Barrier` may keep a lock held if an interrupt comes while it is being aborted.
    """

    def __init__(self, blocks):
        self.blocks, self.waiting, self.given_up, self._lock = blocks, [], False, threading.Lock()

    def wait(self):
        """Wait until all have come, or `give_up` is called."""
        with self._lock:
            if self.given_up or len(self.waiting) + 1 == self.blocks:
                self._let_go()
                return
            turn = SimpleQueue()
            self.waiting.append(turn)
        turn.get()

    def give_up(self):
        """Release all, now and from now on."""
        with self._lock:
            self.given_up = True
            self._let_go()

    def _let_go(self):
        while self.waiting:  # if interrupted, one may be released twice, but none is forgotten
            self.waiting[-1].put(None)
            self.waiting.pop()


_gathered = {}


@contextlib.contextmanager
def gathered(parameters, blocks):
    """Let blocks that run at once wait for each other; give their barrier.

    `parameters`: the address of the launch's parameters, which identifies it.
    """
    _gathered[parameters] = _Meeting(blocks)
    try:
        yield _gathered[parameters]
    finally:
        del _gathered[parameters]


def waiting(records):
    """Return those of the records whose blocks wait at the barrier of the grid."""
    return [record for record in records if record in _waiting]


def gathering(parameters):
    """Return how many blocks of a launch wait at the barrier of the grid."""
    return len(_gathered[parameters].waiting) if parameters in _gathered else 0


def give_up(parameters):
    """Release the blocks of a launch from the barrier of the grid, now and from now on."""
    if parameters in _gathered:
        _gathered[parameters].give_up()


_passed, _waiting = {}, set()


def begin(record):
    """Forget the state of a block that used the record before and did not end."""
    _passed.pop(record, None)
    _waiting.discard(record)


@_serves("cudaCGGetIntrinsicHandle")
def _intrinsic_handle(request, lane, scope):
    return scope


@_serves("cudaCGSynchronize")
def _synchronize(request, lane, handle, flags):
    # All warps of the block have arrived, and all will call. The first lane of the first warp waits, and with
    # it the thread that runs the block.
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
