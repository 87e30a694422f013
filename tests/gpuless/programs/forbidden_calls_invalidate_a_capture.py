"""Calls that a capture forbids invalidate it."""

from emulated import check, cu


def code(answer):
    return answer[0].name.removeprefix("CUDA_ERROR_")


relaxed = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
pointer = check(cu.cuMemAlloc(4))
stream, second = check(cu.cuStreamCreate(1)), check(cu.cuStreamCreate(1))
before, event, foreign = (check(cu.cuEventCreate(0)) for _ in range(3))
check(cu.cuEventRecord(before, second))
check(cu.cuStreamBeginCapture(second, relaxed))
check(cu.cuEventRecord(foreign, second))
nothing = cu.CUstreamCallback(0)
wrong = {
    "STREAM_CAPTURE_UNSUPPORTED": (
        lambda: cu.cuStreamSynchronize(stream),
        lambda: cu.cuStreamQuery(stream),
        lambda: cu.cuStreamAddCallback(stream, nothing, 0, 0),
    ),
    "STREAM_CAPTURE_ISOLATION": (lambda: cu.cuStreamWaitEvent(stream, before, 0),),
    "CAPTURED_EVENT": (
        lambda: cu.cuEventQuery(event),
        lambda: cu.cuEventSynchronize(event),
        lambda: cu.cuEventElapsedTime(before, event),
    ),
    "STREAM_CAPTURE_MERGE": (lambda: cu.cuStreamWaitEvent(stream, foreign, 0),),
}
for name, attempts in wrong.items():
    for attempt in attempts:
        check(cu.cuStreamBeginCapture(stream, relaxed))
        check(cu.cuEventRecord(event, stream))
        assert check(cu.cuStreamIsCapturing(stream)) == 1
        assert code(attempt()) == name
        assert check(cu.cuStreamIsCapturing(stream)) == 2
        invalid = "STREAM_CAPTURE_INVALIDATED"
        assert code(cu.cuMemsetD32Async(pointer, 7, 1, stream)) == invalid
        assert code(cu.cuEventRecord(event, stream)) == invalid
        assert code(cu.cuStreamWaitEvent(second, event, 0)) == invalid
        assert code(cu.cuStreamEndCapture(stream)) == invalid
        assert check(cu.cuStreamIsCapturing(stream)) == 0
        check(cu.cuStreamSynchronize(stream))
# The other one is invalidated by the attempt to merge, and by nothing before.
assert code(cu.cuStreamEndCapture(second)) == "STREAM_CAPTURE_INVALIDATED"
assert code(cu.cuStreamEndCapture(second)) == code(cu.cuStreamEndCapture(0)) == "ILLEGAL_STATE"
