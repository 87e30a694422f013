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
import platform
import re
import sys
import threading
from queue import SimpleQueue

from gpuless.emulator.faults import STOP
from gpuless.emulator.lanes import WARP
from gpuless.emulator.layout import ARENA_SPAN, LAUNCH, MAX_WARPS, OFFSET

_FUNCTIONS = {}
# Numbers in a request: function, lanes, warp, the block's shape, results, then what is given. The answer
# of the host stands in place of the first: an address that it could not read, or 0.
_REQUEST = 16


class _Function:
    def __init__(self, number, serve, results, given):
        self.number, self.serve, self.results, self.given = number, serve, results, given


def _serves(name, results, given):
    """Register what serves a function, with the widths in bytes of its results and of what it is given."""

    def register(serve):
        _FUNCTIONS[name] = _Function(len(_FUNCTIONS), serve, results, given)
        return serve

    return register


# --- In the IR ----------------------------------------------------------------------------------------------

# Python wants a stack that it knows: on a fibre the call is made below what the scheduler has on the
# thread's own.
_ON_STACK = {
    "x86_64": """
.p2align 4
.type gpuless_on_stack,@function
gpuless_on_stack:
pushq %rbp
movq %rsp, %rbp
movq %rcx, %rsp
andq $-16, %rsp
callq *%rdx
movq %rbp, %rsp
popq %rbp
retq
""",
    "aarch64": """
.p2align 4
.type gpuless_on_stack,%function
gpuless_on_stack:
stp x29, x30, [sp, #-16]!
mov x29, sp
and x9, x3, #-16
mov sp, x9
blr x2
mov sp, x29
ldp x29, x30, [sp], #16
ret
""",
}
_MACHINE = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
_CALL = """
declare i32 @raise(i32)

define internal void @call_host(ptr %ctx, ptr %request) #1 {{
  %at.host = getelementptr i8, ptr %ctx, i64 {host}
  %host = load ptr, ptr %at.host
  %at.scheduler = getelementptr i8, ptr %ctx, i64 {scheduler}
  %scheduler = load ptr, ptr %at.scheduler
  ; while Python runs, no signal may leave it for the end of the kernel
  %at.thread = getelementptr i8, ptr %ctx, i64 {thread}
  %thread = load i64, ptr %at.thread
  store volatile i64 0, ptr %at.thread
  call void {call}
  store volatile i64 %thread, ptr %at.thread
  ; a signal that was to stop the thread meanwhile did not find it, and is sent once more
  %at.launch = getelementptr i8, ptr %ctx, i64 {launch}
  %launch = load ptr, ptr %at.launch
  %at.stop = getelementptr i8, ptr %launch, i64 {at_stop}
  %stop = load volatile i32, ptr %at.stop
  %wanted = icmp ne i32 %stop, 0
  br i1 %wanted, label %leave, label %end
leave:
  %unused = call i32 @raise(i32 {signal})
  br label %end
end:
  %wild = load i64, ptr %request
  %bad = icmp ne i64 %wild, 0
  br i1 %bad, label %touch, label %done
touch:
  %where = inttoptr i64 %wild to ptr
  %nothing = load volatile i8, ptr %where
  br label %done
done:
  ret void
}}
"""


def text(fibres):
    """Return the IR of a call of the host.

    Parameters
    ----------
    fibres : bool
        Whether warps have stacks of their own.

    Returns
    -------
    str
    """
    places = {name: OFFSET[name] for name in ("host", "scheduler", "thread", "launch")}
    places |= {"at_stop": LAUNCH["stop"], "signal": int(STOP)}
    if not fibres:
        return _CALL.format(call="%host(ptr %ctx, ptr %request)", **places)
    lines = _ON_STACK[_MACHINE].strip().split("\n")
    head = "".join(f'module asm "{line}"\n' for line in lines)
    head += "declare void @gpuless_on_stack(ptr, ptr, ptr, ptr)\n"
    call = "@gpuless_on_stack(ptr %ctx, ptr %request, ptr %host, ptr %scheduler)"
    return head + _CALL.format(call=call, **places)


def sizes(name):
    """Return the bytes of each parameter and each result of a provided function, None if there is none."""
    function = _FUNCTIONS.get(name)
    return function and (function.given, (function.results,) if function.results else ())


def write_call(t, name, results, given):
    """Write the call of a provided function.

    Parameters
    ----------
    t : Translator
    name : str
    results, given : list of str
        Pointers to what each lane gets and gives.

    Returns
    -------
    bool
        Whether there is such a function.
    """
    function = _FUNCTIONS.get(name)
    if function is None:
        return False
    if function.serve is _synchronize:
        t.module.uses_barriers = True
        t.line("call void @barrier(ptr %ctx, i32 %warp, i32 0, i32 0)")
    x, y, z = t.module.block
    t.slots["%request"] = f"[{_REQUEST} x i64]"
    mask, warp = t.new(f"zext i32 {t.mask} to i64"), t.new("zext i32 %warp to i64")
    fields = [("i64", function.number), ("i64", mask), ("i64", warp), ("i64", x | y << 16 | z << 32)]
    fields += [("ptr", pointer) for pointer in (results or ["null"])[:1]]
    fields += [("ptr", pointer) for pointer in given]
    for i, (type_, value) in enumerate(fields):
        place = t.new(f"getelementptr i64, ptr %request, i64 {i}")
        t.line(f"store {type_} {value}, ptr {place}")
    t.line("call void @call_host(ptr %ctx, ptr %request)")
    t.module.uses_host = True
    return True


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
        numbers = (ctypes.c_uint64 * _REQUEST).from_address(address)
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
    function = next(f for f in _FUNCTIONS.values() if f.number == request.number)
    columns = [
        (_TYPES[size] * WARP).from_address(column)
        for size, column in zip(function.given, request.given, strict=False)  # a request has room for more
    ]
    results = (_TYPES[function.results] * WARP).from_address(request.result) if request.result else None
    wild = ctypes.c_uint64.from_address(address)
    wild.value = 0
    for lane in request.lanes:
        try:
            result = function.serve(request, lane, *(column[lane] for column in columns))
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


@_serves("vprintf", 4, (8, 8))
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


@_serves("__assertfail", 0, (8, 8, 4, 8, 8))
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


@_serves("malloc", 8, (8,))
def _malloc(request, lane, size):
    try:
        return _heap().allocate(size)
    except MemoryError:  # the heap itself does not fit
        return 0


@_serves("free", 0, (8,))
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


@_serves("cudaCGGetIntrinsicHandle", 8, (4,))
def _intrinsic_handle(request, lane, scope):
    return scope


@_serves("cudaCGSynchronize", 4, (8, 4))
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
