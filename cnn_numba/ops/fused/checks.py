"""Chains of convolutions, and the arguments of chains and heads, for all backends."""

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


class Chain(NamedTuple):
    """The geometry of a chain, for batches of up to ``shapes[0][0]`` images."""

    settings: list  # of each convolution: the weight's shape, stride, padding, ReLU, pooling
    windows: list
    shapes: list  # (N, C, H, W) of each convolution's input, and of the result


def _settings_of(convolutions):
    if not isinstance(convolutions, Sequence) or not convolutions:
        raise ValueError(f"convolutions must be a list with at least one, got {shown(convolutions)}")
    return [(each.weight.shape, *each[2:]) for each in convolutions]


def output_of(convolution, window):
    """Return height and width of a convolution's output, after its pooling."""
    scale = 2 if convolution.pool else 1
    return tuple(size // scale for size in window.out)


def chain_of(memory, x_shape, convolutions):
    """Return the `Chain` of some convolutions for images of this shape; ValueError if they do not match."""
    settings, shape = _settings_of(convolutions), tuple(x_shape)
    windows, shapes = [], [shape]
    for index, each in enumerate(convolutions):
        out_channels, in_channels, kernel_h, kernel_w = each.weight.shape
        if shape[1] != in_channels or 0 in each.weight.shape:
            raise ValueError(
                f"weight of convolution {index} must be for {shape[1]} channels, "
                f"got shape {each.weight.shape}"
            )
        sizes = dict(zip(("N", "C_in", "H", "W"), shape, strict=True), K_h=kernel_h, K_w=kernel_w)
        try:
            window = memory.window(sizes, each.stride, each.padding)
        except ValueError as error:
            raise ValueError(f"convolution {index}: {error}") from None
        height, width = output_of(each, window)
        if not height or not width:
            raise ValueError(f"the {window.out} pixels of convolution {index} are too few for a 2x2 pooling")
        shape = (shape[0], out_channels, height, width)
        windows.append(window)
        shapes.append(shape)
    return Chain(settings, windows, shapes)


def scratch_for(memory, make, kind, scratch, x, convolutions, *further):
    """Return working space for a batch: checked, as kernels write into it unchecked; new if it is None."""
    memory.check("x", x, (None,) * 4, np.float32)
    if scratch is None:
        return make(x.shape, convolutions, *further)
    fits = isinstance(scratch, kind) and scratch.chain.settings == _settings_of(convolutions)
    if not fits or len(x) > scratch.chain.shapes[0][0] or x.shape[1:] != scratch.chain.shapes[0][1:]:
        raise ValueError(f"scratch must come from conv_chain_scratch for this chain and x of shape {x.shape}")
    return scratch


def conv_chain_forward(memory, x, convolutions, out, chain):
    """Check the arguments of `conv_chain_forward` except `x`; return `out`, new if None."""
    read = {"x": x, **parameters(memory, convolutions)}
    out = _given_or_new(memory, "out", out, (len(x), *chain.shapes[-1][1:]))
    memory.apart({"out": out}, read, ())
    return out


def conv_chain_backward(memory, grad_output, x, convolutions, grads, grad_input, chain):
    """Check the arguments of `conv_chain_backward` except `x`; return the gradients, new where None."""
    memory.check("grad_output", grad_output, (len(x), *chain.shapes[-1][1:]), np.float32)
    read = parameters(memory, convolutions)
    grads = [(None, None)] * len(convolutions) if grads is None else grads
    if len(grads) != len(convolutions):
        raise ValueError(
            f"grads must hold a pair for each of {len(convolutions)} convolutions, got {len(grads)}"
        )
    written = {}
    for index, (given, convolution) in enumerate(zip(grads, convolutions, strict=True)):
        shapes_of_pair = convolution.weight.shape, (convolution.weight.shape[0],)
        for key, array, shape in zip(("weight", "bias"), given, shapes_of_pair, strict=True):
            name = f"grad_{key} of convolution {index}"
            written[name] = _given_or_new(memory, name, array, shape)
    if grad_input is not False:
        written["grad_input"] = _given_or_new(memory, "grad_input", grad_input, x.shape)
    memory.apart(written, {"grad_output": grad_output, "x": x, **read}, ())
    arrays = list(written.values())
    grads = [tuple(arrays[i : i + 2]) for i in range(0, 2 * len(convolutions), 2)]
    return grads, written.get("grad_input")


def parameters(memory, convolutions):
    """Check the parameters, and return them by name."""
    named = {}
    for index, (weight, bias, *_) in enumerate(convolutions):
        for name, array, shape in (("weight", weight, (None,) * 4), ("bias", bias, weight.shape[:1])):
            named[f"{name} of convolution {index}"] = array
            memory.check(f"{name} of convolution {index}", array, shape, np.float32)
    return named


def _given_or_new(memory, name, array, shape):
    """Return an output after its check, a new one if it is None."""
    if array is None:
        return memory.empty(shape, np.float32)
    return memory.check(name, array, shape, np.float32, True)


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
