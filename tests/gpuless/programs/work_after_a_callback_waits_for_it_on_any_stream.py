"""Work after a callback waits for it, on any stream."""

import ctypes
import threading

from emulated import check, cu

stream, other, blocking = (check(cu.cuStreamCreate(flags)) for flags in (1, 1, 0))
first, last, done = check(cu.cuEventCreate(0)), check(cu.cuEventCreate(0)), []
not_ready, not_permitted = cu.CUresult.CUDA_ERROR_NOT_READY, cu.CUresult.CUDA_ERROR_NOT_PERMITTED


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
def callback(stream, status, data):
    go.wait(5)
    done.append(data)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def function(data):
    done.append(data)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
def waits(stream, status, data):
    done.append(cu.cuStreamSynchronize(stream)[0])


def address(what, kind=cu.CUstreamCallback):
    return kind(ctypes.cast(what, ctypes.c_void_p).value)


def add(to):
    global go
    go = threading.Event()
    done.clear()
    check(cu.cuStreamAddCallback(to, address(callback), 1, 0))
    threading.Timer(0.2, go.set).start()


# Another stream waits for an event after the callback. Until then there is no elapsed time either.
check(cu.cuEventRecord(first, stream))
add(stream)
check(cu.cuEventRecord(last, stream))
check(cu.cuStreamWaitEvent(other, last, 0))
assert cu.cuEventElapsedTime(first, last)[0] == cu.cuStreamQuery(other)[0] == not_ready
check(cu.cuStreamSynchronize(other))
assert done == [1] and check(cu.cuEventElapsedTime(first, last)) >= 0
# A host function is called after it.
add(stream)
check(cu.cuLaunchHostFunc(stream, address(function, cu.CUhostFn), 2))
assert done == []
check(cu.cuStreamSynchronize(stream))
assert done == [1, 2]
# The legacy default stream waits for streams that block, and for no others.
add(stream)
check(cu.cuStreamSynchronize(0))
assert done == []
check(cu.cuStreamSynchronize(stream))
add(blocking)
check(cu.cuStreamSynchronize(0))
assert done == [1]
# A stream may be destroyed before its work is done.
add(other)
check(cu.cuStreamDestroy(other))
check(cu.cuCtxSynchronize())
assert done == [1]
# A callback that waits for itself would wait for ever.
check(cu.cuStreamAddCallback(stream, address(waits), 0, 0))
check(cu.cuStreamSynchronize(stream))
assert done == [1, not_permitted]
