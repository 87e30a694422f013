"""Graphs that are built node by node, instead of by capturing a stream."""

import ctypes
from functools import partial

from gpuless.emulator.driver.allocations import COPY, SET, copying, setting
from gpuless.emulator.driver.graphs import Node, Work, executables, graphs, handle_of
from gpuless.emulator.driver.modules import KERNEL, launching
from gpuless.emulator.driver.streams import FUNCTION, calling, recording
from gpuless.emulator.driver.table import (
    INVALID_VALUE,
    NOT_SUPPORTED,
    DriverError,
    driver_function,
    put_handle,
    put_int,
)

#: The types of nodes, by the driver's numbers.
KINDS = {"kernel": 0, "copy": 1, "set": 2, "host": 3, "graph": 4, "empty": 5, "wait": 6, "event": 7}
_HOST, _ARRAY = 1, 3  # of ``CUmemorytype``
_LONG = ctypes.c_uint64


def _read(structure, address):
    return structure.unpack(ctypes.string_at(address, structure.size))


# --- What nodes do, from the structures that programs fill in ----------------------------------------------


def _kernel(at):
    function, *sizes, pointers, extra, kernel, _ = _read(KERNEL, at)
    grid, block, shared = tuple(sizes[:3]), tuple(sizes[3:6]), sizes[6]
    return launching(function or kernel, grid, block, shared, pointers, extra)


def _copy(at):
    *fields, width, height, depth = _read(COPY, at)
    source, target = fields[:11], fields[11:]
    starts, pitches, moves = [_start(*target), _start(*source)], (target[9:], source[9:]), []
    for z in range(depth):
        for y in range(height):
            places = [
                start + pitch * (y + rows * z) for start, (pitch, rows) in zip(starts, pitches, strict=True)
            ]
            moves.append(copying(*places, width).run)

    def move():
        for row in moves:
            row()

    return Work(move, "copy", partial(COPY.pack, *fields, width, height, depth))


def _start(x, y, z, level, kind, host, device, array, reserved, pitch, height):
    if kind == _ARRAY:
        raise DriverError(NOT_SUPPORTED, "the emulated GPU has no arrays for textures")
    return (host if kind == _HOST else device) + x + pitch * (y + height * z)


def _set(at):
    target, pitch, value, size, width, height = _read(SET, at)
    if size not in (1, 2, 4):
        raise DriverError(INVALID_VALUE, f"elements of {size} bytes cannot be set")
    rows = [setting(target + pitch * y, value & (1 << 8 * size) - 1, width, size).run for y in range(height)]

    def fill():
        for row in rows:
            row()

    return Work(fill, "set", partial(SET.pack, target, pitch, value, size, width, height))


def _host(at):
    return calling(*_read(FUNCTION, at))


# --- Nodes -------------------------------------------------------------------------------------------------


def _handles(address, count):
    return [_LONG.from_address(address + 8 * i).value for i in range(count)]


def _put_all(handles, found, count):
    """Give handles to a program: as many as it has room for, or how many there are."""
    room = _LONG.from_address(count).value
    for i, handle in enumerate(handles[:room] if found else ()):
        put_handle(found + 8 * i, handle)
    put_handle(count, min(len(handles), room) if found else len(handles))


def _check(graph, nodes):
    if not graph.nodes.keys() >= set(nodes):
        raise DriverError(INVALID_VALUE)


def _add(found, graph, after, count, work):
    before = _handles(after, count)
    _check(graphs[graph], before)
    put_handle(found, graphs[graph].add(Node(work, before)))


@driver_function("cuGraphAddKernelNode", types="pppzp")
def _add_kernel(found, graph, after, count, parameters):
    _add(found, graph, after, count, _kernel(parameters))


@driver_function("cuGraphAddMemcpyNode", types="pppzpp")
def _add_copy(found, graph, after, count, parameters, context):
    _add(found, graph, after, count, _copy(parameters))


@driver_function("cuGraphAddMemsetNode", types="pppzpp")
def _add_set(found, graph, after, count, parameters, context):
    _add(found, graph, after, count, _set(parameters))


@driver_function("cuGraphAddHostNode", types="pppzp")
def _add_host(found, graph, after, count, parameters):
    _add(found, graph, after, count, _host(parameters))


@driver_function("cuGraphAddChildGraphNode", types="pppzp")
def _add_child(found, graph, after, count, child):
    own = graphs[child].clone()

    def run():
        for step in own.steps():
            own.nodes[step].work.run()

    _add(found, graph, after, count, Work(run, "graph", kept=own))


@driver_function("cuGraphChildGraphNodeGetGraph", types="pp")
def _child(node, found):
    put_handle(found, handle_of(_work(node, "graph").kept))


@driver_function("cuGraphAddEventRecordNode", types="pppzp")
def _add_record(found, graph, after, count, event):
    _add(found, graph, after, count, Work(recording(event), "event"))


@driver_function("cuGraphAddEventWaitNode", types="pppzp")
def _add_wait(found, graph, after, count, event):
    _add(found, graph, after, count, Work(lambda: None, "wait"))


@driver_function("cuGraphAddEmptyNode", types="pppz")
def _add_empty(found, graph, after, count):
    _add(found, graph, after, count, Work(lambda: None, "empty"))


def _owner(node):
    """Return the graph that a node is in."""
    for graph in graphs:
        if node in graph.nodes:
            return graph
    raise DriverError(INVALID_VALUE)


@driver_function("cuGraphNodeGetType", types="pp")
def _kind(node, found):
    put_int(found, KINDS[_owner(node).nodes[node].work.kind])


@driver_function("cuGraphDestroyNode", types="p")
def _destroy(node):
    nodes = _owner(node).nodes
    del nodes[node]
    for other in nodes.values():
        other.after = [before for before in other.after if before != node]


@driver_function("cuGraphGetRootNodes", types="ppp")
def _roots(graph, found, count):
    _put_all([handle for handle, node in graphs[graph].nodes.items() if not node.after], found, count)


# --- Which come before which --------------------------------------------------------------------------------


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


@driver_function("cuGraphAddDependencies_v2", types="ppppz")
def _connect(graph, sources, targets, data, count):
    graph, sources, targets = graphs[graph], _handles(sources, count), _handles(targets, count)
    _check(graph, [*sources, *targets])
    for source, target in zip(sources, targets, strict=True):
        if source in graph.nodes[target].after or source == target:
            raise DriverError(INVALID_VALUE)
        graph.nodes[target].after.append(source)


@driver_function("cuGraphRemoveDependencies_v2", types="ppppz")
def _part(graph, sources, targets, data, count):
    graph, sources, targets = graphs[graph], _handles(sources, count), _handles(targets, count)
    _check(graph, [*sources, *targets])
    for source, target in zip(sources, targets, strict=True):
        if source not in graph.nodes[target].after:
            raise DriverError(INVALID_VALUE)
        graph.nodes[target].after.remove(source)


# --- Parameters ---------------------------------------------------------------------------------------------


def _work(node, kind):
    """Return the work of a node of a kind."""
    work = _owner(node).nodes[node].work
    if work.kind != kind:
        raise DriverError(INVALID_VALUE)
    return work


def _get(node, kind, found):
    parameters = _work(node, kind).parameters()
    ctypes.memmove(found, parameters, len(parameters))


@driver_function("cuGraphKernelNodeGetParams", types="pp")
def _get_kernel(node, found):
    _get(node, "kernel", found)


@driver_function("cuGraphMemcpyNodeGetParams", types="pp")
def _get_copy(node, found):
    _get(node, "copy", found)


@driver_function("cuGraphMemsetNodeGetParams", types="pp")
def _get_set(node, found):
    _get(node, "set", found)


@driver_function("cuGraphHostNodeGetParams", types="pp")
def _get_host(node, found):
    _get(node, "host", found)


def _change(node, work):
    if node.work.kind != work.kind:
        raise DriverError(INVALID_VALUE)
    node.work = work


def _step(executable, node):
    if node not in executables[executable].nodes:
        raise DriverError(INVALID_VALUE)
    return executables[executable].nodes[node]


@driver_function("cuGraphKernelNodeSetParams", types="pp")
def _change_kernel(node, parameters):
    _change(_owner(node).nodes[node], _kernel(parameters))


@driver_function("cuGraphMemcpyNodeSetParams", types="pp")
def _change_copy(node, parameters):
    _change(_owner(node).nodes[node], _copy(parameters))


@driver_function("cuGraphMemsetNodeSetParams", types="pp")
def _change_set(node, parameters):
    _change(_owner(node).nodes[node], _set(parameters))


@driver_function("cuGraphExecKernelNodeSetParams", types="ppp")
def _change_kernel_step(executable, node, parameters):
    _change(_step(executable, node), _kernel(parameters))


@driver_function("cuGraphExecMemcpyNodeSetParams", types="pppp")
def _change_copy_step(executable, node, parameters, context):
    _change(_step(executable, node), _copy(parameters))


@driver_function("cuGraphExecMemsetNodeSetParams", types="pppp")
def _change_set_step(executable, node, parameters, context):
    _change(_step(executable, node), _set(parameters))


@driver_function("cuGraphNodeSetEnabled", types="ppu")
def _enable(executable, node, enabled):
    _step(executable, node).enabled = bool(enabled)


@driver_function("cuGraphNodeGetEnabled", types="ppp")
def _enabled(executable, node, found):
    put_int(found, _step(executable, node).enabled)
