"""Gathering on the GPU with images moved and mirrored at random, without the host.

Each thread draws the random numbers of its image itself, from the image's index: ten multiplications cost
less than to write the numbers down and read them again, and there is no state that threads would share.
"""

import math
from typing import NamedTuple

import numpy as np

from cnn_numba import device
from cnn_numba.device.compiler import cuda, float32, int32, int64, uint32, uint64
from cnn_numba.ops.gather import checks
from cnn_numba.ops.gather.gpu_shared import constants_there, label, rows
from cnn_numba.ops.shapes import DEVICE

THREADS = 256
_HOW = "float32[::1], float32[::1], Crop"


class Crop(NamedTuple):
    """Height and width of an image, how far it moves at most, and whether it is mirrored."""

    height: int
    width: int
    padding: int
    flip: bool


@cuda.jit(device=True)
def philox(first, second, key):
    """Return two random words of 32 bits for a counter of two such words and a key."""
    for _ in range(10):
        product = uint64(0xD256D193) * uint64(first)
        first, second = uint32(product >> uint64(32)) ^ key ^ second, uint32(product)
        key = uint32(key + 0x9E3779B9)
    return first, second


@cuda.jit(device=True)
def _source(index, pixel, crop, seed, epoch):
    """Return the channel of a pixel of an augmented image, and where it comes from in it: -1 is nowhere."""
    height, width = uint32(crop.height), uint32(crop.width)
    row = pixel // width
    channel, h, w = row // height, int32(row % height), int32(pixel - row * width)
    first, second = philox(uint32(index), epoch, seed)
    places = uint32(2 * crop.padding + 1)
    if crop.flip and second >> uint32(31) == uint32(1):
        w = int32(width) - int32(1) - w
    h += int32(((first & uint32(0xFFFF)) * places) >> uint32(16)) - int32(crop.padding)
    w += int32(((first >> uint32(16)) * places) >> uint32(16)) - int32(crop.padding)
    if h < 0 or w < 0 or h >= int32(height) or w >= int32(width):
        return channel, int32(-1)
    return channel, (int32(channel) * int32(height) + h) * int32(width) + w


@cuda.jit(device=True)
def _augmented(images, index, pixel, scale, shift, crop, seed, epoch):
    """Return a pixel of image `index`, moved and mirrored at random; NaN if there is no such image."""
    if index < 0 or index >= images.shape[0]:
        return float32(math.nan)
    channel, source = _source(index, pixel, crop, seed, epoch)
    if source < 0:
        return shift[channel]  # black
    return float32(images[index, source]) * scale[channel] + shift[channel]


@cuda.jit
@device.signature(f"void(uint8[:, ::1], int64[::1], {_HOW}, uint32, uint32, float32[:, ::1])")
def gather_augmented_kernel(images, indices, scale, shift, crop: Crop, seed, epoch, out):
    """One thread writes one pixel of `out` (n, C * H * W); a grid of one dimension covers them all."""
    i = uint32(cuda.grid(1))
    sample = uint32(i // uint32(out.shape[1]))
    if sample < out.shape[0]:
        pixel = uint32(i - sample * uint32(out.shape[1]))
        index = indices[sample]
        out[sample, pixel] = _augmented(images, index, pixel, scale, shift, crop, seed, epoch)


def gather_augmented(images, indices, mean, std, padding, flip, seed, epoch, out=None):
    """Pick images, each moved and mirrored at random, and normalise them; see `reference.gather_augmented`.

    Computed as by `gather_batch`, also where an index is outside ``0 .. N - 1``.
    """
    padding, flip, *words = checks.augmentation(padding, flip, seed, epoch)
    *_, out = checks.gather_batch(DEVICE, images, indices, out)
    constants = constants_there(mean, std, images.shape[1])
    crop = Crop(*images.shape[2:], padding, flip)
    arguments = rows(images), indices, *constants, crop, *map(np.uint32, words), rows(out)
    device.launch_for_each(gather_augmented_kernel, out.size, THREADS, *arguments)
    return out


@cuda.jit
@device.signature(
    f"void(uint8[:, ::1], int32[::1], int64[::1], int32[::1], int64, {_HOW}, uint32[::1], "
    "float32[:, ::1], int32[::1])"
)
def gather_augmented_at_kernel(
    images, labels, order, cursor, batch_size, scale, shift, crop: Crop, draw, x, y
):
    """One thread writes one pixel of `x` (n, C * H * W); an image's first one picks the label as well."""
    i = uint32(cuda.grid(1))
    sample = uint32(i // uint32(x.shape[1]))
    if sample < x.shape[0]:
        pixel = uint32(i - sample * uint32(x.shape[1]))
        position = int64(cursor[0]) * batch_size + int64(sample)
        index = int64(-1)
        if position >= 0 and position < order.size:
            index = order[position]
        x[sample, pixel] = _augmented(images, index, pixel, scale, shift, crop, draw[0], draw[1])
        if pixel == 0:
            y[sample] = label(labels, index)


def gather_augmented_at(images, labels, order, cursor, mean, std, padding, flip, draw, x, y, batch_size=None):
    """Gather the batch that the cursor names, as `gather_batch_at` does, each image moved and mirrored.

    The images are those of `gather_augmented`. Seed and epoch lie on the device, for an epoch's launches are
    replayed in the next one.

    Parameters
    ----------
    images, labels, order, cursor, mean, std, x, y, batch_size
        As for `gather_batch_at`.
    padding, flip
        As for `gather_augmented`.
    draw : device array, shape (2,), uint32
        Seed and epoch.

    Examples
    --------
    >>> images = device.to_device(np.arange(1, 4, dtype=np.uint8).reshape(1, 1, 1, 3))
    >>> labels, order = device.zeros(1, np.int32), device.zeros(1, np.int64)
    >>> x, y, cursor = device.empty((1, 1, 1, 3)), device.empty(1, np.int32), device.zeros(1, np.int32)
    >>> for epoch in (1, 4, 5):
    ...     draw = device.to_device(np.array([1, epoch], np.uint32))
    ...     _ = gather_augmented_at(images, labels, order, cursor, 0, 1 / 255, 1, True, draw, x, y)
    ...     print(device.to_host(x).ravel())
    [3. 2. 1.]
    [2. 3. 0.]
    [0. 0. 0.]
    """
    padding, flip, *_ = checks.augmentation(padding, flip)
    checks.gather_augmented_at(DEVICE, images, labels, order, cursor, x, y, draw)
    batch_size = checks.batch_size_of(x, batch_size)
    constants = constants_there(mean, std, images.shape[1])
    crop = Crop(*images.shape[2:], padding, flip)
    arguments = rows(images), labels, order, cursor, batch_size, *constants, crop, draw, rows(x), y
    device.launch_for_each(gather_augmented_at_kernel, x.size, THREADS, *arguments)
    return x, y
