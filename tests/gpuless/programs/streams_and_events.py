"""Streams and events."""

from emulated import check, cu

stream = check(cu.cuStreamCreateWithPriority(1, -2))
assert check(cu.cuStreamGetPriority(stream)) == -2 and check(cu.cuStreamGetFlags(stream)) == 1
first, last = check(cu.cuEventCreate(0)), check(cu.cuEventCreate(0))
assert cu.cuEventElapsedTime(first, last)[0] == cu.CUresult.CUDA_ERROR_INVALID_HANDLE
check(cu.cuEventRecord(first, stream))
check(cu.cuEventRecord(last, stream))
check(cu.cuStreamWaitEvent(0, last, 0))
check(cu.cuEventQuery(last))
check(cu.cuEventSynchronize(last))
assert 0 <= check(cu.cuEventElapsedTime(first, last)) < 1000
check(cu.cuStreamQuery(stream))
check(cu.cuStreamDestroy(stream))
assert cu.cuStreamQuery(stream)[0] == cu.CUresult.CUDA_ERROR_INVALID_HANDLE
