"""A kernel in this process, and in one that it starts."""

import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
from numba import cuda


@cuda.jit
def fill(x):
    x[cuda.grid(1)] = cuda.grid(1)


def work(i):
    x = np.zeros(64)
    fill[2, 32](x)
    return int(x.sum()) + i


if __name__ == "__main__":
    print(type(fill).__name__, work(0))
    if sys.argv[1:] == ["spawn"]:
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            print(*pool.map(work, [1]))
