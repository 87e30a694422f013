"""Child graphs, events and host functions in a graph."""

import ctypes

from emulated import check, cu
from nodes import graph, invalid, other, read, stream, third

outer, event, called = check(cu.cuGraphCreate(0)), check(cu.cuEventCreate(0)), []
child = check(cu.cuGraphAddChildGraphNode(outer, None, 0, graph))
check(cu.cuGraphDestroyNode(third))  # of the graph that it was made from
assert check(cu.cuGraphGetNodes(check(cu.cuGraphChildGraphNodeGetGraph(child)), 9))[1] == 3
moment = check(cu.cuGraphAddEventRecordNode(outer, [child], 1, event))
waited = check(cu.cuGraphAddEventWaitNode(outer, [moment], 1, event))
function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(called.append)
given = cu.CUDA_HOST_NODE_PARAMS()
given.fn, given.userData = cu.CUhostFn(ctypes.cast(function, ctypes.c_void_p).value), 7
check(cu.cuGraphAddHostNode(outer, [waited], 1, given))
assert cu.cuGraphChildGraphNodeGetGraph(moment)[0] == invalid
steps = check(cu.cuGraphInstantiate(outer, 0))
assert cu.cuEventElapsedTime(event, event)[0] == cu.CUresult.CUDA_ERROR_INVALID_HANDLE
check(cu.cuMemsetD32(other, 0, 32))
check(cu.cuGraphLaunch(steps, stream))
assert read(other).tolist() == [3] * 32 and called == [7]
assert check(cu.cuEventElapsedTime(event, event)) == 0
assert cu.cuLaunchHostFunc(stream, cu.CUhostFn(0), 0)[0] == invalid
