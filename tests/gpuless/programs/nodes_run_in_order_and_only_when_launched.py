"""Nodes run in order, and only when the graph is launched."""

from emulated import check, cu
from nodes import adding, first, graph, other, read, second, stream, third

check(cu.cuMemsetD32(other, 0, 32))
nodes = first, second, third
kinds = [check(cu.cuGraphNodeGetType(node)).name.rpartition("_")[2] for node in nodes]
assert kinds == ["MEMSET", "KERNEL", "MEMCPY"]
steps = check(cu.cuGraphInstantiate(graph, 0))
assert not read(other).any()
for _ in range(2):
    check(cu.cuGraphLaunch(steps, stream))
    assert read(other).tolist() == [3] * 32
# Destroying or changing a graph does not affect what was made from it.
check(cu.cuGraphKernelNodeSetParams(second, adding(4)))
check(cu.cuGraphLaunch(steps, stream))
assert read(other).tolist() == [3] * 32
check(cu.cuGraphExecUpdate(steps, graph))
check(cu.cuGraphDestroy(graph))
check(cu.cuGraphLaunch(steps, stream))
assert read(other).tolist() == [4] * 32
