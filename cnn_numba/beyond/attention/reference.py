"""Attention by its definition, in float64: the other backends are compared with it.

Queries, keys and values have the shape (N, heads, T, head_dim), as in PyTorch. A head's rows are neighbours
in memory, so a tile of keys is contiguous. A dense layer computes (N, T, heads * head_dim): `split_heads` and
`merge_heads` convert between the two orders.

The T x T table of weights isn't stored for the backward pass. It gets one number for each row, the logarithm
of the sum that the softmax divides by, and computes the weights again: ``exp(score - log_sum_exp)``.
"""

import numpy as np

from cnn_numba.beyond.attention import checks
from cnn_numba.ops._reference import ANYTHING, put


def attention_forward(q, k, v, causal=False, out=None, log_sum_exp=None):
    """Average the values for each query, weighted by how well their keys match it.

    With ``scores[i, j] = sum over d of q[i, d] * k[j, d] / sqrt(head_dim)`` in each head::

        log_sum_exp[i] = log(sum over j of exp(scores[i, j]))
        out[i, d] = sum over j of exp(scores[i, j] - log_sum_exp[i]) * v[j, d]

    In causal attention a query sees only the keys up to its own position, ``j <= i``.

    Parameters
    ----------
    q : ndarray, shape (N, H, T_q, D), float
        The queries of each head.
    k, v : ndarray, shape (N, H, T_k, D), float
        Keys and values.
    causal : bool
        If True, T_q and T_k must be equal.
    out : ndarray, shape (N, H, T_q, D), float, optional
    log_sum_exp : ndarray, shape (N, H, T_q), float, optional
        The backward pass needs it.

    Raises
    ------
    ValueError
        If attention is causal and the numbers of queries and keys differ.

    Notes
    -----
    Vaswani et al., "Attention is all you need" (2017), section 3.2.1, and
    `torch.nn.functional.scaled_dot_product_attention`. Dao, Fu, Ermon, Rudra and Re, "FlashAttention" (2022),
    keep the same `log_sum_exp` for the backward pass.

    Examples
    --------
    Both keys match the query equally well, so the result is the mean of their values:

    >>> q, k = np.zeros((1, 1, 1, 2)), np.ones((1, 1, 2, 2))
    >>> out, log_sum_exp = attention_forward(q, k, v=np.array([[[[1.0, 0.0], [3.0, 8.0]]]]))
    >>> out.ravel(), log_sum_exp.ravel().round(4)
    (array([2., 4.]), array([0.6931]))
    """
    arrays = q, k, v, out, log_sum_exp
    q, k, v, *_ = checks.attention_forward(ANYTHING, *arrays, causal=causal)
    weights, logarithm = _softmax(_scores(q, k, causal))
    return put(out, weights @ v), put(log_sum_exp, logarithm)


def attention_backward(
    grad_output, q, k, v, out, log_sum_exp, causal=False, grad_q=None, grad_k=None, grad_v=None
):
    """Send the gradient of the loss back through attention.

    With ``weights[i, j] = exp(scores[i, j] - log_sum_exp[i])``, computed again::

        grad_v = weights.T @ grad_output
        grad_weights = grad_output @ v.T
        grad_scores = weights * (grad_weights - sum over d of grad_output * out)
        grad_q = grad_scores @ k / sqrt(D)
        grad_k = grad_scores.T @ q / sqrt(D)

    Parameters
    ----------
    grad_output : ndarray, shape (N, H, T_q, D), float
    q, k, v, causal
        As in the forward pass.
    out : ndarray, shape (N, H, T_q, D), float
    log_sum_exp : ndarray, shape (N, H, T_q), float
        Returned by the forward pass.
    grad_q : ndarray, shape (N, H, T_q, D), float, optional
    grad_k, grad_v : ndarray, shape (N, H, T_k, D), float, optional

    Notes
    -----
    A softmax sends back ``weights * (grad_weights - average of grad_weights, weighted by weights)``. That
    average is ``sum over d of grad_output * out``, which needs no sum over the keys (Dao et al. (2022),
    appendix B).

    Examples
    --------
    >>> q, k, v = np.zeros((1, 1, 1, 1)), np.ones((1, 1, 2, 1)), np.array([[[[1.0], [3.0]]]])
    >>> out, log_sum_exp = attention_forward(q, k, v)
    >>> grad_q, grad_k, grad_v = attention_backward(np.ones((1, 1, 1, 1)), q, k, v, out, log_sum_exp)
    >>> grad_q.item(), grad_k.ravel(), grad_v.ravel()
    (0.0, array([0., 0.]), array([0.5, 0.5]))
    """
    arrays = grad_output, q, k, v, out, log_sum_exp, grad_q, grad_k, grad_v
    grad_output, q, k, v, out, log_sum_exp, *_ = checks.attention_backward(ANYTHING, *arrays, causal=causal)
    weights = np.exp(_scores(q, k, causal) - log_sum_exp[..., None])
    average = (grad_output * out).sum(axis=-1, keepdims=True)
    grad_scores = weights * (grad_output @ _transposed(v) - average) / np.sqrt(q.shape[-1])
    return (
        put(grad_q, grad_scores @ k),
        put(grad_k, _transposed(grad_scores) @ q),
        put(grad_v, _transposed(weights) @ grad_output),
    )


def attention_weights(q, k, causal=False, out=None):
    """Compute the weight of each key's value for each query: the table that the other functions don't store.

    ``out[i, j] = exp(scores[i, j]) / sum over j of exp(scores[i, j])`` in each head, with the scores of
    `attention_forward`: each row adds up to 1.

    Parameters
    ----------
    q, k, causal
        As for `attention_forward`.
    out : ndarray, shape (N, H, T_q, T_k), float, optional

    Examples
    --------
    >>> attention_weights(np.zeros((1, 1, 2, 4)), np.ones((1, 1, 2, 4)), causal=True)[0, 0]
    array([[1. , 0. ],
           [0.5, 0.5]])
    """
    q, k, _ = checks.attention_weights(ANYTHING, q, k, out, causal=causal)
    return put(out, _softmax(_scores(q, k, causal))[0])


def split_heads(x, out=None):
    """Move each head's features together: from rows of features to heads of rows.

    ``out[p, n, h, t, d] = x[n, t, p, h, d]``

    Parameters
    ----------
    x : ndarray, shape (N, T, P, H, D), float
        P parts, such as query, key and value, of H heads for each of T positions.
    out : ndarray, shape (P, N, H, T, D), float, optional

    Notes
    -----
    The gradient with respect to x is `merge_heads` of the gradient with respect to the result.

    Examples
    --------
    >>> split_heads(np.arange(8.0).reshape(1, 2, 2, 1, 2)).reshape(2, 4)
    array([[0., 1., 4., 5.],
           [2., 3., 6., 7.]])
    """
    x, _ = checks.split_heads(ANYTHING, x, out)
    return put(out, np.ascontiguousarray(x.transpose(2, 0, 3, 1, 4)))


def merge_heads(x, out=None):
    """Move each position's features together again: the inverse of `split_heads`.

    ``out[n, t, p, h, d] = x[p, n, h, t, d]``

    Parameters
    ----------
    x : ndarray, shape (P, N, H, T, D), float
        As `split_heads` returns it.
    out : ndarray, shape (N, T, P, H, D), float, optional

    Examples
    --------
    >>> x = np.arange(8.0).reshape(1, 2, 2, 1, 2)
    >>> (merge_heads(split_heads(x)) == x).all().item()
    True
    """
    x, _ = checks.merge_heads(ANYTHING, x, out)
    return put(out, np.ascontiguousarray(x.transpose(1, 3, 0, 2, 4)))


def _scores(q, k, causal):
    """Return the scores, shape (N, H, T_q, T_k): minus infinity where a query doesn't see a key."""
    scores = q @ _transposed(k) / np.sqrt(q.shape[-1])
    if causal:
        scores[..., np.triu(np.ones(scores.shape[-2:], bool), k=1)] = -np.inf
    return scores


def _softmax(scores):
    """Return the softmax of each row, and the logarithm of the sum of its exponentials."""
    largest = scores.max(axis=-1, keepdims=True)
    exponentials = np.exp(scores - largest)
    total = exponentials.sum(axis=-1, keepdims=True)
    return exponentials / total, (largest + np.log(total))[..., 0]


def _transposed(x):
    """Exchange the last two axes."""
    return x.swapaxes(-1, -2)
