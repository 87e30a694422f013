"""Several threads launch at once."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from emulated import cuda
from numba.cuda.cudadrv import driver

load, loading = driver.load_module_image, threading.Event()


def load_slowly(*given):
    loading.set()
    time.sleep(0.5)
    return load(*given)


driver.load_module_image = load_slowly


@cuda.jit
def add(x, value):
    i = cuda.grid(1)
    if i < x.size:
        x[i] += value


def work(value):
    x, stream = cuda.to_device(np.zeros(50_000)), cuda.stream()
    value == 0 or loading.wait()
    for _ in range(20):
        add[-(-x.size // 128), 128, stream](x, value)
    return x.copy_to_host(stream=stream)


with ThreadPoolExecutor(4) as pool:
    for value, found in zip(range(8), pool.map(work, range(8)), strict=True):
        assert (found == 20 * value).all(), value
