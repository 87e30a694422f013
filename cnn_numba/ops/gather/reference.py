"""The definition of gathering a batch, in float64."""

import numpy as np

from cnn_numba.arguments import check_indices, per_channel
from cnn_numba.ops._reference import ANYTHING, put
from cnn_numba.ops.gather import checks


def gather_batch(images, indices, mean, std, out=None):
    """Pick images and normalise them.

    ``out[i] = (images[indices[i]] / 255 - mean) / std``

    Parameters
    ----------
    images : ndarray, shape (N, C, H, W), uint8
        A whole data set.
    indices : ndarray, shape (n,), int64
        The images to pick, in order; 0 to N - 1.
    mean, std : float or C floats
        One for all channels, or one each.
    out : ndarray, shape (n, C, H, W), float, optional

    Raises
    ------
    ValueError
        If `mean` or `std` is for another number of channels.
    IndexError
        If an index is outside ``0 .. N - 1``, or negative.

    Examples
    --------
    >>> images = np.array([0, 51, 255], np.uint8).reshape(3, 1, 1, 1)
    >>> gather_batch(images, np.array([2, 0]), mean=0.5, std=0.5).ravel()
    array([ 1., -1.])
    """
    images, indices, out = checks.gather_batch(ANYTHING, images, indices, out)
    check_indices(indices, len(images))
    mean, std = (
        np.array(per_channel(value, name, images.shape[1])).reshape(-1, 1, 1)
        for name, value in (("mean", mean), ("std", std))
    )
    return put(out, (images[indices].astype(np.float64) / 255 - mean) / std)


def gather_labels(labels, indices, out=None):
    """Pick labels: ``out[i] = labels[indices[i]]``; errors as in `gather_batch`.

    Parameters
    ----------
    labels : ndarray, shape (N,), int32
    indices : ndarray, shape (n,), int64
    out : ndarray, shape (n,), int32, optional

    Examples
    --------
    >>> gather_labels(np.array([5, 0, 4], np.int32), np.array([2, 0]))
    array([4, 5], dtype=int32)
    """
    labels, indices, out = checks.gather_labels(ANYTHING, labels, indices, out)
    check_indices(indices, len(labels))
    return put(out, labels[indices])


def gather_augmented(images, indices, mean, std, padding, flip, seed, epoch, out=None):
    """Pick images, move and mirror each at random, and normalise them.

    Image ``j = indices[i]`` gets a black margin of `padding` pixels. A window of the image's size begins at
    pixel (`row`, `column`) of that; its columns are reversed if `mirror` is 1. Normalisation and errors
    are as in `gather_batch`::

        words = philox((j mod 2**32, epoch), seed)
        row, column = (words[0] mod 2**16) * places // 2**16, (words[0] // 2**16) * places // 2**16
        mirror = words[1] // 2**31                 places = 2 * padding + 1

    Parameters
    ----------
    images, indices, mean, std
        As for `gather_batch`.
    padding : int
        An image moves by at most this many pixels, 0 to `checks.MOST_PADDING`.
    flip : bool
        Whether to mirror about every second image.
    seed, epoch : int
        They and the image's index determine its random numbers; 0 to 2**32 - 1.
    out : ndarray, shape (n, C, H, W), float, optional

    Notes
    -----
    Philox2x32 with ten rounds: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3"
    (2011). It is a function of a counter and a key, without a state: the numbers are the same in any order
    and in any backend.

    Examples
    --------
    >>> images = np.arange(1, 4, dtype=np.uint8).reshape(1, 1, 1, 3)
    >>> for epoch in (1, 4, 5):
    ...     moved = gather_augmented(images, np.array([0]), 0, 1 / 255, 1, True, seed=1, epoch=epoch)
    ...     print(moved.ravel())
    [3. 2. 1.]
    [2. 3. 0.]
    [0. 0. 0.]
    """
    padding, flip, seed, epoch = checks.augmentation(padding, flip, seed, epoch)
    images, indices, out = checks.gather_batch(ANYTHING, images, indices, out)
    check_indices(indices, len(images))
    height, width = images.shape[2:]
    moved = np.empty((len(indices), *images.shape[1:]), np.uint8)
    for i, index in enumerate(indices):
        row, column, mirror = _places(int(index), padding, seed, epoch)
        plane = np.pad(images[index], ((0, 0), (padding, padding), (padding, padding)))
        window = plane[:, row : row + height, column : column + width]
        moved[i] = window[:, :, ::-1] if flip and mirror else window
    return gather_batch(moved, np.arange(len(indices)), mean, std, out)


def _places(index, padding, seed, epoch):
    """Return row and column of an image's window, and whether it is mirrored."""
    first, second = _philox(index % 2**32, epoch, seed)
    places = 2 * padding + 1
    return (first % 2**16) * places // 2**16, (first // 2**16) * places // 2**16, second // 2**31


def _philox(first, second, key):
    """Return two random words for the counter (`first`, `second`) and the key, all of 32 bits."""
    for _ in range(10):
        product = 0xD256D193 * first
        first, second = (product // 2**32) ^ key ^ second, product % 2**32
        key = (key + 0x9E3779B9) % 2**32
    return first, second
