"""Kernels that fail, for `test_emulator_faults`: run as a program, it prints what each is told, as JSON."""

import json
import linecache

import gpuless

gpuless.select()

import numpy as np  # noqa: E402 (the emulated GPU first)
from numba import cuda  # noqa: E402


@cuda.jit
def far(x, i):
    return x[i * 3_000_000] + 1  # read in a function


@cuda.jit
def inlined(y, x):
    i, j = cuda.grid(2)
    if j > 5:
        y[i, j] = far(x, i + j - 5)  # call


@cuda.jit
def written(x, y):
    if cuda.blockIdx.x == 2 and cuda.threadIdx.x > 38:
        y[cuda.threadIdx.x * 1_000_000] = 1  # write


@cuda.jit
def added(x):
    cuda.atomic.add(x, cuda.threadIdx.x // 7 * 100_000_000, 1)  # atomic


@cuda.jit("int64(int64)", device=True)
def deeper(n):
    return 1 if n == 0 else n * deeper(n + 1) + deeper(n + 2)  # recursion


@cuda.jit
def recursive(x):
    x[0] = deeper(cuda.threadIdx.x + 1)


@cuda.jit(debug=True, opt=False)
def debugged(x):
    x[cuda.threadIdx.x + 1_000_000] = 1  # with debug


@cuda.jit
def once(x):
    """Fail the first time, and not when it is run again."""
    if x[0] == 0:
        x[0] = 1
        x[5_000_000] = 1


@cuda.jit
def misaligned(x, y):
    x[cuda.grid(1)] = y[cuda.grid(1)]  # odd


class View:
    """Some numbers of an array that begin at any byte of it."""

    def __init__(self, array, offset):
        data = array.__cuda_array_interface__["data"][0] + offset, False
        self.__cuda_array_interface__ = {"shape": (32,), "typestr": "<f4", "data": data, "version": 3}


def in_a_cell():
    """Return a kernel as a notebook has it: in no file."""
    name, text = (
        "<ipython-input-7-abc>",
        "@cuda.jit\ndef cell(x):\n    x[cuda.grid(1) + 500_000] = 1  # a cell\n",
    )
    linecache.cache[name] = len(text), None, text.splitlines(True), name
    names = {"cuda": cuda}
    exec(compile(text, name, "exec"), names)
    return names["cell"]


def told(launch):
    """Return what a launch is told."""
    try:
        launch()
    except Exception as error:
        return f"{type(error).__name__} {error}"
    return ""


def main():
    """Run all."""
    x, y = cuda.to_device(np.zeros(64, np.float32)), cuda.to_device(np.zeros((64, 64), np.float32))
    numbers = cuda.to_device(np.zeros(64, np.int64))
    found = {
        "inlined": told(lambda: inlined[(2, 2), (4, 8)](y, x)),
        "written": told(lambda: written[4, 40](y, x)),
        "added": told(lambda: added[1, 64](x)),
        "recursive": told(lambda: recursive[1, 64](x)),
        "debugged": told(lambda: debugged[1, 64](x)),
        "cell": told(lambda: in_a_cell()[1, 64](x)),
        "aligned": told(lambda: misaligned[1, 32](x, cuda.as_cuda_array(View(y, 4)))),
        "misaligned": told(lambda: misaligned[1, 32](x, cuda.as_cuda_array(View(y, 2)))),
        "once": told(lambda: once[1, 1](numbers)),
        "lines": [line for line in open(__file__, encoding="utf-8")],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
