"""Gathering on the CPU, on one core: 64 images of MNIST take microseconds, as waking a second core does."""

import numpy as np

from cnn_numba.arguments import check_indices
from cnn_numba.ops.gather import checks, constants
from cnn_numba.ops.shapes import HOST
from cnn_numba.ops.shared.jit import serial_jit


def gather_batch(
    images: np.ndarray,
    indices: np.ndarray,
    mean: float | tuple[float, ...],
    std: float | tuple[float, ...],
    out: np.ndarray | None = None,
) -> np.ndarray:
    """Pick images and normalise them; see `reference.gather_batch`.

    Computed as ``images * scale + shift`` in float32, with the two constants rounded once.
    """
    *_, out = checks.gather_batch(HOST, images, indices, out)
    scale, shift = constants.scale_and_shift(*constants.normalisation(mean, std, images.shape[1]))
    check_indices(indices, len(images))
    count, channels, height, width = images.shape
    planes = images.reshape(count, channels, height * width)
    _gather_planes(planes, indices, scale, shift, out.reshape(len(indices), channels, height * width))
    return out


def gather_labels(labels: np.ndarray, indices: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Pick labels; see `reference.gather_labels`."""
    *_, out = checks.gather_labels(HOST, labels, indices, out)
    check_indices(indices, len(labels))
    return np.take(labels, indices, out=out)


def gather_augmented(images, indices, mean, std, padding, flip, seed, epoch, out=None):
    """Pick images, each moved and mirrored at random, and normalise them; see `reference.gather_augmented`.

    Computed as by `gather_batch`.
    """
    padding, flip, seed, epoch = checks.augmentation(padding, flip, seed, epoch)
    *_, out = checks.gather_batch(HOST, images, indices, out)
    scale, shift = constants.scale_and_shift(*constants.normalisation(mean, std, images.shape[1]))
    check_indices(indices, len(images))
    words = np.uint32(seed), np.uint32(epoch)
    _gather_augmented(images, indices, scale, shift, padding, flip, *words, out)
    return out


@serial_jit
def _gather_planes(planes, indices, scale, shift, out):
    for i in range(indices.shape[0]):
        for channel in range(planes.shape[1]):
            source, target = planes[indices[i], channel], out[i, channel]
            # In registers, the two constants let the loop over the plane vectorise.
            channel_scale, channel_shift = scale[channel], shift[channel]
            for pixel in range(target.shape[0]):
                target[pixel] = np.float32(source[pixel]) * channel_scale + channel_shift


@serial_jit
def _philox(first, second, key):
    """Return two random words for a counter of two words and a key; see `reference.gather_augmented`."""
    for _ in range(10):
        # Numba's sums and products of 32 bits have 64: each is cut off again.
        product = np.uint64(0xD256D193) * np.uint64(first)
        first, second = np.uint32(np.uint32(product >> np.uint64(32)) ^ key ^ second), np.uint32(product)
        key = np.uint32(key + np.uint32(0x9E3779B9))
    return first, second


@serial_jit
def _gather_augmented(images, indices, scale, shift, padding, flip, seed, epoch, out):
    channels, height = images.shape[1], images.shape[2]
    places = 2 * padding + 1
    for i in range(indices.shape[0]):
        first, second = _philox(np.uint32(indices[i]), epoch, seed)
        down = (np.int64(first) & 0xFFFF) * places // 65536 - padding
        across = (np.int64(first) >> 16) * places // 65536 - padding
        mirror = flip and (np.int64(second) >> 31) == 1
        for channel in range(channels):
            for h in range(height):
                target = out[i, channel, h]
                if 0 <= h + down < height:
                    row = images[indices[i], channel, h + down]
                    _copy_row(row, across, mirror, scale[channel], shift[channel], target)
                else:
                    target[:] = shift[channel]


@serial_jit
def _copy_row(row, across, mirror, scale, shift, target):
    """Normalise the pixels of `row` from number `across` on, black outside the image, mirrored or not."""
    width = target.shape[0]
    # The loops vectorise, since they test no pixel.
    begin, end = min(max(0, -across), width), max(min(width, width - across), 0)
    target[:] = shift
    if mirror:
        for w in range(begin, end):
            target[width - 1 - w] = np.float32(row[w + across]) * scale + shift
    else:
        for w in range(begin, end):
            target[w] = np.float32(row[w + across]) * scale + shift
