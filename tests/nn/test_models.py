import copy
import dataclasses
import inspect
import pickle

import numpy as np
import pytest
import torch
from helpers import random_float32

from benchmarks.pytorch import pytorch_twin
from cnn_numba.arguments import shown
from cnn_numba.beyond.attention.layers import MultiHeadAttention
from cnn_numba.beyond.embedding.layers import Embedding
from cnn_numba.beyond.norm.layers import BatchNorm2d, LayerNorm
from cnn_numba.beyond.onnx import to_onnx
from cnn_numba.beyond.precision.scaling import LossScaler
from cnn_numba.beyond.recurrent.layers import LSTM
from cnn_numba.beyond.transformer import Chain, Residual, TransformerBlock
from cnn_numba.device import to_device, to_host
from cnn_numba.nn.chains import ConvChain
from cnn_numba.nn.gradcheck import gradcheck
from cnn_numba.nn.layer import Layer, UnsupportedPrecision
from cnn_numba.nn.layers import (
    GELU,
    AvgPool2d,
    Conv2d,
    CrossEntropyLoss,
    Flatten,
    Linear,
    MaxPool2d,
    ReLU,
    Sigmoid,
    Tanh,
)
from cnn_numba.nn.models import MODELS, Sequential, cifar_convnet, mnist_cnn
from cnn_numba.train.optim import SGD, Adam
from cnn_numba.train.step import train_step


def every_layer(device="cpu", batch_size=3):
    """A small network with each kind of layer, on images of 10 x 9."""
    layers = [
        Conv2d(2, 3, (3, 2), stride=(1, 2), padding=1),
        BatchNorm2d(3),
        Tanh(),
        AvgPool2d(2, stride=1),
        Conv2d(3, 4, 2),
        Sigmoid(),
        MaxPool2d(3, stride=2, padding=1),
        LayerNorm((4, 4, 2)),
        ReLU(),
        Flatten(),
        Linear(32, 6),
        LayerNorm(6),
        GELU(),
        Linear(6, 5),
    ]
    return Sequential(layers, (2, 10, 9), batch_size, device, seed=1)


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize("samples", [3, 2])
def test_every_layer_agrees_with_autograd(device, samples, rng):
    model = every_layer(device)
    twin = pytorch_twin(model)
    x = rng.standard_normal((samples, 2, 10, 9)).astype(model.parameters.dtype)
    labels = np.array([4, 0, 2], np.int32)[:samples]
    loss = CrossEntropyLoss(3, 5, device)
    model.gradients[:] = np.nan

    logits = model.forward(x, training=True)
    losses = loss.forward(logits, labels)
    model.backward(loss.backward())
    expected = twin(torch.from_numpy(x))
    expected_loss = torch.nn.functional.cross_entropy(expected, torch.from_numpy(labels).long())
    expected_loss.backward()

    tolerance = dict(rtol=1e-9, atol=1e-12) if device == "reference" else dict(rtol=2e-4, atol=2e-6)
    np.testing.assert_allclose(logits, expected.detach().numpy(), **tolerance)
    np.testing.assert_allclose(losses.mean(), expected_loss.item(), **tolerance)
    gradients = np.concatenate([parameter.grad.numpy().ravel() for parameter in twin.parameters()])
    np.testing.assert_allclose(model.gradients, gradients, **tolerance)
    # Evaluation uses the running statistics that training has just updated.
    twin.eval()
    np.testing.assert_allclose(model.forward(x), twin(torch.from_numpy(x)).detach().numpy(), **tolerance)


def test_every_gradient_of_a_whole_model(rng):
    model = every_layer("reference")
    x = rng.standard_normal((3, 2, 10, 9))
    labels = np.array([4, 0, 2], np.int32)
    loss = CrossEntropyLoss(3, 5, "reference")

    def mean_loss(parameters):
        model.parameters[:] = parameters
        return loss.forward(model.forward(x, training=True), labels).mean()

    parameters = model.parameters.copy()
    mean_loss(parameters)
    model.backward(loss.backward())
    gradient = model.gradients.copy()
    gradcheck(mean_loss, parameters, gradient, name="parameters", rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("name", MODELS)
def test_networks_agree_with_autograd_from_the_arena(name, rng):
    model = MODELS[name](batch_size=5, seed=2)
    twin = pytorch_twin(model)
    x = random_float32(rng, 5, *model.input_shape)
    if model.layers[0].input_dtype:
        x = rng.integers(0, 96, x.shape).astype(np.int32)
    labels = np.arange(5 * model.predictions, dtype=np.int32) % 10
    loss = CrossEntropyLoss(*model.shapes[-1])
    loss.forward(model.forward(x, training=True), labels)
    model.backward(loss.backward())
    logits = twin(torch.from_numpy(x))
    torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels).long()).backward()
    gradients = np.concatenate([parameter.grad.numpy().ravel() for parameter in twin.parameters()])
    np.testing.assert_allclose(model.gradients, gradients, rtol=1e-3, atol=1e-5)
    assert np.abs(gradients).max() > 1e-2


def test_layers_hold_views_of_the_arenas():
    model = every_layer()
    start = 0
    for layer in model.layers:
        for name, shape in layer.parameter_shapes().items():
            size = int(np.prod(shape))
            for arena, prefix in ((model.parameters, ""), (model.gradients, "grad_")):
                view = getattr(layer, prefix + name)
                assert view.shape == shape
                assert np.shares_memory(view, arena[start : start + size])
                arena[start] = 123
                assert view.ravel()[0] == 123
            start += size
    assert start == model.parameters.size == model.gradients.size
    assert model.buffers.size == 6
    assert np.shares_memory(model.layers[1].running_var, model.buffers)


def test_weights_are_he_normal_and_follow_the_seed():
    first, again, other = cifar_convnet(seed=3), cifar_convnet(seed=3), cifar_convnet(seed=4)
    np.testing.assert_array_equal(first.parameters, again.parameters)
    assert (first.parameters != other.parameters).mean() > 0.99
    weight = first.layers[7].weight
    assert weight.shape == (512, 4096)
    np.testing.assert_allclose(weight.std(), np.sqrt(2 / 4096), rtol=1e-2)
    np.testing.assert_allclose(weight.mean(), 0, atol=1e-4)
    assert (first.layers[7].bias == 0).all()


def test_a_step_allocates_nothing_large_and_repeats_bit_for_bit(rng):
    import tracemalloc

    x, labels = random_float32(rng, 16, 1, 28, 28), np.arange(16, dtype=np.int32) % 10
    runs = []
    for _ in range(2):
        model, loss = mnist_cnn(batch_size=16), CrossEntropyLoss(16, 10)
        optimizer = SGD(model, lr=0.1, momentum=0.9)
        train_step(model, loss, optimizer, x, labels)
        tracemalloc.start()
        for _ in range(3):
            train_step(model, loss, optimizer, x, labels)
        # The smallest activation worth a buffer, (16, 10) logits, takes 640 bytes; conv1's takes 1.4 MB.
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 40_000
        runs.append(model.parameters.copy())
    np.testing.assert_array_equal(*runs)


@pytest.mark.exhaustive_unless(
    lambda precision, place: (precision, place) == ("tf32", "cpu"),
    "tf32 in the cpu backend; each operation in every precision and backend in test_precision.py",
)
@pytest.mark.parametrize("precision", ["tf32", "float16", "bfloat16"])
@pytest.mark.parametrize("place", ["cpu", "gpu"])
def test_every_product_of_a_model_is_rounded(place, precision, rng):
    """Outputs and gradients are those of the reference in this precision, and not those of float32."""
    x, grad_logits = random_float32(rng, 3, 1, 10, 10), random_float32(rng, 3, 4)

    def results(device, precision):
        layers = [Conv2d(1, 3, 3), MaxPool2d(2), Conv2d(3, 4, 3), Flatten(), Linear(16, 5), Linear(5, 4)]
        model = Sequential(layers, (1, 10, 10), 3, device, precision=precision)
        assert {layer.precision for layer in model.layers} == {model.precision} == {precision}
        bring = model.backend.bring
        logits = to_host(model.forward(bring(x.astype(model.backend.dtype)), training=True))
        model.backward(bring(grad_logits.astype(model.backend.dtype)))
        gradients = [to_host(layer.grad_weight).ravel() for layer in layers if layer.weight is not None]
        return [logits.ravel(), *gradients]

    def distances(ours, theirs):
        return [np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in zip(ours, theirs, strict=True)]

    rounded = results(place, precision)
    steps = {"tf32": 2**-11, "float16": 2**-11, "bfloat16": 2**-8}[precision]
    # Sums in float32 may differ so much from those in float64 that later numbers round differently.
    assert max(distances(rounded, results("reference", precision))) < steps / 2
    assert min(distances(rounded, results("reference", "float32"))) > steps / 10


def test_a_smaller_batch_reuses_the_buffers(rng):
    model = mnist_cnn(batch_size=8)
    x = random_float32(rng, 8, 1, 28, 28)
    full = model.forward(x).copy()
    part = model.forward(x[:3])
    np.testing.assert_array_equal(part, full[:3])
    assert np.shares_memory(part, model.layers[-1].out)


def test_predict_gives_probabilities(rng):
    model = mnist_cnn(batch_size=2)
    probabilities = model.predict(random_float32(rng, 2, 1, 28, 28) * 100)
    assert np.isfinite(probabilities).all()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)


def test_summary_of_the_course_network():
    text = mnist_cnn().summary()
    assert "225,034" in text
    assert "(64, 1600)" in text
    assert text.splitlines()[3].split()[0] == "conv1"


def test_the_articles_9216_inputs_are_named():
    layers = [
        Conv2d(1, 32, 3),
        MaxPool2d(2),
        Conv2d(32, 64, 3),
        MaxPool2d(2),
        Flatten(),
        Linear(9216, 128),
    ]
    with pytest.raises(ValueError, match=r"linear1.*\(N, 9216\), got \(64, 1600\)"):
        Sequential(layers, (1, 28, 28))


@pytest.mark.parametrize(
    ("layers", "match"),
    [
        ([], "at least one layer"),
        (
            [Conv2d(3, 4, 3)],
            r"conv1: Conv2d\(3, 4, .* takes inputs of shape \(N, 3, H, W\), got \(64, 1, 28, 28\)",
        ),
        ([MaxPool2d(2), MaxPool2d(40)], r"pool2: .*40"),
        ([BatchNorm2d(4)], r"\(N, 4, H, W\), got \(64, 1, 28, 28\)"),
        ([LayerNorm((28, 27))], r"\(28, 27\), got \(64, 1, 28, 28\)"),
    ],
)
def test_layers_of_wrong_shapes_raise(layers, match):
    with pytest.raises(ValueError, match=match):
        Sequential(layers, (1, 28, 28))


@pytest.mark.parametrize(
    ("x", "error", "match"),
    [
        (
            np.zeros((3, 1, 28, 28), np.float32),
            ValueError,
            "got 3: pass fewer, or build it with batch_size=3$",
        ),
        (np.zeros((0, 1, 28, 28), np.float32), ValueError, "1 to 2 samples, got 0$"),
        (
            np.zeros((1, 28, 28), np.float32),
            ValueError,
            r"got \(1, 28, 28\): a single sample is a batch of one, x\.reshape\(1, 1, 28, 28\)$",
        ),
        (np.zeros((28, 28), np.float32), ValueError, r"x\.reshape\(1, 1, 28, 28\)$"),
        (np.zeros((2, 784), np.float32), ValueError, r"got \(2, 784\)$"),
        (np.zeros((1, 1, 28, 28)), TypeError, "float64"),
        (np.zeros((1, 1, 28, 56), np.float32)[..., ::2], ValueError, "C-contiguous"),
    ],
)
def test_wrong_batches_are_rejected(x, error, match):
    with pytest.raises(error, match=match):
        mnist_cnn(batch_size=2).forward(x)


def test_a_layer_cannot_stand_in_a_model_twice():
    relu = ReLU()
    with pytest.raises(ValueError, match=r"ReLU\(\) is in the model twice, as relu1 and as relu2: "):
        Sequential([Flatten(), Linear(4, 4), relu, Linear(4, 4), relu], (1, 2, 2))


def shared():
    """Return a model, and a later one with one of its layers."""
    layer = Linear(4, 3)
    first = Sequential([Flatten(), layer], (1, 2, 2), 2, name="first")
    return first, Sequential([Flatten(), Sigmoid(), layer], (1, 2, 2), 2, name="second")


@pytest.mark.parametrize(
    "use",
    [
        lambda model, x: model.forward(x),
        lambda model, x: model.predict(x),
        lambda model, x: model.backward(np.ones((2, 3), np.float32)),
        lambda model, x: train_step(model, CrossEntropyLoss(2, 3), SGD(model), x, np.array([0, 1], np.int32)),
        lambda model, x: model.summary(),
        lambda model, x: to_onnx(model),
    ],
)
def test_a_model_that_lost_a_layer_to_another_says_so(use):
    x = np.ones((2, 1, 2, 2), np.float32)
    first, second = shared()
    where = r"its Linear\(4, 3\) was built into another model, second"
    message = rf"^first can't be used any more: {where}\. Make new layers for each model$"
    with pytest.raises(AttributeError, match=message):
        use(first, x)
    assert "no layers" in repr(first)
    second.forward(x)
    use(second, x)
    assert np.shares_memory(second.layers[2].weight, second.parameters)


def test_a_block_with_a_layer_of_another_model_takes_it():
    layer = Linear(4, 4)
    first = Sequential([layer], (4,), name="first")
    second = Sequential([Residual([layer])], (4,))
    with pytest.raises(AttributeError, match=r"its Linear\(4, 4\) was built into another"):
        first.forward(np.ones((1, 4), np.float32))
    second.forward(np.ones((1, 4), np.float32))


def test_a_cell_that_builds_a_model_may_run_again():
    layers, models = [Conv2d(1, 2, 3), MaxPool2d(2), Flatten(), Linear(18, 3)], []
    x, labels = np.ones((2, 1, 8, 8), np.float32), np.array([0, 2], np.int32)
    for _ in range(2):
        models.append(model := Sequential(layers, (1, 8, 8), 2))
        before = model.parameters.copy()
        train_step(model, CrossEntropyLoss(2, 3), SGD(model), x, labels)
    fresh = Sequential([Conv2d(1, 2, 3), MaxPool2d(2), Flatten(), Linear(18, 3)], (1, 8, 8), 2)
    np.testing.assert_array_equal(before, fresh.parameters)
    train_step(fresh, CrossEntropyLoss(2, 3), SGD(fresh), x, labels)
    np.testing.assert_array_equal(model.parameters, fresh.parameters)
    assert "no layers" in repr(models[0])


def test_a_model_that_could_not_be_built_leaves_its_layers_to_the_next():
    layers = [LSTM(3, 2), Flatten(), Linear(4, 2)]
    with pytest.raises(UnsupportedPrecision) as caught:
        Sequential(layers, (2, 3), 1, precision="float16")
    assert caught.tb is not None  # which keeps the model alive
    assert Sequential(layers, (2, 3), 1).forward(np.ones((1, 2, 3), np.float32)).shape == (1, 2)


@pytest.mark.parametrize("wrong", [{"precision": "float16"}, {"input_shape": (2, 5)}])
def test_a_model_that_is_refused_takes_no_layers(wrong):
    x, layers = np.ones((1, 2, 3), np.float32), [LSTM(3, 2), Flatten(), Linear(4, 2)]
    first = Sequential(layers, (2, 3), 1)
    expected = first.forward(x).copy()
    with pytest.raises(ValueError, match=r"float16|takes"):
        Sequential(layers, **{"input_shape": (2, 3), "batch_size": 1, **wrong})
    np.testing.assert_array_equal(first.forward(x), expected)
    assert {layer.precision for layer in layers} == {"float32"}
    with pytest.raises(ValueError, match=r"linear1: .* takes"):
        Sequential([Linear(5, 3), *layers], (2, 3), 1)
    assert [layer.name for layer in layers] == ["lstm1", "flatten1", "linear1"]


@pytest.mark.parametrize("place", [1, 2])
def test_a_backward_pass_that_forgets_to_return_is_named(place):
    class Forgetful(ReLU):
        def backward(self, grad_output):
            super().backward(grad_output)

    layers = [Linear(4, 4), Linear(4, 2)]
    layers.insert(place, Forgetful())
    model = Sequential(layers, (4,), 1)
    out = model.forward(np.ones((1, 4), np.float32))
    with pytest.raises(TypeError, match=r"^relu1\.backward returned no gradient for the layers before it$"):
        model.backward(np.ones_like(out))


def test_copied_layers_take_no_model():
    first = Sequential([Linear(4, 4), ReLU()], (4,), 1, name="first")
    Sequential([copy.copy(layer) for layer in first.layers], (4,), 1)
    assert first.forward(np.ones((1, 4), np.float32)).shape == (1, 4)


def test_a_model_without_layers_yet_says_so():
    class Own(Sequential):
        def __init__(self):
            assert "Own object" in repr(self)
            self.layers.append(ReLU())

    with pytest.raises(AttributeError, match=r"^Own has no layers yet: call super\(\).__init__ first$"):
        Own()


def test_a_layer_may_have_an_owner_and_an_output_of_its_own():
    class Own(ReLU):
        owner = "Ann"
        output = "no array"

        def build(self, input_shape, backend, needs_grad_input):
            pass

        def forward(self, x, training=False):
            return x

        def backward(self, grad_output):
            return grad_output

    model = Sequential([Linear(4, 2), own := Own()], (4,), 1)
    model.forward(np.ones((1, 4), np.float32))
    model.backward(np.ones((1, 2), np.float32))
    with pytest.raises(AttributeError, match=r"^layer1 has no out$|^relu1 has no out$"):
        own.out  # noqa: B018


def test_a_relu_that_a_layer_computed_in_another_model_computes_again():
    relu = ReLU()
    Sequential([Linear(4, 4), relu], (4,), 1)
    model = Sequential([relu, Linear(4, 4)], (4,), 1)
    model.forward(-np.ones((1, 4), np.float32))
    np.testing.assert_array_equal(relu.output, 0)


def test_a_layer_may_compare_by_value():
    @dataclasses.dataclass
    class Scaled(ReLU):
        factor: float = 2.0

    model = Sequential([Flatten(), Linear(4, 4), Scaled(), Scaled()], (1, 2, 2))
    assert [layer.name for layer in model.layers[2:]] == ["relu1", "relu2"]


def test_a_width_as_large_as_the_channels_is_no_channel():
    with pytest.raises(ValueError, match=r"\(N, 32, H, W\), got \(64, 16, 32, 32\)$"):
        Sequential([Conv2d(3, 16, 3, padding=1), ReLU(), Conv2d(32, 64, 3)], (3, 32, 32))


CHANNELS_FIRST = "; images are NCHW, with the channels first"


@pytest.mark.parametrize("layer", [Conv2d(3, 4, 3), BatchNorm2d(3)], ids=repr)
def test_a_model_for_images_with_the_channels_last_names_the_layout(layer):
    with pytest.raises(ValueError, match=rf"\(N, 3, H, W\), got \(64, 28, 28, 3\){CHANNELS_FIRST}"):
        Sequential([layer], (28, 28, 3))
    with pytest.raises(ValueError, match=r"got \(64, 4, 28, 28\)$"):
        Sequential([layer], (4, 28, 28))


def test_a_batch_with_the_channels_last_names_the_layout():
    with pytest.raises(ValueError, match=rf"\(any, 1, 28, 28\), got \(2, 28, 28, 1\){CHANNELS_FIRST}"):
        mnist_cnn().forward(np.zeros((2, 28, 28, 1), np.float32))
    # The advice fits a single image too; then it lacks only the axis of the batch.
    x = np.zeros((32, 32, 3), np.float32)
    with pytest.raises(ValueError, match=rf"got \(32, 32, 3\){CHANNELS_FIRST}: .*moveaxis\(images, -1, -3\)"):
        cifar_convnet(1).forward(x)
    with pytest.raises(ValueError, match=r"x\.reshape\(1, 3, 32, 32\)$"):
        cifar_convnet(1).forward(np.ascontiguousarray(np.moveaxis(x, -1, -3)))


@pytest.mark.parametrize(
    "layer",
    [
        *(Conv2d(1, 2, 3), MaxPool2d(2), AvgPool2d(2), Flatten(), ReLU(), Sigmoid(), Tanh(), GELU()),
        *(Chain([Sigmoid(), GELU()]), Residual([Tanh()])),
    ],
    ids=lambda layer: layer.kind,
)
def test_a_layer_says_that_its_forward_comes_first(layer):
    layer.build((2, 1, 4, 4))
    first = layer.layers[-1] if layer.layers else layer
    with pytest.raises(AttributeError, match=rf"^{first.name} has no \w+ yet: call forward first$"):
        layer.backward(np.zeros(layer.output_shape((2, 1, 4, 4)), np.float32))


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        *((layer, (1, 4, 4)) for layer in (Conv2d(1, 2, 3), MaxPool2d(2), AvgPool2d(2), BatchNorm2d(1))),
        *((layer, (1, 4, 4)) for layer in (ReLU(), Sigmoid(), Tanh(), GELU(), LayerNorm(4))),
        *((layer, (4,)) for layer in (Linear(4, 2), Chain([Linear(4, 4)]), Residual([Linear(4, 4)]))),
        *((layer, (2, 4)) for layer in (LSTM(4, 3), MultiHeadAttention(4, 2), TransformerBlock(4, 2))),
        (Embedding(3, 2, length=2), (2,)),
    ],
    ids=lambda value: getattr(value, "kind", None),
)
def test_a_layer_says_that_it_must_be_built_first(layer, shape):
    first = layer.modules()[0]
    message = rf"^{type(first).__name__} has no \w+ yet: build it first, in a Sequential$"
    x = np.zeros((1, *shape), layer.input_dtype or np.float32)
    with pytest.raises(AttributeError, match=message):
        layer.forward(x)
    Sequential([layer], shape).forward(x)
    with pytest.raises(AttributeError, match=r"^flatten1 has no out$"):
        Sequential([Flatten()], shape).layers[0].out  # noqa: B018


@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)
def test_a_model_says_that_its_forward_comes_first(build):
    model = build(batch_size=1)
    with pytest.raises(AttributeError, match=rf"^{model.layers[-1].name} has no x yet: call forward first$"):
        model.backward(np.zeros(model.shapes[-1], np.float32))
    for layer in model.every_layer:
        layer.needs_grad_input = True
        gradient = np.zeros(layer.output_shape(layer.input_shape), np.float32)
        with pytest.raises(AttributeError, match=r"^\w+\d has no \w+ yet: call forward first$"):
            layer.backward(gradient)
    np.testing.assert_array_equal(model.gradients, 0)


WRONG_GRADIENTS = {
    "columns": (np.ones((2, 4), np.float32), ValueError, r"shape of the logits, \(2, 3\), got .* \(2, 4\)"),
    "rows": (np.ones((3, 3), np.float32), ValueError, r"shape of the logits, \(2, 3\), got .* \(3, 3\)"),
    "axes": (np.ones(3, np.float32), ValueError, r"shape of the logits, \(2, 3\), got .* \(3,\)"),
    "a list": ([[1, 1, 1], [1, 1, 1]], ValueError, r"shape of the logits, \(2, 3\), got \[\[1, "),
    "none": (None, ValueError, r"grad_logits must have the shape of the logits, \(2, 3\), got None"),
    "dtype": (np.ones((2, 3)), TypeError, "grad_output must have dtype float32, got float64: convert it"),
    "strides": (np.ones((3, 2), np.float32).T, ValueError, "grad_output must be C-contiguous"),
    "device": (to_device, TypeError, "grad_output is an array on the device"),
}


@pytest.mark.parametrize(("gradient", "error", "match"), WRONG_GRADIENTS.values(), ids=WRONG_GRADIENTS)
@pytest.mark.parametrize(
    "layers",
    [
        lambda: [Flatten(), Linear(4, 3)],
        lambda: [Flatten(), Linear(4, 3), ReLU()],
        lambda: [Conv2d(1, 3, 2), Flatten()],
    ],
)
def test_a_wrong_gradient_of_the_logits_is_named(layers, gradient, error, match):
    model = Sequential(layers(), (1, 2, 2), 4)
    model.forward(np.ones((2, 1, 2, 2), np.float32))
    gradient = to_device(np.ones((2, 3), np.float32)) if gradient is to_device else gradient
    with pytest.raises(error, match=match):
        model.backward(gradient)
    np.testing.assert_array_equal(model.gradients, 0)


def test_a_gradient_of_a_convolution_at_the_end_is_checked_without_another_pass(monkeypatch):
    model = Sequential([Conv2d(1, 3, 2), ReLU()], (1, 3, 3), 4)
    out = model.forward(np.ones((2, 1, 3, 3), np.float32))
    monkeypatch.setattr(ConvChain, "run_layers", pytest.fail)
    model.backward(np.ones_like(out))
    with pytest.raises(ValueError, match=r"shape of the logits, \(2, 3, 2, 2\), got .* \(2, 12\)"):
        model.backward(np.ones((2, 12), np.float32))
    monkeypatch.undo()
    model.layers[1].forward(model.layers[0].forward(np.ones((3, 1, 3, 3), np.float32)))
    model.backward(np.ones((3, 3, 2, 2), np.float32))


def test_the_gradient_of_a_pass_layer_by_layer_may_have_another_batch_size():
    model = Sequential([Flatten(), Linear(4, 3)], (1, 2, 2), 4)
    model.forward(np.ones((2, 1, 2, 2), np.float32))
    model.layers[1].forward(model.layers[0].forward(np.ones((3, 1, 2, 2), np.float32)))
    model.backward(np.ones((3, 3), np.float32))
    np.testing.assert_array_equal(model.layers[1].grad_bias, 3)


def test_the_reference_takes_any_gradient_of_real_numbers():
    model = Sequential([Flatten(), Linear(4, 3)], (1, 2, 2), 4, "reference")
    model.forward(np.ones((2, 1, 2, 2)))
    model.backward(np.ones((3, 2), np.float32).T)
    np.testing.assert_array_equal(model.layers[1].grad_bias, 2)
    with pytest.raises(ValueError, match=r"shape of the logits, \(2, 3\), got .* \(2, 4\)"):
        model.backward(np.ones((2, 4)))


def test_a_model_is_shown_in_a_line():
    assert repr(Sequential([Flatten(), Linear(4, 2), ReLU()], (1, 2, 2), name="tiny")) == (
        "<Sequential tiny: flatten1, linear1, relu1; 10 parameters>"
    )


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_model_that_is_copied_or_pickled_names_what_to_do(how):
    model = mnist_cnn(1)
    with pytest.raises(
        TypeError, match=r"^mnist_cnn can't be copied or pickled: .* save_checkpoint and load"
    ):
        how({"best": model} if how is copy.deepcopy else model)


def test_a_loss_says_that_its_forward_comes_first():
    with pytest.raises(AttributeError, match="the loss has no gradient yet: call forward first"):
        CrossEntropyLoss(2, 4).backward()


def test_a_layer_allocates_its_working_memory():
    class Counting(ReLU):
        def allocate(self):
            self.counts = self.backend.zeros(self.out.shape[0], np.int32)

    layer = Counting()
    layer.build((3, 2), "reference", needs_grad_input=False)
    assert (repr(layer), layer.counts.tolist(), layer.out.dtype) == ("Counting()", [0, 0, 0], np.float64)


def test_wrong_construction_is_rejected():
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        mnist_cnn(batch_size=0)
    with pytest.raises(ValueError, match=r"device must be one of .*, got 'tpu'"):
        mnist_cnn(device="tpu")


@pytest.mark.parametrize("name", ["forward", "backward"])
def test_a_layer_without_a_pass_is_named(name):
    class Half(Layer):
        pass

    with pytest.raises(NotImplementedError, match=f"^Half has no {name}$"):
        getattr(Half(), name)(None)


NAN, INFINITY, HUGE = float("nan"), float("inf"), 2**70

# Invalid values of arguments, by their error.
COUNT = {TypeError: [2.0, NAN, "4", None, True, (4,)], ValueError: [0, -1, HUGE]}
WINDOW = {TypeError: [*COUNT[TypeError], (1, 2, 3), (1, 2.0), (1, True)], ValueError: [0, -1, HUGE, (1, -1)]}
PADDING = {TypeError: WINDOW[TypeError], ValueError: [-1, HUGE, (1, -1)]}
STRIDE = {TypeError: [2.0, NAN, "4", True, (1, 2, 3), (1, 2.0)], ValueError: WINDOW[ValueError]}
SHAPE = {
    TypeError: ["abc", None, {1, 28}, 28.0, True, (1, 2.0, 3), (1, True, 3)],
    ValueError: [(), (1, 0, 28), (1, -28, 28), (1, HUGE, 28)],
}
INPUT_SHAPE = SHAPE | {TypeError: [5, *SHAPE[TypeError]]}
FLAG = {TypeError: ["no", 1, None, NAN, -1, object()]}
NUMBER = {TypeError: ["0.1", None, True, [0.1]], ValueError: [-0.1, NAN, INFINITY, -INFINITY, 10**400]}
SHARE = NUMBER | {ValueError: [*NUMBER[ValueError], 1.5]}
BELOW_1 = NUMBER | {ValueError: [*NUMBER[ValueError], 1]}
BETAS = {
    TypeError: [0.9, "ab", None, (0.9,), (0.9, 0.99, 0.999), (0.9, "0.99"), (0.9, True)],
    ValueError: [(1.0, 0.9), (0.9, -0.1), (0.9, NAN)],
}
DEVICE = {ValueError: ["tpu", None, ["cpu"]]}
SEED = {TypeError: [1.0, "1", None, True], ValueError: [-1]}
LAYERS = {TypeError: [5, None, Flatten(), [Flatten(), "relu"], [Flatten]], ValueError: [[]]}
MODEL = {TypeError: [5, None, Flatten()]}
TINY = Sequential([Flatten(), Linear(4, 2)], (1, 2, 2), batch_size=1)
OPTIMIZER = {"model": MODEL, "lr": NUMBER | {ValueError: [0, *NUMBER[ValueError]]}, "weight_decay": NUMBER}
PRECISION = {ValueError: ["float8", None, ["float16"]]}
NETWORK = {"batch_size": COUNT, "device": DEVICE, "seed": SEED, "precision": PRECISION}
FACTOR = NUMBER | {ValueError: [1, *NUMBER[ValueError]]}

# Constructors, their arguments, and invalid arguments.
CONSTRUCTORS = [
    (
        *(Conv2d, {"in_channels": 1, "out_channels": 2, "kernel_size": 3}),
        {
            "in_channels": COUNT,
            "out_channels": COUNT,
            "kernel_size": WINDOW,
            "stride": WINDOW,
            "padding": PADDING,
        },
    ),
    (MaxPool2d, {"kernel_size": 2}, {"kernel_size": WINDOW, "stride": STRIDE, "padding": PADDING}),
    (AvgPool2d, {"kernel_size": 2}, {"kernel_size": WINDOW, "stride": STRIDE, "padding": PADDING}),
    (Linear, {"in_features": 4, "out_features": 2}, {"in_features": COUNT, "out_features": COUNT}),
    (
        *(BatchNorm2d, {"num_features": 3}),
        {"num_features": COUNT, "momentum": SHARE, "eps": NUMBER},
    ),
    (LayerNorm, {"normalized_shape": (4, 4)}, {"normalized_shape": SHAPE, "eps": NUMBER}),
    (
        *(LSTM, {"input_size": 4, "hidden_size": 3}),
        {"input_size": COUNT, "hidden_size": COUNT, "return_sequences": FLAG},
    ),
    (
        *(MultiHeadAttention, {"features": 4, "heads": 2}),
        {"features": COUNT, "heads": COUNT, "causal": FLAG},
    ),
    (
        *(TransformerBlock, {"features": 4, "heads": 2}),
        {"features": COUNT, "heads": COUNT, "causal": FLAG},
    ),
    (
        *(Embedding, {"kinds": 3, "features": 4}),
        {"kinds": COUNT, "features": COUNT, "length": COUNT},
    ),
    *((kind, {}, {"layers": LAYERS}) for kind in (Chain, Residual)),
    (
        *(CrossEntropyLoss, {"batch_size": 2, "classes": 3}),
        {"batch_size": COUNT, "classes": COUNT, "device": DEVICE, "label_smoothing": BELOW_1},
    ),
    (
        *(Sequential, {"layers": [Flatten()], "input_shape": (1, 2, 2)}),
        {"layers": LAYERS, "input_shape": INPUT_SHAPE, "name": {TypeError: [5, None]}, **NETWORK},
    ),
    *((network, {}, NETWORK) for network in MODELS.values()),
    (SGD, {"model": TINY}, OPTIMIZER | {"momentum": SHARE, "nesterov": FLAG}),
    (Adam, {"model": TINY}, OPTIMIZER | {"betas": BETAS, "eps": NUMBER}),
    (
        *(LossScaler, {"model": TINY}),
        {"model": MODEL, "scale": NUMBER | {ValueError: [0, 2**-15, *NUMBER[ValueError]]}, "minimum": NUMBER}
        | {"growth": FACTOR, "backoff": FACTOR, "interval": COUNT},
    ),
]


@pytest.mark.parametrize(
    ("constructor", "good", "argument", "value", "error"),
    [
        (constructor, good, argument, value, error)
        for constructor, good, arguments in CONSTRUCTORS
        for argument, wrong in arguments.items()
        for error, values in wrong.items()
        for value in values
    ],
)
def test_a_wrong_argument_is_named_with_its_value(constructor, good, argument, value, error):
    with pytest.raises(error) as caught:
        constructor(**good | {argument: value})
    message = str(caught.value)
    entries = value if isinstance(value, (tuple, list)) else ()
    assert argument in message
    assert any(shown(given) in message for given in (value, *entries)), message  # of several, the wrong one
    assert "\n" not in message


@pytest.mark.parametrize(("constructor", "good", "arguments"), CONSTRUCTORS)
def test_every_argument_is_in_the_table(constructor, good, arguments):
    assert set(inspect.signature(constructor).parameters) == set(arguments)


def test_numpy_numbers_are_accepted():
    two = np.int64(2)
    layers = [
        Conv2d(np.uint8(1), two, np.int32(3), (two, 1), np.int16(1)),
        BatchNorm2d(two, np.float32(0.5)),
        MaxPool2d(two, np.int8(1)),
        LayerNorm(np.int64(7)),
        Flatten(),
        Linear(np.int64(3 * 7 * 2), two),
    ]
    model = Sequential(layers, (np.int64(1), 8, np.uint16(8)), np.int64(3), seed=np.uint64(7))
    assert model.forward(np.zeros((3, 1, 8, 8), np.float32)).shape == (3, 2)
    assert repr(layers[0]) == "Conv2d(1, 2, kernel_size=(3, 3), stride=(2, 1), padding=(1, 1))"
    assert SGD(model, momentum=np.float32(0.5), nesterov=np.True_).settings["nesterov"] is True


def test_too_many_parameters_for_the_kernels_raise():
    with pytest.raises(
        ValueError, match="sequential has 4295032832 parameters; the kernels count up to 2147"
    ):
        Sequential([Linear(2**16, 2**16)], (2**16,), batch_size=1)


def test_wrong_labels_are_rejected_by_the_loss():
    loss = CrossEntropyLoss(2, 3)
    with pytest.raises(ValueError, match="got 3 at position 1"):
        loss.forward(np.zeros((2, 3), np.float32), np.array([0, 3], np.int32))
