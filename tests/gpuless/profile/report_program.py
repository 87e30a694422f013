"""Prints reports: the same to the last byte in every process."""

import gpuless

selection = gpuless.select()

import numpy as np  # noqa: E402 (the emulated GPU first)
from numba import cuda, float32  # noqa: E402


@cuda.jit
def tiled(a, b, c):
    tile = cuda.shared.array((16, 16), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    row, col = cuda.blockIdx.y * 16 + ty, cuda.blockIdx.x * 16 + tx
    total = float32(0)
    for start in range(0, a.shape[1], 16):
        tile[ty, tx] = a[row, start + tx]
        cuda.syncthreads()
        for k in range(16):
            total += tile[ty, k] * b[start + k, col]
        cuda.syncthreads()
    c[row, col] = total


@cuda.jit
def scattered(x, y):
    i = cuda.grid(1)
    if i % 3:
        cuda.atomic.add(y, i % 100, x[i * 7 % x.size])


if __name__ == "__main__":
    a, b, c = (cuda.to_device(np.zeros((160, 160), np.float32)) for _ in "abc")
    x, y = (cuda.to_device(np.zeros(100_000, np.float32)) for _ in "xy")
    for launch, arguments in [(tiled[(10, 10), (16, 16)], (a, b, c)), (scattered[390, 256], (x, y))]:
        compared = gpuless.profile(launch, ["T4", "A100", "RTX 4090"])(*arguments)
        print(compared)
        for report in compared:
            print(report, report.to_dict(), sep="\n")
