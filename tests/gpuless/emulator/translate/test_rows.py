"""Blocks with rows shorter than a warp, and arrays with row lengths that are known only at the launch."""

import numpy as np
import pytest

import gpuless

if not gpuless.select().emulated:
    pytest.skip("about how the emulated GPU reads and writes", allow_module_level=True)

from numba import cuda, float32, uint32

BLOCKS = [(16, 2), (16, 16), (8, 4), (8, 8), (4, 8, 2), (16, 3), (4, 16), (32, 4), (2, 16), (5, 7)]
of_each_block = pytest.mark.parametrize("block", BLOCKS, ids=str)


def launch(kernel, shape, block, *arrays):
    """Launch a kernel whose threads have a column, a row, and perhaps a plane."""
    sizes = shape[::-1] + (1,) * (3 - len(shape))
    block = block + (1,) * (3 - len(block))
    grid = tuple(-(-size // threads) for size, threads in zip(sizes, block, strict=True))
    kernel[grid, block](*arrays)


@of_each_block
@pytest.mark.parametrize("dtype", ["f4", "f8", "u1", "i2"])
def test_elements_of_rows(block, dtype, rng):
    @cuda.jit
    def double(x, out):
        j, i = cuda.grid(2)
        if i < out.shape[0] and j < out.shape[1]:
            out[i, j] = x[i, j] + x[i, j]

    x = rng.integers(0, 100, (37, 45)).astype(dtype)
    out = np.zeros_like(x)
    launch(double, (*x.shape,), block, x, out)
    np.testing.assert_array_equal(out, x + x)


@of_each_block
def test_neighbours_around_the_edge(block, rng):
    # Negative indices: rows of a warp are of different signs, and lanes of a row as well.
    @cuda.jit
    def shift(x, out):
        j, i = cuda.grid(2)
        if i < out.shape[0] and j < out.shape[1]:
            out[i, j] = x[i - 3, j - 5] - x[i - 1, j]

    x = rng.random((33, 40)).astype(np.float32)
    out = np.zeros_like(x)
    launch(shift, (*x.shape,), block, x, out)
    np.testing.assert_array_equal(out, np.roll(x, (3, 5), (0, 1)) - np.roll(x, 1, 0))


@pytest.mark.parametrize("block", BLOCKS[1:4], ids=str)
def test_unsigned_numbers_that_are_made_wider(block, rng):
    # As in CUDA C++: indices have 32 bits until they become an address.
    @cuda.jit
    def double(x, width, out):
        j, i = uint32(cuda.grid(2)[0]), uint32(cuda.grid(2)[1])
        k = uint32(uint32(i * uint32(width)) + j)
        if j < uint32(width) and k < uint32(out.size):
            out[k] = x[k] + x[k]

    x = rng.random(33 * 41).astype(np.float32)
    out = np.zeros_like(x)
    launch(double, (33, 41), block, x, np.int32(41), out)
    np.testing.assert_array_equal(out, x + x)


@of_each_block
def test_unsigned_numbers_that_are_made_narrower(block, rng):
    # The lower half of a 64-bit sum is taken, and the next address made from it.
    @cuda.jit
    def add_next(x, width, out):
        j, i = cuda.grid(2)
        if i < out.size // width - 1 and j < width - 1:
            k = uint32(uint32(i) * uint32(width)) + uint32(j)
            out[uint32(k)] = x[uint32(k)] + x[uint32(k + uint32(width + 1))]

    x = rng.random((33, 41)).astype(np.float32)
    out = np.zeros(x.size, np.float32)
    launch(add_next, x.shape, block, x.ravel(), np.int32(41), out)
    expected = np.zeros_like(x)
    expected[:-1, :-1] = x[:-1, :-1] + x[1:, 1:]
    np.testing.assert_array_equal(out.reshape(x.shape), expected)


@of_each_block
def test_one_number_for_a_row(block, rng):
    @cuda.jit
    def add(rows, steps, columns, out):
        j, i = cuda.grid(2)
        if i < out.shape[0] and j < out.shape[1]:
            out[i, j] = rows[i, 1] + columns[j] + steps[i // 2, 0]

    rows, columns = rng.random((37, 3)).astype(np.float32), rng.random(29).astype(np.float32)
    out = np.zeros((37, 29), np.float32)
    launch(add, (*out.shape,), block, rows, rows, columns, out)
    steps = rows[np.arange(37) // 2, 0]
    np.testing.assert_array_equal(out, rows[:, 1:2] + columns + steps[:, None])


@of_each_block
def test_planes_strides_and_transposes(block, rng):
    @cuda.jit
    def turn(x, y, out):
        j, i, n = cuda.grid(3)
        if n < out.shape[0] and i < out.shape[1] and j < out.shape[2]:
            out[n, i, j] = x[n, j, i] + y[n, i, j]

    x, wide = rng.random((3, 22, 19)).astype(np.float32), rng.random((3, 19, 44)).astype(np.float32)
    out = np.zeros((3, 19, 22), np.float32)
    given = cuda.to_device(wide)[:, :, ::2]
    launch(turn, (*out.shape,), block, x, given, out)
    np.testing.assert_array_equal(out, x.transpose(0, 2, 1) + wide[:, :, ::2])


@pytest.mark.parametrize("block", [(16, 2), (16, 16), (8, 8), (4, 16)], ids=str)
def test_rows_of_shared_memory_with_a_pitch_of_the_launch(block, rng):
    @cuda.jit
    def turn(x, pitch, out):
        tile = cuda.shared.array(0, float32)
        j, i = cuda.threadIdx.x, cuda.threadIdx.y
        tile[i * pitch + j] = x[i, j]
        cuda.syncthreads()
        out[i, j] = tile[(cuda.blockDim.y - 1 - i) * pitch + j]

    x = rng.random(block[::-1]).astype(np.float32)
    out = np.zeros_like(x)
    turn[1, block, 0, 4 * block[1] * (block[0] + 3)](x, block[0] + 3, out)
    np.testing.assert_array_equal(out, x[::-1])


@of_each_block
def test_a_loop_over_a_window(block, rng):
    @cuda.jit
    def convolve(x, weight, out):
        j, i = cuda.grid(2)
        if i < out.shape[0] and j < out.shape[1]:
            total = float32(0)
            for a in range(weight.shape[0]):
                for b in range(weight.shape[1]):
                    total += x[i + a, j + b] * weight[a, b]
            out[i, j] = total

    x, weight = rng.integers(0, 9, (30, 41)).astype("f4"), rng.integers(0, 9, (3, 5)).astype("f4")
    out = np.zeros((28, 37), np.float32)
    launch(convolve, (*out.shape,), block, x, weight, out)
    windows = np.lib.stride_tricks.sliding_window_view(x, weight.shape)
    np.testing.assert_array_equal(out, np.einsum("ijab,ab->ij", windows, weight))


@of_each_block
def test_rows_with_diverging_lanes(block, rng):
    # Some whole rows and some lanes of others are inactive; they would read beyond memory.
    @cuda.jit
    def some(x, out, first):
        j, i = cuda.grid(2)
        if first <= i < out.shape[0] and j < out.shape[1]:
            value = float32(1)
            if (i + j) % 3 != 0:
                value = x[i - first, j]
            out[i, j] = value

    out = np.zeros((35, 21), np.float32)
    x = rng.random((33, 21)).astype(np.float32)
    launch(some, (*out.shape,), block, x, out, 2)
    i, j = np.indices(x.shape)
    np.testing.assert_array_equal(out[2:], np.where((i + 2 + j) % 3 != 0, x, np.float32(1)))
    assert not out[:2].any()
