"""Graphs of work that are built once and run often."""

import copy
import ctypes
import itertools
from collections.abc import Callable
from typing import NamedTuple

from gpuless.emulator.driver import watching
from gpuless.emulator.driver.errors import DriverError, Result, check_flags, refuse_if
from gpuless.emulator.driver.table import Handles, driver_function, put_handle, put_int


class Work(NamedTuple):
    """Work of a stream, or of a graph's node.

    `kind`: one of `nodes.KINDS`; `parameters`: returns the bytes of the driver's structure of them; `kept`:
    what they point to, or the child graph; `about`: information for a watcher.
    """

    run: Callable
    kind: str
    parameters: Callable = bytes
    kept: object = None
    about: object = None


class Node:
    """A node of a graph: its `Work`, and the handles of the nodes before it."""

    def __init__(self, work, after):
        self.work, self.after, self.enabled = work, list(after), True


class Graph:
    """The nodes of a graph, and the objects that it retains."""

    _numbers = itertools.count(0x1000)

    def __init__(self):
        self.nodes, self.objects = {}, []

    def add(self, node):
        """Add a node; return its handle."""
        handle = 16 * next(self._numbers)
        self.nodes[handle] = node
        return handle

    def clone(self):
        """Return a copy with its own nodes."""
        new = Graph()
        numbers = {}
        for handle in self.in_order():
            node = copy.copy(self.nodes[handle])
            node.after = [numbers[before] for before in node.after]
            numbers[handle] = new.add(node)
        return new

    def in_order(self):
        """Return the handles of the nodes in topological order."""
        done, order, left = set(), [], dict(self.nodes)
        while left:
            ready = [handle for handle, node in left.items() if done.issuperset(node.after)]
            refuse_if(not ready)
            for handle in ready:
                del left[handle]
                order.append(handle)
                done.add(handle)
        return order


class Executable:
    """An executable graph: copies of a graph's nodes in topological order, and the objects they need."""

    def __init__(self, graph, flags=0):
        self.flags = flags
        self.nodes = {handle: copy.copy(graph.nodes[handle]) for handle in graph.in_order()}
        self.objects = list(graph.objects)
        for value, count in self.objects:
            value.count += count

    def release(self):
        """Release the objects."""
        for value, count in self.objects:
            value.release(count)


def run_nodes(nodes):
    """Run the enabled nodes of a dict by handle, in its order."""
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
    """Return the handle of a graph, which the first call makes."""
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
    put_handle(found, executables.add(Executable(graphs[graph], flags)))


@driver_function("cuGraphInstantiateWithParams", types="ppp")
def _instantiate_with(found, graph, parameters):
    flags = ctypes.c_uint64.from_address(parameters).value
    _instantiate(found, graph, flags & ~_UPLOAD)
    executables[ctypes.c_uint64.from_address(found).value].flags = flags
    put_int(parameters + 24, 0)  # success


@driver_function("cuGraphExecGetFlags", types="pp")
def _executable_flags(executable, found):
    put_handle(found, executables[executable].flags)


@driver_function("cuGraphUpload", types="pp")
def _upload(executable, handle):
    """Do nothing: the graph already is where it runs."""


@driver_function("cuGraphExecDestroy", types="p")
def _executable_destroy(handle):
    executables.remove(handle).release()


@driver_function("cuGraphExecUpdate", types="ppp")
def _update(executable, graph, result):
    updated = Executable(graphs[graph], executables[executable].flags)
    executables[executable].release()
    executables.replace(executable, updated)
    if result:
        put_int(result, 0)


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
    """A program's object with a reference count; a callback destroys it."""

    _DESTROY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

    def __init__(self, data, destroy, count):
        self.data, self.destroy, self.count = data, self._DESTROY(destroy), count
        self.handle = _objects.add(self)

    def release(self, count):
        """Release references; the last one destroys the object."""
        self.count -= count
        if self.count == 0:
            _objects.remove(self.handle)
            self.destroy(self.data)


_objects = Handles()


@driver_function("cuUserObjectCreate", types="pppuu")
def _object_create(found, data, destroy, count, flags):
    if flags != 1 or not count or not destroy:  # CU_USER_OBJECT_NO_DESTRUCTOR_SYNC is mandatory
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
    if not flags & 1:  # 1: the caller's references move to the graph
        _objects[handle].count += count
    graphs[graph].objects.append((_objects[handle], count))


@driver_function("cuGraphReleaseUserObject", types="ppu")
def _graph_release(graph, handle, count):
    graphs[graph].objects.remove((_objects[handle], count))
    _objects[handle].release(count)
