"""Graphs: steps that are noted once and done often."""

import ctypes
import itertools

from gpuless.emulator.driver.table import (
    INVALID_VALUE,
    DriverError,
    Handles,
    driver_function,
    put_handle,
    put_int,
)


class Node:
    """A step of a graph.

    Attributes
    ----------
    run : callable
    after : list of int
        Handles of the nodes that come before.
    """

    def __init__(self, run, kind, after, parameters=()):
        self.run, self.kind, self.after, self.parameters = run, kind, list(after), parameters
        self.enabled = True


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

    def steps(self):
        """Return the nodes in an order that keeps to their dependencies."""
        done, order, left = set(), [], dict(self.nodes)
        while left:
            ready = [handle for handle, node in left.items() if done.issuperset(node.after)]
            if not ready:
                raise DriverError(INVALID_VALUE)
            for handle in ready:
                order.append(left.pop(handle))
                done.add(handle)
        return order


class Steps(list):
    """The steps of a graph as they will be run, and the objects they need."""

    def __init__(self, graph):
        super().__init__(graph.steps())
        self.objects = list(graph.objects)
        for value, count in self.objects:
            value.count += count

    def release(self):
        """Give the objects back."""
        for value, count in self.objects:
            value.release(count)


graphs, executables = Handles(), Handles()


def handle_of(graph):
    """Return the handle of a graph, a new one if nobody has asked before."""
    if not hasattr(graph, "handle"):
        graph.handle = graphs.add(graph)
    return graph.handle


@driver_function("cuGraphCreate", types="pu")
def _graph_create(found, flags):
    put_handle(found, handle_of(Graph()))


@driver_function("cuGraphDestroy", types="p")
def _graph_destroy(handle):
    for value, count in graphs.remove(handle).objects:
        value.release(count)


@driver_function("cuGraphInstantiateWithFlags", types="ppz")
def _instantiate(found, graph, flags):
    put_handle(found, executables.add(Steps(graphs[graph])))


@driver_function("cuGraphInstantiateWithParams", types="ppp")
def _instantiate_with(found, graph, parameters):
    put_handle(found, executables.add(Steps(graphs[graph])))


@driver_function("cuGraphUpload", types="pp")
def _upload(executable, handle):
    """Do nothing: it is where it will run."""


@driver_function("cuGraphExecDestroy", types="p")
def _executable_destroy(handle):
    executables.remove(handle).release()


@driver_function("cuGraphExecUpdate", types="ppp")
def _update(executable, graph, result):
    steps = Steps(graphs[graph])
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


@driver_function("cuGraphAddEmptyNode", types="pppz")
def _add_empty(found, graph, after, count):
    before = [ctypes.c_uint64.from_address(after + 8 * i).value for i in range(count)]
    put_handle(found, graphs[graph].add(Node(lambda: None, "empty", before)))


@driver_function("cuGraphDebugDotPrint", types="pcu")
def _dot(graph, path, flags):
    lines = ["digraph {"]
    for handle, node in graphs[graph].nodes.items():
        lines.append(f'  n{handle} [label="{node.kind}"];')
        lines += [f"  n{before} -> n{handle};" for before in node.after]
    with open(path.decode(), "w", encoding="utf-8") as file:
        file.write("\n".join([*lines, "}", ""]))


# --- Objects that live as long as a graph -------------------------------------------------------------------


class UserObject:
    """A program's own object, which it is told of when nobody needs it any more."""

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
    put_handle(found, UserObject(data, destroy, count).handle)


@driver_function("cuUserObjectRetain", types="pu")
def _object_retain(handle, count):
    _objects[handle].count += count


@driver_function("cuUserObjectRelease", types="pu")
def _object_release(handle, count):
    _objects[handle].release(count)


@driver_function("cuGraphRetainUserObject", types="ppuu")
def _graph_retain(graph, handle, count, flags):
    if not flags & 1:  # else the caller's references are handed over
        _objects[handle].count += count
    graphs[graph].objects.append((_objects[handle], count))


@driver_function("cuGraphReleaseUserObject", types="ppu")
def _graph_release(graph, handle, count):
    graphs[graph].objects.remove((_objects[handle], count))
    _objects[handle].release(count)
