"""`new_last_layer`: a trained network gets a new last layer; the other layers stay frozen."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cnn_course.engine import workbook
from cnn_course.engine.checks.exercise import Exercise, Wrong
from cnn_course.engine.checks.judges import wrapping
from cnn_numba import BatchNorm2d, CrossEntropyLoss
from cnn_numba.nn.layers import Conv2d, Flatten, Linear, MaxPool2d, ReLU
from cnn_numba.nn.models import Sequential


@dataclass(frozen=True)
class Trained:
    """A small network with random numbers instead of trained ones; an attempt gets what `built` returns."""

    seed: int
    image: tuple
    classes: int
    batch_size: int

    def __repr__(self):
        return "Sequential of 6 layers"

    def built(self):
        """Return the network, with gradients as if from an earlier step."""
        channels, height, width = self.image
        features = 4 * (height // 2) * (width // 2)
        layers = [Conv2d(channels, 4, 3, padding=1), MaxPool2d(2), BatchNorm2d(4), ReLU(), Flatten()]
        net = Sequential([*layers, Linear(features, self.classes)], self.image, self.batch_size)
        rng = np.random.default_rng(self.seed)
        for arena in (net.parameters, net.gradients):
            arena[:] = 0.5 * rng.normal(size=arena.size)
        net.buffers[:] = rng.uniform(0.5, 2, net.buffers.size)
        return net


@dataclass(frozen=True)
class Loss:
    """The sizes of a loss; an attempt gets a loss of these sizes."""

    batch_size: int
    classes: int

    def __repr__(self):
        return f"CrossEntropyLoss({self.batch_size}, {self.classes})"


def _learning(old=(), fixed=()):
    """Return a function that computes weight and bias of the last layer after the steps, in float64.

    The arrays named in `old` start from the network's own numbers; steps don't change those in `fixed`.
    """

    def learned(net, weight, bias, loss, x, labels, lr, steps):
        network = net.built()
        last = network.layers[-1]
        network.forward(x)
        features, rows = np.float64(network.layers[-2].output), np.arange(len(x))
        w = np.float64(last.weight if "weight" in old else weight)
        b = np.float64(last.bias if "bias" in old else bias)
        for _ in range(steps):
            logits = features @ w.T + b
            gradient = np.exp(logits - logits.max(axis=1, keepdims=True))
            gradient /= gradient.sum(axis=1, keepdims=True)
            gradient[rows, labels] -= 1
            gradient /= len(x)
            w -= lr * gradient.T @ features * ("weight" not in fixed)
            b -= lr * gradient.sum(axis=0) * ("bias" not in fixed)
        return np.float32(w), np.float32(b)

    return learned


_learned = _learning()


def _learning_by_old_gradients(net, weight, bias, loss, x, labels, lr, steps):
    """Return the result of steps with the network's old gradients."""
    last = net.built().layers[-1]
    return weight - lr * steps * last.grad_weight, bias - lr * steps * last.grad_bias


class _Watch:
    """Counts how often each layer of a network but the last runs, forward and backward."""

    def __init__(self, net):
        self.forward, self.backward = {}, {}
        for layer in net.layers[:-1]:
            self._watch(layer, "forward", self.forward)
            self._watch(layer, "backward", self.backward)

    def _watch(self, layer, name, counts):
        function = getattr(layer, name)

        def counted(*args, **kwargs):
            counts[layer.name] = counts.get(layer.name, 0) + 1
            return function(*args, **kwargs)

        setattr(layer, name, counted)


def _run(attempt, net, *given):
    """Call the attempt on a new network; return weight and bias of the last layer."""
    network = net.built()
    _attempted(attempt, network, *given)
    last = network.layers[-1]
    return last.weight.copy(), last.bias.copy()


def _attempted(attempt, network, weight, bias, loss, *given):
    """Call the attempt, and check what else in the network it has changed; return the watch."""
    last, before, statistics = network.layers[-1], network.parameters.copy(), network.buffers.copy()
    began = [(last.weight.copy(), last.bias.copy()), (weight.copy(), bias.copy())]
    watch = _Watch(network)
    attempt(network, weight, bias, CrossEntropyLoss(loss.batch_size, loss.classes), *given)
    arrays = last.weight, last.bias
    if network.layers[-1] is not last or not all(np.shares_memory(a, network.parameters) for a in arrays):
        raise Wrong(
            "not in place",
            "Your function replaces the last layer or its arrays, but the network still uses the old ones: "
            "its parameters are views of one array. Write into them: `last.weight[:] = ...`, and `-=` for a "
            "step.",
        )
    changed = _changed(network, before)
    if changed and any(all(map(np.array_equal, arrays, numbers)) for numbers in began):
        raise Wrong(
            "wrong layer",
            f"Your steps change {changed}, and not the last layer. The last layer is `net.layers[-1]`.",
        )
    if changed:
        raise Wrong(
            "frozen layers changed",
            f"Your function changes the weights of {changed}, which are frozen. Update only the arrays of "
            "the last layer, not those of the whole network.",
        )
    if not np.array_equal(network.buffers, statistics):
        raise Wrong(
            "running statistics changed",
            "The weights of the frozen layers are unchanged, but the running mean and variance of "
            "batch_norm1 have changed. Run a frozen layer as after training: `forward(x, training=False)`.",
        )
    return watch


def _changed(network, before):
    """Return the names of the frozen layers whose parameters have changed."""
    names, start = [], 0
    for layer in network.layers[:-1]:
        part = slice(start, start + layer.parameter_count)
        if not np.array_equal(before[part], network.parameters[part]):
            names.append(f"`{layer.name}`")
        start = part.stop
    return " and ".join(names)


def _spares_the_frozen_layers(attempt):
    """Demand that a frozen layer runs forward once, and never backward."""
    net, *given = next(_tasks(np.random.default_rng(0)))
    watch = _attempted(attempt, net.built(), *given)
    if watch.backward:
        raise Wrong(
            "gradient of the frozen part",
            "The numbers are right, but the backward pass goes on through the frozen layers: "
            f"`{next(reversed(watch.backward))}.backward` computes gradients that no step uses. Call only "
            "the `backward` of the last layer.",
        )
    name, most = max(watch.forward.items(), key=lambda item: item[1], default=("", 0))
    if most > 1:
        raise Wrong(
            "frozen layers run again",
            f"The numbers are right, but `{name}` runs {most} times for {given[-1]} steps. It's frozen, and "
            "the images are the same, so its output is the same. Compute it once, before the first step.",
        )


@dataclass(frozen=True, repr=False)
class NetworkExercise(Exercise):
    """An exercise whose attempt trains part of a network."""

    # The types of images and labels are fixed.
    judges: ClassVar[tuple] = tuple(judge for judge in Exercise.judges if judge is not wrapping)

    def finding(self, evidence):
        """Return the finding, with the names of the last layer's arrays."""
        found = super().finding(evidence)
        if found is not None:
            for place, name in (("first", "weight"), ("second", "bias")):
                unnamed = f"That is the {place} of the 2 results."
                named = f"That is the last layer's `{name}` after the steps."
                found.details = tuple(named if line == unnamed else line for line in found.details)
        return found

    def _praise(self, trials):
        return f"Right on all {len(trials)} test cases, and each frozen layer ran once."


def _tasks(rng):
    for image, classes, batch_size, count, steps in [
        ((1, 4, 6), 3, 4, 4, 3),
        ((2, 5, 4), 2, 3, 3, 2),
        ((3, 6, 4), 5, 7, 6, 4),
        ((1, 8, 6), 4, 5, 5, 5),
        ((2, 4, 4), 3, 6, 6, 2),
    ]:
        net = Trained(int(rng.integers(1000)), image, classes, batch_size)
        features = net.built().layers[-1].weight.shape[1]
        weight, bias = (rng.normal(size=size).astype(np.float32) for size in ((classes, features), classes))
        x = rng.normal(size=(count, *image)).astype(np.float32)
        labels = rng.integers(0, classes, count).astype(np.int32)
        yield net, weight / 2, bias, Loss(batch_size, classes), x, labels, 0.25, steps


_BOTH = "weight", "bias"
# Lines of the solution.
_FRESH = "last.weight[:], last.bias[:] = weight, bias"
_WEIGHT_STEP, _BIAS_STEP = "last.weight -= lr * last.grad_weight", "last.bias -= lr * last.grad_bias"

new_last_layer = NetworkExercise(
    "new_last_layer",
    reference=_learned,
    cases=_tasks,
    run=_run,
    rtol=1e-4,
    properties=(_spares_the_frozen_layers,),
    mistakes={
        "nothing changed": (
            "The network is unchanged: the last layer has its old numbers, and no step has changed them.",
            _learning(old=_BOTH, fixed=_BOTH),
            [(_FRESH, ""), (_WEIGHT_STEP, ""), (_BIAS_STEP, "")],
        ),
        "not re-initialised": (
            "Your last layer starts from its old numbers, which belong to the old task. Write `{weight}` and "
            "`{bias}` into it before the first step.",
            _learning(old=_BOTH),
            (_FRESH, ""),
        ),
        "weight not re-initialised": (
            "The weight starts from its old numbers. Write `{weight}` into it before the first step.",
            _learning(old=("weight",)),
            (_FRESH, "last.bias[:] = bias"),
        ),
        "bias not re-initialised": (
            "The bias starts from its old numbers. Write `{bias}` into it before the first step.",
            _learning(old=("bias",)),
            (_FRESH, "last.weight[:] = weight"),
        ),
        "not trained": (
            "The last layer has its new numbers, but no step changes them.",
            _learning(fixed=_BOTH),
            [(_WEIGHT_STEP, ""), (_BIAS_STEP, "")],
        ),
        "weight not trained": (
            "The bias learns, but the weight never changes.",
            _learning(fixed=("weight",)),
            (_WEIGHT_STEP, ""),
        ),
        "bias not trained": (
            "The weight learns, but the bias never changes.",
            _learning(fixed=("bias",)),
            (_BIAS_STEP, ""),
        ),
        "one step": (
            "The last layer has made only one step. Take `{steps}` steps, and write the new numbers once, "
            "before the first step.",
            lambda net, w, b, loss, x, y, lr, steps: _learned(net, w, b, loss, x, y, lr, 1),
            ("range(steps)", "range(1)"),
            [(_FRESH, ""), ("loss.forward(last", f"{_FRESH}\nloss.forward(last")],
        ),
        "same gradient in every step": (
            "Every step uses the first step's gradient. After a step the layer has changed: run it again, "
            "forward and backward.",
            lambda net, w, b, loss, x, y, lr, steps: _learned(net, w, b, loss, x, y, lr * steps, 1),
            [
                ("loss.forward(last.forward(x), labels)", ""),
                ("last.backward(loss.backward())", ""),
                (
                    "for _ in range(steps):",
                    "loss.forward(last.forward(x), labels)\nlast.backward(loss.backward())\n"
                    "for _ in range(steps):",
                ),
            ],
        ),
        "no backward pass": (
            "Your steps use old gradients: nothing fills `grad_weight` and `grad_bias`. Call the last "
            "layer's `backward` in every step, with what `{loss}.backward()` returns.",
            _learning_by_old_gradients,
            ("last.backward(loss.backward())", "loss.backward()"),
        ),
        "one step more or less": (
            "The number of steps is off by one: take `{steps}`.",
            lambda net, w, b, loss, x, y, lr, steps: _learned(net, w, b, loss, x, y, lr, steps + 1),
            lambda net, w, b, loss, x, y, lr, steps: _learned(net, w, b, loss, x, y, lr, steps - 1),
            ("range(steps)", "range(steps + 1)"),
            ("range(steps)", "range(steps - 1)"),
        ),
        "uphill": (
            "Your steps go up: the loss grows. Subtract the gradient.",
            lambda net, w, b, loss, x, y, lr, steps: _learned(net, w, b, loss, x, y, -lr, steps),
            ("-= lr", "+= lr", 2),
        ),
        "rate left out": (
            "Your steps are whole gradients. Multiply them by `{lr}`.",
            lambda net, w, b, loss, x, y, lr, steps: _learned(net, w, b, loss, x, y, 1, steps),
            ("lr * ", "", 2),
        ),
        "averaged twice": (
            "You divide the gradient by the number of images, but the loss has already done that.",
            lambda net, w, b, loss, x, y, lr, steps: _learned(net, w, b, loss, x, y, lr / len(x), steps),
            ("lr *", "lr / len(labels) *", 2),
        ),
    },
)


def _ours(net, weight, bias, loss, x, labels, lr, steps):
    """Train a new last layer of a network; all others stay as they are."""
    *frozen, last = net.layers
    last.weight[:], last.bias[:] = weight, bias
    for layer in frozen:
        x = layer.forward(x, training=False)
    for _ in range(steps):
        loss.forward(last.forward(x), labels)
        last.backward(loss.backward())
        last.weight -= lr * last.grad_weight
        last.bias -= lr * last.grad_bias


def your_new_last_layer():
    """Return the reader's `new_last_layer` from their workbook, or ours."""
    return workbook.answer("colour_images", "new_last_layer", otherwise=_ours)
