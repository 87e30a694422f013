"""Graphs that are built node by node instead of captured."""

import ctypes
from functools import partial

from gpuless.emulator.driver.allocations import COPY, SET, copying, setting
from gpuless.emulator.driver.errors import DriverError, Result, refuse_if
from gpuless.emulator.driver.events import events, recording
from gpuless.emulator.driver.graphs import Node, Work, executables, graphs, handle_of, run_nodes
from gpuless.emulator.driver.modules import KERNEL, launching
from gpuless.emulator.driver.streams import FUNCTION, calling
from gpuless.emulator.driver.table import driver_function, put_handle, put_int
from gpuless.emulator.driver.watching import Copy

#: The types of nodes, by the driver's numbers.
KINDS = {"kernel": 0, "copy": 1, "set": 2, "host": 3, "graph": 4, "empty": 5, "wait": 6, "event": 7}
_HOST, _ARRAY = 1, 3  # of ``CUmemorytype``
_LONG = ctypes.c_uint64


def _read(structure, address):
    return structure.unpack(ctypes.string_at(address, structure.size))


# --- The work of nodes, from the driver's structures -------------------------------------------------------


def _kernel(at):
    function, *sizes, pointers, extra, kernel, _ = _read(KERNEL, at)
    grid, block, shared = tuple(sizes[:3]), tuple(sizes[3:6]), sizes[6]
    return launching(function or kernel, grid, block, shared, pointers, extra)


def _copy(at):
    *fields, width, height, depth = _read(COPY, at)
    source, target = fields[:11], fields[11:]
    starts, pitches = [_start(*target), _start(*source)], (target[9:], source[9:])
    rows = []
    for z in range(depth):
        for y in range(height):
            ends = [start + pitch * (y + h * z) for start, (pitch, h) in zip(starts, pitches, strict=True)]
            rows.append(copying(*ends, width).run)
    about = Copy(*starts, width * height * depth)
    parameters = partial(COPY.pack, *fields, width, height, depth)
    return Work(partial(_run_all, rows), "copy", parameters, about=about)


def _start(x, y, z, level, kind, host, device, array, reserved, pitch, height):
    refuse_if(kind == _ARRAY, Result.NOT_SUPPORTED, "the emulated GPU has no arrays for textures")
    return (host if kind == _HOST else device) + x + pitch * (y + height * z)


def _set(at):
    target, pitch, value, size, width, height = _read(SET, at)
    refuse_if(size not in (1, 2, 4), detail=f"elements of {size} bytes cannot be set")
    rows = [setting(target + pitch * y, value & (1 << 8 * size) - 1, width, size).run for y in range(height)]
    parameters = partial(SET.pack, target, pitch, value, size, width, height)
    about = Copy(target, target, size * width * height)
    return Work(partial(_run_all, rows), "set", parameters, about=about)


def _run_all(functions):
    for function in functions:
        function()


# --- Nodes -------------------------------------------------------------------------------------------------


def _handles(address, count):
    return [_LONG.from_address(address + 8 * i).value for i in range(count)]


def _put_all(handles, found, count):
    """Write as many handles as the program has room for, or only their number."""
    room = _LONG.from_address(count).value
    for i, handle in enumerate(handles[:room] if found else ()):
        put_handle(found + 8 * i, handle)
    put_handle(count, min(len(handles), room) if found else len(handles))


def _check(graph, nodes):
    refuse_if(not graph.nodes.keys() >= set(nodes))


def _add(name, types, work):
    """Register the function that adds a node of a kind; `work` makes its work from the arguments."""

    @driver_function(name, types="pppz" + types)
    def add(found, graph, after, count, *arguments):
        made, before = work(*arguments), _handles(after, count)
        _check(graphs[graph], before)
        put_handle(found, graphs[graph].add(Node(made, before)))


def _of_graph(child):
    """Return the work of a child graph, which runs a copy of it."""
    own = graphs[child].clone()

    def run():
        run_nodes({handle: own.nodes[handle] for handle in own.in_order()})

    return Work(run, "graph", kept=own)


_add("cuGraphAddKernelNode", "p", _kernel)
_add("cuGraphAddMemcpyNode", "pp", lambda at, context: _copy(at))
_add("cuGraphAddMemsetNode", "pp", lambda at, context: _set(at))
_add("cuGraphAddHostNode", "p", lambda at: calling(*_read(FUNCTION, at)))
_add("cuGraphAddChildGraphNode", "p", _of_graph)
_add("cuGraphAddEventRecordNode", "p", lambda event: Work(recording(event), "event", about=events[event]))
_add("cuGraphAddEventWaitNode", "p", lambda event: Work(lambda: None, "wait"))
_add("cuGraphAddEmptyNode", "", lambda: Work(lambda: None, "empty"))


@driver_function("cuGraphChildGraphNodeGetGraph", types="pp")
def _child(node, found):
    put_handle(found, handle_of(_work(node, "graph").kept))


def _owner(node):
    """Return the graph of a node."""
    for graph in graphs:
        if node in graph.nodes:
            return graph
    raise DriverError(Result.INVALID_VALUE)


@driver_function("cuGraphNodeGetType", types="pp")
def _kind(node, found):
    put_int(found, KINDS[_owner(node).nodes[node].work.kind])


@driver_function("cuGraphDestroyNode", types="p")
def _destroy(node):
    nodes = _owner(node).nodes
    del nodes[node]
    for other in nodes.values():
        other.after = [before for before in other.after if before != node]


@driver_function("cuGraphGetNodes", types="ppp")
def _nodes(graph, found, count):
    _put_all(list(graphs[graph].nodes), found, count)


@driver_function("cuGraphGetRootNodes", types="ppp")
def _roots(graph, found, count):
    _put_all([handle for handle, node in graphs[graph].nodes.items() if not node.after], found, count)


# --- Dependencies -------------------------------------------------------------------------------------------


@driver_function("cuGraphGetEdges_v2", types="ppppp")
def _edges(graph, sources, targets, data, count):
    edges = [(before, handle) for handle, node in graphs[graph].nodes.items() for before in node.after]
    room = _LONG.from_address(count).value
    for found, side in ((sources, 0), (targets, 1)):
        put_handle(count, room)
        _put_all([edge[side] for edge in edges], found, count)


@driver_function("cuGraphNodeGetDependencies_v2", types="pppp")
def _before(node, found, data, count):
    _put_all(_owner(node).nodes[node].after, found, count)


@driver_function("cuGraphNodeGetDependentNodes_v2", types="pppp")
def _after(node, found, data, count):
    nodes = _owner(node).nodes
    _put_all([handle for handle, other in nodes.items() if node in other.after], found, count)


def _listed(graph, sources, targets, data, count):
    """Return the edges in a program's arrays, as pairs of nodes of a graph."""
    sources, targets = _handles(sources, count), _handles(targets, count)
    _check(graph, [*sources, *targets])
    return list(zip(sources, targets, strict=True))


@driver_function("cuGraphAddDependencies_v2", types="ppppz")
def _connect(graph, *edges):
    graph = graphs[graph]
    for source, target in _listed(graph, *edges):
        refuse_if(source in graph.nodes[target].after or source == target)
        graph.nodes[target].after.append(source)


@driver_function("cuGraphRemoveDependencies_v2", types="ppppz")
def _disconnect(graph, *edges):
    graph = graphs[graph]
    for source, target in _listed(graph, *edges):
        refuse_if(source not in graph.nodes[target].after)
        graph.nodes[target].after.remove(source)


# --- Parameters ---------------------------------------------------------------------------------------------


def _work(node, kind):
    """Return the work of a node, which must be of a kind."""
    work = _owner(node).nodes[node].work
    refuse_if(work.kind != kind)
    return work


def _get(kind, node, found):
    parameters = _work(node, kind).parameters()
    ctypes.memmove(found, parameters, len(parameters))


def _change(node, work):
    refuse_if(node.work.kind != work.kind)
    node.work = work


def _step(executable, node):
    refuse_if(node not in executables[executable].nodes)
    return executables[executable].nodes[node]


def _parameters(kind, name, work=None, types="pp"):
    """Register the functions that read and change the parameters of nodes of a kind."""
    driver_function(f"cuGraph{name}NodeGetParams", types="pp")(partial(_get, kind))
    if work:

        @driver_function(f"cuGraph{name}NodeSetParams", types="pp")
        def change(node, at):
            _change(_owner(node).nodes[node], work(at))

        @driver_function(f"cuGraphExec{name}NodeSetParams", types="p" + types)
        def change_step(executable, node, at, context=None):
            _change(_step(executable, node), work(at))


_parameters("kernel", "Kernel", _kernel)
_parameters("copy", "Memcpy", _copy, "ppp")
_parameters("set", "Memset", _set, "ppp")
_parameters("host", "Host")


@driver_function("cuGraphNodeSetEnabled", types="ppu")
def _enable(executable, node, enabled):
    _step(executable, node).enabled = bool(enabled)


@driver_function("cuGraphNodeGetEnabled", types="ppp")
def _enabled(executable, node, found):
    put_int(found, _step(executable, node).enabled)
