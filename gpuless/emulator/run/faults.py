"""Faults of kernels: signals of the processor, and what is known of the block that failed.

Memory that is not allocated is protected, so the processor detects a wild address and the operating system
sends the thread a signal. The handler here jumps out of the kernel, to the place where the thread entered it.
Signals from other code go to the previous handler, such as `faulthandler`'s. Kernels are stopped the same
way.
"""

import ctypes
import signal
import threading
from typing import NamedTuple

from gpuless.emulator.run import machine
from gpuless.emulator.translate import layout
from gpuless.emulator.translate.host import STOP

STUCK = 1  # the outcome of a run if all warps of a block wait; other outcomes are 0 and signals' numbers
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
  br i1 %mine, label %meant, label %other
meant:
  %stop = icmp eq i32 %signal, {stop}
  br i1 %stop, label %ask.launch, label %leave
ask.launch: ; the thread may run another launch by now
  %at.launch = getelementptr i8, ptr %record, i64 {launch}
  %launch = load volatile ptr, ptr %at.launch
  %at.stop = getelementptr i8, ptr %launch, i64 {at_stop}
  %stopped = load volatile i32, ptr %at.stop
  %wanted = icmp ne i32 %stopped, 0
  br i1 %wanted, label %leave, label %end
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
  %nobody = icmp eq i32 %signal, {stop}
  br i1 %nobody, label %end, label %pass
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
    """A kernel failed or was stopped."""

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
_watched, _handler = [], []


def watch(record):
    """Handle faults of a worker that uses this record; the record lives as long as the process.

    Raises MemoryError if there are too many.
    """
    with _lock:
        if not _handler:
            _install()
        if len(_watched) == _RECORDS:
            raise MemoryError(f"no more than {_RECORDS} blocks can run at once")
        _watched.append(record)
        _table[len(_watched) - 1] = ctypes.addressof(record)


def _install():
    text = _HANDLER.format(
        table=ctypes.addressof(_table),
        before=ctypes.addressof(_before),
        records=_RECORDS,
        stop=int(STOP),
        thread=layout.OFFSET["thread"],
        launch=layout.OFFSET["launch"],
        at_stop=layout.LAUNCH["stop"],
        fault=layout.OFFSET["fault"],
        jump=layout.OFFSET["jump"],
    )
    _handler.append(machine.Code(machine.compile_object(text)))
    for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, STOP):
        action, old = _Action(), _Action()
        action.handler = ctypes.cast(_handler[0].run, ctypes.c_void_p).value
        action.flags = _SA_SIGINFO | _SA_NODEFER | _SA_ONSTACK
        _libc.sigaction(int(number), ctypes.byref(action), ctypes.byref(old))
        _before[number] = old.handler or 0


def prepare_thread():
    """Give this thread a separate stack for the handler, in case its own overflows."""
    if not hasattr(_thread, "stack"):
        _thread.stack = ctypes.create_string_buffer(1 << 16)
        stack = _Stack(ctypes.addressof(_thread.stack), 0, 1 << 16)
        _libc.sigaltstack(ctypes.byref(stack), None)


def stop(record):
    """Stop the kernel that uses a record, if there is one and its launch is to stop."""
    thread = read_field(record, "thread", ctypes.c_uint64)
    if thread:
        _libc.pthread_kill(ctypes.c_uint64(thread), int(STOP))


def read_field(record, field, kind):
    """Return a field of the record of a block; `kind` is a ctypes type."""
    return kind.from_address(record + layout.OFFSET[field]).value


class Failure(NamedTuple):
    """How a run of blocks failed.

    `outcome`: what the run returned; `place`: the block's index; `warp`, `address`: the warp that ran, and
    the address of a failed access; `misaligned`: whether that address was misaligned; `record`: the address
    of the record; `steps`: where its warps were, if the block was traced.
    """

    outcome: int
    place: tuple
    warp: int
    address: int
    misaligned: bool
    record: int
    steps: list


def failure(outcome, record, steps):
    """Return the `Failure` of a run, given the address of its record."""
    place = tuple(read_field(record, f"ctaid.{axis}", ctypes.c_uint32) for axis in "xyz")
    warp, address = read_field(record, "warp", ctypes.c_uint32), read_field(record, "fault", ctypes.c_uint64)
    misaligned = outcome == signal.SIGILL and read_field(record, "misaligned", ctypes.c_uint32) > 0
    return Failure(outcome, place, warp, address, misaligned, record, steps)


def ended(record):
    """Return how many blocks a worker has completed."""
    return read_field(record, "ended", ctypes.c_uint64)
