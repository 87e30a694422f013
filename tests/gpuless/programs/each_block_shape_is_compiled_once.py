"""Each block shape is compiled once."""

import os
import tempfile

from emulated import cuda

from gpuless.emulator.run import machine

os.environ["GPULESS_CACHE"] = tempfile.mkdtemp()
count, compile_object = [], machine.compile_object
machine.compile_object = lambda text: count.append("@kernel" in text) or compile_object(text)


@cuda.jit
def fill(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = i


x = cuda.device_array(1000)
for grid in (1, 2, 8):
    fill[grid, 128](x)
fill[1, (128, 1)](x)
assert sum(count) == 1, count
fill[1, 64](x)
assert sum(count) == 2, count
