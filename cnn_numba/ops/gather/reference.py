"""Gathering as its definition says it, in float64: the oracle for the other rooms."""

import numpy as np

from cnn_numba.ops._reference import check_arrays, store


def gather_batch(images, indices, mean, std, out=None):
    """Pick images and normalise them.

    ``out[i] = (images[indices[i]] / 255 - mean) / std``

    Parameters
    ----------
    images : ndarray, shape (N, C, H, W), uint8
        A whole data set, as it is stored.
    indices : ndarray, shape (n,), int64
        Which images to pick, and in what order; 0 to N - 1.
    mean, std : float or C floats
        One for all channels, or one each; what the images are normalised with.
    out : ndarray, shape (n, C, H, W), float, optional
        Where to write the result; None allocates float64.

    Returns
    -------
    ndarray, shape (n, C, H, W)
        `out`.

    Raises
    ------
    TypeError, ValueError
        If a shape or dtype is wrong, a std is not positive, or the numbers of channels differ.
    IndexError
        If an index is outside ``0 .. N - 1``; negative ones are refused as well.

    Examples
    --------
    >>> images = np.array([0, 51, 255], np.uint8).reshape(3, 1, 1, 1)
    >>> gather_batch(images, np.array([2, 0]), mean=0.5, std=0.5).ravel()
    array([ 1., -1.])
    """
    check_arrays({"out": out}, {"images": images, "indices": indices})
    _check("images", images, np.uint8, 4)
    _check_indices(indices, len(images))
    if not np.min(std) > 0:
        raise ValueError(f"std must be positive, got {std}")
    mean, std = _per_channel("mean", mean, images.shape[1]), _per_channel("std", std, images.shape[1])
    return store("out", out, (images[indices].astype(np.float64) / 255 - mean) / std)


def gather_labels(labels, indices, out=None):
    """Pick labels: ``out[i] = labels[indices[i]]``.

    Parameters
    ----------
    labels : ndarray, shape (N,), int32
        The labels of a whole data set.
    indices : ndarray, shape (n,), int64
        Which labels to pick, and in what order; 0 to N - 1.
    out : ndarray, shape (n,), int32, optional
        Where to write the result; None allocates.

    Returns
    -------
    ndarray, shape (n,), int32
        `out`.

    Raises
    ------
    TypeError, ValueError
        If a shape or dtype is wrong.
    IndexError
        If an index is outside ``0 .. N - 1``.

    Examples
    --------
    >>> gather_labels(np.array([5, 0, 4], np.int32), np.array([2, 0]))
    array([4, 5], dtype=int32)
    """
    check_arrays({"out": out}, {"labels": labels, "indices": indices})
    _check("labels", labels, np.int32, 1)
    _check_indices(indices, len(labels))
    return store("out", out, labels[indices])


def _check(name, array, dtype, ndim):
    """Insist on an array of this dtype with so many axes."""
    if not isinstance(array, np.ndarray) or array.dtype != dtype:
        got = getattr(array, "dtype", type(array).__name__)
        raise TypeError(f"{name} must have dtype {np.dtype(dtype)}, got {got}")
    if array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} axes, got shape {array.shape}")


def _check_indices(indices, count):
    """Insist on indices between 0 and ``count - 1``: NumPy would count negative ones from the end."""
    _check("indices", indices, np.int64, 1)
    for position, index in enumerate(indices):
        if not 0 <= index < count:
            raise IndexError(f"indices must lie in 0..{count - 1}, got {index} at position {position}")


def _per_channel(name, value, channels):
    """Return a value for each channel, shape (C, 1, 1), of one for all or one for each."""
    if np.ndim(value) and np.shape(value) != (channels,):
        raise ValueError(f"{name} must be one number or one for each of {channels} channels, got {value}")
    return np.broadcast_to(np.asarray(value, np.float64), channels).reshape(-1, 1, 1)
