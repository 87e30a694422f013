"""Inputs and mistakes that several exercises of notebook 01 share."""

import numpy as np

from cnn_numba.ops.conv.reference import conv_cpu


def images_and_kernels(rng):
    """Draw a small image first, then other shapes, a kernel that just fits, and integers."""
    shapes = [((3, 4), (2, 2)), ((4, 4), (3, 3)), ((5, 8), (3, 2)), ((9, 4), (2, 4)), ((6, 6), (2, 2))]
    shapes += [((7, 5), (4, 3)), ((6, 3), (1, 1)), ((4, 7), (1, 5)), ((5, 7), (5, 7))]
    cases = [(rng.normal(size=image), rng.normal(size=kernel)) for image, kernel in shapes]
    # Integer pixels and fractional weights: the sums aren't integers.
    return [*cases, (rng.integers(1, 100, (5, 6)), rng.normal(size=(2, 3)))]


def placed(image, kernel):
    """Return the valid region in the corner of an array of the image's size."""
    valid, out = conv_cpu(image, kernel), np.zeros(image.shape)
    out[: valid.shape[0], : valid.shape[1]] = valid
    return out


FLIPPED = (
    "Your filter is flipped: `{kernel}[0, 0]` meets the window's last pixel, not its first. That is the "
    "mathematical convolution. Don't flip the kernel here."
)
