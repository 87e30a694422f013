"""Products of matrices on the Tensor Cores: kernels in CUDA C++, compiled and launched by `cuda.core`."""

from pathlib import Path

import numpy as np
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch
from emulated import cuda

SOURCE = Path(__file__).with_name("tensor_cores.cu").read_text()
device = Device()
device.set_current()
stream = device.create_stream()
codes = [
    Program(SOURCE, "c++", ProgramOptions(arch=f"sm_{cc}", std="c++17")).compile("ptx") for cc in (80, 90)
]
rng = np.random.default_rng(0)
m, n, depth = 128, 192, 160
a, b = (rng.standard_normal(size).astype(np.float16) for size in ((m, depth), (depth, n)))
exact = a.astype(np.float64) @ b.astype(np.float64)
given = [cuda.to_device(x.view(np.uint16)) for x in (a, b)]
for code in codes:
    for name, threads in (("double_buffered", 128), ("specialised", 160)):
        out = cuda.to_device(np.full((m, n), np.nan, np.float32))
        pointers = [x.device_ctypes_pointer.value for x in (*given, out)]
        config = LaunchConfig(grid=(n // 64, m // 64), block=threads)
        launch(stream, config, code.get_kernel(name), *pointers, np.int32(n), np.int32(depth))
        stream.sync()
        print(name, np.abs(out.copy_to_host() - exact).max() < 2**-22 * depth * 4)
