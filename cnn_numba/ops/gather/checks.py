"""What the cpu and the gpu room share: the checks, and the constants that images are normalised with."""

import functools

import numpy as np


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
    return (1 / (255 * std)).astype(np.float32), (-mean / std).astype(np.float32)
