"""Streams, events, and graphs.

What is asked for is done at once, in the thread that asks; only a stream that is being captured notes it, and
a graph does it later.
"""

import ctypes
import threading
import time

from gpuless.emulator.driver.device import _CONTEXT
from gpuless.emulator.driver.graphs import Graph, Node, executables, graphs, handle_of
from gpuless.emulator.driver.table import (
    CAPTURE_INVALIDATED,
    CAPTURE_UNSUPPORTED,
    INVALID_HANDLE,
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
    """A stream: what it captures, if it does."""

    def __init__(self, flags=0, priority=0):
        self.flags, self.priority = flags, priority
        self.graph, self.tail, self.origin, self.number = None, [], True, 0


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


def enqueue(handle, run, kind, parameters=()):
    """Do something in a stream: now, or as a node of the graph that it captures."""
    stream = stream_of(handle)
    if stream.graph is None:
        run()
        return
    stream.tail = [stream.graph.add(Node(run, kind, stream.tail, parameters))]


# --- Streams ------------------------------------------------------------------------------------------------


@driver_function("cuStreamCreate", types="pu")
def _create(found, flags):
    put_handle(found, _streams.add(Stream(flags)))


@driver_function("cuStreamCreateWithPriority", types="pui")
def _create_with_priority(found, flags, priority):
    put_handle(found, _streams.add(Stream(flags, priority)))


@driver_function("cuStreamDestroy", types="p")
def _destroy(handle):
    _streams.remove(handle)


@driver_function("cuStreamSynchronize", "cuStreamQuery", types="p")
def _synchronize(handle):
    if stream_of(handle).graph is not None:
        raise DriverError(CAPTURE_UNSUPPORTED)


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
    if stream_of(handle).graph is not None:
        raise DriverError(CAPTURE_UNSUPPORTED)
    # On a thread of its own, as the driver does: the function may wait for the one that asks.
    thread = threading.Thread(target=_CALLBACK(function), args=(handle, 0, data), daemon=True)
    thread.start()


@driver_function("cuStreamAttachMemAsync", types="ppzu")
def _attach(*_):
    """Do nothing: managed memory is everybody's."""


# --- Events -------------------------------------------------------------------------------------------------


class Event:
    """A moment."""

    def __init__(self, flags):
        self.flags, self.moment, self.tail, self.graph = flags, None, [], None


@driver_function("cuEventCreate", types="pu")
def _event_create(found, flags):
    put_handle(found, events.add(Event(flags)))


@driver_function("cuEventDestroy", types="p")
def _event_destroy(handle):
    events.remove(handle)


@driver_function("cuEventRecord", types="pp")
def _event_record(handle, stream):
    _record(events[handle], stream_of(stream))


@driver_function("cuEventRecordWithFlags", types="ppu")
def _event_record_with_flags(handle, stream, flags):
    _record(events[handle], stream_of(stream))


def _record(event, stream):
    if stream.graph is None:
        event.moment, event.graph = time.perf_counter(), None
    else:
        event.tail, event.graph, event.origin = list(stream.tail), stream.graph, stream


@driver_function("cuEventSynchronize", "cuEventQuery", types="p")
def _event_query(handle):
    if events[handle].graph is not None:
        raise DriverError(CAPTURE_UNSUPPORTED)


@driver_function("cuEventElapsedTime", types="ppp")
def _elapsed(found, first, last):
    moments = events[first].moment, events[last].moment
    if None in moments:
        raise DriverError(INVALID_HANDLE)
    put(found, ctypes.c_float, 1000 * (moments[1] - moments[0]))


@driver_function("cuStreamWaitEvent", types="ppu")
def _wait(handle, event, flags):
    stream, event = stream_of(handle), events[event]
    if event.graph is None:
        return
    if stream.graph is None:  # it joins the capture
        stream.graph, stream.origin, stream.number = event.graph, False, event.origin.number
        stream.tail = []
    stream.tail = list(dict.fromkeys([*stream.tail, *event.tail]))


# --- Capture ------------------------------------------------------------------------------------------------


@driver_function("cuStreamBeginCapture", types="pi")
def _begin(handle, mode):
    stream = stream_of(handle)
    if stream is _legacy or stream.graph is not None:
        raise DriverError(CAPTURE_UNSUPPORTED)
    _start(stream, Graph(), [])


@driver_function("cuStreamBeginCaptureToGraph", types="pppzzi")
def _begin_to_graph(handle, graph, after, data, count, mode):
    after = [ctypes.c_uint64.from_address(after + 8 * i).value for i in range(count)]
    _start(stream_of(handle), graphs[graph], after)


_numbers = iter(range(1, 1 << 62))


def _start(stream, graph, tail):
    stream.graph, stream.tail, stream.origin, stream.number = graph, tail, True, next(_numbers)


@driver_function("cuStreamEndCapture", types="pp")
def _end(handle, found):
    stream = stream_of(handle)
    if stream.graph is None or not stream.origin:
        raise DriverError(CAPTURE_INVALIDATED)
    graph = stream.graph
    for other in [*_streams._objects.values(), stream]:
        if other.graph is graph:
            other.graph, other.tail = None, []
    put_handle(found, handle_of(graph))


@driver_function("cuStreamIsCapturing", types="pp")
def _is_capturing(handle, found):
    put_int(found, int(stream_of(handle).graph is not None))


@driver_function("cuStreamGetCaptureInfo", types="ppppppp")
def _capture_info(handle, status, number, graph, tail, data, count):
    stream = stream_of(handle)
    put_int(status, int(stream.graph is not None))
    if stream.graph is None:
        return
    put_handle(number, stream.number)
    if graph:
        put_handle(graph, handle_of(stream.graph))
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
