"""Check the reader's network: each part of a training step against the reference, on the same numbers."""

from typing import NamedTuple

import numpy as np

from cnn_numba import device
from cnn_numba.nn.layers import Conv2d, CrossEntropyLoss, Linear, MaxPool2d, ReLU
from cnn_numba.nn.models import Sequential, mnist_cnn
from cnn_numba.ops.update import reference as update
from cnn_numba.train.optim import Adam

# As a share of the largest number: sums of up to 43,264 products, in float32 and in another order.
TOLERANCE = 2e-4
# As a share of the slope: at the network's kinks, a finite step measures the slope of neither side.
SLOPE_TOLERANCE = 1e-2

# The kernels that compute each result of a layer.
_KERNELS = {
    Conv2d: {
        "output": ("conv2d_kernel",),
        "grad_weight": ("conv2d_backward_weight_kernel",),
        "grad_bias": ("bias_gradient_kernel",),
        "grad_input": ("conv2d_backward_input_kernel",),
    },
    MaxPool2d: {
        "output": ("max_pool_kernel",),
        "argmax": ("max_pool_kernel",),
        "grad_input": ("max_pool_backward_kernel",),
    },
    Linear: {
        "output": ("dense_kernel", "relu_stride_kernel"),
        "grad_weight": ("dense_backward_weight_kernel",),
        "grad_bias": ("bias_gradient_kernel",),
        "grad_input": ("dense_backward_input_kernel",),
    },
    ReLU: {"grad_input": ("relu_backward_kernel",)},
    CrossEntropyLoss: {"losses": ("cross_entropy_kernel",), "grad_logits": ("cross_entropy_kernel",)},
    Adam: {name: ("adam_kernel",) for name in ("parameters", "exp_avg", "exp_avg_sq")},
}


class Comparison(NamedTuple):
    """One result of the network: where, what, by which kernels, and how far it is off."""

    place: str
    quantity: str
    kernels: tuple
    error: float

    @property
    def passed(self) -> bool:
        """Whether the error is no larger than rounding; False for NaN."""
        return self.error <= TOLERANCE


class GradientCheck(NamedTuple):
    """What `check_gradients` found.

    Attributes
    ----------
    comparisons : list of Comparison
        In the order in which a step computes them.
    measured, computed : float
        How fast the loss changes if all parameters move in one random direction: by moving them, with the
        reference's forward pass, and by the gradients.
    """

    comparisons: list
    measured: float
    computed: float

    @property
    def slope_agrees(self) -> bool:
        """Whether the gradients give the measured slope."""
        return abs(self.computed - self.measured) <= SLOPE_TOLERANCE * abs(self.measured)

    @property
    def wrong(self) -> list:
        """The comparisons that failed."""
        return [comparison for comparison in self.comparisons if not comparison.passed]

    @property
    def passed(self) -> bool:
        """Whether everything agrees."""
        return self.slope_agrees and not self.wrong

    def __repr__(self):
        right = len(self.comparisons) - len(self.wrong)
        lines = [f"{right} of {len(self.comparisons)} results of a step agree with the reference in float64"]
        for place, quantity, kernels, error in self.wrong:
            lines.append(f"✘ {place}, {quantity}: off by {error:.1%} of the largest; {' or '.join(kernels)}")
        verdict = "as" if self.slope_agrees else "NOT as"
        lines.append(f"the loss changes {verdict} the gradients say, in a random direction of all parameters")
        return "\n".join(lines)


def check_gradients(model: Sequential, images: np.ndarray, labels: np.ndarray) -> GradientCheck:
    """Compare each part of one training step with the reference, on the same inputs.

    A wrong part is reported even where a later one hides it. Parameters and optimiser do not change.

    Parameters
    ----------
    model : Sequential
        `mnist_cnn` on a gpu backend.
    images : ndarray, shape (n, 1, 28, 28), uint8
        At most a batch; a few are enough.
    labels : ndarray, shape (n,), int32

    Returns
    -------
    GradientCheck
    """
    x = images.astype(np.float32) / np.float32(255)
    twin = mnist_cnn(len(x), "reference")
    twin.parameters[:] = device.to_host(model.parameters)
    _poison(model)
    comparisons = [*_forward(model, twin, x), *_backward(model, twin, labels)]
    gradients = _float64(model.gradients)
    comparisons += _update(model, gradients)
    return GradientCheck(comparisons, *_slopes(twin, gradients, x.astype(np.float64), labels))


def _forward(model, twin, x):
    """Compare the layers' outputs."""
    value = device.to_device(x)
    for layer, reference in zip(model.layers, twin.layers, strict=True):
        given = _float64(value)
        value = layer.forward(value)
        results = {"output": (value, reference.forward(given))}
        if isinstance(layer, MaxPool2d):
            results["argmax"] = layer.argmax[: len(x)], reference.argmax
        yield from _compare(layer, layer.name, **results)


def _backward(model, twin, labels):
    """Compare the loss, and the gradients from there back to the first layer."""
    logits = model.layers[-1].output
    loss = CrossEntropyLoss(model.batch_size, logits.shape[1], model.backend)
    reference = CrossEntropyLoss(len(labels), logits.shape[1], "reference")
    losses = loss.forward(logits, device.to_device(labels)), reference.forward(_float64(logits), labels)
    gradient = loss.backward()
    yield from _compare(loss, "loss", losses=losses, grad_logits=(gradient, reference.backward()))
    for layer, reference in zip(model.layers[::-1], twin.layers[::-1], strict=True):
        given = _float64(gradient)
        gradient, expected = layer.backward(gradient), reference.backward(given)
        results = {"grad_input": (gradient, expected)} if gradient is not None else {}
        for name in layer.parameter_shapes():
            results[f"grad_{name}"] = getattr(layer, f"grad_{name}"), getattr(reference, f"grad_{name}")
        yield from _compare(layer, layer.name, **results)


def _update(model, gradients, step=3):
    """Compare one step of Adam, as in the middle of a training run."""
    before = device.to_host(model.parameters).copy()
    means = np.random.default_rng(1).uniform(0.1, 1, (2, before.size)).astype(np.float32)
    optimizer = Adam(model, lr=1.0)
    optimizer.load_state({"exp_avg": means[0], "exp_avg_sq": means[1], "step": np.int64(step - 1)})
    optimizer.scheduled_step(device.to_device(optimizer.rates([optimizer.lr])), device.zeros(1, np.int32))
    results = {"parameters": device.to_host(model.parameters) - before}
    results |= {name: device.to_host(optimizer.state[name]) for name in ("exp_avg", "exp_avg_sq")}
    device.copy(model.parameters, before)
    moved, m, v = np.zeros(before.size), *means.astype(np.float64)
    update.adam_update(moved, gradients, m, v, step, optimizer.lr, **optimizer.settings)
    expected = dict(zip(results, (moved, m, v), strict=True))
    return list(_compare(optimizer, "Adam", **{name: (results[name], expected[name]) for name in results}))


def _slopes(twin, gradients, x, labels, distance=1e-6):
    """Return how the loss changes in a random direction: measured, and by the gradients."""
    direction = np.random.default_rng(0).normal(size=twin.parameters.size)
    loss = CrossEntropyLoss(len(labels), 10, "reference")
    start, means = twin.parameters.copy(), []
    for sign in (1, -1):
        twin.parameters[:] = start + sign * distance * direction
        means.append(loss.forward(twin.forward(x), labels).mean())
    return (means[0] - means[1]) / (2 * distance), float(gradients @ direction)


def _compare(owner, place, **results):
    """Yield a `Comparison` for each result that a kernel has computed."""
    kernels = _KERNELS.get(type(owner), {})
    for quantity, (computed, expected) in results.items():
        if quantity in kernels:
            error = np.abs(_float64(computed) - expected).max() / max(np.abs(expected).max(), 1e-30)
            yield Comparison(place, quantity, kernels[quantity], float(error))


def _poison(model):
    """Fill the kernels' outputs with NaN, so that unwritten elements show."""
    for layer in model.layers:
        for array in (getattr(layer, name, None) for name in ("out", "grad_input")):
            if array is not None:
                device.copy(array, np.full(array.shape, np.nan, np.float32))
    device.copy(model.gradients, np.full(model.gradients.shape, np.nan, np.float32))


def _float64(array):
    return device.to_host(array).astype(np.float64)
