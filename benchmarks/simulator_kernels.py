"""Small kernels of each kind, timed in the simulator that `numba.cuda` is.

This module imports nothing of ours: run as a script, it measures Numba's simulator.
"""

import json
import math
import time

import numpy as np
from numba import cuda, float32

THREADS = 64
TILE = 8
BLOCKS = 2


@cuda.jit
def elementwise_kernel(x, out):
    """Double one element per thread."""
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] * float32(2)


@cuda.jit
def atomic_kernel(x, out):
    """Sum up with atomic additions, one per thread."""
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(out, 0, x[i])


@cuda.jit
def barrier_kernel(x, out):
    """Reverse each block's part through shared memory: one barrier."""
    tile = cuda.shared.array(THREADS, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    tile[t] = x[i]
    cuda.syncthreads()
    out[i] = tile[THREADS - 1 - t]


@cuda.jit
def reduction_kernel(x, out):
    """Sum up each block's part as a tree: eight barriers."""
    values = cuda.shared.array(THREADS, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    values[t] = x[i]
    cuda.syncthreads()
    stride = THREADS // 2
    while stride > 0:
        if t < stride:
            values[t] += values[t + stride]
        cuda.syncthreads()
        stride //= 2
    cuda.syncthreads()
    if t == 0:
        out[cuda.blockIdx.x] = math.sqrt(abs(values[0]))


@cuda.jit
def matmul_kernel(a, b, c):
    """Multiply matrices tile by tile: two barriers and 8 products per tile."""
    a_tile = cuda.shared.array((TILE, TILE), float32)
    b_tile = cuda.shared.array((TILE, TILE), float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    acc = float32(0)
    for start in range(0, a.shape[1], TILE):
        a_tile[ty, tx] = a[y, start + tx]
        b_tile[ty, tx] = b[start + ty, x]
        cuda.syncthreads()
        for k in range(TILE):
            acc += a_tile[ty, k] * b_tile[k, tx]
        cuda.syncthreads()
    c[y, x] = acc


def _launches(blocks):
    """Return each kernel with grid, block and arguments; the same number of threads for all."""
    rng = np.random.default_rng(0)
    x = cuda.to_device(rng.random(blocks * THREADS, dtype=np.float32))
    out = cuda.to_device(np.zeros(blocks * THREADS, np.float32))
    a = cuda.to_device(rng.random((TILE, 2 * TILE), dtype=np.float32))
    b = cuda.to_device(rng.random((2 * TILE, blocks * TILE), dtype=np.float32))
    c = cuda.to_device(np.zeros((TILE, blocks * TILE), np.float32))
    flat = {
        "elementwise": elementwise_kernel,
        "atomic": atomic_kernel,
        "1 barrier": barrier_kernel,
        "8 barriers": reduction_kernel,
    }
    launches = {name: (kernel, blocks, THREADS, (x, out)) for name, kernel in flat.items()}
    launches["tiled matmul"] = matmul_kernel, (blocks, 1), (TILE, TILE), (a, b, c)
    return launches


def measure(repeats=5, wrap=None, blocks=BLOCKS):
    """Time the launches.

    Parameters
    ----------
    repeats : int
    wrap : callable, optional
        Takes a kernel, returns what to launch instead, such as `sanitize`.
    blocks : int
        Of 64 threads each.

    Returns
    -------
    dict of str to list of float
        For each kind of kernel the microseconds per thread of every repeat, and under "first launch" those of
        each kernel's first launch, as most tests launch a kernel once.
    """
    samples = {"first launch": []}
    for name, (kernel, grid, block, arguments) in _launches(blocks).items():
        launch = (wrap or (lambda kernel: kernel))(kernel)[grid, block]
        samples[name] = []
        for kind in ["first launch"] + repeats * [name]:
            begun = time.process_time()  # excludes other programs
            launch(*arguments)
            cuda.synchronize()
            seconds = time.process_time() - begun
            samples[kind].append(1e6 * seconds / (blocks * THREADS))
    return samples


if __name__ == "__main__":
    print(json.dumps(measure()))
