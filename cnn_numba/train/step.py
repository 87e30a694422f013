"""One step of a training run: forward, loss, backward, update; by hand, on the host, and on the device.

On the GPU a whole step is replayed as one CUDA graph (`graphs`), so it takes nothing from the host: the order
of the images, the learning rates and the running totals are on the device, and so are the cursors that name
the batch and the step. The step itself advances them. The scheduled kernels of `ops/update/gpu.py` and
`ops/fused/gpu_update.py` read the learning rates.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, nullcontext
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cnn_numba import device
from cnn_numba.arguments import instance, shown
from cnn_numba.data import Dataset
from cnn_numba.device import Array, first_rows
from cnn_numba.nn.chains import ConvChain
from cnn_numba.nn.heads import loss_head
from cnn_numba.nn.layer import is_watched
from cnn_numba.nn.layers import CrossEntropyLoss
from cnn_numba.nn.models import Sequential
from cnn_numba.train.augment import Augmentation
from cnn_numba.train.batches import batches_of
from cnn_numba.train.graphs import Replay
from cnn_numba.train.optim import Adam, Optimizer, check_optimizer
from cnn_numba.train.phases import Phase
from cnn_numba.train.scaler import Scaler
from cnn_numba.train.single_process import Part


def train_step(
    model: Sequential,
    loss: CrossEntropyLoss,
    optimizer: Optimizer,
    x: Array,
    labels: Array,
    lr: float | None = None,
    scaler: Scaler | None = None,
    after: Callable[[Phase], object] = lambda phase: None,
) -> tuple[Array, Array]:
    """Take one step: forward, loss, backward, update.

    Parameters
    ----------
    model, optimizer
    loss : CrossEntropyLoss
        Or an object of your own, whose ``forward(logits, labels)`` returns the losses, and whose
        ``backward()`` returns the gradient of the logits.
    x : ndarray, shape (n, C, H, W)
        Of the model's dtype: float32, but float64 on the reference backend.
    labels : ndarray, shape (n,), int32
        On the GPU a label that the model lacks is no error, but makes parameters NaN; `fit` checks labels.
    lr : float, optional
        The optimiser's if None.
    scaler : LossScaler, optional
        Scales the gradients, and skips the update if that made one of them infinite.
    after : callable, optional
        Called with each finished `Phase`: forward, loss, backward of each layer, update.

    Returns
    -------
    losses : ndarray, shape (n,)
        Of each sample, before the update.
    logits : ndarray, shape (n, classes)

    Examples
    --------
    >>> from cnn_numba import SGD, CrossEntropyLoss, mnist_cnn
    >>> net, loss = mnist_cnn(batch_size=2), CrossEntropyLoss(2, 10)
    >>> x, labels = np.ones((2, 1, 28, 28), np.float32), np.array([3, 3], np.int32)
    >>> first, second = (float(train_step(net, loss, SGD(net), x, labels)[0].mean()) for _ in range(2))
    >>> second < first
    True
    """
    instance(model, "model", Sequential)
    scaler = Scaler() if scaler is None else scaler
    instance(scaler, "scaler", Scaler)
    if getattr(scaler, "gradients", model.gradients) is not model.gradients:
        raise ValueError(f"scaler must be made for this model, got {shown(scaler)}")
    check_optimizer(optimizer, model)
    _check_loss(loss, model, labels)
    if not callable(after):
        raise TypeError(f"after must be a function, got {shown(after)}")
    results: Any = None

    def step():
        nonlocal results
        results = yield from phases_of(model, loss, x, labels, scaler)
        scaler.step(optimizer, lr)
        yield Phase("update")

    with closing(step()) as phases:
        for phase in phases:
            after(phase)
    return results


def _check_loss(loss, model, labels):
    """Refuse a loss without forward and backward, one of the package for another model, and no labels."""
    rows, classes = model.shapes[-1][0], model.shapes[-1][-1]
    wanted = f"CrossEntropyLoss{rows, classes, model.device}"
    passes = [getattr(loss, name, None) for name in ("forward", "backward")]
    if isinstance(loss, type) or not all(map(callable, passes)):
        raise TypeError(f"loss must have forward and backward, as {wanted} has, got {shown(loss)}")
    if not np.ndim(labels):
        raise TypeError(f"labels must be an array, a label for each sample, got {shown(labels)}")
    # Another loss has its own arguments, and an output that is a map has no classes.
    if type(loss) is CrossEntropyLoss and len(model.shapes[-1]) == 2:
        most, columns = loss.grad_logits.shape
        ours, its = ((backend.dtype, backend.on_device) for backend in (model.backend, loss.backend))
        # If the batch is too large for the model, the model says so.
        if most < min(len(labels), rows) or columns != classes or its != ours:
            got = f"CrossEntropyLoss{most, columns, loss.backend.name}"
            raise ValueError(f"loss must suit {model.name}, as {wanted} does, got {got}")


def phases_of(
    model: Sequential,
    loss: CrossEntropyLoss,
    x: Array,
    labels: Array,
    scaler: Scaler,
    totals: Array | None = None,
    share: Array | None = None,
) -> Generator[Phase, None, tuple[Array, Array]]:
    """Take a step up to the update, and yield each finished phase; return losses and logits.

    `train_step` runs it, and CUDA graphs record it. With `totals` it also calls `accumulate_metrics`. With
    `share`, shape (1,), the gradients are those of this share of a larger batch.
    """
    # The gradient of the logits has to be scaled before the rest of the backward pass.
    is_plain = share is None and type(scaler).scale_gradient is Scaler.scale_gradient
    head = loss_head(model, loss, len(labels)) if is_plain else None
    features = model.forward(x, training=True, until=head.first if head else None)
    yield Phase("forward")
    losses = (head or loss).forward(features, labels)
    if head is None and totals is not None:
        loss.ops.accumulate_metrics(losses, features, labels, totals)
    yield Phase("loss")
    with scaler.quiet():
        if head is None:
            gradient = scaler.scale_gradient(loss.backward())
            if share is not None:
                model.backend.ops.update.scale_gradient(gradient, share, gradient)
            layers = model.backward_by_layer(gradient)
        else:
            rest = model.backward_by_layer(head.backward(labels, totals), until=head.layers[0])
            layers = itertools.chain(reversed(head.layers), rest)
        for layer in layers:
            yield Phase("backward", layer.name)
    device.join()
    return losses, head.linear.output if head else features


def steps_of(
    model: Sequential,
    loss: CrossEntropyLoss,
    optimizer: Optimizer,
    dataset: Dataset,
    log: Callable[[str], object],
    graph: bool,
    augmentation: Augmentation | None = None,
    part: Part | None = None,
) -> HostSteps | DeviceSteps:
    """Return the object that takes the steps of a training run on the model's device.

    On the GPU `graph` asks for CUDA graphs; `log` gets a line of text if there can be none. `part` is this
    worker's part of each batch, None for all of it.
    """
    common = model, loss, optimizer, dataset, augmentation, part or Part()
    return DeviceSteps(*common, log=log, graph=graph) if model.backend.on_device else HostSteps(*common)


class _Steps:
    """What the steps on host and device share."""

    def __init__(
        self,
        model: Sequential,
        loss: CrossEntropyLoss,
        optimizer: Optimizer,
        dataset: Dataset,
        augmentation: Augmentation | None,
        part: Part,
    ) -> None:
        self.model, self.loss, self.optimizer, self.part = model, loss, optimizer, part
        data = dataset.train_images, dataset.train_labels, dataset.mean, dataset.std
        self.batches = batches_of(model, *data, augmentation=augmentation)
        self.stop = False  #: Whether a worker asked all to stop after the last step

    def _phases(self, count, totals):
        """Take one step, and add it to `totals`; yield each phase."""
        part = self.part
        if mine := part.workers.count(count):
            x, labels = self.batches.take(mine)
            yield Phase("gather")
            share = part.share_of(count)
            yield from phases_of(self.model, self.loss, x, labels, part.scaler, totals, share)
        else:
            self.batches.take_none()
            yield from part.phases_of_nothing()
        self._update()
        yield Phase("update")


class HostSteps(_Steps):
    """The steps of a training run on the CPU; arguments as for `steps_of`."""

    cheap_totals = True  #: Whether reading the totals costs nothing

    def __init__(self, *common: Any) -> None:
        super().__init__(*common)
        self.totals = np.zeros(2)  #: Sum of the losses and number of correct answers so far, of all workers
        # Those of one step, and how many workers ask to stop.
        self.sums = np.zeros(3)
        self.step_totals = self.sums[:2]

    def begin(self, order: np.ndarray, lrs: Sequence[float], epoch: int = 0) -> None:
        """Prepare the steps over `order`, shape (n,), with these learning rates; epochs count from 0."""
        self.batches.begin(order, epoch)
        self.lrs = iter(lrs)

    def take(self, count: int, stop: bool = False) -> None:
        """Take the next step, on `count` images of all workers together; `stop` asks all to stop after it."""
        self.sums[:] = 0, 0, stop
        with closing(self._phases(count, self.step_totals)) as phases:
            for phase in phases:
                if phase.kind == "loss":
                    wait_for_sums = self.part.workers.start(self.sums)
                self.part.after(phase)
        wait_for_sums()
        self.totals += self.step_totals
        self.count, self.stop = count, self.sums[2] > 0
        self.batches.advance()

    def _update(self):
        self.part.scaler.step(self.optimizer, next(self.lrs))

    def wait(self) -> None:
        """Do nothing: on the CPU all steps are done."""

    def last_loss(self) -> float:
        """Return the mean loss of the last step's batch."""
        return float(self.sums[0] / (self.count * self.model.predictions))


class DeviceSteps(_Steps):
    """The steps of a training run on the GPU; arguments as for `steps_of`."""

    cheap_totals = False  # reading them waits for the GPU

    def __init__(self, *common: Any, log: Callable[[str], object], graph: bool) -> None:
        self.stream = device.stream()
        with device.use_stream(self.stream):
            super().__init__(*common)
            part, order = self.part, self.batches.order
            part.scaler.allocate_schedule(device.blocks(len(order), self.model.batch_size))
            self._totals = device.zeros(2, np.float64)
        if graph and part.no_graphs:
            log(part.no_graphs)
        self.deferred: list = []  # the sums that the backward pass has left to the update
        self.step = Replay(self._step, part.after, part.cuts, log, graph and not part.no_graphs)

    @property
    def totals(self) -> np.ndarray:
        """Sum of the losses and number of correct answers so far, on the host, shape (2,), float64."""
        with device.use_stream(self.stream):
            return self.part.workers.all_reduce(device.to_host(self._totals))

    @totals.setter
    def totals(self, values: ArrayLike) -> None:
        values = np.asarray(values, np.float64)
        with device.use_stream(self.stream):
            # Each worker adds up its own steps; the first one also starts from the earlier sums.
            device.copy(self._totals, values if self.part.workers.first else np.zeros(2))

    def begin(self, order: np.ndarray, lrs: Sequence[float], epoch: int = 0) -> None:
        """Prepare the steps over `order`, shape (n,), with these learning rates; epochs count from 0."""
        with device.use_stream(self.stream):
            self.batches.begin(order, epoch)
            self.part.scaler.begin(self.optimizer, lrs)

    def take(self, count: int, stop: bool = False) -> None:
        """Take the next step, on `count` images of all workers together; `stop` asks all to stop after it."""
        with device.use_stream(self.stream):
            if self.part.timeline.recording:
                for phase in self._step(count):
                    device.synchronize()
                    self.part.after(phase)
            else:
                self.step(count)
        self.count = count
        self.optimizer.count(1)
        self.stop = self.part.workers.all_reduce(np.array([float(stop)]))[0] > 0

    def wait(self) -> None:
        """Wait for all steps: they are launched faster than the GPU runs them."""
        with device.use_stream(self.stream):
            device.synchronize()
            self.part.scaler.settle(self.optimizer)

    def last_loss(self) -> float:
        """Return the mean loss of the last step's batch; waits for the GPU."""
        mine = self.part.workers.count(self.count) * self.model.predictions
        with device.use_stream(self.stream):
            losses = device.to_host(first_rows(self.loss.losses, mine)) if mine else np.zeros(1)
        total = self.part.workers.all_reduce(losses.sum(keepdims=True, dtype=np.float64))
        return float(total[0] / (self.count * self.model.predictions))

    def _step(self, count):
        """Launch the kernels of one step, as a graph records them; yield each phase."""
        with self._deferred_sums() as self.deferred:
            yield from self._phases(count, self._totals)

    def _update(self):
        scaler, cursors = self.part.scaler, (self.batches.step_cursor, self.batches.batch_cursor)
        if self.deferred:
            self.optimizer.scheduled_step_with_sums(self.deferred, scaler.rates, *cursors)
        else:
            scaler.scheduled_step(self.optimizer, *cursors)

    def _deferred_sums(self):
        """Return a context that yields the list of the sums that the backward pass leaves to the update.

        The backward pass leaves none if the optimiser's update can't compute them, or if the complete
        gradients are needed before the update: by a scaler, by other workers, or if the update is watched.
        """
        first, part, optimizer = self.model.passes[0], self.part, self.optimizer
        fuses = self.model.backend.ops.fuses.update and optimizer.gradients is self.model.gradients
        is_plain = (type(part), type(part.scaler), type(optimizer)) == (Part, Scaler, Adam)
        watched = is_watched([optimizer, part.scaler], "scheduled_step")
        defers = isinstance(first, ConvChain) and fuses and is_plain and not watched
        return first.deferring_sums() if defers else nullcontext(())
