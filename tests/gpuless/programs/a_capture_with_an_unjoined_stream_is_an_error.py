"""A capture ends with an error if a stream was not joined."""

from emulated import check, cu

relaxed = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
pointer = check(cu.cuMemAlloc(4))
stream, second = check(cu.cuStreamCreate(1)), check(cu.cuStreamCreate(1))
fork, join = check(cu.cuEventCreate(2)), check(cu.cuEventCreate(2))
for more in (0, 1):
    check(cu.cuStreamBeginCapture(stream, relaxed))
    check(cu.cuMemsetD32Async(pointer, 5, 1, stream))
    check(cu.cuEventRecord(fork, stream))
    check(cu.cuStreamWaitEvent(second, fork, 0))
    check(cu.cuMemsetD32Async(pointer, 6, 1, second))
    if more:  # nobody waits for work after the event
        check(cu.cuEventRecord(join, second))
        check(cu.cuStreamWaitEvent(stream, join, 0))
        check(cu.cuMemsetD32Async(pointer, 7, 1, second))
    assert cu.cuStreamEndCapture(stream)[0] == cu.CUresult.CUDA_ERROR_STREAM_CAPTURE_UNJOINED
    assert check(cu.cuStreamIsCapturing(stream)) == check(cu.cuStreamIsCapturing(second)) == 0
# The default stream cannot be captured.
check(cu.cuStreamBeginCapture(stream, relaxed))
check(cu.cuEventRecord(fork, stream))
assert cu.cuStreamWaitEvent(0, fork, 0)[0] == cu.CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
graph = check(cu.cuStreamEndCapture(stream))
answer = cu.cuStreamBeginCaptureToGraph(0, graph, None, None, 0, 0)
assert answer[0] == cu.CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
# A stream that has only waited leaves nothing open.
check(cu.cuStreamBeginCapture(stream, relaxed))
check(cu.cuMemsetD32Async(pointer, 5, 1, stream))
check(cu.cuEventRecord(fork, stream))
check(cu.cuStreamWaitEvent(second, fork, 0))
assert check(cu.cuGraphGetNodes(check(cu.cuStreamEndCapture(stream)), 8))[1] == 1
