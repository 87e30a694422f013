"""Streams, events, and graphs.

What is asked for is done at once, in the thread that asks; only a stream that is being captured notes it, and
a graph does it later. A callback has a thread, which those wait for who wait for the stream.
"""

import ctypes
import itertools
import threading
import time

from gpuless.emulator.driver.device import _CONTEXT
from gpuless.emulator.driver.graphs import Graph, Node, executables, graphs, handle_of
from gpuless.emulator.driver.table import (
    CAPTURE_INVALIDATED,
    CAPTURE_ISOLATION,
    CAPTURE_MERGE,
    CAPTURE_UNJOINED,
    CAPTURE_UNMATCHED,
    CAPTURE_UNSUPPORTED,
    CAPTURED_EVENT,
    INVALID_HANDLE,
    INVALID_VALUE,
    NOT_READY,
    DriverError,
    Handles,
    driver_function,
    put,
    put_handle,
    put_int,
)

#: Handles of the default streams, which nobody makes: legacy and one for each thread.
LEGACY, PER_THREAD = 1, 2


class Stream:
    """A stream: the capture that it is in, and the nodes that its next one comes after."""

    def __init__(self, flags=0, priority=0):
        self.flags, self.priority = flags, priority
        self.capture, self.tail = None, []
        self.callback = None  # the thread that runs the last one


class Capture:
    """What its streams do is noted in a graph, until it ends: then it has none."""

    _numbers = itertools.count(1)

    def __init__(self, graph, origin, tail=()):
        self.graph, self.origin, self.number, self.streams = graph, origin, next(self._numbers), []
        self.join(origin, tail)

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
_adding = threading.Lock()
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


def enqueue(handle, run, kind, parameters=()):
    """Do something in a stream: now, or as a node of the graph that it captures."""
    stream = stream_of(handle)
    if stream.capture is None:
        run()
        return
    stream.tail = [stream.capture.graph.add(Node(run, kind, stream.tail, parameters))]


def refuse_in_capture(handle):
    """Refuse what a stream that is captured cannot do."""
    if stream_of(handle).capture is not None:
        raise DriverError(CAPTURE_UNSUPPORTED)


# --- Streams ------------------------------------------------------------------------------------------------


@driver_function("cuStreamCreate", types="pu")
def _create(found, flags):
    put_handle(found, _streams.add(Stream(flags)))


@driver_function("cuStreamCreateWithPriority", types="pui")
def _create_with_priority(found, flags, priority):
    put_handle(found, _streams.add(Stream(flags, priority)))


@driver_function("cuStreamDestroy", types="p")
def _destroy(handle):
    stream = _streams.remove(handle)
    if stream.capture is not None and stream.capture.origin is stream:
        stream.capture.end()  # nobody else could


@driver_function("cuStreamSynchronize", types="p")
def _synchronize(handle):
    refuse_in_capture(handle)
    _wait_for(stream_of(handle).callback)


@driver_function("cuStreamQuery", types="p")
def _query(handle):
    refuse_in_capture(handle)
    _check_ready(stream_of(handle).callback)


@driver_function("cuCtxSynchronize", types="p")
def _synchronize_all(context):
    for stream in [*_streams._objects.values(), stream_of(LEGACY), stream_of(PER_THREAD)]:
        _wait_for(stream.callback)


def _wait_for(callback):
    if callback is not None and callback is not threading.current_thread():
        callback.join()


def _check_ready(callback):
    if callback is not None and callback.is_alive():
        raise DriverError(NOT_READY)


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


_HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)


@driver_function("cuLaunchHostFunc", types="ppp")
def _host_function(handle, function, data):
    enqueue(handle, lambda: _HOST_FUNCTION(function)(data), "host")


@driver_function("cuStreamAddCallback", types="pppu")
def _add_callback(handle, function, data, flags):
    refuse_in_capture(handle)
    stream = stream_of(handle)

    def call(before):
        _wait_for(before)
        _CALLBACK(function)(handle, 0, data)

    # On a thread of its own, as the driver does: the function may wait for the one that asks.
    with _adding:
        thread = threading.Thread(target=call, args=(stream.callback,), daemon=True)
        thread.start()
        stream.callback = thread  # whoever waits for it finds one that has begun


@driver_function("cuStreamAttachMemAsync", types="ppzu")
def _attach(*_):
    """Do nothing: managed memory is everybody's."""


# --- Events -------------------------------------------------------------------------------------------------


class Event:
    """A moment, or a place in a capture."""

    def __init__(self, flags):
        self.flags, self.moment, self.capture, self.tail = flags, None, None, []
        self.callback = None  # the one before it


#: What is recorded, or waited for, is so whenever the graph runs.
_EXTERNAL = 1


def _moment_of(handle):
    """Return when an event was recorded, None if it never was."""
    event = events[handle]
    if event.capture is not None:
        raise DriverError(CAPTURED_EVENT)
    return event.moment


@driver_function("cuEventCreate", types="pu")
def _event_create(found, flags):
    put_handle(found, events.add(Event(flags)))


@driver_function("cuEventDestroy", types="p")
def _event_destroy(handle):
    events.remove(handle)


@driver_function("cuEventRecord", types="pp")
def _event_record(handle, stream):
    _event_record_with_flags(handle, stream, 0)


@driver_function("cuEventRecordWithFlags", types="ppu")
def _event_record_with_flags(handle, stream, flags):
    event, capture = events[handle], stream_of(stream).capture
    if capture is not None and not flags & _EXTERNAL:
        event.capture, event.tail = capture, stream_of(stream).tail
        return

    of = stream_of(stream)

    def note():
        event.moment, event.capture = time.perf_counter(), None
        event.callback = of.callback

    enqueue(stream, note, "event")


@driver_function("cuEventSynchronize", types="p")
def _event_synchronize(handle):
    _moment_of(handle)
    _wait_for(events[handle].callback)


@driver_function("cuEventQuery", types="p")
def _event_query(handle):
    _moment_of(handle)
    _check_ready(events[handle].callback)


@driver_function("cuEventElapsedTime", types="ppp")
def _elapsed(found, first, last):
    moments = _moment_of(first), _moment_of(last)
    if None in moments:
        raise DriverError(INVALID_HANDLE)
    put(found, ctypes.c_float, 1000 * (moments[1] - moments[0]))


@driver_function("cuStreamWaitEvent", types="ppu")
def _wait(handle, event, flags):
    stream, event = stream_of(handle), events[event]
    if flags & _EXTERNAL:
        enqueue(handle, lambda: None, "wait")
    elif event.capture is None:
        if stream.capture is not None and event.moment is not None:
            raise DriverError(CAPTURE_ISOLATION)
    elif event.capture.graph is None:
        raise DriverError(CAPTURED_EVENT)
    elif stream is _legacy:
        raise DriverError(CAPTURE_UNSUPPORTED)
    elif stream.capture is None:
        event.capture.join(stream, event.tail)
    elif stream.capture is event.capture:
        stream.tail = list(dict.fromkeys([*stream.tail, *event.tail]))
    else:
        raise DriverError(CAPTURE_MERGE)


# --- Capture ------------------------------------------------------------------------------------------------


@driver_function("cuStreamBeginCapture", types="pi")
def _begin(handle, mode):
    stream = stream_of(handle)
    if stream is _legacy or stream.capture is not None:
        raise DriverError(CAPTURE_UNSUPPORTED)
    Capture(Graph(), stream)


@driver_function("cuStreamBeginCaptureToGraph", types="pppzzi")
def _begin_to_graph(handle, graph, after, data, count, mode):
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
        raise DriverError(CAPTURE_INVALIDATED)
    if capture.origin is not stream:
        raise DriverError(CAPTURE_UNMATCHED)
    joined, graph = capture.joined(), capture.end()
    if not joined:
        raise DriverError(CAPTURE_UNJOINED)
    put_handle(found, handle_of(graph))


@driver_function("cuStreamIsCapturing", types="pp")
def _is_capturing(handle, found):
    put_int(found, int(stream_of(handle).capture is not None))


@driver_function("cuStreamGetCaptureInfo", types="ppppppp")
def _capture_info(handle, status, number, graph, tail, data, count):
    stream = stream_of(handle)
    put_int(status, int(stream.capture is not None))
    if stream.capture is None:
        return
    put_handle(number, stream.capture.number)
    if graph:
        put_handle(graph, handle_of(stream.capture.graph))
    stream.listed = (ctypes.c_uint64 * max(1, len(stream.tail)))(*stream.tail)
    put_handle(tail, ctypes.addressof(stream.listed))
    put_handle(data, 0)
    put_handle(count, len(stream.tail))


@driver_function("cuThreadExchangeStreamCaptureMode", types="p")
def _exchange_mode(mode):
    """All modes are the relaxed one."""


@driver_function("cuGraphLaunch", types="pp")
def _graph_launch(executable, handle):
    steps = executables[executable]

    def run():
        for step in steps:
            if step.enabled:
                step.run()

    enqueue(handle, run, "graph")
