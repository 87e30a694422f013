"""Waiting for a stream waits for its callbacks."""

import ctypes
import threading

from emulated import check, cu

stream, event, done = check(cu.cuStreamCreate(1)), check(cu.cuEventCreate(0)), []


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
def callback(stream, status, data):
    go.wait(5)
    done.append(data)


address = cu.CUstreamCallback(ctypes.cast(callback, ctypes.c_void_p).value)
waiting = (cu.cuStreamSynchronize, stream), (cu.cuEventSynchronize, event), (cu.cuCtxSynchronize,)
for wait, *what in waiting:
    go = threading.Event()
    done.clear()
    for number in (1, 2, 3):  # one after the other
        check(cu.cuStreamAddCallback(stream, address, number, 0))
    check(cu.cuEventRecord(event, stream))
    assert cu.cuEventQuery(event)[0] == cu.CUresult.CUDA_ERROR_NOT_READY
    assert cu.cuStreamQuery(stream)[0] == cu.CUresult.CUDA_ERROR_NOT_READY and done == []
    threading.Timer(0.2, go.set).start()
    check(wait(*what))
    assert done == [1, 2, 3], (wait, done)
    check(cu.cuEventQuery(event))
