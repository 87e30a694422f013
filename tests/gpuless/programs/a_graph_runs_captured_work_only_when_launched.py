"""A graph runs what was captured, and only when it is launched."""

import numpy as np
from emulated import check, cu

x = np.arange(4, dtype=np.uint32)
one, other = check(cu.cuMemAlloc(16)), check(cu.cuMemAlloc(16))
check(cu.cuMemsetD32(one, 1, 4))
check(cu.cuMemsetD32(other, 2, 4))
stream, second = check(cu.cuStreamCreate(1)), check(cu.cuStreamCreate(1))
fork, join = check(cu.cuEventCreate(2)), check(cu.cuEventCreate(2))
check(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
check(cu.cuMemsetD32Async(one, 5, 4, stream))
check(cu.cuEventRecord(fork, stream))
check(cu.cuStreamWaitEvent(second, fork, 0))
assert check(cu.cuStreamIsCapturing(second)) == 1
check(cu.cuMemcpyDtoDAsync(other, one, 16, second))
check(cu.cuEventRecord(join, second))
check(cu.cuStreamWaitEvent(stream, join, 0))
assert cu.cuStreamEndCapture(second)[0] == cu.CUresult.CUDA_ERROR_STREAM_CAPTURE_UNMATCHED
graph = check(cu.cuStreamEndCapture(stream))
assert check(cu.cuStreamIsCapturing(stream)) == check(cu.cuStreamIsCapturing(second)) == 0


def read(pointer):
    check(cu.cuMemcpyDtoH(x.ctypes.data, pointer, 16))
    return x.tolist()


assert read(one) == [1] * 4 and read(other) == [2] * 4
assert check(cu.cuGraphGetNodes(graph, 8))[1] == 2
run = check(cu.cuGraphInstantiate(graph, 0))
for value in (7, 8):
    check(cu.cuMemsetD32(one, value, 4))
    check(cu.cuGraphLaunch(run, stream))
    assert read(other) == [5] * 4
check(cu.cuGraphExecDestroy(run))
check(cu.cuGraphDestroy(graph))
assert cu.cuGraphLaunch(run, stream)[0] == cu.CUresult.CUDA_ERROR_INVALID_HANDLE
