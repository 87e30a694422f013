"""The layers of a Transformer, alone and in a model, against PyTorch and central differences."""

import numpy as np
import pytest
import torch
from helpers import random_float32
from torch.nn import functional

from benchmarks.pytorch import pytorch_twin
from cnn_numba.beyond.attention.layers import MultiHeadAttention
from cnn_numba.beyond.embedding.layers import Embedding
from cnn_numba.beyond.models import text_transformer
from cnn_numba.beyond.norm.layers import LayerNorm
from cnn_numba.beyond.text.data import TEXT, VOCABULARY
from cnn_numba.beyond.text.generation import generate
from cnn_numba.beyond.transformer import Chain, FlattenTokens, Residual, TokenLinear, TransformerBlock
from cnn_numba.data import load
from cnn_numba.nn.gradcheck import gradcheck
from cnn_numba.nn.layers import GELU, CrossEntropyLoss, Linear, ReLU
from cnn_numba.nn.models import Sequential
from cnn_numba.train.optim import Adam
from cnn_numba.train.step import steps_of, train_step

KINDS, LENGTH = 7, 5


def small(device="cpu", batch_size=3, features=8):
    """A Transformer of each kind of layer, on five tokens."""
    layers = [
        Embedding(KINDS, features, LENGTH),
        TransformerBlock(features, heads=2),
        Chain([TokenLinear(features, 6), ReLU(), TokenLinear(6, features)]),
        Residual([MultiHeadAttention(features, heads=1, causal=False)]),
        LayerNorm(features),
        FlattenTokens(),
        Linear(features, KINDS),
    ]
    return Sequential(layers, (LENGTH,), batch_size, device, seed=1)


def batch(rng, samples):
    return tuple(
        rng.integers(0, KINDS, shape).astype(np.int32) for shape in ((samples, LENGTH), samples * LENGTH)
    )


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize("samples", [3, 2])
def test_every_layer_agrees_with_autograd(device, samples, rng):
    model = small(device)
    twin, loss = pytorch_twin(model), CrossEntropyLoss(*model.shapes[-1], device)
    x, labels = batch(rng, samples)
    model.gradients[:] = np.nan
    logits = model.forward(x, training=True)
    loss.forward(logits, labels)
    model.backward(loss.backward())
    expected = twin(torch.from_numpy(x))
    functional.cross_entropy(expected, torch.from_numpy(labels).long()).backward()
    tolerance = dict(rtol=1e-9, atol=1e-11) if device == "reference" else dict(rtol=2e-4, atol=2e-6)
    np.testing.assert_allclose(logits, expected.detach().numpy(), **tolerance)
    gradients = np.concatenate([parameter.grad.numpy().ravel() for parameter in twin.parameters()])
    np.testing.assert_allclose(model.gradients, gradients, **tolerance)


def test_every_gradient_of_a_whole_model(rng):
    model = small("reference", features=4)
    x, labels = batch(rng, 2)
    loss = CrossEntropyLoss(*model.shapes[-1], "reference")

    def mean_loss(parameters):
        model.parameters[:] = parameters
        return loss.forward(model.forward(x, training=True), labels).mean()

    parameters = model.parameters.copy()
    mean_loss(parameters)
    model.backward(loss.backward())
    gradcheck(mean_loss, parameters, model.gradients.copy(), name="parameters", rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("causal", [True, False])
def test_attention_equals_torch_multihead_attention(rng, causal):
    layer = MultiHeadAttention(12, heads=3, causal=causal)
    model = Sequential([TokenLinear(12, 12), layer, FlattenTokens()], (6, 12), 4, seed=3)
    theirs = torch.nn.MultiheadAttention(12, 3, batch_first=True)
    parameters = layer.weight, layer.bias, layer.out_weight, layer.out_bias
    with torch.no_grad():
        layer.bias[:], layer.out_bias[:] = random_float32(rng, 36), random_float32(rng, 12)
        for mine, their in zip(parameters, theirs.parameters(), strict=True):
            their.copy_(torch.from_numpy(mine))
    model.forward(random_float32(rng, 4, 6, 12), training=True)
    leaf = torch.from_numpy(layer.x.reshape(4, 6, 12).copy()).requires_grad_()
    mask = torch.ones(6, 6).triu(1).bool() if causal else None
    expected, weights = theirs(leaf, leaf, leaf, attn_mask=mask, average_attn_weights=False)
    np.testing.assert_allclose(layer.output, expected.detach().numpy(), rtol=1e-4, atol=1e-5)
    grad_output = random_float32(rng, 4, 6, 12)
    expected.backward(torch.from_numpy(grad_output))
    np.testing.assert_allclose(layer.backward(grad_output), leaf.grad.numpy(), rtol=1e-4, atol=1e-5)
    gradients = layer.grad_weight, layer.grad_bias, layer.grad_out_weight, layer.grad_out_bias
    for mine, their in zip(gradients, theirs.parameters(), strict=True):
        np.testing.assert_allclose(mine, their.grad.numpy(), rtol=1e-4, atol=1e-5)
    from cnn_numba.beyond.attention.reference import attention_weights

    received = attention_weights(*layer.queries_and_keys(), causal)
    np.testing.assert_allclose(received, weights.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_layers_within_layers_hold_views_and_names():
    model = small()
    assert [layer.name for layer in model.every_layer[:5]] == [
        *("embedding1", "layer_norm1", "attention1", "residual1", "layer_norm2")
    ]
    assert len({layer.name for layer in model.every_layer}) == len(model.every_layer)
    sizes = sum(np.prod(shape) for layer in model.every_layer for shape in layer.parameter_shapes().values())
    assert model.parameters.size == sizes
    for layer in model.every_layer:
        for name in layer.parameter_shapes():
            assert np.shares_memory(getattr(layer, name), model.parameters)
            assert np.shares_memory(getattr(layer, f"grad_{name}"), model.gradients)
    lines = model.summary().splitlines()
    assert lines[4].split()[0] == "block1"
    # 2 norms, attention, and two dense layers, of 8 features
    assert lines[4].split()[-1] == str(2 * 16 + (24 * 8 + 24 + 64 + 8) + (8 * 32 + 32 + 32 * 8 + 8))
    assert not hasattr(GELU(), "fused")
    chain = model.layers[2]
    assert chain.layers[0].relu
    assert chain.layers[1].fused


def test_a_layer_cannot_stand_in_two_places():
    gelu = GELU()
    with pytest.raises(ValueError, match="in the model twice"):
        Sequential([TokenLinear(4, 4), Residual([gelu]), gelu], (3, 4))


@pytest.mark.parametrize(
    ("layers", "match"),
    [
        ([Embedding(5, 4, length=2)], r"embedding1: .*\(N, 2\), got \(64, 3\)"),
        ([Embedding(5, 4, length=3), TokenLinear(5, 4)], r"linear1: .*\(N, T, 5\), got \(64, 3, 4\)"),
        ([Embedding(5, 4, length=3), MultiHeadAttention(6, 2)], r"attention1: .*\(N, T, 6\), got"),
        ([Embedding(5, 4, length=3), Residual([TokenLinear(4, 5)])], r"residual1: .*must keep the shape"),
        ([FlattenTokens()], r"flatten_tokens1: .*\(N, T, C\), got \(64, 3\)"),
    ],
)
def test_layers_of_wrong_shapes_raise(layers, match):
    with pytest.raises(ValueError, match=match):
        Sequential(layers, (3,))


def test_wrong_numbers_are_rejected():
    with pytest.raises(ValueError, match="features must be a multiple of heads, got 10 and 4"):
        MultiHeadAttention(10, 4)
    with pytest.raises(TypeError, match="x must have dtype int32, got float32"):
        small().forward(np.zeros((1, LENGTH), np.float32))


def test_a_step_allocates_nothing_large_and_repeats_bit_for_bit(rng):
    import tracemalloc

    x, labels = rng.integers(0, 96, (4, 64)).astype(np.int32), rng.integers(0, 96, 256).astype(np.int32)
    runs = []
    for _ in range(2):
        model = text_transformer(batch_size=4)
        loss, optimizer = CrossEntropyLoss(*model.shapes[-1]), Adam(model)
        train_step(model, loss, optimizer, x, labels)
        tracemalloc.start()
        train_step(model, loss, optimizer, x, labels)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 60_000  # an activation takes 65,536 bytes
        runs.append(model.parameters.copy())
    np.testing.assert_array_equal(*runs)


# --- Writing ----------------------------------------------------------------------------------------------


def test_generated_text_depends_on_the_seed_and_the_temperature():
    model = text_transformer(batch_size=1, seed=5)
    first = generate(model, "Once", 20, temperature=1.0, seed=1)
    assert first == generate(model, "Once", 20, temperature=1.0, seed=1)
    assert first != generate(model, "Once", 20, temperature=1.0, seed=2)
    assert first.startswith("Once")
    assert len(first) == 24
    assert generate(model, "Once", 9, temperature=0.0, seed=1) == generate(
        model, "Once", 9, temperature=1e-4, seed=2
    )


def test_characters_after_the_last_one_change_nothing():
    model = text_transformer(batch_size=1)
    window = np.zeros((1, 64), np.int32)
    before = model.forward(window)[:10].copy()
    window[0, 10:] = 5
    np.testing.assert_array_equal(model.forward(window)[:10], before)


def test_wrong_prompts_raise():
    model = text_transformer(batch_size=1)
    with pytest.raises(ValueError, match="prompt must have at least one character, got ''"):
        generate(model, "")
    with pytest.raises(ValueError, match="printable ASCII and newlines, got 'é' at index 3"):
        generate(model, "café")
    with pytest.raises(ValueError, match="doesn't predict characters"):
        generate(small(), "a")


# --- Training ---------------------------------------------------------------------------------------------


def losses_of(place, steps, graph=False, batch_size=4):
    model = text_transformer(batch_size, place)
    loss = CrossEntropyLoss(*model.shapes[-1], place)
    running = steps_of(model, loss, Adam(model), load(TEXT), pytest.fail, graph)
    order = np.random.default_rng(0).permutation(1000)[: steps * batch_size].astype(np.int64)
    running.begin(order, np.full(steps, 1e-3))
    losses = []
    for _ in range(steps):
        running.take(batch_size)
        losses.append(running.last_loss())
    return losses, running.totals


def test_a_few_steps_learn_which_characters_are_frequent():
    losses, totals = losses_of("cpu", 12)
    assert abs(losses[0] - np.log(len(VOCABULARY))) < 1.5
    assert losses[-1] < losses[0] - 1
    np.testing.assert_allclose(totals[0], np.sum(losses) * 4 * 64, rtol=1e-5)


@pytest.mark.gpu
def test_gpu_training_follows_the_cpu_and_its_graph_gives_the_same_bits():
    (launched, totals), (replayed, again), (expected, _) = (
        losses_of("gpu", 6),
        losses_of("gpu", 6, graph=True),
        losses_of("cpu", 6),
    )
    assert replayed == launched
    np.testing.assert_array_equal(totals, again)
    np.testing.assert_allclose(launched, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("precision", ["tf32", "float16", "bfloat16"])
def test_a_dense_layer_at_each_place_rounds_as_one_of_rows_does(precision, rng):
    x, gradient = rng.normal(size=(3, 4, 5)), rng.normal(size=(3, 4, 6))

    def trained(layer, shape, x, gradient):
        """Return the result and the gradients; the weights are those of the same seed."""
        model = Sequential([layer], shape, len(x), "reference", precision=precision)
        out = model.forward(x).ravel().copy()
        model.backward(gradient)
        return out, model.gradients, layer

    rows, row_gradients = x.reshape(12, 5), gradient.reshape(12, 6)
    out, gradients, layer = trained(TokenLinear(5, 6), (4, 5), x, gradient)
    expected_out, expected, _ = trained(Linear(5, 6), (5,), rows, row_gradients)
    np.testing.assert_array_equal(out, expected_out)
    np.testing.assert_array_equal(gradients, expected)
    assert not np.allclose(out, (rows @ layer.weight.T + layer.bias).ravel(), rtol=0, atol=1e-6)
