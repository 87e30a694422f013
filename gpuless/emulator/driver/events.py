"""Events: points in time in streams, or positions in a capture."""

import ctypes
import time

from gpuless.emulator.driver import watching
from gpuless.emulator.driver.errors import DriverError, Result, check_flags, refuse_if
from gpuless.emulator.driver.graphs import Work
from gpuless.emulator.driver.streams import (
    DEFAULT,
    LEGACY,
    calls_of,
    check_ready,
    enqueue,
    stream_of,
    wait_for,
)
from gpuless.emulator.driver.table import Handles, driver_function, driver_functions, put, put_handle

events = Handles()


class Event:
    """A point in time, or a position in a capture."""

    def __init__(self, flags):
        self.flags, self.moment, self.capture, self.tail = flags, None, None, []
        self.calls = ()  # the callbacks before it


_BLOCKING, _NO_TIMING, _INTERPROCESS = 1, 2, 4
#: In a capture: the event is recorded, or waited for, whenever the graph runs.
_EXTERNAL = 1


def _check_external(flags, capture):
    check_flags(flags, _EXTERNAL)
    detail = "an event is external to what a stream captures, and none is captured"
    refuse_if(flags and capture is None, detail=detail)


def _recorded(handle):
    """Return an event that is not in a capture; otherwise invalidate the capture."""
    event = events[handle]
    if event.capture is not None:
        event.capture.valid = False
        raise DriverError(Result.CAPTURED_EVENT)
    return event


@driver_function("cuEventCreate", types="pu")
def _event_create(found, flags):
    check_flags(flags, _BLOCKING | _NO_TIMING | _INTERPROCESS)
    if flags & _INTERPROCESS and not flags & _NO_TIMING:
        raise DriverError(Result.INVALID_VALUE, "an event that processes share measures no time")
    put_handle(found, events.add(Event(flags)))


@driver_function("cuEventDestroy", types="p")
def _event_destroy(handle):
    events.remove(handle)


def recording(handle, stream=LEGACY):
    """Return a function that records an event in a stream."""
    event = events[handle]

    def record():
        event.moment, event.capture, event.calls = time.perf_counter(), None, calls_of(stream)

    return record


@driver_function("cuEventRecord", types="pp")
def _event_record(handle, stream):
    _event_record_with_flags(handle, stream, 0)


@driver_function("cuEventRecordWithFlags", types="ppu")
def _event_record_with_flags(handle, stream, flags):
    event, capture = events[handle], stream_of(stream).capture
    _check_external(flags, capture)
    if capture is not None and not flags & _EXTERNAL:
        capture.check()
        event.capture, event.tail = capture, stream_of(stream).tail
        return
    enqueue(stream, Work(recording(handle, stream), "event", about=event))


@driver_function("cuEventSynchronize", types="p")
def _event_synchronize(handle):
    event = _recorded(handle)
    watching.watcher().synchronize(event=event)
    wait_for(event.calls)


driver_functions({"cuEventQuery p": lambda handle: check_ready(_recorded(handle).calls)})


@driver_function("cuEventElapsedTime", types="ppp")
def _elapsed(found, first, last):
    first, last = _recorded(first), _recorded(last)
    refuse_if(None in (first.moment, last.moment), Result.INVALID_HANDLE)
    if (first.flags | last.flags) & _NO_TIMING:
        raise DriverError(Result.INVALID_HANDLE, "an event was created with CU_EVENT_DISABLE_TIMING")
    check_ready([*first.calls, *last.calls])
    put(found, ctypes.c_float, 1000 * (last.moment - first.moment))


@driver_function("cuStreamWaitEvent", types="ppu")
def _wait(handle, event, flags):
    stream, event = stream_of(handle), events[event]
    _check_external(flags, stream.capture)
    if flags & _EXTERNAL:
        enqueue(handle, Work(lambda: None, "wait"))
    elif event.capture is None:
        watching.watcher().wait_for_event(stream, event)
        if stream.capture is not None and event.moment is not None:
            stream.capture.refuse(Result.STREAM_CAPTURE_ISOLATION)
        stream.calls = (*(call for call in stream.calls if not call.done), *event.calls)
    elif event.capture.graph is None:
        raise DriverError(Result.CAPTURED_EVENT)
    elif not event.capture.valid:
        raise DriverError(Result.STREAM_CAPTURE_INVALIDATED)
    elif stream is DEFAULT:
        raise DriverError(Result.STREAM_CAPTURE_UNSUPPORTED)
    elif stream.capture is None:
        event.capture.join(stream, event.tail)
    elif stream.capture is event.capture:
        stream.tail = list(dict.fromkeys([*stream.tail, *event.tail]))
    else:
        event.capture.valid = False
        stream.capture.refuse(Result.STREAM_CAPTURE_MERGE)
