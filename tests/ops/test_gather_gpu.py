import numpy as np
import pytest
import torch
from helpers import poisoned
from launches import on_device, only_launches, sanitized

from cnn_numba import device
from cnn_numba.ops.gather import cpu, gpu
from cnn_numba.ops.gather.gpu import THREADS

MEAN, STD = (0.4, 0.5), (0.25, 0.125)
OUTSIDE = [-1, 11, 2**32, -(2**32), 2**63 - 1, -(2**63)]  # for 11 images; 2**32 is 0 in 32 bits


def dataset(rng, count=11, shape=(2, 5, 7)):
    images = rng.integers(0, 256, (count, *shape), dtype=np.uint8)
    return images, rng.integers(0, 10, count, dtype=np.int32)


def cursor_at(number):
    return device.to_device(np.array([number], np.int32))


def buffers(count, shape=(2, 5, 7)):
    return on_device(poisoned((count, *shape)), poisoned(count, np.int32))


def assert_normalised_alike(received, expected):
    """Compare the results of the two backends for the same constants.

    The product is rounded before the sum unless the processor has fused multiply-adds.
    """
    tolerance = 2**-24 / min(STD)
    np.testing.assert_allclose(received, expected, rtol=2**-23, atol=tolerance)


def test_the_two_backends_use_the_same_constants(rng):
    images, _ = dataset(rng)
    indices = rng.integers(0, 11, 20)
    received = device.to_host(gpu.gather_batch(*on_device(images, indices), MEAN, STD))
    assert_normalised_alike(received, cpu.gather_batch(images, indices, MEAN, STD))


def test_constants_are_copied_to_the_device_once(rng):
    images, labels = dataset(rng)
    there, indices = on_device(images, labels), device.to_device(np.arange(4))
    order, cursor, (x, y) = device.to_device(np.arange(11)), cursor_at(0), buffers(4)
    for mean, std in ((MEAN, STD), (0.25, np.array([0.5, 1.0]))):
        gpu.gather_batch(there[0], indices, mean, std)
        with only_launches() as launched:
            gpu.gather_batch(there[0], indices, mean, std, x)
            gpu.gather_labels(there[1], indices, y)
            gpu.gather_batch_at(*there, order, cursor, mean, std, x, y)
            gpu.advance(cursor)
        names = ["gather_batch", "gather_labels", "gather_batch_at", "advance"]
        assert launched == [f"{name}_kernel" for name in names]


# --- Indices that the host cannot look at ------------------------------------------------------------------


@pytest.mark.parametrize("outside", OUTSIDE)
def test_an_index_outside_the_images_gives_nan_and_no_label(rng, outside):
    images, labels = dataset(rng)
    indices = np.array([3, outside, 10, 0])
    images_there, labels_there, indices_there = on_device(images, labels, indices)
    with sanitized() as reports:
        x = gpu.gather_batch(images_there, indices_there, MEAN, STD)
        y = gpu.gather_labels(labels_there, indices_there)
    for report in reports:
        assert report.kinds <= {"NaN produced"}, str(report)
    x, inside = device.to_host(x), np.array([0, 2, 3])
    assert np.isnan(x[1]).all()
    assert_normalised_alike(x[inside], cpu.gather_batch(images, indices[inside], MEAN, STD))
    assert device.to_host(y).tolist() == [labels[3], -1, labels[10], labels[0]]


def test_without_images_every_index_is_outside():
    images, indices = device.empty((0, 1, 2, 3), np.uint8), device.to_device(np.array([0, -1]))
    assert np.isnan(device.to_host(gpu.gather_batch(images, indices, 0.0, 1.0))).all()
    assert device.to_host(gpu.gather_labels(device.empty(0, np.int32), indices)).tolist() == [-1, -1]


# --- The batch under the cursor ----------------------------------------------------------------------------


def test_an_epoch_of_batches_under_the_cursor(rng):
    images, labels = dataset(rng)
    order = rng.permutation(11)
    there, order_there, cursor = on_device(images, labels), device.to_device(order), cursor_at(0)
    for start in range(0, 11, 4):
        indices = order[start : start + 4]  # the last batch has three
        x, y = buffers(len(indices))
        received = gpu.gather_batch_at(*there, order_there, cursor, MEAN, STD, x, y, batch_size=4)
        assert received[0] is x
        assert received[1] is y
        assert_normalised_alike(device.to_host(x), cpu.gather_batch(images, indices, MEAN, STD))
        np.testing.assert_array_equal(device.to_host(y), labels[indices])
        assert gpu.advance(cursor) is cursor
    assert device.to_host(cursor).tolist() == [3]
    np.testing.assert_array_equal(device.to_host(order_there), order)


def test_the_batch_size_comes_from_x_unless_given(rng):
    images, labels = dataset(rng)
    there, order = on_device(images, labels), device.to_device(np.arange(11))
    for batch_size, first in ((None, 6), (3, 6), (5, 10), (np.int32(4), 8)):
        x, y = buffers(3)
        gpu.gather_batch_at(*there, order, cursor_at(2), MEAN, STD, x, y, batch_size)
        expected = [*labels[first : first + 3], -1, -1][:3]
        assert device.to_host(y).tolist() == expected


@pytest.mark.parametrize(
    ("number", "batch_size"), [(3, 4), (-1, 4), (2**31 - 1, 4), (-(2**31), 4), (64, 2**26), (2**30, 4)]
)
def test_a_cursor_outside_the_order_gives_nan_and_no_label(rng, number, batch_size):
    """The last two would be the first batch again if positions had 32 bits."""
    images, labels = dataset(rng)
    there, order, (x, y) = on_device(images, labels), device.to_device(np.arange(11)), buffers(4)
    with sanitized() as reports:
        gpu.gather_batch_at(*there, order, cursor_at(number), MEAN, STD, x, y, batch_size)
    assert reports[0].kinds <= {"NaN produced"}, str(reports[0])
    assert np.isnan(device.to_host(x)).all()
    assert device.to_host(y).tolist() == [-1] * 4


@pytest.mark.parametrize("outside", OUTSIDE)
def test_an_order_may_name_images_out_of_range(rng, outside):
    images, labels = dataset(rng)
    order = np.array([9, 9, 9, 2, outside, 1])
    there, (x, y) = on_device(images, labels), buffers(3)
    with sanitized() as reports:
        gpu.gather_batch_at(*there, device.to_device(order), cursor_at(1), MEAN, STD, x, y)
    assert reports[0].kinds <= {"NaN produced"}, str(reports[0])
    x = device.to_host(x)
    assert np.isnan(x[1]).all()
    assert_normalised_alike(x[[0, 2]], cpu.gather_batch(images, order[[3, 5]], MEAN, STD))
    assert device.to_host(y).tolist() == [labels[2], -1, labels[1]]


# --- Launches ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 28, 28), (2, 5, 7)])
def test_the_sanitizer_finds_nothing(rng, shape):
    images, labels = dataset(rng, 3, shape)
    indices, cursor, (x, y) = device.to_device(np.array([2, 0])), cursor_at(0), buffers(2, shape)
    there = on_device(images, labels)
    with sanitized() as reports:
        gpu.gather_batch(there[0], indices, 0.5, 0.5, x)
        gpu.gather_labels(there[1], indices, y)
        gpu.gather_batch_at(*there, indices, cursor, 0.5, 0.5, x, y)
        gpu.advance(cursor)
    assert len(reports) == 4
    for report in reports:
        assert report.ok, str(report)
        assert not report.notes  # such as a label that every thread of its image writes


def test_many_labels_take_several_blocks(rng):
    labels, indices = rng.integers(0, 10, 50, dtype=np.int32), rng.integers(0, 50, 2 * THREADS + 5)
    received = gpu.gather_labels(*on_device(labels, indices))
    np.testing.assert_array_equal(device.to_host(received), labels[indices])


def test_nothing_to_gather_needs_no_launch(rng):
    images, labels = on_device(*dataset(rng))
    none, cursor = device.empty(0, np.int64), cursor_at(0)
    x, y = device.empty((0, 2, 5, 7)), device.empty(0, np.int32)
    gpu.gather_batch(images, none, MEAN, STD)
    with only_launches() as launched:
        gpu.gather_batch(images, none, MEAN, STD, x)
        gpu.gather_labels(labels, none, y)
        gpu.gather_batch_at(images, labels, none, cursor, MEAN, STD, x, y)
    assert not launched


# --- Arguments ---------------------------------------------------------------------------------------------


def good_arguments(name):
    images, labels = device.zeros((5, 1, 2, 2), np.uint8), device.zeros(5, np.int32)
    x, y, indices = device.zeros((3, 1, 2, 2)), device.zeros(3, np.int32), device.zeros(3, np.int64)
    normalise, cursor = {"mean": 0.0, "std": 1.0}, cursor_at(0)
    return {
        "gather_batch": {"images": images, "indices": indices, "out": x} | normalise,
        "gather_labels": {"labels": labels, "indices": indices, "out": y},
        "gather_batch_at": {
            "images": images,
            "labels": labels,
            "order": indices,
            "cursor": cursor,
            "x": x,
            "y": y,
        }
        | normalise,
        "advance": {"cursor": cursor},
    }[name]


@pytest.mark.parametrize("name", ["gather_batch", "gather_labels", "gather_batch_at", "advance"])
def test_wrong_arrays_raise(name):
    good = good_arguments(name)
    getattr(gpu, name)(**good)
    for argument, array in good.items():
        if not device.is_device_array(array):
            continue
        for wrong, error, match in (
            (device.to_host(array), TypeError, f"{argument} is an array on the host, shape"),
            (device.zeros(array.shape, np.int16), TypeError, f"{argument} must have dtype .*, got int16"),
            (
                device.zeros((4, 4, 4), array.dtype),
                ValueError,
                f"{argument} must have shape .*, got .4, 4, 4",
            ),
        ):
            with pytest.raises(error, match=match), only_launches() as launched:
                getattr(gpu, name)(**(good | {argument: wrong}))
            assert not launched


def test_a_batch_is_gathered_while_another_cursor_moves(rng):
    images, labels = dataset(rng)
    there, order, (x, y) = on_device(images, labels), device.to_device(np.arange(11)), buffers(4)
    cursor, other = cursor_at(1), cursor_at(-1)
    with sanitized() as reports:
        gpu.gather_batch_at(*there, order, cursor, MEAN, STD, x, y, advances=other)
    assert len(reports) == 1
    assert reports[0].ok, str(reports[0])
    assert [device.to_host(each).tolist() for each in (cursor, other, y)] == [[1], [0], labels[4:8].tolist()]
    with pytest.raises(ValueError, match=r"advances .* cursor"):
        gpu.gather_batch_at(*there, order, cursor, MEAN, STD, x, y, advances=cursor)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"batch_size": 2}, "batch_size must be at least the 3 samples of x, got 2"),
        ({"labels": np.zeros(4, np.int32)}, r"labels must have shape \(5,\), got \(4,\)"),
        (
            {"x": np.zeros((3, 1, 4, 1), np.float32)},
            r"x must have shape \(B, 1, 2, 2\), got \(3, 1, 4, 1\): images has H = 2 and W = 2",
        ),
        ({"y": np.zeros(2, np.int32)}, r"y must have shape \(3,\), got \(2,\)"),
        ({"cursor": np.zeros(2, np.int32)}, r"cursor must have shape \(1,\), got \(2,\)"),
        ({"std": 0.0}, "std must be at least 1.17549e-38 .* got 0.0"),
        ({"mean": (0.1, 0.2)}, "mean must be one number or one for each of 1 channels"),
        (
            {"images": np.zeros((5, 1, 0, 2), np.uint8), "x": np.zeros((3, 1, 0, 2), np.float32)},
            r"images must not be empty, got shape \(5, 1, 0, 2\): H is 0",
        ),
    ],
)
def test_wrong_batches_raise(change, match):
    change = {
        name: device.to_device(value) if isinstance(value, np.ndarray) else value
        for name, value in change.items()
    }
    arguments = good_arguments("gather_batch_at") | change
    with pytest.raises(ValueError, match=match), only_launches() as launched:
        gpu.gather_batch_at(**arguments)
    assert not launched


# --- At real sizes, compiled: on a GPU, or the emulated one -----------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("count", "shape", "batch_size"),
    [(60_000, (1, 28, 28), 64), (50_000, (3, 32, 32), 1000), (7, (3, 223, 1), 5)],
)
def test_large_data_sets_against_torch(rng, count, shape, batch_size):
    images, labels = dataset(rng, count, shape)
    order, cursor = rng.permutation(count), cursor_at(0)
    images_there, labels_there, order_there = on_device(images, labels, order)
    for start in range(0, min(count, 3 * batch_size), batch_size):
        indices = order[start : start + batch_size]
        expected = (torch.from_numpy(images[indices]).double() / 255 - 0.5) / 0.25
        plain = gpu.gather_batch(images_there, device.to_device(indices), 0.5, 0.25)
        x, y = buffers(len(indices), shape)
        gpu.gather_batch_at(
            images_there, labels_there, order_there, cursor, 0.5, 0.25, x, y, batch_size=batch_size
        )
        gpu.advance(cursor)
        # Two constants rounded to float32, and a difference of numbers up to 4
        np.testing.assert_allclose(device.to_host(x), expected, rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(device.to_host(x), device.to_host(plain))
        np.testing.assert_array_equal(device.to_host(y), labels[indices])
