"""An interrupt while the host waits for a callback is no error of the driver."""

import ctypes
import signal
import threading
import time

from emulated import check, cu

stream, done, go = check(cu.cuStreamCreate(1)), [], threading.Event()


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
def callback(stream, status, data):
    go.wait(5)
    done.append(data)


for number in (1, 2):
    address = cu.CUstreamCallback(ctypes.cast(callback, ctypes.c_void_p).value)
    check(cu.cuStreamAddCallback(stream, address, number, 0))
threading.Timer(0.2, signal.raise_signal, (signal.SIGINT,)).start()
try:
    code = None
    code = cu.cuStreamSynchronize(stream)[0]
    time.sleep(5)
except KeyboardInterrupt:
    assert code in (None, cu.CUresult.CUDA_SUCCESS)
else:
    raise AssertionError("no interrupt")
assert cu.cuStreamQuery(stream)[0] == cu.CUresult.CUDA_ERROR_NOT_READY and done == []
go.set()
check(cu.cuStreamSynchronize(stream))
assert done == [1, 2]
