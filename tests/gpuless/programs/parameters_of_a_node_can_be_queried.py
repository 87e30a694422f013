"""The parameters of a node can be queried."""

import ctypes

from emulated import check, cu
from nodes import graph, invalid, kernel, one, other, relaxed

stream = check(cu.cuStreamCreate(1))
check(cu.cuStreamBeginCapture(stream, relaxed))
check(cu.cuMemsetD32Async(one, 0, 32, stream))
values = (int(one), 3.0), (ctypes.c_void_p, ctypes.c_float)
check(cu.cuLaunchKernel(int(kernel.handle), 1, 1, 1, 32, 1, 1, 0, stream, values, 0))
check(cu.cuMemcpyDtoDAsync(other, one, 128, stream))
captured = check(cu.cuStreamEndCapture(stream))
kinds = cu.CUgraphNodeType
for which in (graph, captured):
    nodes = check(cu.cuGraphGetNodes(which, 3))[0]
    nodes = {check(cu.cuGraphNodeGetType(node)): node for node in nodes}
    given = check(cu.cuGraphMemsetNodeGetParams(nodes[kinds.CU_GRAPH_NODE_TYPE_MEMSET]))
    assert (int(given.dst), given.value, given.elementSize, given.width) == (int(one), 0, 4, 32)
    given = check(cu.cuGraphMemcpyNodeGetParams(nodes[kinds.CU_GRAPH_NODE_TYPE_MEMCPY]))
    ends = int(given.srcDevice), int(given.dstDevice)
    assert (ends, given.WidthInBytes, given.Height) == ((int(one), int(other)), 128, 1)
    node = nodes[kinds.CU_GRAPH_NODE_TYPE_KERNEL]
    given = check(cu.cuGraphKernelNodeGetParams(node))
    assert (given.gridDimX, given.blockDimX, given.sharedMemBytes) == (1, 32, 0)
    again = check(cu.cuGraphKernelNodeGetParams(node))
    assert int(again.kernelParams) == int(given.kernelParams)
    pointers = (ctypes.c_uint64 * 2).from_address(int(given.kernelParams))
    assert ctypes.c_uint64.from_address(pointers[0]).value == int(one)
    assert ctypes.c_float.from_address(pointers[1]).value == 3
    assert cu.cuGraphMemsetNodeGetParams(node)[0] == invalid
