"""The independent check: its kernels are correct, and its record matches its rows."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from numba import cuda

from benchmarks.modelled import (
    independent,
    independent_convolution,
    independent_kernels,
    independent_sums,
)

pytestmark = pytest.mark.usefixtures("quickly_compiled")


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def run(kernel, grid, block, *arguments, shared=0):
    """Launch; return the contents of the array arguments."""
    sent = [cuda.to_device(x) if isinstance(x, np.ndarray) else np.uint32(x) for x in arguments]
    kernel[grid, block, 0, shared](*sent)
    return [x.copy_to_host() for x in sent if not isinstance(x, np.uint32)]


def test_streams(rng):
    n = 1000
    a, b, c = rng.random((3, n))
    stencil = run(independent_kernels.stencil, 5, 256, a, b, n)[0]
    np.testing.assert_allclose(stencil[1:-1], 0.5 * b[:-2] - b[1:-1] + 0.5 * b[2:], atol=1e-14)
    assert (stencil[[0, -1]] == a[[0, -1]]).all()
    np.testing.assert_allclose(run(independent_kernels.triad, 5, 256, a, b, c, n)[0], 1.2 * b + c)


@pytest.mark.parametrize(("width", "height", "per_thread"), [(16, 16, 1), (32, 8, 1), (64, 4, 4)])
def test_convolution(rng, width, height, per_thread):
    n, side = 64, 5  # fewer weights than in the rows, since the compiler takes long over those
    image = rng.random((n + side - 1, n + side - 1), np.float32)
    weights = rng.random((side, side), np.float32)
    grid = n // width, n // (height * per_thread)
    kernel = independent_convolution.convolution(width, height, per_thread, weights)
    found, _ = run(kernel, grid, (width, height), np.zeros(n * n, np.float32), image.ravel(), n)
    windows = np.lib.stride_tricks.sliding_window_view(image.astype(float), (side, side))
    np.testing.assert_allclose(found.reshape(n, n), (windows * weights).sum((2, 3)), rtol=1e-5)


@pytest.mark.parametrize(("kernel", "per_thread"), [
    (independent_kernels.polygon, 1), (independent_kernels.polygon_of_four, 4)
])  # fmt: skip
def test_point_in_polygon(rng, kernel, per_thread):
    n = 300
    points = rng.standard_normal((n, 2), np.float32)
    found, _ = run(kernel, -(-n // (64 * per_thread)), 64, np.zeros(n, np.int32), points, n)
    at, before = independent_kernels.VERTICES, np.roll(independent_kernels.VERTICES, 1, 0)
    x, y = points[:, :1], points[:, 1:]
    between = (at[:, 1] > y) != (before[:, 1] > y)
    slopes = (before[:, 0] - at[:, 0]) / (before[:, 1] - at[:, 1])
    inside = (between & (x < at[:, 0] + slopes * (y - at[:, 1]))).sum(1) % 2
    assert (found != inside).sum() <= 2  # points on an edge, but for rounding
    assert 0 < inside.sum() < n


@pytest.mark.parametrize(("kernel", "block", "per_thread"), [
    (independent_kernels.scan_in_memory, 512, 1),
    (independent_kernels.scan_in_shared, 512, 1),
    (independent_kernels.scan_by_shuffles, 256, 1),
    (independent_kernels.scan_four_by_shuffles, 128, 4),
])  # fmt: skip
def test_scan(rng, kernel, block, per_thread):
    n = 2048
    x = rng.integers(0, 100, n, np.int32)
    grid = n // (block * per_thread)
    found = run(kernel, grid, block, x, np.zeros(n, np.int32), n)[1]
    assert (found == np.cumsum(x.reshape(grid, -1), 1).ravel()).all()


@pytest.mark.parametrize(("kernel", "block"), [
    (independent_kernels.transpose, (32, 32)),
    (independent_kernels.transpose_by_tiles(32, 32), (32, 32)),
    (independent_kernels.transpose_by_tiles(32, 33), (32, 32)),
    (independent_kernels.transpose_by_tiles(16, 17), (16, 16)),
    (independent_kernels.transpose_four_by_tiles(32), (32, 8)),
    (independent_kernels.transpose_four_by_tiles(33), (32, 8)),
])  # fmt: skip
def test_transpose(rng, kernel, block):
    n = 96
    x = rng.random((n, n), np.float32)
    found = run(kernel, (n // block[0], n // block[0]), block, x.ravel(), np.zeros(n * n, np.float32), n)[1]
    assert (found.reshape(n, n) == x.T).all()


@pytest.mark.parametrize("kernel", [
    independent_kernels.histogram_in_memory, independent_kernels.histogram_in_shared
])  # fmt: skip
def test_histogram(rng, kernel):
    data = rng.integers(0, 256, 5000, np.uint8)
    found = run(kernel, 3, 512, data, data.size, np.zeros(256, np.int32))[1]
    assert (found == np.bincount(data, minlength=256)).all()


def test_softmax(rng):
    rows, columns = 40, 300
    x = rng.uniform(-5, 5, (rows, columns)).astype(np.float32)
    wanted = np.exp(x.astype(float))
    wanted /= wanted.sum(1, keepdims=True)
    zeros = np.zeros(x.size, np.float32)
    by_threads = run(independent_kernels.softmax_by_threads, 2, 32, x.ravel(), zeros, columns, x.size)[1]
    by_blocks = run(independent_kernels.softmax_by_blocks, rows, 64, x.ravel(), zeros, columns, shared=512)[1]
    for found in (by_threads, by_blocks):
        np.testing.assert_allclose(found.reshape(rows, columns), wanted, rtol=1e-5)


def test_products(rng):
    n = 64
    a, b, c = rng.random((3, n, n), np.float32)
    flat = a.ravel(), b.ravel(), c.ravel()
    plain = run(independent_sums.product_checked, (2, 2), (32, 32), *flat, n)[2]
    np.testing.assert_allclose(plain.reshape(n, n), a @ b, rtol=1e-5)
    for kernel, block in ((independent_sums.product, (32, 32)), (independent_sums.product_in_shared, 1024)):
        sent = [cuda.to_device(x) for x in flat]
        kernel[(2, 2), block](*sent, np.uint32(n), np.float32(0.5), np.float32(3.0))
        np.testing.assert_allclose(sent[2].copy_to_host().reshape(n, n), 0.5 * a @ b + 3 * c, rtol=1e-5)


@pytest.mark.parametrize("kernel", [
    independent_sums.rows_by_threads, independent_sums.rows_by_blocks, independent_sums.rows_by_shuffles
])  # fmt: skip
def test_sums_of_rows(kernel, rng):
    # Rows that are alike, as published: two of the kernels have a race between one row and the next.
    row = rng.random(700, np.float32)
    found = run(kernel, 1, 512, np.tile(row, 20), np.zeros(20, np.float32), 20, row.size)[1]
    np.testing.assert_allclose(found, row.sum(dtype=float), rtol=1e-5)


def test_dot_product(rng):
    a, b = rng.random((2, 1024), np.float32)
    found = run(independent_sums.dot_product, 4, 256, a, b, np.zeros(4, np.float32), a.size)[2]
    np.testing.assert_allclose(found, (a * b).reshape(4, 256).sum(1, dtype=float), rtol=1e-5)


def test_rows_and_launches_match():
    assert {row.name for row in independent.published()} == set(independent.launches())


def test_the_record_matches_the_rows():
    record = json.loads(independent.RECORD.read_text(encoding="utf-8"))
    rows = [SimpleNamespace(**row) for row in record["rows"]]
    known = {(row.gpu, row.kernel): round(row.published, 3) for row in rows}
    assert known == {(row.gpu, row.name): round(row.microseconds, 3) for row in independent.published()}
    for group, numbers in independent.summary_of(record["rows"]).items():
        assert numbers == pytest.approx(record["summary"][group], abs=2e-3), group
