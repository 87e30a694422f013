import numba
import numpy as np
import pytest
import torch
from helpers import assert_close, backends, poisoned, random_float32, signatures
from hypothesis import given, settings, strategies as st
from torch.nn import functional

from cnn_numba.beyond.attention import cpu, gpu, reference
from cnn_numba.nn.gradcheck import gradcheck

thorough = settings(deadline=None, derandomize=True, max_examples=20)

# (N, heads, queries, keys, head_dim, causal): one of everything; tails of six rows, of tiles of 32 keys and
# of vectors of 16 features; several tiles; several blocks of queries on the CPU; more keys than queries and
# fewer
SHAPES = [
    (1, 1, 1, 1, 1, False),
    (2, 3, 6, 32, 16, False),
    (1, 2, 7, 33, 17, False),
    (2, 1, 65, 5, 32, False),
    (1, 1, 1, 70, 64, False),
    (3, 2, 64, 64, 16, True),
    (1, 2, 71, 71, 5, True),
    (1, 1, 130, 130, 48, True),
    (1, 1, 129, 70, 16, False),
    (2, 1, 257, 257, 8, True),
]
each_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)


def inputs(batch, heads, queries, keys, head_dim):
    """Return q, k, v and a gradient to send back; some scores are large."""
    rng = np.random.default_rng(queries * 1000 + keys)
    q, grad_output = (random_float32(rng, batch, heads, queries, head_dim) for _ in range(2))
    k, v = (random_float32(rng, batch, heads, keys, head_dim) for _ in range(2))
    return q * np.float32(2), k * np.float32(2), v, grad_output


def torchs(q, k, v, grad_output, causal):
    """Return PyTorch's results in float64: output, log-sum-exp and the three gradients."""
    leaves = [torch.from_numpy(array).double().requires_grad_() for array in (q, k, v)]
    out = functional.scaled_dot_product_attention(*leaves, is_causal=causal)
    gradients = torch.autograd.grad(out, leaves, torch.from_numpy(grad_output).double())
    scores = leaves[0] @ leaves[1].transpose(-1, -2) / np.sqrt(q.shape[-1])
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -torch.inf)
    return [array.detach().numpy() for array in (out, scores.logsumexp(-1), *gradients)]


def check_against_torch(ops, batch, heads, queries, keys, head_dim, causal):
    """Compare forward and backward with PyTorch in float64; outputs are poisoned and must be returned."""
    q, k, v, grad_output = inputs(batch, heads, queries, keys, head_dim)
    expected = torchs(q, k, v, grad_output, causal)
    outputs = poisoned(q.shape), poisoned(q.shape[:3])
    results = ops.attention_forward(q, k, v, causal, *outputs)
    assert all(result is output for result, output in zip(results, outputs, strict=True))
    gradients = [poisoned(array.shape) for array in (q, k, v)]
    results = ops.attention_backward(grad_output, q, k, v, *outputs, causal, *gradients)
    assert all(result is output for result, output in zip(results, gradients, strict=True))
    for received, wanted in zip((*outputs, *gradients), expected, strict=True):
        assert_close(received, wanted)


@pytest.mark.exhaustive_unless(
    lambda shape: shape in (SHAPES[2], SHAPES[5], *SHAPES[-2:]),
    "rows and keys with a tail; whole tiles, causal; several blocks of queries on the CPU",
)
@backends("attention", gpu=True)
@each_shape
def test_against_torch(ops, shape):
    check_against_torch(ops, *shape)


def test_working_space_serves_any_number_of_threads():
    q, k, v, grad_output = inputs(2, 3, 130, 70, 8)

    def results():
        out, log_sum_exp = cpu.attention_forward(q, k, v, scratch=scratch)
        return out, *cpu.attention_backward(grad_output, q, k, v, out, log_sum_exp, scratch=scratch)

    before = numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        scratch = cpu.attention_scratch(q.shape, k.shape)
        expected = results()
        numba.set_num_threads(before)
        for received, wanted in zip(results(), expected, strict=True):
            assert_close(received, wanted)
    finally:
        numba.set_num_threads(before)


@backends("attention")
@thorough
@given(sizes=st.tuples(*[st.integers(1, 9)] * 4), head_dim=st.integers(1, 40), causal=st.booleans())
def test_against_torch_at_any_size(ops, sizes, head_dim, causal):
    batch, heads, queries, keys = sizes
    check_against_torch(ops, batch, heads, queries, queries if causal else keys, head_dim, causal)


@pytest.mark.parametrize("causal", [False, True])
def test_reference_gradients(causal):
    q, k, v, grad_output = (array.astype(np.float64) for array in inputs(2, 2, 3, 3 if causal else 4, 3))
    out, log_sum_exp = reference.attention_forward(q, k, v, causal)
    gradients = reference.attention_backward(grad_output, q, k, v, out, log_sum_exp, causal)
    for array, gradient, name in zip((q, k, v), gradients, "qkv", strict=True):
        gradcheck(
            lambda _: reference.attention_forward(q, k, v, causal)[0], array, gradient, grad_output, name=name
        )


@backends("attention", gpu=True)
def test_by_hand(ops):
    """Scores log 3 and 0: the weights are 3/4 and 1/4; causal, the first query sees the first key alone."""
    q = np.array([[[[1, 0], [1, 0]]]], np.float32)
    k = np.array([[[[np.sqrt(2) * np.log(3), 5], [0, -5]]]], np.float32)
    v = np.array([[[[4, 0], [0, 8]]]], np.float32)
    out, log_sum_exp = ops.attention_forward(q, k, v)
    np.testing.assert_allclose(out[0, 0], [[3, 2], [3, 2]], rtol=1e-6)
    np.testing.assert_allclose(log_sum_exp[0, 0], np.log([4, 4]), rtol=1e-6)
    out, log_sum_exp = ops.attention_forward(q, k, v, causal=True)
    np.testing.assert_allclose(out[0, 0], [[4, 0], [3, 2]], rtol=1e-6)
    np.testing.assert_allclose(log_sum_exp[0, 0], np.log([3, 4]), rtol=1e-6)


@backends("attention", gpu=True)
def test_scores_of_any_size_do_not_overflow(ops):
    """The largest score comes last, far above what exp takes, and once far below."""
    k = np.array([[[[-300], [0], [300]]]], np.float32)
    v = np.array([[[[1], [2], [3]]]], np.float32)
    for sign, value in ((1, 3), (-1, 1)):
        q = np.full((1, 1, 2, 1), sign, np.float32)
        out, log_sum_exp = ops.attention_forward(q, k, v)
        np.testing.assert_array_equal(out.ravel(), [value, value])
        np.testing.assert_array_equal(log_sum_exp.ravel(), [300, 300])


@backends("attention", gpu=True)
def test_nan_appears_where_it_was_attended_to(ops):
    q, k, v, _ = inputs(1, 1, 40, 40, 4)
    q[0, 0, 3, 0] = np.nan
    out, log_sum_exp = ops.attention_forward(q, k, v)
    assert np.isnan(out[0, 0, 3]).all()
    assert np.isnan(log_sum_exp[0, 0, 3])
    assert np.isfinite(np.delete(out, 3, axis=2)).all()


@backends("attention", gpu=True)
def test_the_past_does_not_see_the_future(ops):
    q, k, v, _ = inputs(1, 2, 70, 70, 8)
    before, _ = ops.attention_forward(q, k, v, causal=True)
    k[:, :, 40:], v[:, :, 40:] = 7, -7
    after, _ = ops.attention_forward(q, k, v, causal=True)
    np.testing.assert_array_equal(before[:, :, :40], after[:, :, :40])
    assert (before[:, :, 40:] != after[:, :, 40:]).all()


def test_weights_match_the_definition(rng):
    q, k, v, _ = inputs(2, 2, 5, 7, 3)
    weights = reference.attention_weights(q, k)
    np.testing.assert_allclose(weights.sum(axis=-1), 1)
    assert_close(weights @ v, reference.attention_forward(q, k, v)[0])
    causal = reference.attention_weights(q, q, causal=True)
    assert (causal[..., np.triu(np.ones((5, 5), bool), k=1)] == 0).all()
    assert_close(causal @ q, reference.attention_forward(q, q, q, causal=True)[0])


@backends("attention", gpu=True)
@pytest.mark.parametrize("shape", [(1, 1, 1, 1, 1), (2, 5, 3, 4, 7), (3, 40, 1, 2, 16)], ids=str)
def test_heads_are_split_and_merged(ops, rng, shape):
    x = random_float32(rng, *shape)
    out = poisoned(tuple(shape[axis] for axis in (2, 0, 3, 1, 4)))
    assert ops.split_heads(x, out=out) is out
    np.testing.assert_array_equal(out, x.transpose(2, 0, 3, 1, 4))
    back = poisoned(shape)
    assert ops.merge_heads(out, out=back) is back
    np.testing.assert_array_equal(back, x)


def test_backends_have_the_same_functions():
    assert signatures(reference).keys() - signatures(cpu).keys() == {"attention_weights"}
    for backend in (cpu, gpu):
        assert all(signatures(backend)[name] == signatures(reference)[name] for name in signatures(cpu))


def test_scratch_may_be_for_more_keys_but_not_for_fewer():
    q, k, v, grad_output = inputs(1, 2, 7, 40, 16)
    outputs = cpu.attention_forward(q, k, v)
    scratch = cpu.attention_scratch((3, 9, 100, 16), (3, 9, 100, 16))
    received = (
        *cpu.attention_forward(q, k, v, scratch=scratch),
        *cpu.attention_backward(grad_output, q, k, v, *outputs, scratch=scratch),
    )
    expected = *outputs, *cpu.attention_backward(grad_output, q, k, v, *outputs)
    for ours, wanted in zip(received, expected, strict=True):
        np.testing.assert_array_equal(ours, wanted)
    small = cpu.attention_scratch((1, 2, 7, 16), (1, 2, 32, 16))
    with pytest.raises(
        ValueError, match=r"scratch\.tables must have at least .*: make it with attention_scr"
    ):
        cpu.attention_forward(q, k, v, scratch=small)
    with pytest.raises(TypeError, match="scratch must come from attention_scratch, got tuple"):
        cpu.attention_forward(q, k, v, scratch=tuple(small))


WRONG = [
    ({"k": (2, 1, 5, 3)}, r"k must have shape \(2, 3, T_k, 4\), got \(2, 1, 5, 3\): q has H = 3 and D = 4"),
    ({"v": (2, 3, 6, 4)}, r"v must have shape \(2, 3, 5, 4\), got \(2, 3, 6, 4\): k has T_k = 5"),
    ({"q": (2, 3, 5)}, "q must have "),
    ({"q": (2, 3, 0, 4)}, r"q must .*\(2, 3, 0, 4\)"),
    ({"out": (2, 3, 5, 3)}, r"out must have shape \(2, 3, 5, 4\), got \(2, 3, 5, 3\)"),
    ({"log_sum_exp": (2, 3, 4)}, r"log_sum_exp must have shape \(2, 3, 5\), got \(2, 3, 4\)"),
    ({"k": (2, 3, 6, 4), "v": (2, 3, 6, 4), "causal": True}, r"as many queries as keys, got q with shape "),
]


@backends("attention", gpu=True)
@pytest.mark.parametrize(("change", "match"), WRONG, ids=str)
def test_wrong_arguments_raise(ops, change, match):
    arguments = {name: np.ones((2, 3, 5, 4), np.float32) for name in "qkv"}
    for name, value in change.items():
        arguments[name] = value if name == "causal" else poisoned(value)
    with pytest.raises(ValueError, match=match):
        ops.attention_forward(**arguments)
