"""A graph allocates no memory, and fails once its memory is freed."""

from emulated import check, cu

stream = check(cu.cuStreamCreate(1))
one, other = check(cu.cuMemAllocAsync(16, stream)), check(cu.cuMemAlloc(16))
refused = cu.CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
check(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
assert cu.cuMemAllocAsync(16, stream)[0] == cu.cuMemFreeAsync(one, stream)[0] == refused
check(cu.cuMemcpyDtoDAsync(other, one, 16, stream))
copy = check(cu.cuGraphInstantiate(check(cu.cuStreamEndCapture(stream)), 0))
check(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
check(cu.cuMemsetD32Async(one, 0, 4, stream))
fill = check(cu.cuGraphInstantiate(check(cu.cuStreamEndCapture(stream)), 0))
check(cu.cuMemFreeAsync(one, stream))
for graph in (copy, fill):  # an error that does not end the process
    assert cu.cuGraphLaunch(graph, stream)[0] == cu.CUresult.CUDA_ERROR_INVALID_VALUE
