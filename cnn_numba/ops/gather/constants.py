"""The constants that normalise images, for the cpu and the gpu backend."""

import functools

import numpy as np

from cnn_numba.arguments import per_channel


def normalisation(mean, std, channels):
    """Return mean and standard deviation of each channel as two tuples."""
    return per_channel(mean, "mean", channels), per_channel(std, "std", channels)


@functools.lru_cache(maxsize=32)
def scale_and_shift(mean, std):
    """Return float32 arrays (C,) with ``x * scale + shift == (x / 255 - mean) / std``, from two tuples."""
    mean, std = np.array(mean), np.array(std)
    return (1 / (255 * std)).astype(np.float32), (0.0 - mean / std).astype(np.float32)  # never -0
