"""Kernels that fail, for `emulator/run/test_faults.py`: as a program, it prints their messages as JSON."""

import json
import linecache
from concurrent.futures import ThreadPoolExecutor

import gpuless

gpuless.select()

import numpy as np  # noqa: E402 (the emulated GPU first)
from inlined_functions import store_far  # noqa: E402
from numba import cuda  # noqa: E402


@cuda.jit
def far(x, i):
    return x[i * 3_000_000] + 1  # read in a function


@cuda.jit
def inlined(y, x):
    i, j = cuda.grid(2)
    if j > 5:
        y[i, j] = far(x, i + j - 5)  # call


@cuda.jit(device=True, inline="always")
def store_further(x, i):
    x[i + 2_000_000] = 2  # inlined from above


@cuda.jit
def merged(x):
    if cuda.threadIdx.x == 0:
        x[0] = 1
    store_further(x, cuda.threadIdx.x)


@cuda.jit
def merged_from_elsewhere(x):
    store_far(x, cuda.threadIdx.x)


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
    """Fail the first time, but not when it is run again."""
    if x[0] == 0:
        x[0] = 1
        x[5_000_000] = 1


@cuda.jit
def misaligned(x, y):
    x[cuda.grid(1)] = y[cuda.grid(1)]  # odd


class View:
    """A view of an array that begins at any byte."""

    def __init__(self, array, offset):
        data = array.__cuda_array_interface__["data"][0] + offset, False
        self.__cuda_array_interface__ = {"shape": (32,), "typestr": "<f4", "data": data, "version": 3}


@cuda.jit
def endless(x):
    if cuda.blockIdx.x == 3 and cuda.threadIdx.x > 40:
        while x[0] == 0:  # spin
            x[1] += 1


@cuda.jit
def absent(x):
    grid = cuda.cg.this_grid()
    if cuda.blockIdx.x == 1:
        while x[0] == 0:  # absent
            x[1] += 1
    grid.sync()
    x[2] = 1


@cuda.jit
def early(x):
    grid = cuda.cg.this_grid()
    if cuda.blockIdx.x < 2:
        grid.sync()
        x[2] = 1


@cuda.jit
def fenced(x, flag):
    i = cuda.threadIdx.x
    if i == 0:
        while flag[0] == 0:
            cuda.threadfence()
        x[0] = x[1] + 1
    if i == cuda.blockDim.x - 1:
        x[1] = 41
        cuda.threadfence()
        flag[0] = 1


@cuda.jit
def locked(x, lock):
    if cuda.threadIdx.x % 32 == 0:
        while cuda.atomic.cas(lock, 0, 0, 1) != 0:
            pass
        cuda.threadfence()
        x[0] += 1
        cuda.threadfence()
        cuda.atomic.exch(lock, 0, 0)


@cuda.jit
def all_blocks(x, count):
    block, blocks = cuda.blockIdx.x, cuda.gridDim.x
    if cuda.threadIdx.x == 0:
        x[block] = block
        cuda.threadfence()
        cuda.atomic.add(count, 0, 1)
        while cuda.atomic.add(count, 0, 0) < blocks:
            pass
        x[64 + block] = x[blocks - 1 - block]


@cuda.jit
def in_order(x, done):
    block = cuda.blockIdx.x
    if cuda.threadIdx.x == 0:
        if block > 0:
            while cuda.atomic.add(done, block - 1, 0) == 0:
                pass
            x[block] = x[block - 1] + 1
        cuda.threadfence()
        cuda.atomic.exch(done, block, 1)


@cuda.jit
def lanes_locked(x, lock):
    while cuda.atomic.cas(lock, 0, 0, 1) != 0:
        pass
    cuda.threadfence()
    x[0] += 1
    cuda.threadfence()
    cuda.atomic.exch(lock, 0, 0)
    cuda.syncthreads()
    if cuda.threadIdx.x % 2 == 0:
        cuda.atomic.add(x, 1, x[0])


@cuda.jit
def lanes_until_done(x, lock):
    done = False
    while not done:
        if cuda.atomic.cas(lock, 0, 0, 1) == 0:
            x[0] = x[0] * 3 + cuda.threadIdx.x % 2
            for i in range(cuda.threadIdx.x % 5):
                x[1] += i
            cuda.threadfence()
            cuda.atomic.exch(lock, 0, 0)
            done = True
    cuda.atomic.add(x, 2, cuda.shfl_down_sync(0xFFFFFFFF, cuda.threadIdx.x, 1))


@cuda.jit
def counted(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] += 1


@cuda.jit
def forever(x):
    while True:
        pass


def count_once():
    """Run a kernel in its own process."""
    x = cuda.to_device(np.zeros(64, np.float32))
    counted[1, 64](x)
    return float(x.copy_to_host().sum())


def waits():
    """Return the results of kernels whose threads wait for each other."""

    def results(kernel, grid, block):
        x, y = (cuda.to_device(np.zeros(1024, np.int32)) for _ in range(2))
        kernel[grid, block](x, y)
        return x.copy_to_host().tolist()

    return {
        "lanes": results(lanes_locked, 1, 64)[:2],
        "lanes until done": results(lanes_until_done, 1, 64)[1:3],
        "fenced": results(fenced, 1, 256)[0],
        "locked": results(locked, 20, 256)[0],
        "all blocks": results(all_blocks, 40, 64)[103:63:-1],
        "in order": results(in_order, 501, 64)[500],
    }


def in_a_graph(x):
    """Launch a kernel from a graph."""
    from cuda.core import Device

    device = Device(0)
    device.set_current()
    builder = device.create_graph_builder()
    builder.begin_building()
    endless[4, 64, builder](x)
    graph = builder.end_building().complete()
    graph.launch(device.create_stream())


def in_a_thread(launch):
    """Launch a kernel in another thread."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(launch).result()


def in_a_cell():
    """Return a kernel like one of a notebook: in no file."""
    name, text = (
        "<ipython-input-7-abc>",
        "@cuda.jit\ndef cell(x):\n    x[cuda.grid(1) + 500_000] = 1  # a cell\n",
    )
    linecache.cache[name] = len(text), None, text.splitlines(True), name
    names = {"cuda": cuda}
    exec(compile(text, name, "exec"), names)
    return names["cell"]


def message_of(launch):
    """Return the error of a launch, or an empty string."""
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
        "inlined": message_of(lambda: inlined[(2, 2), (4, 8)](y, x)),
        "merged": message_of(lambda: merged[1, 32](x)),
        "merged_from_elsewhere": message_of(lambda: merged_from_elsewhere[1, 32](x)),
        "written": message_of(lambda: written[4, 40](y, x)),
        "added": message_of(lambda: added[1, 64](x)),
        "recursive": message_of(lambda: recursive[1, 64](x)),
        "debugged": message_of(lambda: debugged[1, 64](x)),
        "cell": message_of(lambda: in_a_cell()[1, 64](x)),
        "aligned": message_of(lambda: misaligned[1, 32](x, cuda.as_cuda_array(View(y, 4)))),
        "misaligned": message_of(lambda: misaligned[1, 32](x, cuda.as_cuda_array(View(y, 2)))),
        "once": message_of(lambda: once[1, 1](numbers)),
    }
    gpuless.set_limits(kernel_seconds=0.5)  # for which they keep all cores busy
    found |= {
        "endless": message_of(lambda: endless[3000, 64](x)),
        "in a thread": message_of(lambda: in_a_thread(lambda: endless[4, 64](x))),
        "in a graph": message_of(lambda: in_a_graph(x)),
        "absent": message_of(lambda: absent[8, 64](x)),
        "early": message_of(lambda: early[8, 64](x)),
    }
    gpuless.set_limits(kernel_seconds=30)
    found |= {"waits": waits(), "lines": [line for line in open(__file__, encoding="utf-8")]}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
