"""Memory costs nothing until it is written."""

import numpy as np
from emulated import check, cu, cuda


def committed():  # MB; pages of the file that all arrays share count once
    lines = open("/proc/self/smaps_rollup").read().splitlines()
    return {name: int(value.split()[0]) >> 10 for name, value in (x.split(":") for x in lines[1:])}


@cuda.jit
def read(x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[4096 * i]


out = cuda.device_array((64 << 20) // 4096, np.float32)
read[-(-out.size // 128), 128](cuda.device_array(64 << 20, np.float32), out)
before = committed()
held = [cuda.device_array(64 << 20, np.float32) for _ in range(12)]  # 3 GB
assert committed()["Rss"] - before["Rss"] < 50
for x in held:
    read[-(-out.size // 128), 128](x, out)
    assert np.isnan(out.copy_to_host()).all()
after = committed()
assert after["Anonymous"] - before["Anonymous"] < 50 and after["Pss"] - before["Pss"] < 100
# A part is written: that much is taken, and its neighbours are unchanged.
for setting in (False, True):
    before = committed()["Anonymous"]
    x = held.pop()
    if setting:
        check(cu.cuMemsetD32(x.device_ctypes_pointer.value + (32 << 20), 0, 8 << 20))
    else:
        x[8 << 20 : 16 << 20].copy_to_device(np.ones(8 << 20, np.float32))
    assert 31 <= committed()["Anonymous"] - before < 90
    assert np.isnan(x[(8 << 20) - 4096 : 8 << 20].copy_to_host()).all()
    assert np.isnan(x[16 << 20 :][:4096].copy_to_host()).all()
