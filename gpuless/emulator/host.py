"""What a kernel asks its host for: functions that CUDA provides and no instruction stands for.

`printf`, `malloc`, `assert` and the barrier of a whole grid are calls of functions that PTX only declares. A
warp writes down what it wants, a request, and calls a function of this process, which serves its lanes one
by one.
"""

import contextlib
import ctypes
import platform
import re
import sys
import threading
from queue import SimpleQueue

from gpuless.emulator.faults import STOP
from gpuless.emulator.lanes import WARP
from gpuless.emulator.layout import LAUNCH, OFFSET

_FUNCTIONS = {}
_REQUEST = 16  # numbers in a request: function, lanes, warp, the block's shape, results, then what is given


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
  ; and one that was meant for it comes then
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


class _Request:
    """What a warp asks for."""

    def __init__(self, block, address):
        self.block = block
        numbers = (ctypes.c_uint64 * _REQUEST).from_address(address)
        self.number, mask, self.warp, self.shape, self.result, *self.given = numbers
        self.parameters = ctypes.c_uint64.from_address(block + OFFSET["params"]).value
        self.lanes = [lane for lane in range(WARP) if mask >> lane & 1]

    def thread(self, lane):
        """Return (block, thread), each with three coordinates."""
        x, y = self.shape & 0xFFFF, self.shape >> 16 & 0xFFFF
        at = WARP * self.warp + lane
        block = (ctypes.c_uint32 * 3).from_address(self.block + OFFSET["ctaid.x"])
        return tuple(block), (at % x, at // x % y, at // (x * y))


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
    for lane in request.lanes:
        result = function.serve(request, lane, *(column[lane] for column in columns))
        if results is not None:
            results[lane] = result


def address():
    """Return the address of the function that serves requests."""
    return ctypes.cast(_host, ctypes.c_void_p).value


# --- printf -------------------------------------------------------------------------------------------------

_DIRECTIVE = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d*))?(hh|h|ll|l|j|z|t|L)?([diouxXeEfFgGaAcspn%])")
_lines, _lock = [], threading.Lock()


class _Given:
    """The numbers that a printf is given, as they lie in memory."""

    def __init__(self, at):
        self.at = at

    def take(self, type_):
        """Return the next one."""
        size = ctypes.sizeof(type_)
        self.at = -(-self.at // size) * size
        value = type_.from_address(self.at).value
        self.at += size
        return value


def format_text(form, at):
    """Return what printf makes of numbers in memory, and how many they are.

    Parameters
    ----------
    form : bytes
    at : int
        The address of the first.

    Returns
    -------
    text : str
    count : int

    Examples
    --------
    >>> numbers = (ctypes.c_int64 * 2)(-3, 255)
    >>> format_text(b"%lld of %#6llx%%", ctypes.addressof(numbers))
    ('-3 of   0xff%', 2)
    """
    given, counts = _Given(at), []

    def convert(match):
        flags, width, precision, length, kind = match.groups()
        if kind == "%":
            return "%"
        width = given.take(ctypes.c_int) if width == "*" else width or ""
        precision = given.take(ctypes.c_int) if precision == "*" else precision
        head = f"%{flags}{width}" + ("" if precision is None else f".{precision}")
        counts.append(kind)
        return _convert(head, kind, length, given)

    return _DIRECTIVE.sub(convert, form.decode(errors="replace")), len(counts)


def _convert(head, kind, length, given):
    wide = length in ("l", "ll", "j", "z", "t")
    if kind in "eEfFgG":
        return (head + kind) % given.take(ctypes.c_double)
    if kind in "aA":
        return given.take(ctypes.c_double).hex()
    if kind == "s":
        return (head + "s") % ctypes.string_at(given.take(ctypes.c_uint64)).decode(errors="replace")
    if kind == "p":
        return (head + "s") % hex(given.take(ctypes.c_uint64))
    if kind == "c":
        return (head + "c") % (given.take(ctypes.c_int) & 0xFF)
    if kind == "n":
        return ""
    if kind in "di":
        return (head + "d") % given.take(ctypes.c_int64 if wide else ctypes.c_int)
    value = given.take(ctypes.c_uint64 if wide else ctypes.c_uint)
    if kind == "o" and "#" in head:
        return (head.replace("#", "") + "s") % f"0{value:o}"
    return (head + ("d" if kind == "u" else kind)) % value


@_serves("vprintf", 4, (8, 8))
def _printf(request, lane, form, at):
    line, count = format_text(ctypes.string_at(form), at)
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
        ctypes.string_at(one).decode(errors="replace") if one else "?" for one in (message, file, function)
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
