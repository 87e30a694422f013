"""What the kernels that gather have in common: labels, constants, and how they see images."""

import functools
import math

from cnn_numba import device
from cnn_numba.device.compiler import cuda, int32
from cnn_numba.ops.gather import constants


@cuda.jit(device=True)
def label(labels, index):
    """Return label `index`, -1 if there is no such label."""
    if index < 0 or index >= labels.size:
        return int32(-1)
    return labels[index]


def constants_there(mean, std, channels):
    """Return scale and shift of each channel, which normalise it, as arrays on the device."""
    return _copied(*constants.normalisation(mean, std, channels))


# Without a limit: a graph goes on using the arrays, and from a full cache they would be freed under it.
@functools.cache
def _copied(mean, std):
    """Return the two constants of each channel on the device, copied once."""
    return tuple(map(device.to_device, constants.scale_and_shift(mean, std)))


def rows(images):
    """Return images (N, C, H, W) as (N, C * H * W): a view, one row for each image."""
    return images.reshape(images.shape[0], math.prod(images.shape[1:]))
