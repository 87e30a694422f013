"""Worker threads have their own memory, and end."""

import _thread
import ctypes
import types

import numpy as np
from emulated import cuda

from gpuless.emulator.driver.device import device
from gpuless.emulator.run import launch, threads
from gpuless.emulator.run.memory import OutOfMemory
from gpuless.emulator.translate import layout


@cuda.jit
def meet(x):
    grid = cuda.cg.this_grid()
    x[cuda.grid(1)] += 1
    grid.sync()
    x[cuda.grid(1)] += 1


def attempt():
    try:
        meet[4, 32](x)
    except Exception as error:
        print(str(error).partition(":")[0], sum(bool(record.launch) for record in workers._records))
    else:
        print(set(x.copy_to_host()))


x, workers = cuda.to_device(np.zeros(128)), device().workers
# One of four does not get its local memory, and one not its thread.
reserve, numbers = launch.Record.reserve_local, iter(range(8))


def reserve_not_always(record, size):
    if next(numbers, None) == 1:
        raise OutOfMemory
    reserve(record, size)


launch.Record.reserve_local = reserve_not_always
attempt()
launch.Record.reserve_local = reserve
numbers = iter(range(4))


def start_not_always(function, arguments):
    if next(numbers) == 2:
        raise RuntimeError("can't start new thread")
    _thread.start_new_thread(function, arguments)


workers._more = launch.Pool(1000)
threads._thread = types.SimpleNamespace(start_new_thread=start_not_always)
attempt()
threads._thread = _thread
x.copy_to_device(np.zeros(128))
attempt()
held, workers._idle = [], []
try:
    while True:
        held.append(launch.Record(workers.arena, keeps_stacks=False))
except OutOfMemory:
    print(400 < len(held) < 1000)
attempt()
print(set(x.copy_to_host()))
# Local memory grows in place, within its own range.
local = ctypes.c_uint64.from_buffer(held[-1].buffer, layout.OFFSET["local"])
first = local.value
for size in (1 << 20, 1 << 26, layout.LOCAL_SPAN):
    held[-1].reserve_local(size)
    ctypes.memset(local.value + size - 1, 1, 1)
private = workers.arena.base + layout.PRIVATE_SPAN
print(local.value == first < first + layout.LOCAL_SPAN < private < x.device_ctypes_pointer.value)
try:
    held[-1].reserve_local(layout.LOCAL_SPAN + 1)
except OutOfMemory as error:
    print(error)
