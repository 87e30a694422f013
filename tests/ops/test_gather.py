import numpy as np
import pytest
from helpers import backends, poisoned, signatures, strided
from numba import njit

from cnn_numba.ops.gather import cpu, gpu, reference
from cnn_numba.ops.shared.compiling import FASTMATH

# several blocks, two and three channels, planes that no vector divides, one pixel
SHAPES = [(70, 1, 9, 7), (9, 3, 8, 8), (5, 2, 3, 7), (1, 1, 1, 1), (4, 3, 1, 5)]


def formula(images, indices, mean, std):
    mean, std = (np.reshape(np.broadcast_to(value, images.shape[1]), (-1, 1, 1)) for value in (mean, std))
    return (images[indices].astype(np.float64) / 255 - mean) / std


def check_gather_batch(ops, shape, count, per_channel):
    rng = np.random.default_rng(5)
    images = rng.integers(0, 256, shape, dtype=np.uint8)
    indices = rng.integers(0, shape[0], count)
    mean, std = (0.5, 0.25)
    if per_channel:
        mean, std = tuple(rng.uniform(0.2, 0.6, shape[1])), rng.uniform(0.2, 0.6, shape[1])
    before = images.copy(), indices.copy()
    out = poisoned((count, *shape[1:]))
    assert ops.gather_batch(images, indices, mean, std, out) is out
    np.testing.assert_allclose(out, formula(images, indices, mean, std), rtol=1e-6, atol=1e-6)
    allocated = ops.gather_batch(images, indices, mean, std)
    assert allocated.dtype == (np.float64 if ops is reference else np.float32)
    np.testing.assert_array_equal(allocated.astype(np.float32), out)
    np.testing.assert_array_equal(images, before[0])
    np.testing.assert_array_equal(indices, before[1])


def test_backends_have_the_same_functions():
    expected = signatures(reference)
    assert len(expected) == 3
    assert signatures(cpu) == expected
    assert signatures(gpu).items() >= expected.items()


@backends("gather", gpu=True)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("count", [0, 1, 3, 64])
@pytest.mark.parametrize("per_channel", [False, True])
def test_gather_batch_equals_the_formula(ops, shape, count, per_channel):
    check_gather_batch(ops, shape, count, per_channel)


@backends("gather")
@pytest.mark.parametrize("shape", [(70, 1, 28, 28), (9, 3, 32, 32)])
@pytest.mark.parametrize("per_channel", [False, True])
def test_gather_batch_equals_the_formula_at_full_size(ops, shape, per_channel):
    check_gather_batch(ops, shape, 64, per_channel)


@backends("gather", gpu=True)
def test_gather_batch_by_hand(ops):
    images = np.array([[[[0, 51]], [[102, 255]]], [[[255, 0]], [[51, 204]]]], np.uint8)
    out = ops.gather_batch(images, np.array([1, 0, 1]), (0.0, 0.2), (0.5, 0.2))
    first, second = [[[0, 0.4]], [[1, 4]]], [[[2, 0]], [[0, 3]]]
    np.testing.assert_allclose(out, [second, first, second], rtol=1e-6, atol=1e-6)


@backends("gather", gpu=True)
def test_gather_batch_of_mnist_goes_from_exactly_0_to_exactly_1(ops):
    images = np.arange(256, dtype=np.uint8).reshape(256, 1, 1, 1)
    out = ops.gather_batch(images, np.arange(256), 0.0, 1.0).ravel()
    assert (out[0], out[255]) == (0.0, 1.0)
    np.testing.assert_allclose(out, np.arange(256) / 255, rtol=1.2e-7)


@backends("gather", gpu=True)
def test_gather_batch_fills_the_head_of_a_buffer_with_a_tail_batch(ops):
    images = np.full((10, 1, 4, 4), 255, np.uint8)
    buffer = np.full((8, 1, 4, 4), np.nan, np.float32)
    ops.gather_batch(images, np.arange(3), 0.0, 1.0, buffer[:3])
    assert (buffer[:3] == 1).all()
    assert np.isnan(buffer[3:]).all()


@backends("gather", gpu=True)
def test_gather_labels_picks_by_index(ops):
    labels = np.array([5, 0, 4, 1], np.int32)
    out = poisoned(3, np.int32)
    assert ops.gather_labels(labels, np.array([3, 3, 0]), out) is out
    assert out.tolist() == [1, 1, 5]
    picked = ops.gather_labels(labels, np.arange(600) % 4)
    assert picked.dtype == np.int32
    assert picked.tolist() == labels.tolist() * 150
    assert ops.gather_labels(labels, np.arange(0)).shape == (0,)


# The host cannot check indices on the device: see test_gather_gpu.
@backends("gather")
@pytest.mark.parametrize(("indices", "position"), [([0, 5, 1], 1), ([-1], 0), ([4, 4, 2**40], 2)])
def test_an_index_out_of_range_is_rejected_before_any_work(ops, indices, position):
    images = np.zeros((5, 1, 2, 2), np.uint8)
    indices = np.array(indices)
    out, labels = poisoned((len(indices), 1, 2, 2)), poisoned(len(indices), np.int32)
    message = rf"indices must lie in 0\.\.4, got {indices[position]} at position {position}"
    with pytest.raises(IndexError, match=message):
        ops.gather_batch(images, indices, 0.0, 1.0, out)
    assert np.isnan(out).all()
    with pytest.raises(IndexError, match=message):
        ops.gather_labels(np.zeros(5, np.int32), indices, labels)
    np.testing.assert_array_equal(labels, poisoned(len(indices), np.int32))


def good_batch():
    images, indices = np.zeros((5, 1, 2, 2), np.uint8), np.array([0, 1])
    return {"images": images, "indices": indices, "mean": 0.0, "std": 1.0, "out": None}


def good_labels():
    return {"labels": np.zeros(5, np.int32), "indices": np.array([0, 1]), "out": None}


@backends("gather", gpu=True)
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"images": np.zeros((5, 1, 2, 2), np.float32)},
            TypeError,
            "images must have dtype uint8, got float32",
        ),
        ({"images": np.zeros((5, 2, 2), np.uint8)}, ValueError, r"images must have .* got .*\(5, 2, 2\)"),
        ({"indices": np.zeros(2, np.int32)}, TypeError, "indices must have dtype int64, got int32"),
        ({"indices": np.zeros((2, 1), np.int64)}, ValueError, r"indices must have .* got .*\(2, 1\)"),
        ({"out": np.zeros((3, 1, 2, 2), np.float32)}, ValueError, r"out must have shape \(2, 1, 2, 2\), got"),
        ({"out": np.zeros((2, 1, 2, 2), np.int32)}, TypeError, "out must .*float.*, got int32"),
        (
            {"mean": (0.1, 0.2)},
            ValueError,
            r"mean must be one number or one for each of 1 channels, got \(0.1",
        ),
        ({"std": (0.1, 0.2)}, ValueError, "std must be one number or one for each of 1 channels"),
        ({"std": 0.0}, ValueError, "std must be at least 1.17549e-38 .* got 0.0"),
        ({"std": float("nan")}, ValueError, "std must be at least .* got nan"),
    ],
)
def test_gather_batch_rejects_wrong_arguments(ops, change, error, message):
    with pytest.raises(error, match=message):
        ops.gather_batch(**(good_batch() | change))


@backends("gather", gpu=True)
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"labels": np.zeros(5, np.int64)}, TypeError, "labels must have dtype int32, got int64"),
        ({"labels": np.zeros((5, 1), np.int32)}, ValueError, r"labels must have .* got .*\(5, 1\)"),
        ({"indices": np.zeros(2, np.int32)}, TypeError, "indices must have dtype int64, got int32"),
        ({"out": np.zeros(3, np.int32)}, ValueError, r"out must have shape \(2,\), got \(3,\)"),
        ({"out": np.zeros(2, np.float32)}, TypeError, "out must .*int.*, got float32"),
    ],
)
def test_gather_labels_rejects_wrong_arguments(ops, change, error, message):
    with pytest.raises(error, match=message):
        ops.gather_labels(**(good_labels() | change))


def test_cpu_rejects_wrong_arrays():
    images, out = np.zeros((5, 1, 2, 2), np.uint8), np.zeros((2, 1, 2, 2), np.float32)
    for change, error, message in (
        ({"images": strided(images)}, ValueError, "images must be C-contiguous"),
        ({"out": strided(out)}, ValueError, "out must be C-contiguous"),
        ({"out": out.astype(np.float64)}, TypeError, "out must have dtype float32, got float64"),
    ):
        with pytest.raises(error, match=message):
            cpu.gather_batch(**(good_batch() | change))


def test_gather_batch_compiles_without_float64():
    # Compiled now: functions from Numba's cache cannot be inspected.
    kernel = njit(fastmath=FASTMATH)(cpu._gather_planes.py_func)
    scale = shift = np.ones(1, np.float32)
    kernel(np.zeros((2, 1, 16), np.uint8), np.array([0]), scale, shift, np.zeros((1, 1, 16), np.float32))
    (code,) = kernel.inspect_llvm().values()
    assert "float" in code
    assert "double" not in code
