"""Counts of the package's kernels by `gpuless.count`, against counts by hand and the access viewer."""

import collections

import numpy as np
import pytest

from benchmarks.rungs import matmul
from benchmarks.rungs.conv_naive import conv2d_forward_naive
from benchmarks.rungs.conv_tiled import conv2d_forward_tiled
from cnn_numba import device
from cnn_numba.ops.activation import gpu as activation
from cnn_numba.ops.pool import gpu as pool
from gpuless import access_map, count

pytestmark = pytest.mark.skipif(not device.SELECTION.emulated, reason="counts what the emulated GPU does")


def ones(*shape):
    return device.to_device(np.ones(shape, np.float32))


def examined(tool, operation):
    """Return a tool's result for the one launch of an operation."""
    found = []
    with device.observe_launches(lambda launch: found.append(launch.examine(tool))):
        operation()
    (one,) = found
    return one


@pytest.mark.parametrize(
    "operation",
    [
        lambda: matmul.matmul_naive(ones(40, 24), ones(24, 50)),
        lambda: matmul.matmul_tiled(ones(40, 24), ones(24, 50)),
        lambda: conv2d_forward_tiled(ones(1, 2, 6, 6), ones(2, 2, 3, 3), padding=1),
        lambda: pool.max_pool2d_forward(ones(2, 3, 6, 6), 2),
        lambda: activation.tanh_forward(ones(77)),
    ],
    ids=["matmul_naive", "matmul_tiled", "conv2d_tiled", "max_pool2d", "tanh"],
)
def test_the_access_viewer_agrees(operation):
    seen = collections.Counter()
    for traffic in examined(access_map, operation).arrays:
        seen[traffic.space, traffic.access, "requests"] += traffic.requests
        seen[traffic.space, traffic.access, "sectors"] += traffic.sectors
        seen[traffic.space, traffic.access, "wavefronts"] += traffic.wavefronts
    counts = examined(count, operation)
    for access, moved in (("read", counts.global_loads), ("write", counts.global_stores)):
        assert moved.requests == seen["global", access, "requests"]
        assert moved.sectors == seen["global", access, "sectors"]
    for access, served in (("read", counts.shared_loads), ("write", counts.shared_stores)):
        assert served.requests == seen["shared", access, "requests"]
        assert served.wavefronts == seen["shared", access, "wavefronts"]


def test_a_naive_convolution_tap_by_tap():
    """Lanes that leave out a tap come together again at the next one."""
    images, channels, size, filters = 2, 3, 6, 4
    total, found = images * filters * size**2, collections.Counter()
    outputs = [np.unravel_index(i, (images, filters, size, size)) for i in range(total)]
    for first in range(0, total, 32):
        for c, kh, kw in np.ndindex(channels, 3, 3):
            x, weight, lanes = set(), set(), 0
            for n, f, oh, ow in outputs[first : first + 32]:
                h, w = oh + kh - 1, ow + kw - 1
                if 0 <= h < size and 0 <= w < size:
                    lanes += 1
                    x.add((((n * channels + c) * size + h) * size + w) // 8)
                    weight.add((((f * channels + c) * 3 + kh) * 3 + kw) // 8)
            found += collections.Counter(requests=2 * bool(x), lanes=lanes, x=len(x), weight=len(weight))
    x, weight = ones(images, channels, size, size), ones(filters, channels, 3, 3)
    counts = examined(count, lambda: conv2d_forward_naive(x, weight, padding=1))
    assert counts.global_loads.requests == found["requests"]
    assert counts.global_loads.bytes_asked == 2 * 4 * found["lanes"]
    assert counts.global_loads.sectors == found["x"] + found["weight"]
    assert counts.by_class["fma"].thread == found["lanes"]
    assert counts.global_stores == (-(-total // 32), 4 * total, total // 8)
    assert (counts.sectors_read, counts.sectors_written) == (27 + 14, 36)  # 216, 108 and 288 elements


def test_the_ladder_of_products_at_a_real_size():
    side = 512
    a, b, out = ones(side, side), ones(side, side), ones(side, side)
    naive = examined(count, lambda: matmul.matmul_naive(a, b, out))
    tiled = examined(count, lambda: matmul.matmul_tiled(a, b, out))
    registers = examined(count, lambda: matmul.matmul_register_tiled(a, b, out))
    for counts in (naive, tiled, registers):
        assert counts.flops == 2 * side**3
        assert counts.global_stores.bytes_moved == 4 * side**2
        assert counts.least_bytes == 12 * side**2
    # All threads in a row of 32 read the same element of `a`, and different ones of `b`: 1 and 4 sectors.
    assert naive.global_loads == (2 * side**3 // 32, 8 * side**3, 5 * side**3 // 32)
    assert tiled.global_loads == (2 * side**3 // 32**2, 8 * side**3 // 32, 8 * side**3 // 32**2)
    # A block of 16 x 16 threads computes 128 x 128 elements.
    assert registers.global_loads.bytes_moved == 8 * side**3 // 128
    assert tiled.shared_memory.conflicts == registers.shared_memory.conflicts == 0
    assert registers.shared_loads.bytes_asked == tiled.shared_loads.bytes_asked // 8
