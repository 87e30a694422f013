"""A node can be changed in an existing graph."""

from emulated import check, cu
from nodes import (
    adding,
    context,
    copying,
    first,
    graph,
    invalid,
    one,
    other,
    read,
    second,
    setting,
    stream,
    third,
)

steps = check(cu.cuGraphInstantiate(graph, 0))
check(cu.cuGraphExecKernelNodeSetParams(steps, second, adding(5, threads=16)))
check(cu.cuGraphExecMemsetNodeSetParams(steps, first, setting(one, 0x40000000), context))
check(cu.cuGraphLaunch(steps, stream))
assert read(other).tolist() == [7] * 16 + [2] * 16
check(cu.cuGraphExecMemcpyNodeSetParams(steps, third, copying(other, int(one) + 64, 32), context))
check(cu.cuGraphLaunch(steps, stream))
assert read(other).tolist() == [2] * 8 + [7] * 8 + [2] * 16
check(cu.cuGraphNodeSetEnabled(steps, second, 0))
assert check(cu.cuGraphNodeGetEnabled(steps, second)) == 0
check(cu.cuGraphLaunch(steps, stream))
assert read(one).tolist() == [2] * 32
# Only with valid parameters of its kind.
assert cu.cuGraphExecKernelNodeSetParams(steps, first, adding(5))[0] == invalid
assert cu.cuGraphKernelNodeSetParams(second, adding(5, threads=2048))[0] == invalid
assert cu.cuGraphAddMemcpyNode(graph, None, 0, copying(other, one, 129), context)[0] == invalid
assert cu.cuGraphAddMemsetNode(graph, None, 0, setting(one, 0, size=3), context)[0] == invalid
assert cu.cuGraphAddEmptyNode(graph, [cu.CUgraphNode(16)], 1)[0] == invalid
assert check(cu.cuGraphGetNodes(graph, 9))[1] == 3
