"""Layers computed in one pass: convolutions, each with the ReLU and the max pooling after it.

A *stage* is one convolution with its ReLU and pooling; a chain is the stages that follow one another.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from cnn_numba.device import Array, copy, first_rows, to_host
from cnn_numba.nn.layer import Layer, is_watched
from cnn_numba.nn.layers import Conv2d, MaxPool2d, ReLU
from cnn_numba.ops.backends import Backend
from cnn_numba.ops.fused.checks import Convolution


def chained(layers: Sequence[Layer], backend: Backend) -> list[Layer | ConvChain]:
    """Return a model's built layers, with a `ConvChain` in place of those that form one.

    A backend without chains, or in which operations of a chain were replaced, keeps all layers.
    """
    if not backend.ops.fuses.chain:
        return list(layers)
    passes: list[Layer | ConvChain] = []
    rest = list(layers)
    while rest:
        stages = []
        while rest and (stage := _first_stage(rest)):
            stages.append(stage)
            rest = rest[len(stage) :]
        passes.append(ConvChain(stages) if stages else rest.pop(0))
    return passes


def _first_stage(layers: list[Layer]) -> list[Layer]:
    """Return the convolution at the start with its ReLU and pooling; [] if a chain can't compute them.

    Subclasses don't count: they may compute something else.
    """
    conv, *rest = layers
    if type(conv) is not Conv2d or conv.precision != "float32" or max(conv.kernel_size) < 2:
        return []
    stage: list[Layer] = [conv]
    if rest and type(rest[0]) is ReLU:
        stage.append(rest.pop(0))
    pool = rest[0] if rest else None
    if type(pool) is MaxPool2d and (pool.kernel_size, pool.stride, pool.padding) == ((2, 2), (2, 2), (0, 0)):
        stage.append(pool)
    return stage


class ConvChain:
    """The stages of a model that the backend computes in one pass; each is a list of built layers.

    The chain does not keep the layers' `output` and a pooling's `argmax`. When one is read, the layers run
    one by one on the last batch: on the CPU with the parameters of that pass, on the GPU, which has no copy
    of those, with the current ones. The chain's own output does not change. If a layer has run by itself
    since, the backward pass runs layer by layer.
    """

    def __init__(self, stages: Sequence[list[Layer]]) -> None:
        self.layers = [layer for stage in stages for layer in stage]
        first, backend = self.layers[0], self.layers[0].backend
        self.ops, self.on_device = backend.ops.fused, backend.on_device
        #: Each convolution, and whether a pooling follows it.
        self.stages: list[Any] = [(stage[0], isinstance(stage[-1], MaxPool2d)) for stage in stages]
        self.needs_grad_input, self.reference = first.needs_grad_input, weakref.ref(self)
        shape = first.input_shape
        self.scratch = self.ops.conv_chain_scratch(shape, self.convolutions(), self.needs_grad_input)

    def convolutions(self) -> list[Convolution]:
        """Return the stages as operations take them, with the layers' current parameters."""
        return [
            Convolution(conv.weight, conv.bias, conv.stride, conv.padding, conv.relu, pool)
            for conv, pool in self.stages
        ]

    def forward(self, x: Array, training: bool = True) -> Array:
        """Compute the output of the last layer."""
        if is_watched(self.layers, "forward"):
            self._own(None)
            for layer in self.layers:
                x = layer.forward(x, training)
            return x
        self.x = x
        out = first_rows(self.layers[-1].out, len(x))
        self.ops.conv_chain_forward(x, self.convolutions(), out, scratch=self.scratch)
        self.out, self.layers_ran = out, False
        self._own(self.reference)
        return out

    @property
    def output(self) -> Array:
        """What the last layer's last pass returned, by the chain or alone."""
        last = self.layers[-1]
        return self.out if last.chain is self.reference else last.output

    def gather(self, *arguments: Any) -> tuple[Array, Array]:
        """Gather a batch like ``gather_batch_at(*arguments)``, if possible together with the first layers.

        Call `forward` of the batch before the parameters change.
        """
        ops = self.layers[0].backend.ops
        if is_watched(self.layers, "forward") or not ops.fuses.gather:
            return ops.gather.gather_batch_at(*arguments)
        return self.ops.conv_chain_gather_at(self.convolutions(), self.scratch, *arguments)

    def backward(self, grad_output: Array) -> Array | None:
        """Write the gradients of all parameters; return that of the input (None if not needed)."""
        ran_alone = any(layer.chain is not self.reference for layer in self.layers)
        if ran_alone or is_watched(self.layers, "backward"):
            gradient: Any = grad_output
            for layer in reversed(self.layers):
                gradient = layer.backward(gradient)
            return gradient
        grad_input: Any = self.layers[0]._grad_input_like(self.x) if self.needs_grad_input else False
        grads = [(conv.grad_weight, conv.grad_bias) for conv, _ in self.stages]
        _, grad_input = self.ops.conv_chain_backward(
            grad_output, self.x, self.convolutions(), grads, grad_input, scratch=self.scratch
        )
        return grad_input

    @contextmanager
    def deferring_sums(self) -> Iterator[list[Any]]:
        """Make `backward` leave the last sums for the gradients of the first one or two convolutions.

        Yield the list of these sums, which the update must add up: before it, these gradients are incomplete.
        Only on the GPU.
        """
        whole, sums = self.scratch, []  # type: Any, list[Any]
        self.scratch = whole._replace(pending=sums)
        try:
            yield sums
        finally:
            self.scratch = whole
            whole.begun[0] = None  # after an interrupt: the gathered batch will not be used

    def run_layers(self) -> None:
        """Run the layers one by one, unless that is done, so that each has its output."""
        if self.layers_ran:
            return
        self._own(None)
        now, result = [(conv.weight, conv.bias) for conv, _ in self.stages], np.array(to_host(self.out))
        self._set_parameters(self.scratch.parameters(self.convolutions()))
        try:
            x = self.x
            for layer in self.layers:
                x = layer.forward(x)
        finally:
            self._set_parameters(now)
            copy(self.out, result)  # the layers round differently, and reading must not change training
        self._own(self.reference)
        # A graph on the GPU computes the next batch without calling `forward`.
        self.layers_ran = not self.on_device

    def _set_parameters(self, pairs):
        for (conv, _), (weight, bias) in zip(self.stages, pairs, strict=True):
            conv.weight, conv.bias = weight, bias

    def _own(self, reference):
        for layer in self.layers:
            layer.chain = reference
