"""What the cpu and the gpu backend share: the checks, and the constants that images are normalised with."""

import functools

import numpy as np

from cnn_numba.arguments import integer, per_channel, settings
from cnn_numba.ops.shapes import DEVICE, check_memory

MOST_PADDING = 255  # as in the reference, which imports NumPy only


def gather_batch(memory, images, indices, out):
    """Check the arrays of `gather_batch`, and return the output, which is made if it is None."""
    memory.check("images", images, (None, None, None, None), np.uint8)
    memory.check("indices", indices, (None,), np.int64)
    shape, inputs = (*indices.shape, *images.shape[1:]), {"images": images, "indices": indices}
    return memory.output("out", out, shape, inputs=inputs)


def gather_labels(memory, labels, indices, out):
    """Check the arguments of `gather_labels`; otherwise as `gather_batch` here."""
    memory.check("labels", labels, (None,), np.int32)
    memory.check("indices", indices, (None,), np.int64)
    inputs = {"labels": labels, "indices": indices}
    return memory.output("out", out, indices.shape, np.int32, inputs=inputs)


def gather_batch_at(images, labels, order, cursor, x, y, batch_size, **also_read):
    """Check the arrays of `gather_batch_at`, all on the device, and return the batch size."""
    DEVICE.check("images", images, (None, None, None, None), np.uint8)
    DEVICE.check("labels", labels, images.shape[:1], np.int32)
    DEVICE.check("order", order, (None,), np.int64)
    DEVICE.check("cursor", cursor, (1,), np.int32)
    DEVICE.check("x", x, (None, *images.shape[1:]))
    DEVICE.check("y", y, x.shape[:1], np.int32)
    read = {"images": images, "labels": labels, "order": order, "cursor": cursor}
    check_memory({"x": x, "y": y}, read | also_read)
    if 0 in images.shape[1:]:
        raise ValueError(f"images must have pixels, got shape {images.shape}")
    batch_size = integer(x.shape[0] if batch_size is None else batch_size, "batch_size")
    if batch_size < x.shape[0]:
        raise ValueError(f"batch_size must be at least the {x.shape[0]} samples of x, got {batch_size}")
    return batch_size


def augmentation(padding, flip, seed=0, epoch=0):
    """Check the arguments that `gather_augmented` has beside those of `gather_batch`, and return them."""
    return integer(padding, "padding", maximum=MOST_PADDING), *settings(flip=flip, seed=seed, epoch=epoch)


def normalisation(mean, std, channels):
    """Return mean and standard deviation of each channel as two tuples."""
    return per_channel(mean, "mean", channels), per_channel(std, "std", channels)


@functools.lru_cache(maxsize=32)
def scale_and_shift(mean, std):
    """Return float32 arrays (C,) with ``x * scale + shift == (x / 255 - mean) / std``, from two tuples."""
    mean, std = np.array(mean), np.array(std)
    return (1 / (255 * std)).astype(np.float32), (0.0 - mean / std).astype(np.float32)  # never -0
