"""Streams, captures, and the host functions that streams call.

Work is done at once, in the calling thread; only a captured stream records it, for a graph to do later.
Callbacks run in separate threads; synchronising with the stream waits for them.
"""

import ctypes
import itertools
import struct
import threading
from functools import partial

from gpuless.emulator.driver import watching
from gpuless.emulator.driver.device import _CONTEXT
from gpuless.emulator.driver.errors import DriverError, Result, check_choice, check_flags, refuse_if
from gpuless.emulator.driver.graphs import Graph, Node, Work, executables, graphs, handle_of, run_nodes
from gpuless.emulator.driver.table import Handles, driver_function, driver_functions, put_handle, put_int
from gpuless.emulator.run.threads import Pool

#: Handles of the default streams: legacy, and one per thread.
LEGACY, PER_THREAD = 1, 2
#: The flag of a stream for which the legacy default stream does not wait.
_NON_BLOCKING = 1
#: The highest priority; 0 is the lowest.
GREATEST_PRIORITY = -5


class Stream:
    """A stream; in a capture, `tail` has the nodes on which its next node depends."""

    def __init__(self, flags=0, priority=0):
        self.flags, self.priority = flags, priority
        self.capture, self.tail = None, []
        self.calls = ()  # the callbacks for which the next operation waits


class Capture:
    """A capture: the work of its streams becomes nodes of a graph, which is None after the end."""

    _numbers = itertools.count(1)

    def __init__(self, graph, origin, tail=()):
        self.graph, self.origin, self.number, self.streams = graph, origin, next(self._numbers), []
        self.valid = True
        self.join(origin, tail)

    def check(self):
        """Raise an error if the capture is invalid."""
        refuse_if(not self.valid, Result.STREAM_CAPTURE_INVALIDATED)

    def refuse(self, code):
        """Invalidate the capture and raise an error, for something that captures don't allow."""
        self.check()
        self.valid = False
        raise DriverError(code)

    def join(self, stream, tail):
        """Capture the work of a stream from now on."""
        stream.capture, stream.tail = self, list(tail)
        self.streams.append(stream)

    def joined(self):
        """Return whether the origin's next node depends on all work of the streams."""
        before, waiting = set(), list(self.origin.tail)
        while waiting:
            at = waiting.pop()
            if at not in before:
                before.add(at)
                waiting += self.graph.nodes[at].after
        return all(before.issuperset(stream.tail) for stream in self.streams)

    def end(self):
        """End the capture of all streams; return the graph."""
        for stream in self.streams:
            stream.capture, stream.tail = None, []
        graph, self.graph = self.graph, None
        return graph


_streams = Handles()
_default = threading.local()
DEFAULT = Stream()  # the legacy one


def stream_of(handle):
    """Return the stream of a handle."""
    if not handle or handle == LEGACY:
        return DEFAULT
    if handle == PER_THREAD:
        if not hasattr(_default, "stream"):
            _default.stream = Stream()
        return _default.stream
    return _streams[handle]


def enqueue(handle, work):
    """Do some work of a stream: now, or later as a node if the stream is captured."""
    stream = stream_of(handle)
    if stream.capture is None:
        watching.watcher().work(stream, work)
        work.run()
        return
    stream.capture.check()
    watching.watcher().capture(work)
    stream.tail = [stream.capture.graph.add(Node(work, stream.tail))]


def refuse_in_capture(handle):
    """Refuse an operation that the emulated GPU doesn't support while a stream is captured."""
    refuse_if(stream_of(handle).capture is not None, Result.STREAM_CAPTURE_UNSUPPORTED)


def _forbid_in_capture(handle):
    """Refuse an operation that CUDA forbids while a stream is captured, and invalidate the capture."""
    if (capture := stream_of(handle).capture) is not None:
        capture.refuse(Result.STREAM_CAPTURE_UNSUPPORTED)


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
        stream.capture.end()  # no other stream could


@driver_function("cuStreamSynchronize", types="p")
def _synchronize(handle):
    _forbid_in_capture(handle)
    watching.watcher().synchronize(stream_of(handle))
    wait_for(calls_of(handle))


@driver_function("cuStreamQuery", types="p")
def _query(handle):
    _forbid_in_capture(handle)
    check_ready(calls_of(handle))


@driver_function("cuCtxSynchronize", types="p")
def _synchronize_all(context):
    watching.watcher().synchronize()
    wait_for([call for _, call in _unfinished])


driver_functions(
    {
        "cuStreamGetPriority pp": lambda handle, found: put_int(found, stream_of(handle).priority),
        "cuStreamGetFlags pp": lambda handle, found: put_int(found, stream_of(handle).flags),
        "cuStreamGetId pp": lambda handle, found: put_handle(found, handle or 0),
        "cuStreamGetDevice pp": lambda handle, found: put_int(found, 0),
        "cuStreamGetCtx ppp": lambda handle, found, green: put_handle(found, _CONTEXT),
    }
)


# --- Host functions -----------------------------------------------------------------------------------------

_threads, _adding, _unfinished = Pool(1 << 16), threading.Lock(), []
_HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)


def _call_later(stream, function):
    """Call a function after the stream's earlier ones, in another thread, as it may wait for this one."""

    def call(before):
        wait_for(before)
        _default.calling = True
        try:
            function()
        finally:
            _default.calling = False

    with _adding:
        task = _threads.submit(call, stream.calls)
        stream.calls = (task,)
        _unfinished[:] = [(of, one) for of, one in _unfinished if not one.done] + [(stream, task)]


def calls_of(handle):
    """Return the callbacks that a stream waits for; the legacy default stream: those of all blocking ones."""
    stream = stream_of(handle)
    if stream is DEFAULT:
        return [call for of, call in _unfinished if not of.flags & _NON_BLOCKING]
    return stream.calls


def wait_for(calls):
    """Wait until calls are done; refuse to wait in a callback, which could wait for itself."""
    for call in calls:
        if not call.done and getattr(_default, "calling", False):
            raise DriverError(Result.NOT_PERMITTED, "a callback must not wait for others")
        while not call.wait(0.01):
            pass


def check_ready(calls):
    """Raise an error unless all calls are done."""
    refuse_if(not all(call.done for call in calls), Result.NOT_READY)


FUNCTION = struct.Struct("<QQ")  # ``CUDA_HOST_NODE_PARAMS``


def calling(function, data):
    """Return the `Work` of calling a host function with its data."""
    refuse_if(not function)
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
    refuse_if(not function)
    _call_later(stream_of(handle), lambda: _CALLBACK(function)(handle, 0, data))


@driver_function("cuStreamAttachMemAsync", types="ppzu")
def _attach(handle, address, size, flags):
    """Only check: managed memory is accessible to all streams."""
    _ = stream_of(handle)
    check_choice(flags, 1, 2, 4)


# --- Capture ------------------------------------------------------------------------------------------------


@driver_function("cuStreamBeginCapture", types="pi")
def _begin(handle, mode):
    check_choice(mode, *range(3))
    stream = stream_of(handle)
    refuse_if(stream is DEFAULT or stream.capture is not None, Result.STREAM_CAPTURE_UNSUPPORTED)
    Capture(Graph(), stream)


@driver_function("cuStreamBeginCaptureToGraph", types="pppzzi")
def _begin_to_graph(handle, graph, after, data, count, mode):
    check_choice(mode, *range(3))
    refuse_in_capture(handle)
    refuse_if(stream_of(handle) is DEFAULT, Result.STREAM_CAPTURE_UNSUPPORTED)
    after = [ctypes.c_uint64.from_address(after + 8 * i).value for i in range(count)]
    refuse_if(not graphs[graph].nodes.keys() >= set(after))
    Capture(graphs[graph], stream_of(handle), after)


@driver_function("cuStreamEndCapture", types="pp")
def _end(handle, found):
    stream, capture = stream_of(handle), stream_of(handle).capture
    put_handle(found, 0)
    refuse_if(capture is None, Result.ILLEGAL_STATE)
    refuse_if(capture.origin is not stream, Result.STREAM_CAPTURE_UNMATCHED)
    joined, graph = capture.joined(), capture.end()
    capture.check()
    refuse_if(not joined, Result.STREAM_CAPTURE_UNJOINED)
    put_handle(found, handle_of(graph))


@driver_function("cuStreamIsCapturing", types="pp")
def _is_capturing(handle, found):
    put_int(found, _status(stream_of(handle)))


def _status(stream):
    """Return 1 for a captured stream, 2 if the capture is invalid, 0 otherwise."""
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
    """Exchange the mode; all modes behave like the relaxed one."""
    mode = ctypes.c_int.from_address(place)
    check_choice(mode.value, *range(3))
    mode.value, _default.mode = getattr(_default, "mode", 0), mode.value


@driver_function("cuGraphLaunch", types="pp")
def _graph_launch(executable, handle):
    nodes = executables[executable].nodes
    enqueue(handle, Work(lambda: run_nodes(nodes), "graph", about=len(nodes)))
