"""Functions that compute what a wrong kernel computes, for the mistakes of several chapters."""

import numpy as np


def within(array, *shape):
    """Return an array enlarged to a shape, with NaN beyond its edges, where memory may hold anything.

    >>> within(np.ones((1, 2)), 2, 2)
    array([[ 1.,  1.],
           [nan, nan]])
    """
    padded = np.full(shape, np.nan)
    padded[tuple(map(slice, array.shape))] = array
    return padded


def turned(array):
    """Return what a kernel reads from a matrix with exchanged indices, NaN beyond the edges.

    >>> turned(np.array([[1.0, 2.0]]))
    array([[ 1., nan]])
    """
    side = max(array.shape)
    return within(array, side, side)[: array.shape[1], : array.shape[0]].T


def one_hot(scores, labels):
    """Return 1 for the label of each row of scores, 0 for the other classes.

    >>> one_hot(np.zeros((2, 2)), [1, 0])
    array([[0., 1.],
           [1., 0.]])
    """
    return np.eye(scores.shape[1])[labels]


def sigmoid(x):
    """Return the sigmoid of each number."""
    return 1 / (1 + np.exp(-x))


def places(at, outer, inner, steps, order=(0, 1, 2, 3)):
    """Return the pixel that each weight of a window reads, along the rows and along the columns.

    Parameters
    ----------
    at : callable
        For one axis, ``at(o, k, stride, padding)``: the pixel that weight `k` reads at position `o`.
    outer, inner : tuple of (int, int)
        The numbers of `o` and of `k`, in both axes.
    steps : sequence of int
        ``(stride_h, stride_w, padding_h, padding_w)``.
    order : tuple of int
        For each of the steps, which one is used.

    Examples
    --------
    >>> rows, columns = places(lambda o, k, stride, padding: o * stride + k, (1, 2), (1, 2), (1, 3, 0, 0))
    >>> columns
    array([[0, 1],
           [3, 4]])
    """
    steps = [int(steps[i]) for i in order]
    axes = zip(outer, inner, steps[:2], steps[2:], strict=True)
    return [at(np.arange(m)[:, None], np.arange(n), stride, padding) for m, n, stride, padding in axes]


def looked_up(images, where, outside=0.0):
    """Return the pixels of (N, C, H, W) at `places`, and `outside` beyond the edges.

    The result has shape (N, C, rows, row weights, columns, column weights). `outside` may be "edge", for the
    nearest pixel, or "wrap", for the other end.
    """
    sizes = images.shape[2:]
    if outside == "wrap":
        where = [place % size for place, size in zip(where, sizes, strict=True)]
    h, w = (place.clip(0, size - 1) for place, size in zip(where, sizes, strict=True))
    pixels = images[:, :, h][..., w]
    if outside in ("edge", "wrap"):
        return pixels
    return np.where((h == where[0])[:, :, None, None] & (w == where[1]), pixels, outside)
