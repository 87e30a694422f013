"""Gathering on the CPU: one pass over the images picked.

One core only: 64 images of MNIST take some microseconds, about as long as a second core takes to wake up.
"""

import numpy as np

from cnn_numba.ops.gather import checks
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
    out = checks.gather_batch(HOST, images, indices, out)
    scale, shift = checks.scale_and_shift(checks.hashable(mean), checks.hashable(std), images.shape[1])
    # Height and width are one long axis to the kernel; a view of a contiguous array copies nothing.
    count, channels, height, width = images.shape
    planes = images.reshape(count, channels, height * width)
    out_planes = out.reshape(len(indices), channels, height * width)
    _refuse(_gather_planes(planes, indices, scale, shift, out_planes), indices, count)
    return out


def gather_labels(labels: np.ndarray, indices: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Pick labels; see `reference.gather_labels`."""
    out = checks.gather_labels(HOST, labels, indices, out)
    _refuse(_gather_labels(labels, indices, out), indices, len(labels))
    return out


def _refuse(position, indices, count):
    """Raise if a kernel found an index outside the data, at this position; -1 is none."""
    if position >= 0:
        raise IndexError(
            f"indices must lie in 0..{count - 1}, got {indices[position]} at position {position}"
        )


@serial_jit
def _first_outside(indices, count):
    for i in range(indices.shape[0]):
        if indices[i] < 0 or indices[i] >= count:
            return i
    return -1


@serial_jit
def _gather_planes(planes, indices, scale, shift, out):
    position = _first_outside(indices, planes.shape[0])
    if position >= 0:
        return position
    for i in range(indices.shape[0]):
        for channel in range(planes.shape[1]):
            source, target = planes[indices[i], channel], out[i, channel]
            # In registers, the two constants let the loop over the plane vectorise.
            channel_scale, channel_shift = scale[channel], shift[channel]
            for pixel in range(target.shape[0]):
                target[pixel] = np.float32(source[pixel]) * channel_scale + channel_shift
    return -1


@serial_jit
def _gather_labels(labels, indices, out):
    position = _first_outside(indices, labels.shape[0])
    if position >= 0:
        return position
    for i in range(indices.shape[0]):
        out[i] = labels[indices[i]]
    return -1
