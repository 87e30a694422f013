"""Gathering on the GPU, where the data set stays as bytes: a thread for each pixel of the batch.

Bytes are a quarter of the traffic, and no step copies anything from the host. All steps of a CUDA graph are
the same: the number of the batch, which differs, lies on the device as a *cursor*.

If images are moved and mirrored at random, each thread computes the random numbers of its image from the
image's index. Ten multiplications cost less than writing and reading the numbers, and threads share no state.
"""

import functools
import math
from typing import NamedTuple

import numpy as np

from cnn_numba import device
from cnn_numba.device.compiler import cuda, float32, int32, uint32, uint64
from cnn_numba.ops.gather import checks, constants
from cnn_numba.ops.shapes import DEVICE
from cnn_numba.ops.shared.warps import own_element, unsigned_divmod

THREADS = 256


@cuda.jit(device=True)
def _label(labels, index):
    """Return label `index`, -1 if there is no such label."""
    if index < 0 or index >= labels.size:
        return -1
    return labels[index]


def _factors(mean, std, channels):
    """Return scale and shift of each channel as one array (2, C) on the device."""
    return _copy_once(*constants.normalisation(mean, std, channels))


# Without a limit: a full cache would free arrays that a graph still uses.
@functools.cache
def _copy_once(mean, std):
    return device.to_device(np.stack(constants.scale_and_shift(mean, std)))


def _rows(images):
    """View images (N, C, H, W) as (N, C * H * W)."""
    return images.reshape(images.shape[0], math.prod(images.shape[1:]))


@cuda.jit(device=True)
def index_at(order, cursor, batch_size, sample):
    """Return the index of a sample in the data set, from the batch at the cursor; -1 if there is none."""
    # 64 bits: a cursor that was never set must not wrap around into the data.
    position = cursor[0] * batch_size + sample
    index = -1
    if position >= 0 and position < order.size:
        index = order[position]
    return index


@cuda.jit(device=True)
def advance_other(cursor, is_wanted):
    """Add 1 to a cursor that no thread of this launch reads, in the first thread of a grid of one axis."""
    if is_wanted and cuda.grid(1) == 0:
        cursor[0] += 1


# --- Images as they are ------------------------------------------------------------------------------------


@cuda.jit(device=True)
def normalised(images, index, pixel, channel, factors):
    """Return a pixel of image `index`, NaN if there is no such image."""
    if index < 0 or index >= images.shape[0]:
        return float32(math.nan)
    return images[index, pixel] * factors[0, channel] + factors[1, channel]


@cuda.jit
@device.signature("void(uint8[:, ::1], int64[::1], float32[:, ::1], uint32, float32[:, ::1])")
def gather_batch_kernel(images, indices, factors, plane, out):
    """One thread normalises one pixel of `out` (n, C * H * W); a grid of one dimension covers them all."""
    sample, pixel = unsigned_divmod(uint32(cuda.grid(1)), out.shape[1])
    if sample < out.shape[0]:
        out[sample, pixel] = normalised(images, indices[sample], pixel, pixel // plane, factors)


def gather_batch(images, indices, mean, std, out=None):
    """Pick images and normalise them; see `reference.gather_batch`.

    Computed as ``images * scale + shift`` in float32 with the constants of the cpu backend, as one fused
    multiply-add. The first call with them copies them to the device, so it must come before a capture. The
    host cannot check the indices: one outside ``0 .. N - 1`` gives an image of NaN.

    Examples
    --------
    >>> images = device.to_device(np.array([0, 51, 255], np.uint8).reshape(3, 1, 1, 1))
    >>> batch = gather_batch(images, device.to_device(np.array([2, 0, 3])), mean=0.5, std=0.5)
    >>> device.to_host(batch).ravel().round(6).tolist()
    [1.0, -1.0, nan]
    """
    *_, out = checks.gather_batch(DEVICE, images, indices, out)
    factors, plane = _factors(mean, std, images.shape[1]), np.uint32(math.prod(images.shape[2:]))
    arguments = _rows(images), indices, factors, plane, _rows(out)
    device.launch_for_each(gather_batch_kernel, out.size, THREADS, *arguments)
    return out


@cuda.jit
@device.signature("void(int32[::1], int64[::1], int32[::1])")
def gather_labels_kernel(labels, indices, out):
    """One thread picks one label; a grid of one dimension covers them all."""
    i, exists = own_element(out)
    if exists:
        out[i] = _label(labels, indices[i])


def gather_labels(labels, indices, out=None):
    """Pick labels, -1 for an index outside ``0 .. N - 1``; see `reference.gather_labels`."""
    *_, out = checks.gather_labels(DEVICE, labels, indices, out)
    device.launch_for_each(gather_labels_kernel, out.size, THREADS, labels, indices, out)
    return out


class Batch(NamedTuple):
    """The size of earlier batches, the pixels of a channel, and whether the other cursor advances."""

    size: int
    plane: np.uint32
    advances: bool


_DATA, _POSITION = "uint8[:, ::1], int32[::1]", "int64[::1], int32[::1]"
#: The types of the arguments that `gather_batch_at` passes to a kernel.
AT = f"{_DATA}, {_POSITION}, int32[::1], float32[:, ::1], Batch, float32[:, ::1], int32[::1]"


@cuda.jit(device=True)
def gather_share(images, labels, order, cursor, factors, batch, x, y):
    """Normalise a thread's pixels of `x` (n, C * H * W), and pick the label with the first of an image."""
    i = uint32(cuda.grid(1))
    while i < uint32(x.size):
        sample, pixel = unsigned_divmod(i, x.shape[1])
        index = index_at(order, cursor, batch.size, sample)
        x[sample, pixel] = normalised(images, index, pixel, pixel // batch.plane, factors)
        if pixel == 0:
            y[sample] = _label(labels, index)
        i = uint32(i + cuda.gridsize(1))


@cuda.jit
@device.signature(f"void({AT})")
def gather_batch_at_kernel(images, labels, order, cursor, other, factors, batch: Batch, x, y):
    """Gather one pixel per thread; a grid of one dimension covers them all."""
    advance_other(other, batch.advances)
    gather_share(images, labels, order, cursor, factors, batch, x, y)


def gather_batch_at(
    images, labels, order, cursor, mean, std, x, y, batch_size=None, advances=None, launch=None
):
    """Gather the batch at the cursor: normalised images and their labels, in one launch.

    ``x[i], y[i]`` come from number ``order[cursor[0] * batch_size + i]``. The host reads nothing, so a CUDA
    graph can record the launch and replay it with another cursor; see `advance`.

    Parameters
    ----------
    images : device array, shape (N, C, H, W), uint8
    labels : device array, shape (N,), int32
    order : device array, shape (M,), int64
        The indices of an epoch in the order of their use: a permutation of N.
    cursor : device array, shape (1,), int32
        The number of the batch, from 0.
    mean, std : float or C floats
        As for `gather_batch`.
    x : device array, shape (n, C, H, W), float32
        Written to. An image is NaN if its index is outside ``0 .. N - 1`` or the batch reaches beyond
        `order`.
    y : device array, shape (n,), int32
        Written to; -1 where there is no image.
    batch_size : int, optional
        The size of the batches before this one; default n. An epoch's last batch may be smaller.
    advances : device array, shape (1,), int32, optional
        Another cursor, which the launch advances like `advance`. A launch may move any cursor but the one
        that its threads read.
    launch : callable, optional
        Launches another kernel that gathers; gets the arguments of `gather_batch_at_kernel`.

    Raises
    ------
    ValueError
        If an image has no pixels, or `batch_size` is less than n.

    Examples
    --------
    >>> images = device.to_device(np.arange(0, 250, 50, dtype=np.uint8).reshape(5, 1, 1, 1))
    >>> labels, order = device.to_device(np.arange(5, dtype=np.int32)), device.to_device(np.arange(5)[::-1])
    >>> x, y = device.empty((2, 1, 1, 1)), device.empty(2, np.int32)
    >>> cursor = device.zeros(1, np.int32)
    >>> for _ in range(3):
    ...     _ = gather_batch_at(images, labels, order, cursor, 0.0, 1.0, x, y)
    ...     print(device.to_host(y), device.to_host(x).ravel().round(2))
    ...     _ = advance(cursor)
    [4 3] [0.78 0.59]
    [2 1] [0.39 0.2 ]
    [ 0 -1] [ 0. nan]
    """
    checks.gather_batch_at(DEVICE, images, labels, order, cursor, x, y, advances)
    plane = math.prod(images.shape[2:])
    batch = device.for_kernel(Batch(checks.batch_size_of(x, batch_size), plane, advances is not None))
    # A kernel needs some array, and ignores it.
    position = order, cursor, cursor if advances is None else advances
    factors = _factors(mean, std, images.shape[1])
    launch = launch or functools.partial(device.launch_for_each, gather_batch_at_kernel, x.size, THREADS)
    launch(_rows(images), labels, *position, factors, batch, _rows(x), y)
    return x, y


@cuda.jit
@device.signature("void(int32[::1])")
def advance_kernel(cursor):
    """One thread adds 1 to the cursor; a grid of one thread."""
    cursor[0] += 1


def advance(cursor):
    """Add 1 to a cursor, (1,) int32, in a launch that does nothing else.

    The blocks of a launch that reads the cursor run in any order, so none of them may move it. Another launch
    may: see `advances` of `gather_batch_at`.
    """
    DEVICE.check("cursor", cursor, (1,), np.int32)
    device.launch(advance_kernel, 1, 1, cursor)
    return cursor


# --- Images moved and mirrored -----------------------------------------------------------------------------

_HOW = "float32[:, ::1], Crop"


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
        product = uint64(0xD256D193) * first
        first, second = uint32(product >> 32) ^ key ^ second, uint32(product)
        key = uint32(key + 0x9E3779B9)
    return first, second


@cuda.jit(device=True)
def _source(index, pixel, crop, seed, epoch):
    """Return the channel of a pixel of an augmented image, and its index in the image; -1 is the margin."""
    height, width = uint32(crop.height), uint32(crop.width)
    row = pixel // width
    channel, h, w = row // height, int32(row % height), int32(pixel - row * width)
    first, second = philox(uint32(index), epoch, seed)
    places = uint32(2 * crop.padding + 1)
    if crop.flip and second >> 31 == 1:
        w = int32(width) - 1 - w
    h += int32(((first & 0xFFFF) * places) >> 16) - int32(crop.padding)
    w += int32(((first >> 16) * places) >> 16) - int32(crop.padding)
    if h < 0 or w < 0 or h >= int32(height) or w >= int32(width):
        return channel, -1
    return channel, (int32(channel) * int32(height) + h) * int32(width) + w


@cuda.jit(device=True)
def _augmented(images, index, pixel, factors, crop, seed, epoch):
    """Return a pixel of image `index`, moved and mirrored at random; NaN if there is no such image."""
    if index < 0 or index >= images.shape[0]:
        return float32(math.nan)
    channel, source = _source(index, pixel, crop, seed, epoch)
    if source < 0:
        return factors[1, channel]  # black
    return images[index, source] * factors[0, channel] + factors[1, channel]


@cuda.jit
@device.signature(f"void(uint8[:, ::1], int64[::1], {_HOW}, uint32, uint32, float32[:, ::1])")
def gather_augmented_kernel(images, indices, factors, crop: Crop, seed, epoch, out):
    """One thread writes one pixel of `out` (n, C * H * W); a grid of one dimension covers them all."""
    sample, pixel = unsigned_divmod(uint32(cuda.grid(1)), out.shape[1])
    if sample < out.shape[0]:
        index = indices[sample]
        out[sample, pixel] = _augmented(images, index, pixel, factors, crop, seed, epoch)


def gather_augmented(images, indices, mean, std, padding, flip, seed, epoch, out=None):
    """Pick images, each moved and mirrored at random, and normalise them; see `reference.gather_augmented`.

    Computed as in `gather_batch`, also if an index is outside ``0 .. N - 1``.
    """
    padding, flip, *words = checks.augmentation(padding, flip, seed, epoch)
    *_, out = checks.gather_batch(DEVICE, images, indices, out)
    factors = _factors(mean, std, images.shape[1])
    crop = Crop(*images.shape[2:], padding, flip)
    arguments = _rows(images), indices, factors, crop, *map(np.uint32, words), _rows(out)
    device.launch_for_each(gather_augmented_kernel, out.size, THREADS, *arguments)
    return out


@cuda.jit
@device.signature(f"void({_DATA}, {_POSITION}, int64, {_HOW}, uint32[::1], float32[:, ::1], int32[::1])")
def gather_augmented_at_kernel(images, labels, order, cursor, batch_size, factors, crop: Crop, draw, x, y):
    """One thread writes one pixel of `x` (n, C * H * W); the first of an image also picks the label."""
    i = uint32(cuda.grid(1))
    sample = uint32(i // uint32(x.shape[1]))
    if sample < x.shape[0]:
        pixel = uint32(i - sample * x.shape[1])
        index = index_at(order, cursor, batch_size, sample)
        x[sample, pixel] = _augmented(images, index, pixel, factors, crop, draw[0], draw[1])
        if pixel == 0:
            y[sample] = _label(labels, index)


def gather_augmented_at(images, labels, order, cursor, mean, std, padding, flip, draw, x, y, batch_size=None):
    """Gather the batch at the cursor like `gather_batch_at`, with the images of `gather_augmented`.

    Seed and epoch are `draw`, (2,) uint32 on the device, since the launches of an epoch are replayed in the
    next one.

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
    checks.gather_augmented_at(DEVICE, images, labels, order, cursor, draw, x, y)
    batch_size = checks.batch_size_of(x, batch_size)
    factors = _factors(mean, std, images.shape[1])
    crop = Crop(*images.shape[2:], padding, flip)
    arguments = _rows(images), labels, order, cursor, batch_size, factors, crop, draw, _rows(x), y
    device.launch_for_each(gather_augmented_at_kernel, x.size, THREADS, *arguments)
    return x, y
