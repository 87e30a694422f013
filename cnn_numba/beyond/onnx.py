"""Networks as ONNX graphs, which other programs run: ONNX Runtime, TensorRT, browsers, phones.

An ONNX graph names the operations and holds the parameters; the program that runs it decides how to compute.
`_WRITERS` adds the nodes of each type of layer, and `to_onnx` connects them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from cnn_numba import extras
from cnn_numba.arguments import instance, shown
from cnn_numba.beyond import transformer
from cnn_numba.beyond.attention.layers import MultiHeadAttention
from cnn_numba.beyond.embedding.layers import Embedding
from cnn_numba.beyond.norm.layers import BatchNorm2d, LayerNorm
from cnn_numba.beyond.recurrent.layers import LSTM, Rows
from cnn_numba.device import to_host
from cnn_numba.nn import layers
from cnn_numba.nn.layer import Layer
from cnn_numba.nn.models import Sequential
from cnn_numba.ops.gather import constants

if TYPE_CHECKING:
    import onnx

#: Version of ONNX's operations: the first with GELU. ONNX Runtime supports it from 1.17 on.
OPSET = 20
#: Version of the file format that came with them: programs refuse a newer one than they know.
FORMAT = 9


class UnsupportedLayer(ValueError):
    """A layer that `to_onnx` can't export."""


def to_onnx(model: Sequential, pixels: tuple[Any, Any] | None = None) -> onnx.ModelProto:
    """Export a network to ONNX: its layers as nodes of a graph, its parameters as constants.

    The graph computes as in evaluation, in float32, whatever the model's device and precision.

    Parameters
    ----------
    model : Sequential
    pixels : pair (mean, std), optional
        With it the graph takes raw pixels, uint8, and normalises them as `gather_batch` does: mean and
        standard deviation of pixels between 0 and 1, each a number or one per channel.

    Returns
    -------
    onnx.ModelProto
        Checked by ONNX. The input is `x`, shape (N, C, H, W) with any N, the output `logits`.

    Raises
    ------
    MissingPackage
        If onnx is not installed.
    UnsupportedLayer
        If a layer is of a type that isn't in `_WRITERS`.

    Examples
    --------
    >>> from cnn_numba.nn.models import mnist_cnn
    >>> [node.op_type for node in to_onnx(mnist_cnn()).graph.node]
    ['Conv', 'MaxPool', 'Conv', 'MaxPool', 'Flatten', 'Gemm', 'Relu', 'Gemm']
    """
    instance(model, "model", Sequential)
    extras.need("onnx", "Exporting a network")
    import onnx

    graph = _Graph(onnx)
    x = "x" if pixels is None else graph.normalise("x", model, pixels)
    for layer in model.layers:
        x = _write(graph, layer, x, model.name)
    graph.nodes[-1].output[0] = "logits"
    dtype = np.dtype(np.uint8 if pixels is not None else model.layers[0].input_dtype or np.float32)
    info, code = onnx.helper.make_tensor_value_info, onnx.helper.np_dtype_to_tensor_dtype
    rows = "N" if model.predictions == 1 else f"N * {model.predictions}"
    proto = onnx.helper.make_model(
        onnx.helper.make_graph(
            graph.nodes,
            model.name,
            [info("x", code(dtype), ["N", *model.input_shape])],
            [info("logits", onnx.TensorProto.FLOAT, [rows, *model.shapes[-1][1:]])],
            graph.constants,
        ),
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=FORMAT,
        producer_name="cnn-numba",
    )
    onnx.checker.check_model(proto, full_check=True)
    return proto


def _write(graph, layer, x, model):
    """Add a layer with the input `x`; return the name of its output."""
    if type(layer) not in _WRITERS:
        known = ", ".join(sorted(kind.__name__ for kind in _WRITERS))
        raise UnsupportedLayer(f"{model}, {layer.name}: {layer!r} can't be exported to ONNX, only {known}")
    return _WRITERS[type(layer)](graph, layer, x)


class _Graph:
    """The nodes and constants of a graph that is being written."""

    def __init__(self, onnx):
        self.onnx, self.nodes, self.constants = onnx, [], []

    def add(self, operation, name, *inputs, outputs=1, **attributes):
        """Add a node; return the name of its last output, which is the node's."""
        names = [name] if outputs == 1 else [*[""] * (outputs - 1), name]
        self.nodes.append(self.onnx.helper.make_node(operation, [*inputs], names, name, **attributes))
        return name

    def constant(self, name, value):
        """Add a constant; return its name."""
        array = np.asarray(to_host(value), order="C")
        if array.dtype.kind == "f":
            array = array.astype(np.float32)
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def parameters(self, layer, *keys):
        """Add parameters of a layer; return their names."""
        return [self.constant(f"{layer.name}.{key}", getattr(layer, key)) for key in keys]

    def normalise(self, x, model, pixels):
        """Add nodes that turn raw pixels into floats with mean 0 and standard deviation 1."""
        if model.layers[0].input_dtype is not None or len(model.input_shape) != 3:
            raise ValueError(f"{model.name} takes inputs of shape {model.input_shape}, which aren't images")
        if not isinstance(pixels, (tuple, list)) or len(pixels) != 2:
            raise TypeError(f"pixels must be a pair (mean, std), got {shown(pixels)}")
        mean, std = constants.normalisation(*pixels, model.input_shape[0])
        scale, shift = constants.scale_and_shift(mean, std)
        x = self.add("Cast", "pixels", x, to=self.onnx.TensorProto.FLOAT)
        x = self.add("Mul", "scaled", x, self.constant("scale", np.reshape(scale, (-1, 1, 1))))
        return self.add("Add", "normalised", x, self.constant("shift", np.reshape(shift, (-1, 1, 1))))

    def product(self, name, x, weight, bias):
        """Add ``x @ weight.T + bias``, for x with any number of axes; return the name of the result."""
        weight = self.constant(f"{name}.weight", to_host(weight).T)
        x = self.add("MatMul", f"{name}.product", x, weight)
        return self.add("Add", name, x, self.constant(f"{name}.bias", bias))

    def reshape(self, name, x, *shape):
        """Add a reshape of x; 0 keeps the size of an axis, -1 stands for the rest."""
        return self.add("Reshape", name, x, self.constant(f"{name}.shape", np.array(shape, np.int64)))


def _node(operation, *keys, attributes=lambda layer: {}):
    """Return a function that writes a layer as one node, with the parameters that `keys` name."""

    def write(graph, layer, x):
        parameters = graph.parameters(layer, *keys)
        return graph.add(operation, layer.name, x, *parameters, **attributes(layer))

    return write


def _window(layer, **others):
    """Return the attributes of a window; ONNX wants the padding of both ends of each axis."""
    return {"kernel_shape": layer.kernel_size, "strides": layer.stride, "pads": 2 * layer.padding, **others}


def _lstm(graph, layer, x):
    """Add an LSTM. In ONNX the steps come first, then the batch, and the gates are i, o, f and g."""
    name, size = layer.name, layer.hidden_size

    def gates(array):
        i, f, g, o = to_host(array).reshape(4, size, *array.shape[1:])
        return np.concatenate([i, o, f, g])[np.newaxis]

    keys = "weight_ih", "weight_hh"
    weights = [graph.constant(f"{name}.{key}", gates(getattr(layer, key))) for key in keys]
    biases = np.concatenate([gates(layer.bias_ih), gates(layer.bias_hh)], axis=1)
    inputs = [graph.add("Transpose", f"{name}.steps", x, perm=[1, 0, 2]), *weights]
    inputs.append(graph.constant(f"{name}.biases", biases))
    if not layer.return_sequences:
        last = graph.add("LSTM", f"{name}.last", *inputs, outputs=2, hidden_size=size)
        return graph.add("Squeeze", name, last, graph.constant(f"{name}.axis", np.array([0])))
    states = graph.add("LSTM", f"{name}.states", *inputs, hidden_size=size)
    states = graph.add("Squeeze", f"{name}.squeezed", states, graph.constant(f"{name}.axis", np.array([1])))
    return graph.add("Transpose", name, states, perm=[1, 0, 2])


def _embedding(graph, layer, x):
    weight, positions = graph.parameters(layer, "weight", "positions")
    return graph.add("Add", layer.name, graph.add("Gather", f"{layer.name}.vectors", weight, x), positions)


def _attention(graph, layer, x):
    name, (_, length, features) = layer.name, layer.input_shape
    size = features // layer.heads
    x = graph.product(f"{name}.projected", x, layer.weight, layer.bias)
    x = graph.reshape(f"{name}.places", x, 0, length, 3, layer.heads, size)
    # Pick one of the three and move the heads first; keys are transposed for the product with the queries.
    parts = []
    for index, (part, order) in enumerate((("q", (0, 2, 1, 3)), ("k", (0, 2, 3, 1)), ("v", (0, 2, 1, 3)))):
        which = graph.constant(f"{name}.{part}.index", np.array(index))
        picked = graph.add("Gather", f"{name}.{part}.places", x, which, axis=2)
        parts.append(graph.add("Transpose", f"{name}.{part}", picked, perm=order))
    queries, keys, values = parts
    x = graph.add("MatMul", f"{name}.products", queries, keys)
    scale = graph.constant(f"{name}.scale", np.array(1 / math.sqrt(size)))
    x = graph.add("Mul", f"{name}.scores", x, scale)
    if layer.causal:
        later = np.triu(np.full((length, length), -np.inf), k=1)
        x = graph.add("Add", f"{name}.masked", x, graph.constant(f"{name}.mask", later))
    x = graph.add("Softmax", f"{name}.shares", x, axis=-1)
    x = graph.add("MatMul", f"{name}.averages", x, values)
    x = graph.add("Transpose", f"{name}.back", x, perm=(0, 2, 1, 3))
    x = graph.reshape(f"{name}.merged", x, 0, length, features)
    return graph.product(name, x, layer.out_weight, layer.out_bias)


def _chain(graph, layer, x):
    for inner in layer.layers:
        x = _write(graph, inner, x, layer.name)
    return x


# By exact type: a subclass may compute something else.
_WRITERS: dict[type[Layer], Callable] = {
    layers.Conv2d: _node("Conv", "weight", "bias", attributes=_window),
    layers.MaxPool2d: _node("MaxPool", attributes=_window),
    layers.AvgPool2d: _node("AveragePool", attributes=lambda layer: _window(layer, count_include_pad=1)),
    layers.Flatten: _node("Flatten", attributes=lambda layer: {"axis": 1}),
    layers.Linear: _node("Gemm", "weight", "bias", attributes=lambda layer: {"transB": 1}),
    layers.ReLU: _node("Relu"),
    layers.Sigmoid: _node("Sigmoid"),
    layers.Tanh: _node("Tanh"),
    BatchNorm2d: _node(
        *("BatchNormalization", "weight", "bias", "running_mean", "running_var"),
        attributes=lambda layer: {"epsilon": layer.eps},
    ),
    LayerNorm: _node(
        *("LayerNormalization", "weight", "bias"),
        attributes=lambda layer: {"axis": -len(layer.normalized_shape), "epsilon": layer.eps},
    ),
    Rows: lambda graph, layer, x: graph.reshape(layer.name, x, 0, *layer.output_shape(layer.input_shape)[1:]),
    LSTM: _lstm,
    layers.GELU: _node("Gelu"),
    transformer.TokenLinear: lambda graph, layer, x: graph.product(layer.name, x, layer.weight, layer.bias),
    transformer.FlattenTokens: lambda graph, layer, x: graph.reshape(layer.name, x, -1, layer.input_shape[2]),
    Embedding: _embedding,
    MultiHeadAttention: _attention,
    transformer.Chain: _chain,
    transformer.Residual: lambda graph, layer, x: graph.add("Add", layer.name, x, _chain(graph, layer, x)),
    transformer.TransformerBlock: _chain,
}
