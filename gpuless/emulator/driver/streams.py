"""Streams, events, and graphs.

What is asked for is done at once, in the thread that asks; only a stream that is being captured notes it, and
a graph does it later. Callbacks have threads of their own, and those wait for them who wait for the stream.
"""

import ctypes
import itertools
import struct
import threading
import time
from functools import partial

from gpuless.emulator.driver.device import _CONTEXT
from gpuless.emulator.driver.graphs import Graph, Node, Work, executables, graphs, handle_of
from gpuless.emulator.driver.table import (
    CAPTURE_INVALIDATED,
    CAPTURE_ISOLATION,
    CAPTURE_MERGE,
    CAPTURE_UNJOINED,
    CAPTURE_UNMATCHED,
    CAPTURE_UNSUPPORTED,
    CAPTURED_EVENT,
    ILLEGAL_STATE,
    INVALID_HANDLE,
    INVALID_VALUE,
    NOT_PERMITTED,
    NOT_READY,
    DriverError,
    Handles,
    check_choice,
    check_flags,
    driver_function,
    put,
    put_handle,
    put_int,
)
from gpuless.emulator.run.threads import Pool

#: Handles of the default streams, which nobody makes: legacy and one for each thread.
LEGACY, PER_THREAD = 1, 2
#: The flag of a stream that the legacy default stream does not wait for.
_NON_BLOCKING = 1
#: The priority that counts most; 0 counts least.
GREATEST_PRIORITY = -5


class Stream:
    """A stream: the capture that it is in, and the nodes that its next one comes after."""

    def __init__(self, flags=0, priority=0):
        self.flags, self.priority = flags, priority
        self.capture, self.tail = None, []
        self.calls = ()  # those that what comes next would wait for


class Capture:
    """What its streams do is noted in a graph, until it ends: then it has none."""

    _numbers = itertools.count(1)

    def __init__(self, graph, origin, tail=()):
        self.graph, self.origin, self.number, self.streams = graph, origin, next(self._numbers), []
        self.valid = True
        self.join(origin, tail)

    def check(self):
        """Raise an error if something was done that a capture does not allow."""
        if not self.valid:
            raise DriverError(CAPTURE_INVALIDATED)

    def refuse(self, code):
        """Raise an error for what a capture does not allow; it is of no more use."""
        self.check()
        self.valid = False
        raise DriverError(code)

    def join(self, stream, tail):
        """Capture what a stream does from now on."""
        stream.capture, stream.tail = self, list(tail)
        self.streams.append(stream)

    def joined(self):
        """Return whether all that its streams have done comes before what the first one does next."""
        before, waiting = set(), list(self.origin.tail)
        while waiting:
            at = waiting.pop()
            if at not in before:
                before.add(at)
                waiting += self.graph.nodes[at].after
        return all(before.issuperset(stream.tail) for stream in self.streams)

    def end(self):
        """Let the streams work again; return the graph."""
        for stream in self.streams:
            stream.capture, stream.tail = None, []
        graph, self.graph = self.graph, None
        return graph


_streams, events = Handles(), Handles()
_default = threading.local()
_legacy = Stream()


def stream_of(handle):
    """Return the stream of a handle."""
    if not handle or handle == LEGACY:
        return _legacy
    if handle == PER_THREAD:
        if not hasattr(_default, "stream"):
            _default.stream = Stream()
        return _default.stream
    return _streams[handle]


def enqueue(handle, work):
    """Do something in a stream: now, or as a node of the graph that it captures."""
    stream = stream_of(handle)
    if stream.capture is None:
        work.run()
        return
    stream.capture.check()
    stream.tail = [stream.capture.graph.add(Node(work, stream.tail))]


def refuse_in_capture(handle):
    """Refuse what a stream that is captured cannot do here."""
    if stream_of(handle).capture is not None:
        raise DriverError(CAPTURE_UNSUPPORTED)


def _forbid_in_capture(handle):
    """Refuse what CUDA forbids while a stream is captured, and with it the capture."""
    if (capture := stream_of(handle).capture) is not None:
        capture.refuse(CAPTURE_UNSUPPORTED)


# --- Streams ------------------------------------------------------------------------------------------------


@driver_function("cuStreamCreate", types="pu")
def _create(found, flags):
    _create_with_priority(found, flags, 0)


@driver_function("cuStreamCreateWithPriority", types="pui")
def _create_with_priority(found, flags, priority):
    check_flags(flags, _NON_BLOCKING)
    put_handle(found, _streams.add(Stream(flags, min(0, max(priority, GREATEST_PRIORITY)))))


@driver_function("cuCtxGetStreamPriorityRange", types="pp")
def _priorities(least, greatest):
    put_int(least, 0)
    put_int(greatest, GREATEST_PRIORITY)


@driver_function("cuStreamDestroy", types="p")
def _destroy(handle):
    stream = _streams.remove(handle)
    if stream.capture is not None and stream.capture.origin is stream:
        stream.capture.end()  # nobody else could


@driver_function("cuStreamSynchronize", types="p")
def _synchronize(handle):
    _forbid_in_capture(handle)
    _wait_for(_calls_of(handle))


@driver_function("cuStreamQuery", types="p")
def _query(handle):
    _forbid_in_capture(handle)
    _check_ready(_calls_of(handle))


@driver_function("cuCtxSynchronize", types="p")
def _synchronize_all(context):
    _wait_for([call for _, call in _unfinished])


@driver_function("cuStreamGetPriority", types="pp")
def _priority(handle, found):
    put_int(found, stream_of(handle).priority)


@driver_function("cuStreamGetFlags", types="pp")
def _flags(handle, found):
    put_int(found, stream_of(handle).flags)


@driver_function("cuStreamGetId", types="pp")
def _id(handle, found):
    put_handle(found, handle or 0)


@driver_function("cuStreamGetDevice", types="pp")
def _device(handle, found):
    put_int(found, 0)


@driver_function("cuStreamGetCtx", types="ppp")
def _context(handle, found, green):
    put_handle(found, _CONTEXT)


# --- Functions of the host's --------------------------------------------------------------------------------

_threads, _adding, _unfinished = Pool(1 << 16), threading.Lock(), []
_HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)


def _call_later(stream, function):
    """Call a function on a thread of its own, as it may wait for the one that asks; after those before it."""

    def call(before):
        _wait_for(before)
        _default.calling = True
        try:
            function()
        finally:
            _default.calling = False

    with _adding:
        task = _threads.submit(call, stream.calls)
        stream.calls = (task,)
        _unfinished[:] = [(of, one) for of, one in _unfinished if not one.done] + [(stream, task)]


def _calls_of(handle):
    """Return what a stream waits for; the legacy default stream waits for all but those that do not block."""
    stream = stream_of(handle)
    if stream is _legacy:
        return [call for of, call in _unfinished if not of.flags & _NON_BLOCKING]
    return stream.calls


def _wait_for(calls):
    for call in calls:
        if not call.done and getattr(_default, "calling", False):
            raise DriverError(NOT_PERMITTED, "a callback must not wait for others")
        while not call.wait(0.01):
            pass


def _check_ready(calls):
    if not all(call.done for call in calls):
        raise DriverError(NOT_READY)


FUNCTION = struct.Struct("<QQ")  # ``CUDA_HOST_NODE_PARAMS``


def calling(function, data):
    """Return the `Work` of calling a function of the host's with its data."""
    if not function:
        raise DriverError(INVALID_VALUE)
    return Work(lambda: _HOST_FUNCTION(function)(data), "host", partial(FUNCTION.pack, function, data or 0))


@driver_function("cuLaunchHostFunc", types="ppp")
def _launch_host_function(handle, function, data):
    stream, work = stream_of(handle), calling(function, data)
    if stream.capture is None and not all(before.done for before in stream.calls):
        _call_later(stream, work.run)
    else:
        enqueue(handle, work)


@driver_function("cuStreamAddCallback", types="pppu")
def _add_callback(handle, function, data, flags):
    _forbid_in_capture(handle)
    check_flags(flags)
    if not function:
        raise DriverError(INVALID_VALUE)
    _call_later(stream_of(handle), lambda: _CALLBACK(function)(handle, 0, data))


@driver_function("cuStreamAttachMemAsync", types="ppzu")
def _attach(handle, address, size, flags):
    """Do no more than check: managed memory is everybody's."""
    _ = stream_of(handle)
    check_choice(flags, 1, 2, 4)


# --- Events -------------------------------------------------------------------------------------------------


class Event:
    """A moment, or a place in a capture."""

    def __init__(self, flags):
        self.flags, self.moment, self.capture, self.tail = flags, None, None, []
        self.calls = ()  # those before it


_BLOCKING, _NO_TIMING, _INTERPROCESS = 1, 2, 4
#: What is recorded, or waited for, is so whenever the graph runs.
_EXTERNAL = 1


def _check_external(flags, capture):
    check_flags(flags, _EXTERNAL)
    if flags and capture is None:
        raise DriverError(
            INVALID_VALUE, "an event is external to what a stream captures, and none is captured"
        )


def _recorded(handle):
    """Return an event that is in no capture; to ask for one that is spoils the capture."""
    event = events[handle]
    if event.capture is not None:
        event.capture.valid = False
        raise DriverError(CAPTURED_EVENT)
    return event


@driver_function("cuEventCreate", types="pu")
def _event_create(found, flags):
    check_flags(flags, _BLOCKING | _NO_TIMING | _INTERPROCESS)
    if flags & _INTERPROCESS and not flags & _NO_TIMING:
        raise DriverError(INVALID_VALUE, "an event that processes share measures no time")
    put_handle(found, events.add(Event(flags)))


@driver_function("cuEventDestroy", types="p")
def _event_destroy(handle):
    events.remove(handle)


def recording(handle, stream=LEGACY):
    """Return what records an event in a stream."""
    event = events[handle]

    def record():
        event.moment, event.capture, event.calls = time.perf_counter(), None, _calls_of(stream)

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

    enqueue(stream, Work(recording(handle, stream), "event"))


@driver_function("cuEventSynchronize", types="p")
def _event_synchronize(handle):
    _wait_for(_recorded(handle).calls)


@driver_function("cuEventQuery", types="p")
def _event_query(handle):
    _check_ready(_recorded(handle).calls)


@driver_function("cuEventElapsedTime", types="ppp")
def _elapsed(found, first, last):
    first, last = _recorded(first), _recorded(last)
    if None in (first.moment, last.moment):
        raise DriverError(INVALID_HANDLE)
    if (first.flags | last.flags) & _NO_TIMING:
        raise DriverError(INVALID_HANDLE, "an event was created with CU_EVENT_DISABLE_TIMING")
    _check_ready([*first.calls, *last.calls])
    put(found, ctypes.c_float, 1000 * (last.moment - first.moment))


@driver_function("cuStreamWaitEvent", types="ppu")
def _wait(handle, event, flags):
    stream, event = stream_of(handle), events[event]
    _check_external(flags, stream.capture)
    if flags & _EXTERNAL:
        enqueue(handle, Work(lambda: None, "wait"))
    elif event.capture is None:
        if stream.capture is not None and event.moment is not None:
            stream.capture.refuse(CAPTURE_ISOLATION)
        stream.calls = (*(call for call in stream.calls if not call.done), *event.calls)
    elif event.capture.graph is None:
        raise DriverError(CAPTURED_EVENT)
    elif not event.capture.valid:
        raise DriverError(CAPTURE_INVALIDATED)
    elif stream is _legacy:
        raise DriverError(CAPTURE_UNSUPPORTED)
    elif stream.capture is None:
        event.capture.join(stream, event.tail)
    elif stream.capture is event.capture:
        stream.tail = list(dict.fromkeys([*stream.tail, *event.tail]))
    else:
        event.capture.valid = False
        stream.capture.refuse(CAPTURE_MERGE)


# --- Capture ------------------------------------------------------------------------------------------------


@driver_function("cuStreamBeginCapture", types="pi")
def _begin(handle, mode):
    check_choice(mode, *range(3))
    stream = stream_of(handle)
    if stream is _legacy or stream.capture is not None:
        raise DriverError(CAPTURE_UNSUPPORTED)
    Capture(Graph(), stream)


@driver_function("cuStreamBeginCaptureToGraph", types="pppzzi")
def _begin_to_graph(handle, graph, after, data, count, mode):
    check_choice(mode, *range(3))
    refuse_in_capture(handle)
    if stream_of(handle) is _legacy:
        raise DriverError(CAPTURE_UNSUPPORTED)
    after = [ctypes.c_uint64.from_address(after + 8 * i).value for i in range(count)]
    if not graphs[graph].nodes.keys() >= set(after):
        raise DriverError(INVALID_VALUE)
    Capture(graphs[graph], stream_of(handle), after)


@driver_function("cuStreamEndCapture", types="pp")
def _end(handle, found):
    stream, capture = stream_of(handle), stream_of(handle).capture
    put_handle(found, 0)
    if capture is None:
        raise DriverError(ILLEGAL_STATE)
    if capture.origin is not stream:
        raise DriverError(CAPTURE_UNMATCHED)
    joined, graph = capture.joined(), capture.end()
    capture.check()
    if not joined:
        raise DriverError(CAPTURE_UNJOINED)
    put_handle(found, handle_of(graph))


@driver_function("cuStreamIsCapturing", types="pp")
def _is_capturing(handle, found):
    put_int(found, _status(stream_of(handle)))


def _status(stream):
    """Return 1 for a stream that is captured, 2 if that is of no more use, else 0."""
    return 0 if stream.capture is None else 1 if stream.capture.valid else 2


@driver_function("cuStreamGetCaptureInfo", types="ppppppp")
def _capture_info(handle, status, number, graph, tail, data, count):
    stream = stream_of(handle)
    put_int(status, _status(stream))
    if _status(stream) != 1:
        return
    put_handle(number, stream.capture.number)
    if graph:
        put_handle(graph, handle_of(stream.capture.graph))
    stream.listed = (ctypes.c_uint64 * max(1, len(stream.tail)))(*stream.tail)
    put_handle(tail, ctypes.addressof(stream.listed))
    put_handle(data, 0)
    put_handle(count, len(stream.tail))


@driver_function("cuThreadExchangeStreamCaptureMode", types="p")
def _exchange_mode(place):
    """Note a mode and give the one before it; all do what the relaxed one does."""
    mode = ctypes.c_int.from_address(place)
    check_choice(mode.value, *range(3))
    mode.value, _default.mode = getattr(_default, "mode", 0), mode.value


@driver_function("cuGraphLaunch", types="pp")
def _graph_launch(executable, handle):
    steps = executables[executable]

    def run():
        for step in steps.nodes.values():
            if step.enabled:
                step.work.run()

    enqueue(handle, Work(run, "graph"))
