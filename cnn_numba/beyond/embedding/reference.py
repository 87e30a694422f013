"""Windows of a text and embeddings as defined, in float64: the oracle for the other backends."""

import numpy as np

from cnn_numba.arguments import integer
from cnn_numba.ops._reference import check_arrays, filled, kind_of, store


def embedding_forward(tokens, weight, positions, out=None):
    """Look up the vector of each token, and add that of its place.

    ``out[n, t] = weight[tokens[n, t]] + positions[t]``

    Parameters
    ----------
    tokens : ndarray, shape (N, T), int32
        Numbers of characters, each between 0 and ``V - 1``.
    weight : ndarray, shape (V, C), float
        A learned vector for each kind of token.
    positions : ndarray, shape (T, C), float
        A learned vector for each place.
    out : ndarray, shape (N, T, C), float, optional
        Where to write the result; None allocates float64.

    Returns
    -------
    ndarray, shape (N, T, C)
        `out`.

    Raises
    ------
    TypeError, ValueError
        If an argument has the wrong type or shape or is empty, or a token is out of range.

    Notes
    -----
    The product of `weight` with rows that are 1 at the token and 0 elsewhere, without the multiplications by
    0. `torch.nn.functional.embedding`; positions as in Radford et al., "Improving language understanding by
    generative pre-training" (2018).

    Examples
    --------
    >>> embedding_forward(np.array([[1, 1]], np.int32), np.array([[5.0], [7.0]]), np.array([[0.0], [0.5]]))
    array([[[7. ],
            [7.5]]])
    """
    check_arrays({"out": out}, {"tokens": tokens, "weight": weight, "positions": positions})
    weight = filled("weight", weight, ndim=2)
    tokens = _tokens(tokens, len(weight))
    positions = filled("positions", positions, (tokens.shape[1], weight.shape[1]))
    return store("out", out, weight[tokens] + positions)


def embedding_backward(grad_output, tokens, grad_weight):
    """Add the gradients of all places where a token stands to the gradient of its vector.

    ``grad_weight[v] = sum of grad_output[n, t] where tokens[n, t] is v``. That of the positions is the sum
    over the batch: `linear_backward_bias`, with all of a sample in one row.

    Parameters
    ----------
    grad_output : ndarray, shape (N, T, C), float
        Gradient of the loss with respect to the output.
    tokens : ndarray, shape (N, T), int32
        The tokens of the forward pass.
    grad_weight : ndarray, shape (V, C), float
        Where to write the result; overwritten, not added to.

    Returns
    -------
    ndarray, shape (V, C)
        `grad_weight`.

    Raises
    ------
    TypeError, ValueError
        If an argument has the wrong type or shape or is empty, or a token is out of range.

    Notes
    -----
    A sum over an unknown number of places, in their order: the same input gives the same bits everywhere.

    Examples
    --------
    >>> tokens, grad_output = np.array([[1, 1]], np.int32), np.array([[[2.0], [3.0]]])
    >>> embedding_backward(grad_output, tokens, np.empty((2, 1)))
    array([[0.],
           [5.]])
    """
    check_arrays({"grad_weight": grad_weight}, {"grad_output": grad_output, "tokens": tokens})
    grad_output = filled("grad_output", grad_output, ndim=3)
    if np.ndim(grad_weight) != 2:
        raise ValueError(f"grad_weight must have 2 axes, got shape {np.shape(grad_weight)}")
    result = np.zeros((len(grad_weight), grad_output.shape[2]))
    tokens = _tokens(tokens, len(grad_weight))
    if tokens.shape != grad_output.shape[:2]:
        raise ValueError(f"tokens must have shape {grad_output.shape[:2]}, got {tokens.shape}")
    np.add.at(result, tokens, grad_output)
    return store("grad_weight", grad_weight, result)


def gather_windows(text, indices, stride, x, y):
    """Pick windows of a text, and what follows each of their characters.

    ``x[i, t] = text[indices[i] * stride + t]`` and ``y[i * T + t] = text[indices[i] * stride + t + 1]``

    Parameters
    ----------
    text : ndarray, shape (L,), uint8
        A whole text, as it is stored: a number for each character.
    indices : ndarray, shape (n,), int64
        Which windows to pick, and in what order; the last one there is still has a character after it.
    stride : int
        How far from one window to the next.
    x : ndarray, shape (n, T), int32
        Where to write the windows.
    y : ndarray, shape (n * T,), int32
        Where to write the characters to be predicted, one for each in the windows.

    Returns
    -------
    x, y : ndarray

    Raises
    ------
    TypeError, ValueError
        If an argument has the wrong type or shape.
    IndexError
        If a window is outside the text; negative indices are refused as well.

    Examples
    --------
    >>> text = np.frombuffer(b"abcdef", np.uint8) - ord("a")
    >>> x, y = np.empty((2, 3), np.int32), np.empty(6, np.int32)
    >>> gather_windows(text, np.array([1, 0]), 2, x, y)
    (array([[2, 3, 4],
           [0, 1, 2]], dtype=int32), array([3, 4, 5, 1, 2, 3], dtype=int32))
    """
    check_arrays({"x": x, "y": y}, {"text": text, "indices": indices})
    for name, array, dtype, ndim in (
        ("text", text, np.uint8, 1),
        ("indices", indices, np.int64, 1),
        ("x", x, np.int32, 2),
        ("y", y, np.int32, 1),
    ):
        if not isinstance(array, np.ndarray) or array.dtype != dtype:
            got = kind_of(array)
            raise TypeError(f"{name} must have dtype {np.dtype(dtype)}, got {got}")
        if array.ndim != ndim:
            raise ValueError(f"{name} must have {ndim} axes, got shape {array.shape}")
    stride = integer(stride, "stride", minimum=1)
    if len(x) != len(indices) or y.shape != (x.size,):
        raise ValueError(
            f"x and y must have shapes ({len(indices)}, T) and ({len(indices)} * T,), got {x.shape} and "
            f"{y.shape}"
        )
    windows = max((len(text) - x.shape[1] - 1) // stride + 1, 0)
    for position, index in enumerate(indices):
        if not 0 <= index < windows:
            raise IndexError(f"indices must lie in 0..{windows - 1}, got {index} at position {position}")
    characters = indices[:, None] * stride + np.arange(x.shape[1])
    x[:], y[:] = text[characters], text[characters + 1].ravel()
    return x, y


def _tokens(tokens, kinds):
    """Return `tokens` once they are checked to be int32, (N, T), each between 0 and ``kinds - 1``."""
    tokens = np.asarray(tokens)
    if tokens.dtype != np.int32:
        raise TypeError(f"tokens must have dtype int32, got {tokens.dtype}")
    if tokens.ndim != 2 or tokens.size == 0:
        raise ValueError(f"tokens must have 2 axes and not be empty, got shape {tokens.shape}")
    for index, token in np.ndenumerate(tokens):
        if not 0 <= token < kinds:
            raise ValueError(f"tokens must lie in 0..{kinds - 1}, got {token} at index {index}")
    return tokens
