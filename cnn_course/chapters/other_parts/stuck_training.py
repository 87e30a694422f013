"""A training run that learns nothing, tools to find out why, and a check that measures: an open problem.

`as_found` returns a training run that does not learn: five functions, none of which raises. The reader finds
out which are wrong, replaces them, ``as_found()._replace(prepare=...)``, and passes the result to the check.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from cnn_course.engine.checks.exercise import Verdict
from cnn_numba import data
from cnn_numba.nn.layers import Conv2d, CrossEntropyLoss, Flatten, Linear, ReLU
from cnn_numba.nn.models import Sequential
from cnn_numba.ops.gather.cpu import gather_batch
from cnn_numba.train.optim import SGD

BATCH = 64
STEPS = 200
#: Digits to train on, and others to measure the accuracy on.
TRAINING, UNSEEN = 4000, 1000


class Parts(NamedTuple):
    """The parts of a training run.

    Parameters
    ----------
    build : callable
        Takes a seed, returns the network.
    prepare : callable
        Takes images, uint8 of shape (N, 1, 28, 28), returns the network's input, float32.
    draw : callable
        Takes a generator, images and labels; returns a batch of them.
    loss : callable
        Returns the loss: an object with `forward` and `backward`.
    optimiser : callable
        Takes the network, returns the optimiser of its parameters.
    """

    build: Callable
    prepare: Callable
    draw: Callable
    loss: Callable
    optimiser: Callable


def as_found() -> Parts:
    """Return the training run as it was left: it learns nothing."""
    return Parts(_build, _prepare, _draw, _loss, _optimiser)


def _build(seed=0):
    layers = [Conv2d(1, 8, 3, stride=2), ReLU(), Flatten(), Linear(1352, 32), ReLU(), Linear(32, 10)]
    return Sequential(layers, (1, 28, 28), BATCH, seed=seed)


def _prepare(images):
    # From 0 to 1, and in float32, as the kernels need them.
    batch = gather_batch(images, np.arange(len(images)), 0.0, 1.0)
    return batch / np.float32(255)


def _draw(rng, images, labels):
    order = rng.permutation(len(images))
    images = images[order]
    order = rng.permutation(len(labels))
    labels = labels[order]
    return images[:BATCH], labels[:BATCH]


def _loss():
    return CrossEntropyLoss(BATCH, classes=10)


def _optimiser(net, lr=0.02):
    return SGD(_build(seed=net.batch_size), lr, momentum=0.9)


# --- Tools -------------------------------------------------------------------------------------------------


@cache
def _digits():
    mnist = data.load("mnist")
    seen = mnist.train_images[:TRAINING], mnist.train_labels[:TRAINING]
    return *seen, mnist.test_images[:UNSEEN], mnist.test_labels[:UNSEEN]


class Run(NamedTuple):
    """The result of a training run: its network, its losses, its accuracy on unseen digits."""

    net: Sequential
    losses: list
    accuracy: float


def first_batch(parts: Parts, seed=0):
    """Return a batch as training would use it: the network's input and the labels."""
    images, labels, _, _ = _digits()
    images, labels = parts.draw(np.random.default_rng(seed), images, labels)
    return parts.prepare(images), labels


def train(parts: Parts, steps=STEPS, seed=0) -> Run:
    """Train on new batches."""
    rng = np.random.default_rng(seed)
    images, labels, _, _ = _digits()

    def batch():
        drawn, drawn_labels = parts.draw(rng, images, labels)
        return parts.prepare(drawn), drawn_labels

    return _run(parts, batch, steps, seed)


def by_heart(parts: Parts, steps=STEPS, seed=0) -> Run:
    """Train on one batch only: a training run that works can learn 64 digits by heart."""
    batch = first_batch(parts, seed)
    return _run(parts, lambda: batch, steps, seed)


def _run(parts, batch, steps, seed):
    net, loss = parts.build(seed), parts.loss()
    optimiser = parts.optimiser(net)
    losses = []
    with np.errstate(all="ignore"):  # the verdict reports infinities and NaN
        for _ in range(steps):
            # By hand, because `train_step` would name one of the mistakes.
            x, labels = batch()
            losses.append(float(loss.forward(net.forward(x, training=True), labels).mean()))
            net.backward(loss.backward())
            optimiser.step()
        return Run(net, losses, _accuracy(parts, net))


def _accuracy(parts, net):
    _, _, images, labels = _digits()
    shown = parts.prepare(images)
    answers = [net.forward(shown[k : k + BATCH]).argmax(axis=1) for k in range(0, len(shown), BATCH)]
    return float((np.concatenate(answers) == labels).mean())


def loss_at_start(parts: Parts, seed=0) -> float:
    """Return the loss before the first step; a network that knows nothing has log 10."""
    shown, labels = first_batch(parts, seed)
    return float(parts.loss().forward(parts.build(seed).forward(shown, training=True), labels).mean())


def outputs(parts: Parts, seed=0) -> dict:
    """Return the outputs of a new network's layers for a batch, by the layer's name, the images first."""
    shown, _ = first_batch(parts, seed)
    net = parts.build(seed)
    net.forward(shown, training=True)
    # A ReLU may be fused into the layer before it, whose output is then rectified already.
    return {"images": shown} | {layer.name: np.array(layer.output) for layer in net.layers}


def gradient_ratio(parts: Parts, seed=0) -> float:
    """Return the measured slope of the loss along the gradient, divided by that of the backward pass.

    1 is right. A wrong sign gives -1; half a gradient gives 2.
    """
    shown, labels = first_batch(parts, seed)
    net, loss = parts.build(seed), parts.loss()

    def mean_loss():
        return float(np.mean(loss.forward(net.forward(shown, training=True), labels), dtype=float))

    mean_loss()
    net.backward(loss.backward())
    gradients, start = net.gradients.copy(), net.parameters.copy()
    length = float(np.sqrt(np.sum(np.square(gradients, dtype=float))))
    direction = gradients / length if length else gradients
    step = 3e-4  # small enough for the ReLUs to stay on their sides, large enough for float32
    sides = []
    for sign in (1, -1):
        net.parameters[:] = start + np.float32(sign * step) * direction
        sides.append(mean_loss())
    return (sides[0] - sides[1]) / (2 * step * length) if length else float("nan")


# --- The check ---------------------------------------------------------------------------------------------

#: The least accuracy of a fixed run, with a margin; tests/course/other_parts/test_notebook.py measures it.
ENOUGH = 0.8
# Below this loss a batch has been learnt by heart.
LEARNT = 0.5
# The logits of different digits differ by less than this: the network does not see them.
BLIND = 0.05


class StuckTraining:
    """The open problem's check: call it on `Parts`; it trains them, measures, and names a symptom."""

    name = "the stuck training"

    def __call__(self, parts=None) -> Verdict:
        """Train for some seconds; return the `Verdict`, which is never *solved*."""
        parts = as_found() if parts is None else parts
        if not isinstance(parts, Parts):
            message = "The check takes all five parts together: `found._replace(prepare=my_prepare)`, say."
            return Verdict(self.name, "wrong", message, mistake="not parts")
        untouched = parts == as_found()
        try:
            run = train(parts)
            symptom = self._symptom(parts, run)
        except Exception as error:  # the reader's functions may raise anything
            message = f"It raises {type(error).__name__}: {error}"
            return Verdict(self.name, "wrong", message, mistake="raises")
        accuracy = f"After {STEPS} steps it reads {run.accuracy:.0%} of {UNSEEN} unseen digits"
        if symptom is None:
            start = f"{run.losses[0]:.2f}"
            end = f"{np.mean(run.losses[-20:]):.2f}"
            details = (f"The loss went from {start} to {end}.",)
            return Verdict(self.name, "measured", f"{accuracy}: it learns.", details)
        name, message = symptom
        return Verdict(self.name, "unsolved" if untouched else "wrong", f"{accuracy}.", (message,), name)

    def _symptom(self, parts, run):
        """Return the first symptom, as its name and a message; None if it learns."""
        if np.array_equal(run.net.parameters, parts.build(0).parameters):
            return "nothing moves", (
                "What is still wrong: in all these steps, none of the network's parameters has moved."
            )
        if gradient_ratio(parts) < 0:
            return "uphill", (
                "What is still wrong: a small step against its gradient makes the loss *larger*, not smaller."
            )
        if not np.isfinite(run.losses).all():
            return "not finite", (
                "What is still wrong: its loss has become infinite or NaN. Steps that are too large do that."
            )
        logits = list(outputs(parts).values())[-1]
        if logits.std(axis=0).mean() < BLIND:
            return "blind", (
                "What is still wrong: to a new network, all digits look the same. Its answers to 64 of them "
                f"differ by only {logits.std(axis=0).mean():.2g}."
            )
        alone = by_heart(parts)
        if alone.losses[-1] > LEARNT:
            return "cannot learn by heart", (
                "What is still wrong: it cannot even learn 64 digits by heart. On one batch, again and "
                f"again, its loss goes from {alone.losses[0]:.2f} to {alone.losses[-1]:.2f} and stays there."
            )
        if run.accuracy < ENOUGH:
            return "by heart only", (
                "What is still wrong: it learns 64 digits by heart without trouble. But what it learns from "
                "thousands does not help with others."
            )
        return None
