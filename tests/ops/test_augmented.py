"""Images moved and mirrored at random: the same in every backend and in every order."""

import numpy as np
import pytest
from helpers import backends, poisoned
from launches import only_launches, sanitized

from cnn_numba import device
from cnn_numba.ops.gather import cpu, gpu, reference

MEAN, STD = (0.4, 0.5, 0.1), (0.25, 0.125, 0.5)
# several blocks, a plane that no vector divides, one pixel, wider and higher than any move
SHAPES = [(9, 3, 8, 8), (5, 2, 3, 7), (4, 1, 1, 1), (6, 3, 5, 2), (3, 1, 2, 37)]


def drawn(rng, shape=(9, 3, 8, 8), count=20):
    return rng.integers(0, 256, shape, dtype=np.uint8), rng.integers(0, shape[0], count)


def normalisation(shape):
    return MEAN[: shape[1]], STD[: shape[1]]


def by_pixel(images, index, padding, flip, seed, epoch):
    """Return an augmented image as the contract describes it, pixel by pixel."""
    row, column, mirror = reference._places(int(index), padding, seed, epoch)
    channels, height, width = images.shape[1:]
    out = np.zeros((channels, height, width), np.uint8)
    for h, w in np.ndindex(height, width):
        y, x = h + row - padding, (width - 1 - w if flip and mirror else w) + column - padding
        if 0 <= y < height and 0 <= x < width:
            out[:, h, w] = images[index, :, y, x]
    return out


# The test vectors of the authors' own library, Random123, for philox2x32 with ten rounds.
@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0, 0), 0, (0xFF1DAE59, 0x6CD10DF2)),
        ((0xFFFFFFFF, 0xFFFFFFFF), 0xFFFFFFFF, (0x2C3F628B, 0xAB4FD7AD)),
        ((0x243F6A88, 0x85A308D3), 0x13198A2E, (0xDD7CE038, 0xF62A4C12)),
    ],
)
def test_the_random_numbers_are_philox_s(counter, key, words):
    assert reference._philox(*counter, key) == words
    assert cpu._philox(*map(np.uint32, (*counter, key))) == words


@backends("gather", gpu=True)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("padding", "flip"), [(0, False), (0, True), (2, False), (3, True), (40, True)])
def test_an_augmented_image_follows_the_contract_pixel_by_pixel(ops, rng, shape, padding, flip):
    images, indices = drawn(rng, shape, count=7)
    out = poisoned((7, *shape[1:]))
    how = (*normalisation(shape), padding, flip, 5, 2)
    assert ops.gather_augmented(images, indices, *how, out) is out
    moved = np.array([by_pixel(images, index, *how[2:]) for index in indices])
    expected = reference.gather_batch(moved, np.arange(7), *how[:2])
    np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(ops.gather_augmented(images, indices, *how).astype(np.float32), out)


@backends("gather", gpu=True)
def test_without_moves_it_is_a_plain_gather(ops, rng):
    images, indices = drawn(rng)
    plain = ops.gather_batch(images, indices, MEAN, STD)
    np.testing.assert_array_equal(ops.gather_augmented(images, indices, MEAN, STD, 0, False, 1, 0), plain)


@backends("gather", gpu=True)
def test_the_draw_of_an_image_depends_only_on_seed_epoch_and_index(ops, rng):
    images, _ = drawn(rng, count=1)
    how = MEAN, STD, 3, True

    def of(indices, seed=2**32 - 1, epoch=2**32 - 1):
        return ops.gather_augmented(images, np.array(indices), *how, seed, epoch)

    together = of([4, 0, 7, 4])
    np.testing.assert_array_equal(together[0], together[3])
    np.testing.assert_array_equal(together[2:3], of([7]))
    assert (of([4]) != of([4], seed=1)).any()
    assert (of([4]) != of([4], epoch=1)).any()


def test_all_places_are_equally_likely_and_half_of_the_images_mirrored():
    places = np.array([reference._places(index, 4, 9, 3) for index in range(9000)])
    for axis in (0, 1):
        counts = np.bincount(places[:, axis], minlength=9)
        assert len(counts) == 9
        assert abs(counts - 1000).max() < 150  # five standard deviations
    assert abs(places[:, 2].sum() - 4500) < 240
    assert abs(np.corrcoef(places.T) - np.eye(3)).max() < 0.06


@backends("gather")
def test_an_index_out_of_range_is_rejected(ops):
    images = np.zeros((5, 1, 2, 2), np.uint8)
    out = poisoned((2, 1, 2, 2))
    with pytest.raises(IndexError, match=r"indices must lie in 0\.\.4, got 5 at position 1"):
        ops.gather_augmented(images, np.array([0, 5]), 0.0, 1.0, 1, True, 0, 0, out)
    assert np.isnan(out).all()


@backends("gather", gpu=True)
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"images": np.zeros((5, 1, 2, 2), np.float32)},
            TypeError,
            "images must have dtype uint8, got float32",
        ),
        ({"indices": np.zeros(2, np.int32)}, TypeError, "indices must have dtype int64, got int32"),
        ({"out": np.zeros((3, 1, 2, 2), np.float32)}, ValueError, r"out must have shape \(2, 1, 2, 2\), got"),
        ({"std": 0.0}, ValueError, "std must be at least 1.17549e-38 .* got 0.0"),
        ({"padding": -1}, ValueError, "padding must be at least 0, got -1"),
        ({"padding": 256}, ValueError, "padding must be at most 255, got 256"),
        ({"padding": 1.5}, TypeError, "padding must be an int, got 1.5"),
        ({"padding": True}, TypeError, "padding must be an int, got True"),
        ({"flip": 1}, TypeError, "flip must be True or False, got 1"),
        ({"seed": 2**32}, ValueError, "seed must be at most 4294967295, got 4294967296"),
        ({"epoch": -1}, ValueError, "epoch must be at least 0, got -1"),
    ],
)
def test_wrong_arguments_are_rejected(ops, change, error, message):
    good = {"images": np.zeros((5, 1, 2, 2), np.uint8), "indices": np.array([0, 1]), "mean": 0.0, "std": 1.0}
    good |= {"padding": 1, "flip": True, "seed": 0, "epoch": 0, "out": None}
    ops.gather_augmented(**good)
    with pytest.raises(error, match=message):
        ops.gather_augmented(**(good | change))


# --- On the GPU --------------------------------------------------------------------------------------------


def there(*arrays):
    return [device.to_device(np.asarray(array)) for array in arrays]


def test_an_epoch_under_the_cursor_matches_the_cpu(rng):
    images, labels = drawn(rng, (11, 2, 5, 7))[0], rng.integers(0, 10, 11, dtype=np.int32)
    order = rng.permutation(11)
    data = there(images, labels, order, np.zeros(1, np.int32))
    draw = device.to_device(np.array([8, 1], np.uint32))
    how = MEAN[:2], STD[:2], 2, True
    for start in range(0, 11, 4):
        indices = order[start : start + 4]  # the last batch has three
        x, y = there(poisoned((len(indices), 2, 5, 7)), poisoned(len(indices), np.int32))
        with only_launches() as launched:
            received = gpu.gather_augmented_at(*data, *how, draw, x, y, batch_size=4)
        assert launched == ["gather_augmented_at_kernel"]
        assert received[0] is x
        assert received[1] is y
        expected = cpu.gather_augmented(images, indices, *how, 8, 1)
        np.testing.assert_allclose(device.to_host(x), expected, rtol=2**-22, atol=2**-21)
        np.testing.assert_array_equal(device.to_host(y), labels[indices])
        gpu.advance(data[3])


@pytest.mark.parametrize("outside", [-1, 9, 2**32, -(2**63)])
def test_an_image_out_of_range_is_nan(rng, outside):
    images, _ = drawn(rng)
    indices = np.array([3, outside, 8])
    how = MEAN, STD, 2, True
    with sanitized() as reports:
        x = gpu.gather_augmented(*there(images, indices), *how, 1, 1)
        order, cursor, draw = there(indices, np.zeros(1, np.int32), np.ones(2, np.uint32))
        labels, batch, y = there(np.arange(9, dtype=np.int32), poisoned((4, 3, 8, 8)), poisoned(4, np.int32))
        gpu.gather_augmented_at(*there(images), labels, order, cursor, *how, draw, batch, y)
    for report in reports:
        assert report.kinds <= {"NaN produced"}, str(report)
    x, batch = device.to_host(x), device.to_host(batch)
    assert np.isnan(x[1]).all()
    assert np.isnan(batch[[1, 3]]).all()
    np.testing.assert_array_equal(x[[0, 2]], batch[[0, 2]])
    np.testing.assert_allclose(
        x[[0, 2]], cpu.gather_augmented(images, indices[[0, 2]], *how, 1, 1), rtol=2**-22, atol=2**-21
    )
    assert device.to_host(y).tolist() == [3, -1, 8, -1]


def test_the_sanitizer_finds_nothing(rng):
    images, indices = drawn(rng, (3, 2, 5, 7), 2)
    data = there(images, np.arange(3, dtype=np.int32), indices, np.zeros(1, np.int32))
    x, y, draw = there(poisoned((2, 2, 5, 7)), poisoned(2, np.int32), np.ones(2, np.uint32))
    with sanitized() as reports:
        gpu.gather_augmented(data[0], data[2], 0.5, 0.5, 2, True, 3, 1, x)
        gpu.gather_augmented_at(*data, 0.5, 0.5, 2, True, draw, x, y)
    assert len(reports) == 2
    for report in reports:
        assert report.ok, str(report)
        assert not report.notes


def test_seed_and_epoch_on_the_device_are_checked():
    data = there(np.zeros((3, 1, 2, 2), np.uint8), np.zeros(3, np.int32), np.arange(3), np.zeros(1, np.int32))
    x, y = there(poisoned((2, 1, 2, 2)), poisoned(2, np.int32))
    for draw, error, match in (
        (np.zeros(2, np.int32), TypeError, "draw must have dtype uint32, got int32"),
        (np.zeros(3, np.uint32), ValueError, r"draw must have shape \(2,\), got \(3,\)"),
    ):
        draw = device.to_device(draw)
        with pytest.raises(error, match=match), only_launches() as launched:
            gpu.gather_augmented_at(*data, 0.0, 1.0, 1, True, draw, x, y)
        assert not launched


@pytest.mark.gpu
@pytest.mark.parametrize(("count", "shape"), [(1000, (3, 32, 32)), (7, (3, 223, 1))])
def test_at_real_sizes_the_backends_agree(rng, count, shape):
    images, indices = drawn(rng, (count, *shape), 100)
    how = 0.5, 0.25, 4, True, 2**32 - 3, 7
    received = device.to_host(gpu.gather_augmented(*there(images, indices), *how))
    np.testing.assert_allclose(received, cpu.gather_augmented(images, indices, *how), rtol=0, atol=2**-20)
    np.testing.assert_allclose(received, reference.gather_augmented(images, indices, *how), atol=1e-6)
