"""Sixteen Python threads with a stream each; a child, forked and spawned; the largest grid there is."""

import os
import signal
import threading
import time
from multiprocessing import get_context

import faulty_kernels
import numpy as np
from faulty_kernels import counted
from numba import cuda

x = cuda.to_device(np.zeros(64, np.float32))


def work():
    stream = cuda.stream()
    y = cuda.to_device(np.zeros(1000, np.float32), stream=stream)
    for _ in range(20):
        counted[4, 256, stream](y)
    stream.synchronize()
    sums.append(y.copy_to_host().sum())


def fork():
    try:
        counted[1, 64](x)
    except Exception as error:
        return str(error)


sums, threads = [], [threading.Thread(target=work) for _ in range(16)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(set(sums) == {20_000})
if os.fork() == 0:
    print("forked:", fork(), flush=True)
    os._exit(0)
os.wait()
print("spawned:", get_context("spawn").Pool(1).apply(faulty_kernels.count_once))
counted[1, 32](cuda.to_device(np.zeros(0, np.float32)))
try:
    counted[(1, 65536), 1](x)
except Exception as error:
    print(str(error).partition(":")[0])


def interrupt(over):
    pause = 0.3
    while not over.wait(pause):
        os.kill(os.getpid(), signal.SIGINT)
        pause = 5  # Python drops an interrupt that comes while something is finalised


def seconds_until_stopped():
    over, begun = threading.Event(), time.monotonic()
    threading.Thread(target=interrupt, args=(over,)).start()
    try:
        counted[(2**31 - 1, 65535, 65535), 1](x)
    except KeyboardInterrupt:
        return time.monotonic() - begun
    finally:
        over.set()


# A machine that others use may let a process wait for longer, but not each time.
print("stopped", any(seconds_until_stopped() < 1.3 for attempt in range(5)))
