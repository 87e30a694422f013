"""An event recorded in a capture is valid only in that capture."""

import ctypes

from emulated import check, cu


def code(answer):
    return answer[0].name.removeprefix("CUDA_ERROR_")


relaxed = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
pointer = check(cu.cuMemAlloc(4))
stream, second = check(cu.cuStreamCreate(1)), check(cu.cuStreamCreate(1))
event, before, marked = (check(cu.cuEventCreate(0)) for _ in range(3))
check(cu.cuEventRecord(before, second))
check(cu.cuStreamBeginCapture(stream, relaxed))
check(cu.cuEventRecord(event, stream))
check(cu.cuEventRecordWithFlags(marked, stream, 1))  # whenever the graph runs
graph = check(cu.cuGraphInstantiate(check(cu.cuStreamEndCapture(stream)), 0))
assert code(cu.cuStreamWaitEvent(second, event, 0)) == "CAPTURED_EVENT"
check(cu.cuMemsetD32Async(pointer, 7, 1, second))
assert ctypes.c_uint32.from_address(int(pointer)).value == 7
assert code(cu.cuEventElapsedTime(before, marked)) == "INVALID_HANDLE"
check(cu.cuGraphLaunch(graph, stream))
assert check(cu.cuEventElapsedTime(before, marked)) > 0
# Once the stream that began a capture is destroyed, the others work again.
check(cu.cuStreamBeginCapture(stream, relaxed))
check(cu.cuEventRecord(event, stream))
check(cu.cuStreamWaitEvent(second, event, 0))
check(cu.cuStreamDestroy(stream))
check(cu.cuStreamSynchronize(second))
