"""The LSTM by its definition, step by step, in float64: the other backends are compared with it.

Indices: n runs over the batch, t over the steps, i over the inputs, j and k over the hidden units.

In every array the batch is the first axis and the steps are the second, ``(N, T, features)``: PyTorch's
``batch_first=True``. So an image (N, 1, H, W) is a sequence of its rows without a copy. Transpose arrays with
the steps first.
"""

import numpy as np

from cnn_numba.beyond.recurrent import checks
from cnn_numba.ops._reference import ANYTHING, put
from cnn_numba.ops.activation.reference import sigmoid_forward


def lstm_forward(
    x, weight_ih, weight_hh, bias_ih=None, bias_hh=None, h0=None, c0=None, out=None, h_n=None, c_n=None,
    cells=None, gates=None,
):  # fmt: skip
    """Run an LSTM over a batch of sequences.

    With h and c the hidden state and the cell after the previous step, and * element by element::

        a = weight_ih @ x[n, t] + bias_ih + weight_hh @ h + bias_hh
        i, f, g, o = sigmoid(a[:H]), sigmoid(a[H:2H]), tanh(a[2H:3H]), sigmoid(a[3H:])
        c = f * c + i * g
        h = o * tanh(c)

    Parameters
    ----------
    x : ndarray, shape (N, T, I), float
        T steps of each sequence.
    weight_ih : ndarray, shape (4H, I), float
        The weights of the input: H rows each for the gates i (input), f (forget), g (content), o (output).
    weight_hh : ndarray, shape (4H, H), float
        The weights of the hidden state after the previous step.
    bias_ih, bias_hh : ndarray, shape (4H,), float, optional
        Both are added; None adds nothing.
    h0, c0 : ndarray, shape (N, H), float, optional
        Hidden state and cell before the first step; None stands for zeros.
    out : ndarray, shape (N, T, H), float, optional
        The hidden state after each step.
    h_n, c_n : ndarray, shape (N, H), float, optional
        Hidden state and cell after the last step.
    cells : ndarray, shape (N, T, H), float, optional
        The cell after each step, for the backward pass.
    gates : ndarray, shape (N, T, 4H), float, optional
        The gates i, f, g and o of each step, for the backward pass.

    Notes
    -----
    Hochreiter and Schmidhuber, "Long short-term memory" (1997), with the forget gate of Gers, Schmidhuber and
    Cummins, "Learning to forget" (2000). Weights, their order and both biases are those of `torch.nn.LSTM`.

    Examples
    --------
    With zero weights every sigmoid is 1/2, and only g's bias counts:

    >>> bias = np.array([0.0, 0.0, 100.0, 0.0])
    >>> weights = np.zeros((4, 2)), np.zeros((4, 1))
    >>> out, h_n, c_n, cells, gates = lstm_forward(np.ones((1, 3, 2)), *weights, bias)
    >>> cells.ravel()
    array([0.5  , 0.75 , 0.875])
    >>> gates[0, 0]
    array([0.5, 0.5, 1. , 0.5])
    """
    arrays = x, weight_ih, weight_hh, bias_ih, bias_hh, h0, c0, out, h_n, c_n, cells, gates
    x, weight_ih, weight_hh, bias_ih, bias_hh, h0, c0, *_ = checks.lstm_forward(ANYTHING, *arrays)
    (batch_size, steps, _), (rows, hidden_size) = x.shape, weight_hh.shape
    bias = _or_zeros(bias_ih, (rows,)) + _or_zeros(bias_hh, (rows,))
    h, c = _or_zeros(h0, (batch_size, hidden_size)), _or_zeros(c0, (batch_size, hidden_size))
    all_h, all_c = np.empty((2, batch_size, steps, hidden_size))
    all_gates = np.empty((batch_size, steps, rows))
    for t in range(steps):
        a = np.einsum("ni,ji->nj", x[:, t], weight_ih) + np.einsum("nk,jk->nj", h, weight_hh) + bias
        i, f, g, o = np.split(a, 4, axis=1)
        i, f, g, o = sigmoid_forward(i), sigmoid_forward(f), np.tanh(g), sigmoid_forward(o)
        c = f * c + i * g
        h = o * np.tanh(c)
        all_h[:, t], all_c[:, t], all_gates[:, t] = h, c, np.concatenate([i, f, g, o], axis=1)
    return put(out, all_h), put(h_n, h), put(c_n, c), put(cells, all_c), put(gates, all_gates)


def lstm_backward(
    grad_output, weight_hh, cells, gates, c0=None, grad_h_n=None, grad_c_n=None, grad_gates=None,
    grad_h0=None, grad_c0=None,
):  # fmt: skip
    """Send the gradient of the loss back through time, from the last step to the first.

    The result is the gradient with respect to ``a``, the gates before sigmoid and tanh. The other gradients
    follow from it, over all steps at once: `lstm_backward_weight`, `linear_backward_input` and
    `linear_backward_bias`, each step being a row. With c_before the cell after the previous step, and
    ``dh = grad_h_n`` and ``dc = grad_c_n`` at the start, each step computes::

        dh = dh + grad_output[n, t]
        dc = dc + dh * o * (1 - tanh(c) ** 2)
        da = [dc * g * i * (1 - i), dc * c_before * f * (1 - f), dc * i * (1 - g ** 2),
              dh * tanh(c) * o * (1 - o)]
        dc = dc * f
        dh = weight_hh.T @ da

    Parameters
    ----------
    grad_output : ndarray, shape (N, T, H), float, or None
        Gradient of the loss with respect to `out`; None if the loss depends on the last states only.
    weight_hh, c0
        As in `lstm_forward`.
    cells : ndarray, shape (N, T, H), float
    gates : ndarray, shape (N, T, 4H), float
        Returned by `lstm_forward`.
    grad_h_n, grad_c_n : ndarray, shape (N, H), float, optional
        Gradient with respect to `h_n` and `c_n`; None stands for zeros.
    grad_gates : ndarray, shape (N, T, 4H), float, optional
        Gradient with respect to a.
    grad_h0, grad_c0 : ndarray, shape (N, H), float, optional

    Notes
    -----
    Werbos, "Backpropagation through time" (1990).

    Examples
    --------
    One step, with g = 1 and all other gates 1/2, so that the cell is 1/2:

    >>> gates, cells = np.array([[[0.5, 0.5, 1.0, 0.5]]]), np.array([[[0.5]]])
    >>> grad_gates, grad_h0, grad_c0 = lstm_backward(np.ones((1, 1, 1)), np.zeros((4, 1)), cells, gates)
    >>> grad_gates.round(4), grad_c0.round(4)
    (array([[[0.0983, 0.    , 0.    , 0.1155]]]), array([[0.1966]]))
    """
    inputs = grad_output, weight_hh, cells, gates, c0, grad_h_n, grad_c_n
    arrays = *inputs, grad_gates, grad_h0, grad_c0
    grad_output, weight_hh, cells, gates, c0, grad_h_n, grad_c_n, *_ = checks.lstm_backward(ANYTHING, *arrays)
    batch_size, steps, hidden_size = cells.shape
    state = batch_size, hidden_size
    grad_output, c_before = _or_zeros(grad_output, cells.shape), _shifted(cells, _or_zeros(c0, state))
    dh, dc = _or_zeros(grad_h_n, state), _or_zeros(grad_c_n, state)
    result = np.empty(gates.shape)
    for t in reversed(range(steps)):
        i, f, g, o = np.split(gates[:, t], 4, axis=1)
        squashed = np.tanh(cells[:, t])
        dh = dh + grad_output[:, t]
        dc = dc + dh * o * (1 - squashed**2)
        di, df, dg, do = dc * g, dc * c_before[:, t], dc * i, dh * squashed
        da = [di * i * (1 - i), df * f * (1 - f), dg * (1 - g**2), do * o * (1 - o)]
        result[:, t] = np.concatenate(da, axis=1)
        dc = dc * f
        dh = np.einsum("nj,jk->nk", result[:, t], weight_hh)
    return put(grad_gates, result), put(grad_h0, dh), put(grad_c0, dc)


def lstm_backward_weight(grad_gates, x, out, h0=None, grad_weight_ih=None, grad_weight_hh=None):
    """Compute the gradients of the loss with respect to both weights of an LSTM.

    Every step uses the same weights, so the steps add up like samples. ``before[n, t]`` is the hidden state
    before step t: ``out[n, t - 1]``, or ``h0[n]`` for the first step::

        grad_weight_ih[j, i] = sum over n, t of grad_gates[n, t, j] * x[n, t, i]
        grad_weight_hh[j, k] = sum over n, t of grad_gates[n, t, j] * before[n, t, k]

    Parameters
    ----------
    grad_gates : ndarray, shape (N, T, 4H), float
        Returned by `lstm_backward`.
    x : ndarray, shape (N, T, I), float
    out : ndarray, shape (N, T, H), float
        Input and output of `lstm_forward`.
    h0 : ndarray, shape (N, H), float, optional
        As in `lstm_forward`.
    grad_weight_ih : ndarray, shape (4H, I), float, optional
    grad_weight_hh : ndarray, shape (4H, H), float, optional
        Overwritten, not added to.

    Examples
    --------
    >>> grad_gates = np.array([[[1.0, 0.0, 0.0, 0.0], [10.0, 0.0, 0.0, 0.0]]])
    >>> x, out = np.array([[[2.0], [3.0]]]), np.array([[[5.0], [7.0]]])
    >>> grad_ih, grad_hh = lstm_backward_weight(grad_gates, x, out)
    >>> grad_ih[0], grad_hh[0]
    (array([32.]), array([50.]))
    """
    arrays = grad_gates, x, out, h0, grad_weight_ih, grad_weight_hh
    grad_gates, x, out, h0, *_ = checks.lstm_backward_weight(ANYTHING, *arrays)
    before = _shifted(out, _or_zeros(h0, (out.shape[0], out.shape[2])))
    return (
        put(grad_weight_ih, np.einsum("ntj,nti->ji", grad_gates, x)),
        put(grad_weight_hh, np.einsum("ntj,ntk->jk", grad_gates, before)),
    )


def _or_zeros(array, shape):
    return np.zeros(shape) if array is None else array


def _shifted(states, first):
    """Return the state before each step: `first`, then all states but the last."""
    return np.concatenate([first[:, None], states[:, :-1]], axis=1)
