"""Networks as ONNX graphs: ONNX Runtime against our own forward pass."""

import numpy as np
import onnx
import onnxruntime
import pytest
from helpers import random_float32

from cnn_numba import extras
from cnn_numba.beyond.attention.layers import MultiHeadAttention
from cnn_numba.beyond.models import text_transformer
from cnn_numba.beyond.norm.layers import BatchNorm2d, LayerNorm
from cnn_numba.beyond.onnx import UnsupportedLayer, to_onnx
from cnn_numba.beyond.recurrent.layers import LSTM, Rows
from cnn_numba.beyond.transformer import FlattenTokens, TokenLinear
from cnn_numba.nn.layers import AvgPool2d, Conv2d, Flatten, Linear, MaxPool2d, ReLU, Sigmoid, Tanh
from cnn_numba.nn.models import MODELS, Sequential, cifar_convnet, mnist_cnn
from cnn_numba.ops.gather.cpu import gather_batch


def run(proto, x):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    (logits,) = session.run(None, {"x": x})
    return logits


def with_all_parameters(model, rng):
    """Give a model biases and running statistics other than 0 and 1, so that leaving one out shows."""
    model.parameters[:] += 0.1 * random_float32(rng, *model.parameters.shape)
    model.buffers[:] = rng.uniform(0.5, 2, model.buffers.shape)
    return model


def inputs(model, rng, n):
    if model.layers[0].input_dtype is np.int32:
        return rng.integers(0, model.layers[0].kinds, (n, *model.input_shape), dtype=np.int32)
    return random_float32(rng, n, *model.input_shape)


def agrees(model, rng, samples=(3, 1)):
    proto = to_onnx(model)
    for n in samples:
        x = inputs(model, rng, n)
        expected = model.forward(x)
        np.testing.assert_allclose(run(proto, x), expected, rtol=1e-4, atol=1e-5 * abs(expected).max())
    return proto


@pytest.mark.parametrize("name", MODELS)
def test_every_network_gives_the_same_in_onnx_runtime(name, rng):
    agrees(with_all_parameters(MODELS[name](batch_size=3), rng), rng)


def test_layers_that_no_network_has(rng):
    layers = [
        *(Conv2d(2, 6, (3, 2), stride=(2, 1), padding=(1, 0)), Tanh(), AvgPool2d((2, 3), padding=(1, 0))),
        *(BatchNorm2d(6, eps=0.1), Sigmoid(), MaxPool2d((2, 2), stride=1, padding=1), LayerNorm((6, 5, 4))),
        *(Rows(), LSTM(4, 6), TokenLinear(6, 8), MultiHeadAttention(8, 2, causal=False)),
        *(FlattenTokens(), ReLU(), Linear(8, 3)),
    ]
    model = with_all_parameters(Sequential(layers, (2, 11, 10), batch_size=3, seed=1), rng)
    agrees(model, rng)


@pytest.mark.parametrize(
    ("build", "pixels"), [(mnist_cnn, (0.1307, 0.3081)), (cifar_convnet, ((0.5, 0.4, 0.3), (0.2, 0.25, 0.3)))]
)
def test_raw_pixels_are_normalised_in_the_graph(rng, build, pixels):
    model = build(batch_size=3)
    images = rng.integers(0, 256, (3, *model.input_shape), dtype=np.uint8)
    expected = model.forward(gather_batch(images, np.arange(3), *pixels))
    np.testing.assert_allclose(run(to_onnx(model, pixels), images), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("device", ["reference", "gpu"])
def test_the_graph_is_the_same_for_every_backend(device):
    assert to_onnx(mnist_cnn(2, device)) == to_onnx(mnist_cnn(2))


def test_any_number_of_samples_and_the_names_of_a_graph():
    proto = to_onnx(text_transformer())
    ins, outs = proto.graph.input[0], proto.graph.output[0]
    sizes = [[d.dim_param or d.dim_value for d in end.type.tensor_type.shape.dim] for end in (ins, outs)]
    assert (ins.name, outs.name, sizes) == ("x", "logits", [["N", 64], ["N * 64", 96]])
    assert ins.type.tensor_type.elem_type == onnx.TensorProto.INT32
    assert proto.graph.name == "text_transformer"


def test_a_network_that_only_changes_the_shape(rng):
    agrees(Sequential([Flatten()], (1, 2, 3), batch_size=3), rng)


class Doubled(ReLU):
    kind = "doubled"


def test_an_unknown_layer_is_named():
    model = Sequential([Flatten(), Linear(4, 4), Doubled()], (1, 2, 2))
    with pytest.raises(
        UnsupportedLayer, match=r"sequential, doubled1: Doubled\(\) can't be exported to ONNX, only "
    ):
        to_onnx(model)


@pytest.mark.parametrize(
    ("build", "pixels", "message"),
    [
        (
            text_transformer,
            (0.5, 0.5),
            r"takes inputs of shape \(64,\), which aren't images",
        ),
        (cifar_convnet, ((0.5, 0.5), (0.5, 0.5)), "3"),
        (mnist_cnn, (0.5, 0.0), "0"),
    ],
)
def test_wrong_pixels_raise(build, pixels, message):
    with pytest.raises(ValueError, match=message):
        to_onnx(build(), pixels)


def test_without_onnx_it_is_one_line(monkeypatch):
    monkeypatch.setattr(extras, "find_spec", lambda package: None)
    needs = r"Exporting a network needs onnx, which is not installed: pip install .* '\.\[roads\]'"
    with pytest.raises(extras.MissingPackage, match=needs):
        to_onnx(mnist_cnn())
