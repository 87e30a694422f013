"""Faults of kernels: from the processor's signal to an error that says where.

Memory that is not allocated cannot be read or written, so a wild address is found by the processor, and the
operating system sends the thread a signal. The handler here leaves the kernel for where the thread entered
it. Signals that come elsewhere go to whoever had them before, such as `faulthandler`. A kernel that is to be
stopped is left the same way.
"""

import ctypes
import re
import signal
import threading

from gpuless.emulator import layout, machine

#: The signal that stops a kernel; nobody misses it, since by default it does nothing.
STOP = signal.SIGURG
STUCK = 1  # what a run returns when all warps of a block wait, and a signal's number when one has come
_RECORDS = 1024
_SA_SIGINFO, _SA_NODEFER, _SA_ONSTACK = 4, 0x40000000, 0x08000000

_HANDLER = """
declare i64 @pthread_self()
declare void @siglongjmp(ptr, i32) noreturn
declare ptr @signal(i32, ptr)

define void @run(i32 %signal, ptr %info, ptr %context) {{
entry:
  %self = call i64 @pthread_self()
  br label %look
look:
  %i = phi i64 [ 0, %entry ], [ %next, %other ]
  %slot = getelementptr i64, ptr inttoptr (i64 {table} to ptr), i64 %i
  %address = load volatile i64, ptr %slot
  %none = icmp eq i64 %address, 0
  br i1 %none, label %other, label %ask
ask:
  %record = inttoptr i64 %address to ptr
  %at.thread = getelementptr i8, ptr %record, i64 {thread}
  %thread = load volatile i64, ptr %at.thread
  %mine = icmp eq i64 %thread, %self
  br i1 %mine, label %leave, label %other
leave:
  %at.where = getelementptr i8, ptr %info, i64 16
  %where = load i64, ptr %at.where
  %at.fault = getelementptr i8, ptr %record, i64 {fault}
  store i64 %where, ptr %at.fault
  %jump = getelementptr i8, ptr %record, i64 {jump}
  call void @siglongjmp(ptr %jump, i32 %signal)
  unreachable
other:
  %next = add i64 %i, 1
  %all = icmp eq i64 %next, {records}
  br i1 %all, label %foreign, label %look
foreign:
  %stop = icmp eq i32 %signal, {stop}
  br i1 %stop, label %end, label %pass
pass:
  %at.before = getelementptr i64, ptr inttoptr (i64 {before} to ptr), i32 %signal
  %before = load i64, ptr %at.before
  %plain = icmp ule i64 %before, 1
  br i1 %plain, label %default, label %call
call:
  %function = inttoptr i64 %before to ptr
  call void %function(i32 %signal, ptr %info, ptr %context)
  br label %end
default:
  %unused = call ptr @signal(i32 %signal, ptr null)
  br label %end
end:
  ret void
}}
"""


class Fault(RuntimeError):
    """A kernel that did what cannot be done, or was stopped.

    Attributes
    ----------
    kind : {"address", "barrier", "stopped", "arithmetic", "trap"}
    """

    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


class _Action(ctypes.Structure):
    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ubyte * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


class _Stack(ctypes.Structure):
    _fields_ = (("start", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


_libc = ctypes.CDLL(None)
_table = (ctypes.c_uint64 * _RECORDS)()
_before = (ctypes.c_uint64 * 65)()
_lock, _thread = threading.Lock(), threading.local()
_state = {}


def watch(record):
    """Let a worker's record be one whose faults are ours.

    Parameters
    ----------
    record : int
        Its address.
    """
    with _lock:
        if not _state:
            _install()
        _table[list(_table).index(0)] = record


def _install():
    text = _HANDLER.format(
        table=ctypes.addressof(_table),
        before=ctypes.addressof(_before),
        records=_RECORDS,
        stop=int(STOP),
        thread=layout.OFFSET["thread"],
        fault=layout.OFFSET["fault"],
        jump=layout.OFFSET["jump"],
    )
    _state["code"] = machine.Code(machine.compile_object(text))
    for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, STOP):
        action, old = _Action(), _Action()
        action.handler = ctypes.cast(_state["code"].run, ctypes.c_void_p).value
        action.flags = _SA_SIGINFO | _SA_NODEFER | _SA_ONSTACK
        _libc.sigaction(int(number), ctypes.byref(action), ctypes.byref(old))
        _before[number] = old.handler or 0


def prepare_thread():
    """Give this thread a stack for the handler, which is needed where its own is full."""
    if not hasattr(_thread, "stack"):
        _thread.stack = ctypes.create_string_buffer(1 << 16)
        stack = _Stack(ctypes.addressof(_thread.stack), 0, 1 << 16)
        _libc.sigaltstack(ctypes.byref(stack), None)


def stop(record):
    """Stop the kernel that runs in a record, if one does."""
    thread = _read(record, "thread", ctypes.c_uint64)
    if thread:
        _libc.pthread_kill(ctypes.c_uint64(thread), int(STOP))


def _read(record, field, kind):
    return kind.from_address(record + layout.OFFSET[field]).value


def explain(number, record, kernel, block, arena):
    """Return the `Fault` that a run has ended with.

    Parameters
    ----------
    number : int
        What the run returned.
    record : int
        The address of the worker's record.
    kernel : str
    block : (int, int, int)
        The shape of a block.
    arena : Arena
    """
    place = tuple(_read(record, f"ctaid.{axis}", ctypes.c_uint32) for axis in "xyz")
    first = 32 * _read(record, "warp", ctypes.c_uint32)
    last = min(first + 31, block[0] * block[1] * block[2] - 1)
    kernel = _readable(kernel)
    where = f"kernel {kernel}, block {place}, among threads {first} to {last} of it"
    if number == STUCK:
        message = (
            f"kernel {kernel}, block {place}: all its warps wait at barriers that others will not reach: "
            f"every thread of a block must come to the same syncthreads; {_ADVICE}"
        )
        return Fault("barrier", message)
    if number == STOP:
        return Fault("stopped", f"stopped: {where}")
    if number == signal.SIGFPE:
        return Fault("arithmetic", f"arithmetic that cannot be done: {where}")
    if number == signal.SIGILL:
        return Fault("trap", f"a trap: {where}")
    address = _address(_read(record, "fault", ctypes.c_uint64), arena)
    return Fault("address", f"{address}: {where}; {_ADVICE}")


_ADVICE = "gpuless.sanitize(kernel)[grid, block](...) tells the thread and the line"


def _readable(name):
    """Return the last part of a mangled name, which is the function's own."""
    found, at = name, 3
    while name.startswith("_ZN") and (length := re.match(r"\d+", name[at:])):
        at += length.end()
        found = name[at : at + int(length[0])]
        at += len(found)
    return found


def _address(address, arena):
    nearest = arena.nearest(address)
    text = f"an illegal memory access at {address:#x}"
    if nearest is None:
        return text
    behind = address - nearest.address - nearest.size
    if behind >= 0:
        return f"{text}, {behind} bytes behind the end of an array of {nearest.size} bytes"
    return f"{text}, {nearest.address - address} bytes before an array of {nearest.size} bytes"
