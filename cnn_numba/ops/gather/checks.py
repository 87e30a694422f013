"""What the cpu and the gpu room share: the checks, and the constants that images are normalised with."""

import functools

import numpy as np

from cnn_numba.ops.shapes import DEVICE, check_memory, integer

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
    if not isinstance(flip, (bool, np.bool_)):
        raise TypeError(f"flip must be True or False, got {flip!r}")
    words = whole_number("padding", padding, MOST_PADDING), bool(flip)
    return (*words, *(whole_number(*word, 2**32 - 1) for word in (("seed", seed), ("epoch", epoch))))


def whole_number(name, value, largest):
    """Return `value` as an int from 0 to `largest`."""
    number = integer(value, name, -(2**63), None)
    if not 0 <= number <= largest:
        raise ValueError(f"{name} must lie in 0..{largest}, got {value}")
    return number


def hashable(value):
    """Return one number or several as a key of a cache."""
    return tuple(map(float, value)) if np.ndim(value) else float(value)


@functools.lru_cache(maxsize=32)
def scale_and_shift(mean, std, channels):
    """Return float32 arrays (C,) with ``x * scale + shift == (x / 255 - mean) / std``; all is `hashable`."""
    for name, value in (("mean", mean), ("std", std)):
        if np.ndim(value) and len(value) != channels:
            raise ValueError(f"{name} must be one number or one for each of {channels} channels, got {value}")
    if not np.min(std) > 0:
        raise ValueError(f"std must be positive, got {std}")
    mean, std = np.broadcast_to(mean, channels), np.broadcast_to(std, channels)
    return (1 / (255 * std)).astype(np.float32), (0.0 - mean / std).astype(np.float32)  # never -0
