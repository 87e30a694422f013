"""Edges decide the order."""

from emulated import check, cu
from nodes import first, graph, invalid, one, other, read, second, stream, third


def known(answer, which=0):
    return [int(each) for each in check(answer)[which]]


sources, targets = (known(cu.cuGraphGetEdges(graph, 2), side) for side in (0, 1))
assert set(zip(sources, targets, strict=True)) == {(int(first), int(second)), (int(second), int(third))}
assert known(cu.cuGraphNodeGetDependencies(second, 1)) == [int(first)]
assert known(cu.cuGraphNodeGetDependentNodes(second, 1)) == [int(third)]
assert known(cu.cuGraphGetRootNodes(graph, 1)) == [int(first)]
# The kernel before the set, and its result goes nowhere.
check(cu.cuGraphRemoveDependencies(graph, [first, second], [second, third], None, 2))
check(cu.cuGraphAddDependencies(graph, [second, first], [first, third], None, 2))
assert cu.cuGraphAddDependencies(graph, [second], [first], None, 1)[0] == invalid
check(cu.cuGraphLaunch(check(cu.cuGraphInstantiate(graph, 0)), stream))
assert not read(other).any()
check(cu.cuGraphDestroyNode(first))
check(cu.cuMemsetD32(one, 0, 32))
check(cu.cuGraphAddDependencies(graph, [second], [third], None, 1))
check(cu.cuGraphLaunch(check(cu.cuGraphInstantiate(graph, 0)), stream))
assert read(other).tolist() == [3] * 32
# A cycle has no first node.
check(cu.cuGraphAddDependencies(graph, [third], [second], None, 1))
assert cu.cuGraphInstantiate(graph, 0)[0] == invalid
