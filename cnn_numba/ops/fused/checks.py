"""Chains of convolutions, and the arguments of chains and heads, for all backends."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from cnn_numba.arguments import shown
from cnn_numba.ops.specs import Spec


class Convolution(NamedTuple):
    """One convolution of a chain, with the ReLU and the pooling after it."""

    weight: Any  # (C_out, C_in, K_h, K_w)
    bias: Any  # (C_out,)
    stride: Any = 1
    padding: Any = 0
    relu: bool = False
    pool: bool = False  # 2x2 max pooling with stride 2, after the ReLU


class Hidden(NamedTuple):
    """A dense layer with a ReLU before the last layer; a head computes its output first."""

    x: Any  # (N, in_features)
    weight: Any  # (units, in_features)
    bias: Any  # (units,)
    out: Any  # (N, units): the output, which is the input of the last layer
    scratch: Any = None  # from `linear_scratch`; None allocates it if needed


class Geometry(NamedTuple):
    """A convolution of a chain without its parameters."""

    weight: tuple  # the shape
    stride: Any = 1
    padding: Any = 0
    relu: bool = False
    pool: bool = False

    def output(self, window):
        """Return height and width of the output, after the pooling."""
        return tuple(size // 2 if self.pool else size for size in window.out)


class Chain(NamedTuple):
    """How the windows of a chain slide over a batch."""

    windows: list
    shapes: list  # (N, C, H, W) of each convolution's input, and of the result

    @property
    def out(self):
        """Height and width of the result."""
        return self.shapes[-1][2:]


def _listed(convolutions):
    if not isinstance(convolutions, Sequence) or not convolutions:
        raise ValueError(f"convolutions must be a list with at least one, got {shown(convolutions)}")
    return convolutions


def geometries(convolutions):
    """Return the `Geometry` of each convolution."""
    return [Geometry(np.shape(each.weight), *each[2:]) for each in _listed(convolutions)]


@functools.cache
def _specs(count):
    """Return the declarations for a chain of so many convolutions, by what they declare."""
    kernels = [f"C{i + 1} C{i} K_h{i} K_w{i}" for i in range(count)]
    pairs = ", ".join(f"weight_{i}[{kernel}], bias_{i}[C{i + 1}]" for i, kernel in enumerate(kernels))
    inputs, result = f"x[N C0 H W], {pairs}", f"[N C{count} H_out W_out]"
    gradients = pairs.replace("weight", "grad_weight").replace("bias", "grad_bias")
    backward = f"grad_output~{result}, {inputs} -> {gradients}"
    texts = {
        "shapes": ", ".join(
            ["input_shape(N C0 H W)", *(f"weight_{i}({kernel})" for i, kernel in enumerate(kernels))]
        ),
        "inputs": inputs,
        "forward": f"{inputs} -> out{result}",
        "backward": f"{backward}, grad_input[N C0 H W]",
        "backward_parameters": backward,
    }
    how = {"filled": " ".join(kernels), "computed": "H_out W_out", "scratch": "N C0 H W"}
    return {name: Spec(text, **how) for name, text in texts.items()}


def _slide(sizes, window, layers, known=None):
    """Return the `Chain` of some geometries, from `known` working space if it has it.

    ValueError if an image is too small.
    """
    shapes = [tuple(sizes[axis] for axis in ("N", "C0", "H", "W"))]
    if (getattr(known, "layers", None), getattr(known, "image", None)) == (layers, shapes[0][1:]):
        return known.chain  # every step has the same
    windows = []
    for index, layer in enumerate(layers):
        batch, _, height, width = shapes[-1]
        axes = {"H": height, "W": width, "K_h": layer.weight[2], "K_w": layer.weight[3]}
        try:
            windows.append(window(axes, layer.stride, layer.padding))
        except ValueError as error:
            raise ValueError(f"convolution {index}: {error}") from None
        shapes.append((batch, layer.weight[0], *layer.output(windows[-1])))
        if 0 in shapes[-1][2:]:
            pixels = windows[-1].out
            raise ValueError(f"the {pixels} pixels of convolution {index} are too few for a 2x2 pooling")
    return Chain(windows, shapes)


def chain_of(memory, input_shape, layers):
    """Return the `Chain` of some geometries for images of this shape; ValueError if they do not match."""
    shapes, window = (input_shape, *(layer.weight for layer in layers)), (memory.window, layers)
    return _specs(len(layers))["shapes"](memory._replace(window=_slide), *shapes, window=window)[-1]


def _check(memory, name, convolutions, before, after, needs_grad_input=False, scratch=None):
    """Check what comes before and after the parameters.

    Return what comes after, new where None, and the working space: None without `scratch`.
    """
    layers = geometries(convolutions)
    arrays = [*before, *(array for each in convolutions for array in each[:2]), *after]
    window = memory.window, layers, scratch and scratch[1]
    scratch = scratch and (*scratch, convolutions, needs_grad_input)
    spec, memory = _specs(len(layers))[name], memory._replace(window=_slide)
    checked = spec(memory, *arrays, window=window, scratch=scratch)
    return checked[len(arrays) - len(after) : len(arrays)], checked[-1] if scratch else None


def conv_chain_inputs(memory, x, convolutions, scratch):
    """Check the images, the parameters and the working space of a chain."""
    _check(memory, "inputs", convolutions, (x,), (), scratch=scratch)


def conv_chain_forward(memory, x, convolutions, out, scratch=None):
    """Check the arguments of `conv_chain_forward`; return `out`, new if None, and the working space."""
    (out,), scratch = _check(memory, "forward", convolutions, (x,), (out,), scratch=scratch)
    return out, scratch


def conv_chain_backward(memory, grad_output, x, convolutions, grads, grad_input, scratch=None):
    """Check the arguments of `conv_chain_backward`; return gradients, new where None, and scratch."""
    count, needs_grad_input = len(_listed(convolutions)), grad_input is not False
    grads = [(None, None)] * count if grads is None else grads
    lengths = [len(pair) for pair in grads]
    if lengths != [2] * count:
        raise ValueError(f"grads must hold a pair for each of {count} convolutions, got lengths {lengths}")
    name, after = "backward_parameters", [array for pair in grads for array in pair]
    if needs_grad_input:
        name, after = "backward", [*after, grad_input]
    made, scratch = _check(memory, name, convolutions, (grad_output, x), after, needs_grad_input, scratch)
    pairs = [(made[i], made[i + 1]) for i in range(0, 2 * count, 2)]
    return pairs, made[2 * count] if needs_grad_input else None, scratch


linear_cross_entropy_rows = Spec(
    "x[N in_features], weight[K in_features], bias[K], labels:int32[N] -> "
    "logits[N K], losses[N], grad_logits[N K], grad_input[N in_features]",
    filled="N K in_features",
)
linear_cross_entropy_sums = Spec(
    "grad_logits[N K], x[N in_features], logits[N K], labels:int32[N], losses[N], totals?!:float64[2] -> "
    "grad_weight[K in_features], grad_bias[K]",
    filled="N K in_features",
)
