"""The process ends while a daemon thread's kernel runs; another thread launches later."""

import threading
import time

import numpy as np
from faulty_kernels import counted, forever
from numba import cuda

x = cuda.to_device(np.zeros(64, np.float32))


def late():
    time.sleep(0.5)
    counted[1, 64](x)
    print(x.copy_to_host().sum(), flush=True)


threading.Thread(target=lambda: forever[4, 64](x), daemon=True).start()
time.sleep(1)
threading.Thread(target=late).start()
