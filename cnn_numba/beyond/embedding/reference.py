"""Embeddings and windows of a text by definition, in float64: the other backends are compared with it."""

import numpy as np

from cnn_numba.arguments import check_indices
from cnn_numba.beyond.embedding import checks
from cnn_numba.ops._reference import ANYTHING, put


def embedding_forward(tokens, weight, positions, out=None):
    """Look up the vector of each token, and add the vector of its position.

    ``out[n, t] = weight[tokens[n, t]] + positions[t]``

    Parameters
    ----------
    tokens : ndarray, shape (N, T), int32
        Numbers of characters, each between 0 and ``V - 1``.
    weight : ndarray, shape (V, C), float
        A learned vector for each kind of token.
    positions : ndarray, shape (T, C), float
        A learned vector for each position.
    out : ndarray, shape (N, T, C), float, optional

    Raises
    ------
    ValueError
        If a token is out of range.

    Notes
    -----
    The same as a product of one-hot rows with `weight`, without the multiplications by 0. See
    `torch.nn.functional.embedding`; positions as in Radford et al., "Improving language understanding by
    generative pre-training" (2018).

    Examples
    --------
    >>> embedding_forward(np.array([[1, 1]], np.int32), np.array([[5.0], [7.0]]), np.array([[0.0], [0.5]]))
    array([[[7. ],
            [7.5]]])
    """
    tokens, weight, positions, _ = checks.embedding_forward(ANYTHING, tokens, weight, positions, out)
    checks.check_tokens(tokens, weight)
    return put(out, weight[tokens] + positions)


def embedding_backward(grad_output, tokens, grad_weight):
    """Add up the gradients of each token's positions: the gradient of its vector.

    ``grad_weight[v] = sum of grad_output[n, t] where tokens[n, t] is v``. The gradient of the positions'
    vectors is the sum over the batch: `linear_backward_bias`, with each sample as a row.

    Parameters
    ----------
    grad_output : ndarray, shape (N, T, C), float
    tokens : ndarray, shape (N, T), int32
        The tokens of the forward pass.
    grad_weight : ndarray, shape (V, C), float
        Overwritten, not added to.

    Raises
    ------
    ValueError
        If a token is out of range.

    Notes
    -----
    Positions are added in order, so the same input gives the same bits everywhere.

    Examples
    --------
    >>> tokens, grad_output = np.array([[1, 1]], np.int32), np.array([[[2.0], [3.0]]])
    >>> embedding_backward(grad_output, tokens, np.empty((2, 1)))
    array([[0.],
           [5.]])
    """
    grad_output, tokens, _ = checks.embedding_backward(ANYTHING, grad_output, tokens, grad_weight)
    checks.check_tokens(tokens, grad_weight)
    result = np.zeros(grad_weight.shape)
    np.add.at(result, tokens, grad_output)
    return put(grad_weight, result)


def gather_windows(text, indices, stride, x, y):
    """Pick windows of a text, and the character after each of theirs.

    ``x[i, t] = text[indices[i] * stride + t]`` and ``y[i * T + t] = text[indices[i] * stride + t + 1]``

    Parameters
    ----------
    text : ndarray, shape (L,), uint8
        The whole text: a number for each character.
    indices : ndarray, shape (n,), int64
        The windows to pick, in this order. A character must follow each of them.
    stride : int
        The distance from one window to the next.
    x : ndarray, shape (n, T), int32
        Written to: the windows.
    y : ndarray, shape (n * T,), int32
        Written to: the characters to predict, one for each character of the windows.

    Raises
    ------
    IndexError
        If a window is outside the text, or an index negative.

    Examples
    --------
    >>> text = np.frombuffer(b"abcdef", np.uint8) - ord("a")
    >>> x, y = np.empty((2, 3), np.int32), np.empty(6, np.int32)
    >>> gather_windows(text, np.array([1, 0]), 2, x, y)
    (array([[2, 3, 4],
           [0, 1, 2]], dtype=int32), array([3, 4, 5, 1, 2, 3], dtype=int32))
    """
    windows = checks.gather_windows(ANYTHING, text, indices, stride, x, y)
    check_indices(indices, windows)
    characters = indices[:, None] * int(stride) + np.arange(x.shape[1])
    x[:], y[:] = text[characters], text[characters + 1].ravel()
    return x, y
