"""The end of a classifier: its last dense layers and the loss, which a backend may compute together."""

from __future__ import annotations

from typing import Any, NamedTuple

from cnn_numba.device import Array, branch, first_rows
from cnn_numba.nn.layer import Layer, is_watched
from cnn_numba.nn.layers import CrossEntropyLoss, Linear, ReLU
from cnn_numba.nn.models import Sequential
from cnn_numba.ops.fused.checks import Hidden


class LossHead(NamedTuple):
    """A model's last dense layer and the loss; before them a ReLU and a hidden layer, if there are any.

    For the hidden layer the head computes only the forward pass. It writes the same arrays as the single
    layers, except the last layer's `grad_input`, the gradient of the ReLU's output.
    """

    loss: CrossEntropyLoss
    linear: Linear
    relu: ReLU | None
    hidden: Linear | None

    @property
    def layers(self) -> list[Layer]:
        """The layers whose backward pass the head computes, in the order of the model."""
        return [self.linear] if self.relu is None else [self.relu, self.linear]

    @property
    def first(self) -> Linear:
        """The layer whose input is the argument of `forward`."""
        return self.hidden or self.linear

    def forward(self, x: Array, labels: Array) -> Array:
        """Compute logits, losses, and the gradients of both with respect to their inputs; return the losses.

        `x`, shape (n, in_features), is the input of the `first` layer.
        """
        loss, linear, hidden, n = self.loss, self.linear, self.hidden, len(x)
        given: Any = x
        linear.x, linear.output = x, first_rows(linear.out, n)
        losses, loss.gradient = first_rows(loss.losses, n), first_rows(loss.grad_logits, n)
        if hidden is not None and self.relu is not None:
            hidden.x = x
            hidden.output = self.relu.output = linear.x = first_rows(hidden.out, n)
            given = Hidden(x, hidden.weight, hidden.bias, linear.x, hidden.ops.scratch)
        linear.backend.ops.fused.linear_cross_entropy_rows(
            given,
            linear.weight,
            linear.bias,
            labels,
            logits=linear.output,
            losses=losses,
            grad_logits=loss.gradient,
            grad_input=self.layers[0]._grad_input_like(x),
            relu=self.relu is not None,
            label_smoothing=loss.label_smoothing,
        )
        return losses

    def backward(self, labels: Array, totals: Array | None) -> Array:
        """Write the gradients of weight and bias, and add the batch to `totals`; return that of the input.

        The input is the ReLU's if there is one. In a graph the other results are ready after `device.join`.
        """
        loss, linear = self.loss, self.linear
        losses = first_rows(loss.losses, len(labels))
        grads = {"grad_weight": linear.grad_weight, "grad_bias": linear.grad_bias}
        with branch():  # only the update needs these sums
            linear.backend.ops.fused.linear_cross_entropy_sums(
                loss.gradient, linear.x, linear.output, labels, losses, totals=totals, **grads
            )
        return self.layers[0]._grad_input_like(labels)


def loss_head(model: Sequential, loss: CrossEntropyLoss, samples: int) -> LossHead | None:
    """Return the head of a model for a batch of `samples`, None if its layers must run one by one.

    They must if the backend has no operations for heads or one of these was replaced, if the head is too
    large, if a layer or the loss is of another type, or if its `forward` or `backward` is watched.
    """
    *before, linear = model.passes
    relu = before[-1] if before and type(before[-1]) is ReLU else None
    parts = [model, linear, loss] if relu is None else [model, relu, linear, loss]
    if (
        type(linear) is not Linear
        or type(loss) is not CrossEntropyLoss  # another loss may lack a backend
        or not all(backend.ops.fuses.head for backend in (model.backend, loss.backend))
        or linear.relu
        or linear.precision != "float32"
        or not linear.needs_grad_input
        or is_watched(parts, "forward", "backward")
        or not model.backend.ops.fused.head_fits(samples, linear.out_features, linear.in_features)
    ):
        return None
    return LossHead(loss, linear, relu, _hidden_before(relu, before))


def _hidden_before(relu, before):
    """Return the dense layer before the ReLU, None if the head cannot compute it."""
    hidden = before[-2] if relu is not None and len(before) > 1 else None
    is_plain = type(hidden) is Linear and hidden.precision == "float32"
    return hidden if is_plain and not is_watched([hidden], "forward", "backward") else None
