"""The layers of convolutional networks, and the loss at their end."""

import math
from typing import Any

import numpy as np

from cnn_numba.arguments import integer, pair, settings
from cnn_numba.device import Array, first_rows
from cnn_numba.nn.layer import Layer, Saved, Shape
from cnn_numba.ops.backends import BackendLike, backend
from cnn_numba.ops.scratch import with_scratch
from cnn_numba.ops.shapes import conv2d_window, pool2d_window

#: A number for both axes of an image, or (vertical, horizontal).
Size2d = int | tuple[int, int]


class _Weighted(Layer):
    """A layer with a weight, the axis of the outputs first, and a bias for each output."""

    weight_shape: Shape
    relu = False  # whether the same pass also computes the ReLU layer that follows

    def parameter_shapes(self) -> dict[str, Shape]:
        """Return the shapes of weight and bias."""
        return {"weight": self.weight_shape, "bias": self.weight_shape[:1]}

    def initialise(self, generator: np.random.Generator) -> None:
        """Draw normal weights of variance 2 / fan-in; zero the bias.

        He, Zhang, Ren and Sun, "Delving deep into rectifiers" (2015), equation 10.
        """
        fan_in = math.prod(self.weight_shape[1:])
        self.weight[...] = generator.normal(0, math.sqrt(2 / fan_in), self.weight_shape)
        self.bias[:] = 0


class Conv2d(_Weighted):
    """2-D convolution (cross-correlation) with stride and zero padding.

    In a model in float32, `nn.chains` computes it together with its neighbours.

    Examples
    --------
    >>> Conv2d(1, 32, 3).output_shape((64, 1, 28, 28))
    (64, 32, 26, 26)
    """

    kind = "conv"
    operation = "conv"

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size2d,
        stride: Size2d = 1,
        padding: Size2d = 0,
    ) -> None:
        super().__init__()
        self.in_channels = integer(in_channels, "in_channels", minimum=1)
        self.out_channels = integer(out_channels, "out_channels", minimum=1)
        self.kernel_size = pair(kernel_size, "kernel_size")
        self.stride, self.padding = pair(stride, "stride"), pair(padding, "padding", minimum=0)
        self.weight_shape = (self.out_channels, self.in_channels, *self.kernel_size)

    def __repr__(self):
        return (
            f"Conv2d({self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}, padding={self.padding})"
        )

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return (N, out_channels, H_out, W_out)."""
        if len(input_shape) != 4 or input_shape[1] != self.in_channels:
            takes = f"inputs of shape (N, {self.in_channels}, H, W)"
            raise self._refusal(takes, input_shape, self.in_channels)
        window = conv2d_window(input_shape, self.weight_shape, self.stride, self.padding)
        return (input_shape[0], self.out_channels, window.out_h, window.out_w)

    def allocate(self) -> None:
        """Allocate the scratch space of the convolution."""
        window = self.weight_shape, self.stride, self.padding
        self.ops = with_scratch(self.ops, "conv2d", self.input_shape, *window)

    @property
    def _options(self):
        return {"stride": self.stride, "padding": self.padding, **self._rounding}

    def forward(self, x: Array, training: bool = True) -> Array:
        """Convolve the batch."""
        self.x, out, options = x, first_rows(self.out, x.shape[0]), self._options
        self.output = self.ops.conv2d_forward(x, self.weight, self.bias, out=out, relu=self.relu, **options)
        return self.output

    def backward(self, grad_output: Array) -> Array | None:
        """Write the gradients of weight and bias; return that of the input."""
        options = self._options
        self.ops.conv2d_backward_weight(
            grad_output, self.x, self.weight_shape, grad_weight=self.grad_weight, **options
        )
        self.ops.conv2d_backward_bias(grad_output, grad_bias=self.grad_bias)
        if not self.needs_grad_input:
            return None
        options["grad_input"] = self._grad_input_like(grad_output)
        return self.ops.conv2d_backward_input(grad_output, self.weight, self.x.shape, **options)


class _Pool2d(Layer):
    operation = "pool"

    def __init__(self, kernel_size: Size2d, stride: Size2d | None = None, padding: Size2d = 0) -> None:
        super().__init__()
        self.kernel_size = pair(kernel_size, "kernel_size")
        self.stride = self.kernel_size if stride is None else pair(stride, "stride")
        self.padding = pair(padding, "padding", minimum=0)

    @property
    def _window(self):
        return {"kernel_size": self.kernel_size, "stride": self.stride, "padding": self.padding}

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(f'{name}={size}' for name, size in self._window.items())})"

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return (N, C, H_out, W_out)."""
        window = pool2d_window(input_shape, self.kernel_size, self.stride, self.padding)
        return (*input_shape[:2], window.out_h, window.out_w)


class MaxPool2d(_Pool2d):
    """Largest value under each window; `stride` is `kernel_size` if None.

    Examples
    --------
    >>> MaxPool2d(2).output_shape((64, 64, 11, 11))
    (64, 64, 5, 5)
    """

    kind = "pool"
    argmax: Any = Saved()

    def allocate(self) -> None:
        """Allocate the positions of the maxima."""
        self.positions = self.backend.empty(self.out.shape, np.int32)

    def forward(self, x: Array, training: bool = True) -> Array:
        """Pool the batch, keeping where the maxima were."""
        out, argmax = first_rows(self.out, x.shape[0]), first_rows(self.positions, x.shape[0])
        self.output, self.argmax = self.ops.max_pool2d_forward(x, **self._window, out=out, argmax=argmax)
        return self.output

    def backward(self, grad_output: Array) -> Array | None:
        """Send each gradient to where the maximum was."""
        if not self.needs_grad_input:
            return None
        grad_input = self._grad_input_like(grad_output)
        return self.ops.max_pool2d_backward(grad_output, self.argmax, grad_input.shape, grad_input=grad_input)


class AvgPool2d(_Pool2d):
    """Mean under each window, padding zeros included; arguments as for `MaxPool2d`.

    Examples
    --------
    >>> AvgPool2d((2, 3), padding=1).output_shape((1, 8, 6, 6))
    (1, 8, 4, 2)
    """

    kind = "avg_pool"

    def forward(self, x: Array, training: bool = True) -> Array:
        """Pool the batch."""
        self.x, out = x, first_rows(self.out, x.shape[0])
        self.output = self.ops.avg_pool2d_forward(x, **self._window, out=out)
        return self.output

    def backward(self, grad_output: Array) -> Array | None:
        """Share each gradient out over its window."""
        if not self.needs_grad_input:
            return None
        out = {"grad_input": self._grad_input_like(self.x)}
        return self.ops.avg_pool2d_backward(grad_output, self.x.shape, **self._window, **out)


class View(Layer):
    """A view of the batch in another shape, `output_shape`."""

    def build(self, input_shape: Shape, device: BackendLike = "cpu", needs_grad_input: bool = True) -> None:
        """Keep the shape; there is nothing to allocate."""
        self.input_shape = tuple(input_shape)

    def forward(self, x: Array, training: bool = True) -> Array:
        """Return the batch in its new shape."""
        self.x, self.output = x, x.reshape(self.output_shape(x.shape))
        return self.output

    def backward(self, grad_output: Array) -> Array | None:
        """Return the gradient in the shape of the input."""
        self.grad_input = grad_output.reshape(self.x.shape)
        return self.grad_input


class Flatten(View):
    """Reshape each image into one row of features.

    Examples
    --------
    >>> Flatten().output_shape((64, 64, 5, 5))
    (64, 1600)
    """

    kind = "flatten"

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return (N, C * H * W)."""
        return (input_shape[0], math.prod(input_shape[1:]))


class Linear(_Weighted):
    """Dense layer, ``x @ weight.T + bias``.

    Examples
    --------
    >>> Linear(1600, 128).parameter_shapes()
    {'weight': (128, 1600), 'bias': (128,)}
    """

    kind = "linear"
    operation = "dense"

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features = integer(in_features, "in_features", minimum=1)
        self.out_features = integer(out_features, "out_features", minimum=1)
        self.weight_shape = self.out_features, self.in_features

    def __repr__(self):
        return f"{type(self).__name__}({self.in_features}, {self.out_features})"

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return (N, out_features)."""
        if len(input_shape) != 2 or input_shape[1] != self.in_features:
            raise self._refusal(f"inputs of shape (N, {self.in_features})", input_shape)
        return input_shape[0], self.out_features

    def allocate(self) -> None:
        """Allocate the scratch space of the products."""
        rows = math.prod(self.input_shape[:-1])
        self.ops = with_scratch(self.ops, "linear", rows, self.in_features, self.out_features)

    def forward(self, x: Array, training: bool = True) -> Array:
        """Multiply the batch by the weight and add the bias."""
        self.x, self.output = self._rows(x), first_rows(self.out, x.shape[0])
        out, options = self._rows(self.output), {"relu": self.relu, **self._rounding}
        self.ops.linear_forward(self.x, self.weight, self.bias, out=out, **options)
        return self.output

    def backward(self, grad_output: Array) -> Array | None:
        """Write the gradients of weight and bias; return that of the input."""
        gradient, out = self._rows(grad_output), {"grad_weight": self.grad_weight, **self._rounding}
        if not self.needs_grad_input:
            self.ops.linear_backward_weight(gradient, self.x, **out)
            self.ops.linear_backward_bias(gradient, grad_bias=self.grad_bias)
            return None
        grad_input = self._grad_input_like(grad_output)
        out |= {"grad_input": self._rows(grad_input), "grad_bias": self.grad_bias}
        self.ops.linear_backward(gradient, self.x, self.weight, **out)
        return grad_input

    @staticmethod
    def _rows(x):
        """Return the batch as rows; a subclass may have more axes."""
        return x


class _Activation(Layer):
    operation = "activation"
    slope_from = "output"  # the attribute that the function's derivative is computed from

    def forward(self, x: Array, training: bool = True) -> Array:
        """Apply the function to every element."""
        self.x = x
        function = getattr(self.ops, f"{self.kind}_forward")
        self.output = function(x, out=first_rows(self.out, x.shape[0]))
        return self.output

    def backward(self, grad_output: Array) -> Array | None:
        """Multiply the gradient by the function's derivative."""
        if not self.needs_grad_input:
            return None
        function, saved = getattr(self.ops, f"{self.kind}_backward"), getattr(self, self.slope_from)
        return function(grad_output, saved, grad_input=self._grad_input_like(grad_output))


class ReLU(_Activation):
    """``max(x, 0)``."""

    kind = "relu"
    fused = False  # whether the layer before applies it

    def forward(self, x: Array, training: bool = True) -> Array:
        """Apply the function to every element, unless the layer before has."""
        if not self.fused:
            return super().forward(x, training)
        self.output = x
        return x


class Sigmoid(_Activation):
    """``1 / (1 + exp(-x))``."""

    kind = "sigmoid"


class Tanh(_Activation):
    """Hyperbolic tangent."""

    kind = "tanh"


class GELU(_Activation):
    """``x * P(x)`` with the normal distribution's cumulative function P."""

    kind = "gelu"
    slope_from = "x"


class CrossEntropyLoss:
    """Softmax and cross-entropy on logits; the loss at the end of a classifier.

    Parameters
    ----------
    batch_size, classes : int
        Of the largest batch.
    device : {"cpu", "gpu", "reference"}
    label_smoothing : float
        The share of the target that is spread over all classes; losses are those of the smoothed target.

    Examples
    --------
    >>> loss = CrossEntropyLoss(batch_size=2, classes=4)
    >>> losses = loss.forward(np.zeros((2, 4), np.float32), np.array([0, 3], np.int32))
    >>> [round(float(value), 4) for value in losses]
    [1.3863, 1.3863]
    >>> loss.backward().tolist()
    [[-0.375, 0.125, 0.125, 0.125], [0.125, 0.125, 0.125, -0.375]]
    """

    gradient: Array | None = None  #: Of the logits, from the last `forward`

    def __init__(
        self, batch_size: int, classes: int, device: BackendLike = "cpu", label_smoothing: float = 0.0
    ) -> None:
        shape = integer(batch_size, "batch_size", minimum=1), integer(classes, "classes", minimum=1)
        (self.label_smoothing,) = settings(label_smoothing=label_smoothing)
        self.backend = backend(device)
        self.ops = self.backend.ops.loss
        self.losses, self.grad_logits = self.backend.empty(shape[0]), self.backend.empty(shape)

    def forward(self, logits: Array, labels: Array) -> Array:
        """Return the loss of each sample, shape (n,); the same pass computes the gradient."""
        n, how = logits.shape[0], {"label_smoothing": self.label_smoothing}
        out = {"losses": first_rows(self.losses, n), "grad_logits": first_rows(self.grad_logits, n)}
        losses, self.gradient = self.ops.cross_entropy_forward_backward(logits, labels, **out, **how)
        return losses

    def backward(self) -> Array:
        """Return the gradient of the batch's mean loss with respect to the logits."""
        if self.gradient is None:
            raise AttributeError("the loss has no gradient yet: call forward first")
        return self.gradient
