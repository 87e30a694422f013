"""A destroyed graph leaves nothing behind."""

import ctypes
import gc

from emulated import check, cu

from gpuless.emulator.driver import graphs


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def destroyed(data):
    destroyed.by.append(data)


destroyed.by = []
stream, pointer = check(cu.cuStreamCreate(1)), check(cu.cuMemAlloc(4))
event = check(cu.cuEventCreate(0))
check(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
check(cu.cuMemsetD32Async(pointer, 7, 1, stream))
check(cu.cuEventRecord(event, stream))
graph = check(cu.cuStreamEndCapture(stream))
one = check(cu.cuUserObjectCreate(5, cu.CUhostFn(ctypes.cast(destroyed, ctypes.c_void_p).value), 1, 1))
check(cu.cuGraphRetainUserObject(graph, one, 1, 1))
executable = check(cu.cuGraphInstantiate(graph, 0))
check(cu.cuGraphDestroy(graph))
check(cu.cuGraphLaunch(executable, stream))
assert ctypes.c_uint32.from_address(int(pointer)).value == 7 and not destroyed.by
check(cu.cuGraphExecDestroy(executable))
assert destroyed.by == [5] and cu.cuUserObjectRetain(one, 1)[0].name == "CUDA_ERROR_INVALID_HANDLE"
# What is captured into a graph is in that one, not in another.
graph, nowhere = check(cu.cuGraphCreate(0)), [cu.CUgraphNode(16)]
answer = cu.cuStreamBeginCaptureToGraph(stream, graph, nowhere, None, 1, 0)
assert answer[0] == cu.CUresult.CUDA_ERROR_INVALID_VALUE
check(cu.cuStreamBeginCaptureToGraph(stream, graph, None, None, 0, 0))
check(cu.cuMemsetD32Async(pointer, 8, 1, stream))
assert int(check(cu.cuStreamEndCapture(stream))) == int(graph)
check(cu.cuGraphDestroy(graph))
gc.collect()
assert not [one for one in gc.get_objects() if isinstance(one, graphs.Node)]
