"""The LSTM as its definition says it, step after step, in float64: the oracle for the other backends.

Indices are named: n runs over the batch, t over the steps, i over the inputs, j and k over the hidden units.

The batch is the first axis of every array and the steps are the second, ``(N, T, features)``: what PyTorch
calls ``batch_first=True``. All other operations have the batch first too, an image (N, 1, H, W) is a sequence
of its rows without a copy, and a sample's sequence lies in one piece. There is no switch: an array that is
laid out otherwise has to be turned first, and cannot be read wrongly.
"""

import numpy as np

from cnn_numba.ops._reference import check_arrays, check_output, filled, real, store


def lstm_forward(
    x,
    weight_ih,
    weight_hh,
    bias_ih=None,
    bias_hh=None,
    h0=None,
    c0=None,
    out=None,
    h_n=None,
    c_n=None,
    cells=None,
    gates=None,
):
    """Run an LSTM over a batch of sequences.

    With h and c the hidden state and the cell after the step before, and * element by element::

        a = weight_ih @ x[n, t] + bias_ih + weight_hh @ h + bias_hh
        i, f, g, o = sigmoid(a[:H]), sigmoid(a[H:2H]), tanh(a[2H:3H]), sigmoid(a[3H:])
        c = f * c + i * g
        h = o * tanh(c)

    Parameters
    ----------
    x : ndarray, shape (N, T, I), float
        T steps of each sequence; nothing may be empty.
    weight_ih : ndarray, shape (4H, I), float
        What the gates make of the input; H rows each for the gates i (input), f (forget), g (the new content)
        and o (output).
    weight_hh : ndarray, shape (4H, H), float
        What they make of the hidden state of the step before.
    bias_ih, bias_hh : ndarray, shape (4H,), float, optional
        Both are added; None adds nothing.
    h0, c0 : ndarray, shape (N, H), float, optional
        Hidden state and cell before the first step; None stands for zeros.
    out : ndarray, shape (N, T, H), float, optional
        Where to write the hidden state after each step; None allocates float64, here and below.
    h_n, c_n : ndarray, shape (N, H), float, optional
        Where to write hidden state and cell after the last step.
    cells : ndarray, shape (N, T, H), float, optional
        Where to write the cell after each step, which the backward needs.
    gates : ndarray, shape (N, T, 4H), float, optional
        Where to write i, f, g and o of each step, which the backward needs.

    Returns
    -------
    out : ndarray, shape (N, T, H)
    h_n, c_n : ndarray, shape (N, H)
    cells : ndarray, shape (N, T, H)
    gates : ndarray, shape (N, T, 4H)

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong type, or the shapes do not belong together.

    Notes
    -----
    Hochreiter and Schmidhuber, "Long short-term memory" (1997), with the forget gate of Gers, Schmidhuber and
    Cummins, "Learning to forget" (2000). Weights, their order and both biases are those of `torch.nn.LSTM`.

    Examples
    --------
    With weights of zero every sigmoid is 1/2, and the tanh of the bias comes in:

    >>> bias = np.array([0.0, 0.0, 100.0, 0.0])
    >>> weights = np.zeros((4, 2)), np.zeros((4, 1))
    >>> out, h_n, c_n, cells, gates = lstm_forward(np.ones((1, 3, 2)), *weights, bias)
    >>> cells.ravel()
    array([0.5  , 0.75 , 0.875])
    >>> gates[0, 0]
    array([0.5, 0.5, 1. , 0.5])
    """
    check_arrays(
        {"out": out, "h_n": h_n, "c_n": c_n, "cells": cells, "gates": gates},
        {
            **{"x": x, "weight_ih": weight_ih, "weight_hh": weight_hh},
            **{"bias_ih": bias_ih, "bias_hh": bias_hh, "h0": h0, "c0": c0},
        },
    )
    x = filled("x", x, ndim=3)
    (batch_size, steps, input_size), hidden_size = x.shape, _hidden_size(weight_hh)
    weight_ih = real("weight_ih", weight_ih, (4 * hidden_size, input_size))
    weight_hh = real("weight_hh", weight_hh, (4 * hidden_size, hidden_size))
    bias = sum(
        _or_zeros(name, b, (4 * hidden_size,)) for name, b in (("bias_ih", bias_ih), ("bias_hh", bias_hh))
    )
    h, c = (_or_zeros(name, state, (batch_size, hidden_size)) for name, state in (("h0", h0), ("c0", c0)))
    all_h, all_c = np.empty((2, batch_size, steps, hidden_size))
    all_gates = np.empty((batch_size, steps, 4 * hidden_size))
    for t in range(steps):
        a = np.einsum("ni,ji->nj", x[:, t], weight_ih) + np.einsum("nk,jk->nj", h, weight_hh) + bias
        i, f, g, o = np.split(a, 4, axis=1)
        i, f, g, o = _sigmoid(i), _sigmoid(f), np.tanh(g), _sigmoid(o)
        c = f * c + i * g
        h = o * np.tanh(c)
        all_h[:, t], all_c[:, t], all_gates[:, t] = h, c, np.concatenate([i, f, g, o], axis=1)
    results = {"out": (out, all_h), "h_n": (h_n, h), "c_n": (c_n, c), "cells": (cells, all_c)}
    return _stored(results | {"gates": (gates, all_gates)})


def lstm_backward(
    grad_output,
    weight_hh,
    cells,
    gates,
    c0=None,
    grad_h_n=None,
    grad_c_n=None,
    grad_gates=None,
    grad_h0=None,
    grad_c0=None,
):
    """Send the gradient of the loss back through time, from the last step to the first.

    What comes out is the gradient with respect to ``a``, that is before the sigmoids and tanh; those of
    input, weights and biases are products of it, over all steps at once (`lstm_backward_input`,
    `lstm_backward_weight`, `lstm_backward_bias`). From the last step to the first, with c_before the cell
    after the step before, ``dh = grad_h_n`` and ``dc = grad_c_n`` to begin with::

        dh = dh + grad_output[n, t]
        dc = dc + dh * o * (1 - tanh(c) ** 2)
        da = [dc * g * i * (1 - i), dc * c_before * f * (1 - f), dc * i * (1 - g ** 2),
              dh * tanh(c) * o * (1 - o)]
        dc = dc * f
        dh = weight_hh.T @ da

    Parameters
    ----------
    grad_output : ndarray, shape (N, T, H), float, or None
        Gradient of the loss with respect to `out`; None if it only depends on the last states.
    weight_hh : ndarray, shape (4H, H), float
        The weights of the forward pass.
    cells : ndarray, shape (N, T, H), float
    gates : ndarray, shape (N, T, 4H), float
        What `lstm_forward` wrote there.
    c0 : ndarray, shape (N, H), float, optional
        The cell before the first step, as `lstm_forward` was given it.
    grad_h_n, grad_c_n : ndarray, shape (N, H), float, optional
        Gradient with respect to `h_n` and `c_n`; None stands for zeros.
    grad_gates : ndarray, shape (N, T, 4H), float, optional
        Where to write the gradient with respect to a; None allocates float64, here and below.
    grad_h0, grad_c0 : ndarray, shape (N, H), float, optional
        Where to write the gradient with respect to `h0` and `c0`.

    Returns
    -------
    grad_gates : ndarray, shape (N, T, 4H)
    grad_h0, grad_c0 : ndarray, shape (N, H)

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong type, or the shapes do not belong together.

    Notes
    -----
    Werbos, "Backpropagation through time" (1990).

    Examples
    --------
    One step: all gates 1/2 but g = 1, and so a cell of 1/2.

    >>> gates, cells = np.array([[[0.5, 0.5, 1.0, 0.5]]]), np.array([[[0.5]]])
    >>> grad_gates, grad_h0, grad_c0 = lstm_backward(np.ones((1, 1, 1)), np.zeros((4, 1)), cells, gates)
    >>> grad_gates.round(4), grad_c0.round(4)
    (array([[[0.0983, 0.    , 0.    , 0.1155]]]), array([[0.1966]]))
    """
    check_arrays(
        {"grad_gates": grad_gates, "grad_h0": grad_h0, "grad_c0": grad_c0},
        {
            **{"grad_output": grad_output, "weight_hh": weight_hh, "cells": cells, "gates": gates, "c0": c0},
            **{"grad_h_n": grad_h_n, "grad_c_n": grad_c_n},
        },
    )
    cells = filled("cells", cells, ndim=3)
    batch_size, steps, hidden_size = cells.shape
    gates = real("gates", gates, (batch_size, steps, 4 * hidden_size))
    weight_hh = real("weight_hh", weight_hh, (4 * hidden_size, hidden_size))
    grad_output = _or_zeros("grad_output", grad_output, cells.shape)
    state = batch_size, hidden_size
    c_before = _shifted(cells, _or_zeros("c0", c0, state))
    dh, dc = _or_zeros("grad_h_n", grad_h_n, state), _or_zeros("grad_c_n", grad_c_n, state)
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
    return _stored({"grad_gates": (grad_gates, result), "grad_h0": (grad_h0, dh), "grad_c0": (grad_c0, dc)})


def lstm_backward_input(grad_gates, weight_ih, grad_input=None):
    """Send the gradient of the loss from the gates of an LSTM back to its inputs.

    ``grad_input[n, t, i] = sum over j of grad_gates[n, t, j] * weight_ih[j, i]``

    Parameters
    ----------
    grad_gates : ndarray, shape (N, T, 4H), float
        What `lstm_backward` returns.
    weight_ih : ndarray, shape (4H, I), float
        The weights of the forward pass.
    grad_input : ndarray, shape (N, T, I), float, optional
        Where to write the result; None allocates float64.

    Returns
    -------
    ndarray, shape (N, T, I)
        `grad_input`.

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong type, or the shapes do not belong together.

    Examples
    --------
    >>> lstm_backward_input(np.array([[[1.0, 10.0, 0.0, 0.0]]]), np.array([[1.0], [2.0], [3.0], [4.0]]))
    array([[[21.]]])
    """
    check_arrays({"grad_input": grad_input}, {"grad_gates": grad_gates, "weight_ih": weight_ih})
    grad_gates, _ = _gate_gradients(grad_gates)
    weight_ih = real("weight_ih", weight_ih, (grad_gates.shape[2], None))
    return store("grad_input", grad_input, np.einsum("ntj,ji->nti", grad_gates, weight_ih))


def lstm_backward_weight(grad_gates, x, out, h0=None, grad_weight_ih=None, grad_weight_hh=None):
    """Compute the gradients of the loss with respect to both weights of an LSTM.

    Every step uses the same weights, so the steps are summed over like samples; before[n, t] is the hidden
    state that step t began with, ``out[n, t - 1]``, or ``h0[n]`` for the first::

        grad_weight_ih[j, i] = sum over n, t of grad_gates[n, t, j] * x[n, t, i]
        grad_weight_hh[j, k] = sum over n, t of grad_gates[n, t, j] * before[n, t, k]

    Parameters
    ----------
    grad_gates : ndarray, shape (N, T, 4H), float
        What `lstm_backward` returns.
    x : ndarray, shape (N, T, I), float
    out : ndarray, shape (N, T, H), float
        Input and output of `lstm_forward`.
    h0 : ndarray, shape (N, H), float, optional
        As `lstm_forward` was given it.
    grad_weight_ih : ndarray, shape (4H, I), float, optional
    grad_weight_hh : ndarray, shape (4H, H), float, optional
        Where to write the results; None allocates float64. Overwritten, not added to.

    Returns
    -------
    grad_weight_ih : ndarray, shape (4H, I)
    grad_weight_hh : ndarray, shape (4H, H)

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong type, or the shapes do not belong together.

    Examples
    --------
    >>> grad_gates = np.array([[[1.0, 0.0, 0.0, 0.0], [10.0, 0.0, 0.0, 0.0]]])
    >>> x, out = np.array([[[2.0], [3.0]]]), np.array([[[5.0], [7.0]]])
    >>> grad_ih, grad_hh = lstm_backward_weight(grad_gates, x, out)
    >>> grad_ih[0], grad_hh[0]
    (array([32.]), array([50.]))
    """
    check_arrays(
        {"grad_weight_ih": grad_weight_ih, "grad_weight_hh": grad_weight_hh},
        {"grad_gates": grad_gates, "x": x, "out": out, "h0": h0},
    )
    grad_gates, hidden_size = _gate_gradients(grad_gates)
    batch_size, steps, _ = grad_gates.shape
    x = real("x", x, (batch_size, steps, None))
    out = real("out", out, (batch_size, steps, hidden_size))
    before = _shifted(out, _or_zeros("h0", h0, (batch_size, hidden_size)))
    results = {
        "grad_weight_ih": (grad_weight_ih, np.einsum("ntj,nti->ji", grad_gates, x)),
        "grad_weight_hh": (grad_weight_hh, np.einsum("ntj,ntk->jk", grad_gates, before)),
    }
    return _stored(results)


def lstm_backward_bias(grad_gates, grad_bias_ih=None, grad_bias_hh=None):
    """Compute the gradients of the loss with respect to both biases of an LSTM, which are the same.

    ``grad_bias_ih[j] = grad_bias_hh[j] = sum over n, t of grad_gates[n, t, j]``

    Parameters
    ----------
    grad_gates : ndarray, shape (N, T, 4H), float
        What `lstm_backward` returns.
    grad_bias_ih, grad_bias_hh : ndarray, shape (4H,), float, optional
        Where to write the results; None allocates float64.

    Returns
    -------
    grad_bias_ih, grad_bias_hh : ndarray, shape (4H,)

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong type, or the shapes do not belong together.

    Examples
    --------
    >>> grad_bias_ih, grad_bias_hh = lstm_backward_bias(np.ones((2, 3, 4)))
    >>> grad_bias_ih
    array([6., 6., 6., 6.])
    """
    check_arrays({"grad_bias_ih": grad_bias_ih, "grad_bias_hh": grad_bias_hh}, {"grad_gates": grad_gates})
    total = _gate_gradients(grad_gates)[0].sum(axis=(0, 1))
    return _stored({"grad_bias_ih": (grad_bias_ih, total), "grad_bias_hh": (grad_bias_hh, total.copy())})


def _sigmoid(x):
    # exp of a negative number cannot overflow.
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1) / (1 + small)


def _hidden_size(weight_hh):
    """Return H, of weights that are 4H x H."""
    rows, columns = filled("weight_hh", weight_hh, ndim=2).shape
    if rows != 4 * columns:
        raise ValueError(f"weight_hh must have shape (4H, H), got {(rows, columns)}")
    return columns


def _gate_gradients(grad_gates):
    """Return the gradients of the gates, checked, and H."""
    grad_gates = filled("grad_gates", grad_gates, ndim=3)
    if grad_gates.shape[2] % 4:
        raise ValueError(f"grad_gates must have shape (N, T, 4H), got {grad_gates.shape}")
    return grad_gates, grad_gates.shape[2] // 4


def _or_zeros(name, array, shape):
    return np.zeros(shape) if array is None else real(name, array, shape)


def _shifted(states, first):
    """Return what each step began with: `first`, then all states but the last."""
    return np.concatenate([first[:, None], states[:, :-1]], axis=1)


def _stored(results):
    """Write each result into its output, once it is known that all of them can be."""
    for name, (out, result) in results.items():
        check_output(name, out, result)
    return tuple(store(name, out, result) for name, (out, result) in results.items())
