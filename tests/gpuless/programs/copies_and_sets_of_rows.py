"""Copies and sets of rows."""

from emulated import check, cu
from nodes import context, copying, one, other, read, setting, stream

graph = check(cu.cuGraphCreate(0))
check(cu.cuMemsetD32(one, 0, 32))
check(cu.cuMemsetD32(other, 0, 32))
node = check(cu.cuGraphAddMemsetNode(graph, None, 0, setting(one, 0x3F800000, 2, 3, 32), context))
check(cu.cuGraphAddMemcpyNode(graph, [node], 1, copying(other, one, 4, 4, 32), context))
check(cu.cuGraphLaunch(check(cu.cuGraphInstantiate(graph, 0)), stream))
assert read(one).tolist() == [1, 1, 0, 0, 0, 0, 0, 0] * 3 + [0] * 8
assert read(other).tolist() == [1, 0, 0, 0, 0, 0, 0, 0] * 3 + [0] * 8
