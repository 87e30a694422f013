"""Each thread has a stack of contexts."""

import threading

from emulated import check, cu

primary = int(check(cu.cuCtxGetCurrent()))
assert primary
own = check(cu.cuCtxCreate(None, 0, 0))
assert int(check(cu.cuCtxGetCurrent())) == int(own) != primary
assert int(check(cu.cuCtxPopCurrent())) == int(own)
assert int(check(cu.cuCtxGetCurrent())) == primary
check(cu.cuCtxPushCurrent(own))
found = []
thread = threading.Thread(target=lambda: found.append(int(check(cu.cuCtxGetCurrent()))))
thread.start()
thread.join()
assert found == [0]
check(cu.cuCtxDestroy(own))
assert int(check(cu.cuCtxGetCurrent())) == primary
assert cu.cuCtxPushCurrent(own)[0] == cu.CUresult.CUDA_ERROR_INVALID_CONTEXT
check(cu.cuCtxPopCurrent())
assert cu.cuCtxPopCurrent()[0] == cu.CUresult.CUDA_ERROR_INVALID_CONTEXT
