"""The kernels of published rows are correct on the emulated GPU."""

import gpuless

# isort: split
import numpy as np
import pytest
from numba import cuda

if not gpuless.select().emulated:
    pytest.skip("runs kernels on the emulated GPU", allow_module_level=True)

from benchmarks.modelled import convolutions, held_out, kernels, matrices, rungs, scans, tiles

RNG = np.random.default_rng(3)


def zeros(size, type_=np.float32):
    return cuda.to_device(np.zeros(size, type_))


@pytest.mark.exhaustive_unless(
    lambda kernel: kernel in (tiles.product_vector, matrices.product_square),
    "a product of each file; those beside them have other tiles, loads and buffers",
)
@pytest.mark.parametrize(
    ("kernel", "rows", "columns", "threads"),
    [
        (tiles.product_vector, 128, 128, 256),
        (tiles.product_linear, 128, 128, 256),
        (tiles.product_padded, 128, 128, 256),
        (tiles.product_deep, 128, 128, 256),
        (tiles.product_warps, 128, 128, 128),
        (tiles.product_buffers, 128, 256, 256),
        (matrices.product_square, 128, 128, 256),
    ],
    ids=lambda value: getattr(getattr(value, "py_func", None), "__qualname__", None),
)
def test_products(kernel, rows, columns, threads):
    n = 256
    a, b, c = (RNG.standard_normal((n, n), np.float32) for _ in range(3))
    out = cuda.to_device(c.ravel())
    factors = np.float32(0.5), np.float32(3)
    matrices_ = cuda.to_device(a.ravel()), cuda.to_device(b.ravel()), out
    kernel[(n // columns, n // rows), threads](*matrices_, np.uint32(n), *factors)
    expected = 0.5 * (a.astype(float) @ b) + 3 * c
    np.testing.assert_allclose(out.copy_to_host().reshape(n, n), expected, atol=1e-4)


@pytest.mark.parametrize("n", [1, 300, 512 * 3 + 7, 512 * 513])
@pytest.mark.parametrize(
    ("kernel", "size", "shared"),
    [
        (scans.scan_kogge_stone, 512, 4096),
        (scans.scan_brent_kung, 1024, 8192),
        (scans.scan_three_phases, 4096, 16384),
    ],
    ids=["Kogge-Stone", "Brent-Kung", "three phases"],
)
def test_scans_of_any_length(kernel, size, shared, n):
    x = RNG.integers(0, 9, n).astype(np.uint32)
    out, sums = zeros(n, np.uint32), [zeros(600, np.uint32) for _ in range(3)]
    for kernel_, grid, block, bytes_, arguments in scans.launches(
        kernel, cuda.to_device(x), out, sums, size, shared
    ):
        kernel_[grid, block, 0, bytes_](*arguments)
    np.testing.assert_array_equal(out.copy_to_host(), np.cumsum(x, dtype=np.uint32))


@pytest.mark.parametrize("name", held_out.SCANS)
def test_scans_of_blocks(name):
    kernel, threads, per_thread = held_out.SCANS[name]
    x = RNG.integers(0, 9, (3, threads * per_thread)).astype(np.int32)
    out = zeros(x.size, np.int32)
    kernel[3, threads](cuda.to_device(x.ravel()), out, np.uint32(x.size))
    np.testing.assert_array_equal(out.copy_to_host().reshape(x.shape), np.cumsum(x, 1))


SUMS = [
    (type_, name, threads)
    for type_, threads in (("float32", 256), ("float64", 256), ("int32", 512))
    for name in getattr(held_out, f"SUMS_OF_{type_.upper()}")
]


# Each way to load and each way to add is in one of these.
OF_ALL_PARTS = {
    *("reduce_baseline", "reduce_v1_interleaved_addressing", "reduce_v2_bank_conflict_free"),
    *("reduce_v4_unroll_last_warp", "reduce_v6_multi_add"),
    *("4: Sequential Addressing (+ Multiple Load per Thread)", "kernel_0", "kernel_3", "kernel_6"),
}


@pytest.mark.exhaustive_unless(
    lambda name: name in OF_ALL_PARTS, "sums that are put together of the same functions"
)
@pytest.mark.parametrize(("type_", "name", "threads"), SUMS)
def test_sums_of_whole_numbers(type_, name, threads):
    kernel, per_thread = getattr(held_out, f"SUMS_OF_{type_.upper()}")[name]
    blocks = 3
    n = threads * per_thread * blocks - (5 if per_thread < 128 else 0)
    x, out = RNG.integers(0, 9, n).astype(type_), zeros(blocks, type_)
    kernel[blocks, threads](cuda.to_device(x), np.uint32(n), out)
    assert out.copy_to_host().sum() == x.sum()


@pytest.mark.parametrize(
    ("kernel", "per_thread", "shared"),
    [
        (rungs.sum_shared, 1, 1024),
        (rungs.sum_atomic, 1, 1024),
        (rungs.sum_shuffled, 1, 0),
        (rungs.sum_four, 4, 0),
    ],
    ids=lambda value: getattr(getattr(value, "py_func", None), "__name__", None),
)
def test_sums_of_the_t4(kernel, per_thread, shared):
    n = 256 * per_thread * 3
    x, out = RNG.integers(0, 9, n).astype(np.float32), zeros(3)
    kernel[3, 256, 0, shared](cuda.to_device(x), np.uint32(n), out)
    assert out.copy_to_host().sum() == x.sum()


def test_elementwise():
    x, y = RNG.standard_normal((2, 1024), np.float32)
    out, on_device = zeros(1024), [cuda.to_device(each) for each in (x, y)]
    for kernel, inputs, blocks, expected in (
        (rungs.add_four, 2, 1, x + y),
        (held_out.add_floats, 2, 4, x + y),
        (rungs.relu_four, 1, 1, np.maximum(x, 0)),
        (rungs.sigmoid_four, 1, 1, 1 / (1 + np.exp(-x))),
    ):
        kernel[blocks, 256](*on_device[:inputs], out)
        np.testing.assert_allclose(out.copy_to_host(), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("kernel", "axis", "sizes"),
    [
        (rungs.softmax_rows_shared, 1, (96,)),
        (rungs.softmax_rows, 1, (40, 96)),
        (rungs.softmax_columns, 0, (40, 96)),
    ],
    ids=["rows, shared", "rows", "columns"],
)
def test_softmax(kernel, axis, sizes):
    x = RNG.standard_normal((40, 96), np.float32)
    exponents = np.exp(x - x.max(axis, keepdims=True))
    out = zeros(x.size)
    kernel[x.shape[1 - axis], 64](cuda.to_device(x.ravel()), out, *(np.uint32(size) for size in sizes))
    expected = exponents / exponents.sum(axis, keepdims=True)
    np.testing.assert_allclose(out.copy_to_host().reshape(x.shape), expected, rtol=1e-5)


@pytest.mark.parametrize("name", held_out.TILES)
def test_tiles(name):
    x, out = RNG.standard_normal((96, 96), np.float32), zeros(96 * 96)
    held_out.TILES[name][(3, 3), (32, 8)](cuda.to_device(x.ravel()), out, np.uint32(96))
    expected = x if "copy" in name else x.T
    np.testing.assert_array_equal(out.copy_to_host().reshape(96, 96), expected)


def test_a_swizzled_transpose():
    x, out = RNG.standard_normal((96, 96), np.float32), zeros(96 * 96)
    matrices.transpose_swizzled[(3, 3), (32, 32)](cuda.to_device(x.ravel()), out, np.uint32(96))
    np.testing.assert_array_equal(out.copy_to_host().reshape(96, 96), x.T)


def test_convolutions():
    n, width, threads = 1024, convolutions.MASK.size, 128
    x, convolutions.MASK[:] = RNG.random(n, np.float32), RNG.random(width, np.float32) / width
    on_device, mask = cuda.to_device(x), cuda.to_device(convolutions.MASK)
    expected = np.clip(np.convolve(x, convolutions.MASK[::-1], "same"), 0, 1)
    for kernel, given, shared in (
        (convolutions.convolve, (on_device, mask), 0),
        (convolutions.convolve_constant, (on_device,), 0),
        (convolutions.convolve_tiled, (on_device,), 4 * (threads + width - 1)),
        (convolutions.convolve_cached, (on_device,), 4 * threads),
    ):
        out = zeros(n)
        kernel[n // threads, threads, 0, shared](*given, out, np.uint32(width), np.uint32(n))
        np.testing.assert_allclose(out.copy_to_host(), expected, rtol=1e-5)
    convolutions.MASK[:] = 0


@pytest.mark.parametrize(
    ("name", "loads"),
    [("interleaved", 1), ("adjacent", 1), ("sequential", 1), ("two_loads", 2), ("unrolled", 2)],
)
def test_sums_of_integers(name, loads):
    kernel, threads, blocks = getattr(kernels, f"reduce_{name}"), 512, 3
    x = RNG.integers(0, 9, threads * loads * blocks).astype(np.uint32)
    out = zeros(blocks, np.uint32)
    kernel[blocks, threads, 0, 4 * threads](cuda.to_device(x), np.uint32(x.size), out)
    assert out.copy_to_host().sum() == x.sum()
