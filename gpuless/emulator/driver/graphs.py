"""Graphs: steps that are noted once and done often."""

import copy
import ctypes
import itertools
from collections.abc import Callable
from typing import NamedTuple

from gpuless.emulator.driver import watching
from gpuless.emulator.driver.errors import DriverError, Result, check_flags, refuse_if
from gpuless.emulator.driver.table import Handles, driver_function, put_handle, put_int


class Work(NamedTuple):
    """What a stream does, or a node of a graph.

    `kind`: one of `nodes.KINDS`; `parameters`: returns them as the structure of the driver's has them, in
    bytes; `kept`: what they point to, or the graph that is run; `about`: what a watcher sees of it.
    """

    run: Callable
    kind: str
    parameters: Callable = bytes
    kept: object = None
    about: object = None


class Node:
    """A step of a graph: its `Work`, and the handles of the nodes that come before."""

    def __init__(self, work, after):
        self.work, self.after, self.enabled = work, list(after), True


class Graph:
    """Steps, and which come before which."""

    _numbers = itertools.count(0x1000)

    def __init__(self):
        self.nodes, self.objects = {}, []

    def add(self, node):
        """Add a node; return its handle."""
        handle = 16 * next(self._numbers)
        self.nodes[handle] = node
        return handle

    def clone(self):
        """Return a graph of the same nodes, which are its own."""
        new = Graph()
        numbers = {}
        for handle in self.steps():
            node = copy.copy(self.nodes[handle])
            node.after = [numbers[before] for before in node.after]
            numbers[handle] = new.add(node)
        return new

    def steps(self):
        """Return the handles of the nodes in an order that keeps to their dependencies."""
        done, order, left = set(), [], dict(self.nodes)
        while left:
            ready = [handle for handle, node in left.items() if done.issuperset(node.after)]
            refuse_if(not ready)
            for handle in ready:
                del left[handle]
                order.append(handle)
                done.add(handle)
        return order


class Steps:
    """The nodes of a graph as they will be run, whatever becomes of it, and the objects they need."""

    def __init__(self, graph, flags=0):
        self.flags = flags
        self.nodes = {handle: copy.copy(graph.nodes[handle]) for handle in graph.steps()}
        self.objects = list(graph.objects)
        for value, count in self.objects:
            value.count += count

    def release(self):
        """Give the objects back."""
        for value, count in self.objects:
            value.release(count)


def run_steps(nodes):
    """Do what nodes of a graph do: those that are enabled, in the order of their handles in a dict."""
    watching.watcher().begin()
    try:
        for handle, node in nodes.items():
            if node.enabled:
                watching.watcher().node(handle, node)
                node.work.run()
    finally:
        watching.watcher().end()


graphs, executables = Handles(), Handles()
_UPLOAD, _DEVICE_LAUNCH = 2, 4  # of ``CUgraphInstantiate_flags``


def handle_of(graph):
    """Return the handle of a graph, a new one if nobody has asked before."""
    if not hasattr(graph, "handle"):
        graph.handle = graphs.add(graph)
    return graph.handle


@driver_function("cuGraphCreate", types="pu")
def _graph_create(found, flags):
    check_flags(flags)
    put_handle(found, handle_of(Graph()))


@driver_function("cuGraphDestroy", types="p")
def _graph_destroy(handle):
    for value, count in graphs.remove(handle).objects:
        value.release(count)


@driver_function("cuGraphInstantiateWithFlags", types="ppz")
def _instantiate(found, graph, flags):
    check_flags(flags, 0xF & ~_UPLOAD)
    refuse_if(flags & _DEVICE_LAUNCH, Result.NOT_SUPPORTED, "kernels of the emulated GPU launch no graphs")
    watching.watcher().instantiate(len(graphs[graph].nodes))
    put_handle(found, executables.add(Steps(graphs[graph], flags)))


@driver_function("cuGraphInstantiateWithParams", types="ppp")
def _instantiate_with(found, graph, parameters):
    flags = ctypes.c_uint64.from_address(parameters).value
    _instantiate(found, graph, flags & ~_UPLOAD)
    executables[ctypes.c_uint64.from_address(found).value].flags = flags
    put_int(parameters + 24, 0)  # it has worked


@driver_function("cuGraphExecGetFlags", types="pp")
def _executable_flags(executable, found):
    put_handle(found, executables[executable].flags)


@driver_function("cuGraphUpload", types="pp")
def _upload(executable, handle):
    """Do nothing: it is where it will run."""


@driver_function("cuGraphExecDestroy", types="p")
def _executable_destroy(handle):
    executables.remove(handle).release()


@driver_function("cuGraphExecUpdate", types="ppp")
def _update(executable, graph, result):
    steps = Steps(graphs[graph], executables[executable].flags)
    executables[executable].release()
    executables.replace(executable, steps)
    if result:
        put_int(result, 0)


@driver_function("cuGraphGetNodes", types="ppp")
def _get_nodes(graph, found, count):
    known = list(graphs[graph].nodes)
    if found:
        for i, handle in enumerate(known):
            put_handle(found + 8 * i, handle)
    put_handle(count, len(known))


@driver_function("cuGraphDebugDotPrint", types="pcu")
def _dot(graph, path, flags):
    check_flags(flags, (1 << 18) - 1)
    lines = ["digraph {"]
    for handle, node in graphs[graph].nodes.items():
        lines.append(f'  n{handle} [label="{node.work.kind}"];')
        lines += [f"  n{before} -> n{handle};" for before in node.after]
    with open(path.decode(), "w", encoding="utf-8") as file:
        file.write("\n".join([*lines, "}", ""]))


# --- Objects that live as long as a graph -------------------------------------------------------------------


class UserObject:
    """A program's own object, which it gets back when nobody needs it any more."""

    _DESTROY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

    def __init__(self, data, destroy, count):
        self.data, self.destroy, self.count = data, self._DESTROY(destroy), count
        self.handle = _objects.add(self)

    def release(self, count):
        """Give references back; the last one ends it."""
        self.count -= count
        if self.count == 0:
            _objects.remove(self.handle)
            self.destroy(self.data)


_objects = Handles()


@driver_function("cuUserObjectCreate", types="pppuu")
def _object_create(found, data, destroy, count, flags):
    if flags != 1 or not count or not destroy:  # CU_USER_OBJECT_NO_DESTRUCTOR_SYNC has to be said
        raise DriverError(Result.INVALID_VALUE)
    put_handle(found, UserObject(data, destroy, count).handle)


@driver_function("cuUserObjectRetain", types="pu")
def _object_retain(handle, count):
    _objects[handle].count += count


@driver_function("cuUserObjectRelease", types="pu")
def _object_release(handle, count):
    _objects[handle].release(count)


@driver_function("cuGraphRetainUserObject", types="ppuu")
def _graph_retain(graph, handle, count, flags):
    check_flags(flags, 1)
    if not flags & 1:  # else the caller's references are handed over
        _objects[handle].count += count
    graphs[graph].objects.append((_objects[handle], count))


@driver_function("cuGraphReleaseUserObject", types="ppu")
def _graph_release(graph, handle, count):
    graphs[graph].objects.remove((_objects[handle], count))
    _objects[handle].release(count)
