"""Queries return what was set."""

import numpy as np
from emulated import check, cu


def code(answer):
    return answer[0].name.removeprefix("CUDA_ERROR_")


for flags in (0, 1):
    assert check(cu.cuStreamGetFlags(check(cu.cuStreamCreate(flags)))) == flags
# A priority out of range becomes the nearest valid one.
least, greatest = check(cu.cuCtxGetStreamPriorityRange())
for given, found in ((least, least), (greatest, greatest), (-1, -1), (7, least), (-9, greatest)):
    assert check(cu.cuStreamGetPriority(check(cu.cuStreamCreateWithPriority(0, given)))) == found
check(cu.cuDevicePrimaryCtxSetFlags(0, 4))
assert check(cu.cuCtxGetFlags()) == 4 and check(cu.cuDevicePrimaryCtxGetState(0))[0] == 4
own = check(cu.cuCtxCreate(None, 1 | 8, 0))
assert check(cu.cuCtxGetFlags()) == 9
check(cu.cuCtxDestroy(own))
assert check(cu.cuCtxGetFlags()) == 4
for flags in (0, 1, 2, 6):
    assert check(cu.cuMemHostGetFlags(int(check(cu.cuMemHostAlloc(100, flags))) + 50)) == flags
assert check(cu.cuMemHostGetFlags(check(cu.cuMemAllocHost(100)))) == 0
assert code(cu.cuMemHostGetFlags(check(cu.cuMemAlloc(100)))) == "INVALID_VALUE"
# Memory can be registered once, and unregistered once.
array = np.zeros(100)
check(cu.cuMemHostRegister(array.ctypes.data, 80, 0))
again = cu.cuMemHostRegister(array.ctypes.data + 79, 8, 0)
assert code(again) == "HOST_MEMORY_ALREADY_REGISTERED"
check(cu.cuMemHostRegister(array.ctypes.data + 80, 8, 0))
for at in (0, 80):
    check(cu.cuMemHostUnregister(array.ctypes.data + at))
    assert code(cu.cuMemHostUnregister(array.ctypes.data + at)) == "HOST_MEMORY_NOT_REGISTERED"
mode = cu.CUstreamCaptureMode
relaxed, own = mode.CU_STREAM_CAPTURE_MODE_RELAXED, mode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
assert check(cu.cuThreadExchangeStreamCaptureMode(relaxed)) == 0
assert check(cu.cuThreadExchangeStreamCaptureMode(own)) == relaxed
# A limit that does not exist here, and one that exists nowhere.
assert code(cu.cuCtxGetLimit(cu.CUlimit.CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH)) == "UNSUPPORTED_LIMIT"
