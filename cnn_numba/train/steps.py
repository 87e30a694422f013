"""Training steps, on the host and on the device: batches gathered, and what a step does with one.

On the GPU everything is resident, and a whole step is replayed as one CUDA graph (`graphs`). So nothing in a
step may come from the host: the order of the images, the learning rates and the running totals lie on the
device, and a cursor there, advanced by the step itself, says which batch it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cnn_numba import device
from cnn_numba.beyond.norm.layers import BatchNorm2d
from cnn_numba.data import Dataset
from cnn_numba.device import Array
from cnn_numba.nn.layers import CrossEntropyLoss, head
from cnn_numba.nn.models import Sequential
from cnn_numba.nn.together import Together
from cnn_numba.ops.gather.cpu import gather_augmented, gather_batch, gather_labels
from cnn_numba.train.augment import Augmentation
from cnn_numba.train.graphs import Replay
from cnn_numba.train.optim import Optimizer
from cnn_numba.train.parallel import ALONE, Buckets, Workers
from cnn_numba.train.scaling import LossScaler
from cnn_numba.train.timeline import Timeline


def train_step(
    model: Sequential,
    loss: CrossEntropyLoss,
    optimizer: Optimizer,
    x: Array,
    labels: Array,
    lr: float | None = None,
    scaler: LossScaler | None = None,
    weight: Array | None = None,
    after: Callable[[str], object] = lambda phase: None,
) -> tuple[Array, Array]:
    """Take one step: forward, loss, backward, update.

    Parameters
    ----------
    model : Sequential
    loss : CrossEntropyLoss
    optimizer : Optimizer
    x : ndarray, shape (n, C, H, W), float32
    labels : ndarray, shape (n,), int32
    lr : float, optional
        The optimiser's own if None.
    scaler : LossScaler, optional
        Scales the gradients, and skips the update where that was too much.
    weight : ndarray, shape (1,), float32, optional
        What the gradients are multiplied by: where others work on the same batch, this share of it.
    after : callable, optional
        Called with the name of each phase when it is over: forward, loss, backward and a layer, update.

    Returns
    -------
    losses : ndarray, shape (n,)
        Of each sample, before the update.
    logits : ndarray, shape (n, classes)

    Examples
    --------
    >>> from cnn_numba.nn.layers import CrossEntropyLoss
    >>> from cnn_numba.nn.models import mnist_cnn
    >>> from cnn_numba.train.optim import SGD
    >>> net, loss = mnist_cnn(batch_size=2), CrossEntropyLoss(2, 10)
    >>> x, labels = np.ones((2, 1, 28, 28), np.float32), np.array([3, 3], np.int32)
    >>> first, second = (float(train_step(net, loss, SGD(net), x, labels)[0].mean()) for _ in range(2))
    >>> second < first
    True
    """
    logits = model.forward(x, training=True)
    after("forward")
    losses = loss.forward(logits, labels)
    after("loss")
    overflow = "ignore" if scaler else None  # the scaler finds it, and skips the step
    with np.errstate(over=overflow, invalid=overflow):
        for phase in backward_phases(model, loss, scaler, weight):
            after(phase)
    _update(optimizer, scaler, lr)
    after("update")
    return losses, logits


def _update(optimizer, scaler, lr):
    if scaler is None:
        optimizer.step(lr)
    else:
        scaler.step(optimizer, lr)


def backward_phases(
    model: Sequential, loss: CrossEntropyLoss, scaler: LossScaler | None = None, weight: Array | None = None
) -> Iterator[str]:
    """Go back through a model, and yield the name of each phase when it is over; as for `train_step`."""
    gradient = loss.backward()
    if scaler is not None:
        gradient = scaler.scale_gradient(gradient)
    if weight is not None:
        gradient = model.backend.ops.update.scale_gradient(gradient, weight, gradient)
    for layer in model.backward_by_layer(gradient):
        yield f"backward {layer.name}"


#: What gathers the batches of samples that are not images, by their type, from the samples and the model;
#: `cnn_numba.beyond` enters the windows of a text.
OTHER_BATCHES: dict[type, Callable[[Any, Sequential], HostBatches | DeviceBatches]] = {}


def batches_of(
    model: Sequential, *data: Any, augmentation: Augmentation | None = None
) -> HostBatches | DeviceBatches:
    """Return the source of batches for where a model computes.

    Parameters
    ----------
    model : Sequential
    *data
        Images, labels, mean and std, as `HostBatches` takes them; images of a type in `OTHER_BATCHES`
        are enough.
    augmentation : Augmentation, optional
        For images.
    """
    for kind, make in OTHER_BATCHES.items():
        if isinstance(data[0], kind):
            return make(data[0], model)
    return (DeviceBatches if model.backend.on_device else HostBatches)(*data, model, augmentation)


def steps_of(
    model: Sequential,
    loss: CrossEntropyLoss,
    optimizer: Optimizer,
    dataset: Dataset,
    log: Callable[[str], object],
    graph: bool,
    scaler: LossScaler | None = None,
    augmentation: Augmentation | None = None,
    workers: Workers = ALONE,
    timeline: Timeline | None = None,
) -> HostSteps | DeviceSteps:
    """Return the steps of a training for where a model computes; `log` and `graph` are for `DeviceSteps`."""
    common = Common(model, loss, optimizer, scaler, workers, timeline or Timeline())
    if model.backend.on_device:
        return DeviceSteps(common, dataset, log, graph, augmentation)
    return HostSteps(common, dataset, augmentation)


class Common:
    """What the steps on the host and on the device have in common; as for `steps_of`.

    A batch is that of all workers; each gathers its share of it, for which its model is built.

    Attributes
    ----------
    between : dict of str to callable
        What the host has to do after which phase of a step.
    together : dict of BatchNorm2d to Together
        The normalisations that take the statistics of the whole batch.
    """

    def __init__(
        self,
        model: Sequential,
        loss: CrossEntropyLoss,
        optimizer: Optimizer,
        scaler: LossScaler | None,
        workers: Workers,
        timeline: Timeline,
    ) -> None:
        self.model, self.loss, self.optimizer, self.scaler = model, loss, optimizer, scaler
        self.workers, self.timeline = workers, timeline
        self.buckets = Buckets(model, workers, timeline)
        self.between = self.buckets.after()
        self.weights, self.nothing = {}, None
        norms = [layer for layer in model.every_layer if isinstance(layer, BatchNorm2d)]
        # In this order they add their sums up, whether this worker has images of a batch or not.
        self.together = {layer: Together(layer, workers.all_reduce) for layer in norms if workers.many}

    def weight(self, count: int) -> Array | None:
        """Return this worker's share of a batch, as `train_step` takes it."""
        if not self.workers.many:
            return None
        if count not in self.weights:
            share = np.array([self.workers.count(count) / count], self.model.backend.dtype)
            self.weights[count] = self.model.backend.bring(share)
        return self.weights[count]

    def after(self, phase: str) -> None:
        """Note the end of a phase, and do what is due then."""
        self.timeline.note(phase)
        if phase in self.between:
            self.between[phase]()

    def phases_of_nothing(self) -> Iterator[str]:
        """Do what is due before the update where this worker has no image of the batch: it adds nothing."""
        if self.nothing is None:
            self.nothing = self.model.backend.zeros(self.model.gradients.shape)
        device.copy(self.model.gradients, self.nothing)
        for together in self.together.values():
            together.forward(None)
        yield "loss"
        for layer in reversed(self.model.every_layer):
            if layer in self.together:
                self.together[layer].backward(None)
            yield f"backward {layer.name}"


class HostBatches:
    """Batches of a data set, gathered on the host into buffers that are allocated once.

    Parameters
    ----------
    images : ndarray, shape (N, C, H, W), uint8
    labels : ndarray, shape (N,), int32
    mean, std : float or tuple of C floats
    model : Sequential
    augmentation : Augmentation, optional
        None leaves the images as they are.
    """

    def __init__(
        self,
        images: np.ndarray,
        labels: np.ndarray,
        mean: float | tuple[float, ...],
        std: float | tuple[float, ...],
        model: Sequential,
        augmentation: Augmentation | None = None,
    ) -> None:
        self.images, self.labels, self.mean, self.std = images, labels, mean, std
        self.augmentation = augmentation
        self.batch_size, self.dtype = model.batch_size, model.parameters.dtype
        self.x = np.empty((model.batch_size, *images.shape[1:]), np.float32)
        self.y = np.empty(model.batch_size, np.int32)

    def begin(self, order: np.ndarray, epoch: int = 0) -> None:
        """Take the batches from these indices, shape (n,), int64, from the first one on."""
        self.order, self.cursor, self.epoch = order, 0, epoch

    def take(self, count: int) -> tuple[Array, Array]:
        """Return the batch under the cursor, of `count` images."""
        first = self.cursor * self.batch_size
        indices = self.order[first : first + count]
        what = self.images, indices, self.mean, self.std
        if self.augmentation is None:
            x = gather_batch(*what, head(self.x, count))
        else:
            x = gather_augmented(*what, *self.augmentation, self.epoch, head(self.x, count))
        return x.astype(self.dtype, copy=False), gather_labels(self.labels, indices, head(self.y, count))

    def advance(self) -> None:
        """Move the cursor to the next batch."""
        self.cursor += 1


class HostSteps:
    """The steps of a training on the CPU.

    Attributes
    ----------
    totals : ndarray, shape (2,), float64
        Sum of the losses and number of right answers so far.
    stop : bool
        Whether a worker asked in the last step to stop after it.
    """

    cheap_totals = True

    def __init__(self, common: Common, dataset: Dataset, augmentation: Augmentation | None = None) -> None:
        self.common, self.model = common, common.model
        data = dataset.train_images, dataset.train_labels, dataset.mean, dataset.std
        self.batches = batches_of(common.model, *data, augmentation=augmentation)
        self.totals = np.zeros(2)
        # Of one step: losses, right answers, and how many workers ask to stop.
        self.sums = np.zeros(3)
        self.stop = False

    def begin(self, order: np.ndarray, lrs: Sequence[float], epoch: int = 0) -> None:
        """Prepare for the steps over `order`, shape (n,), with these rates, in an epoch counted from 0."""
        self.batches.begin(order, epoch)
        self.lrs = iter(lrs)

    def take(self, count: int, stop: bool = False) -> None:
        """Take the next step, on `count` images of all workers together; `stop` asks all to stop after it."""
        common, lr = self.common, next(self.lrs)
        mine = common.workers.count(count)
        self.sums[:] = 0, 0, stop
        if mine:
            x, self.labels = self.batches.take(mine)
            common.after("gather")
            step = common.loss, common.optimizer, x, self.labels, lr, common.scaler, common.weight(count)
            train_step(self.model, *step, self._after)
        else:
            self.labels = None
            for phase in common.phases_of_nothing():
                self._after(phase)
            _update(common.optimizer, common.scaler, lr)
        self.summed()
        self.totals += self.sums[:2]
        self.count, self.stop = count, self.sums[2] > 0
        self.batches.advance()

    def _after(self, phase):
        if phase == "loss":
            loss, labels = self.common.loss, self.labels
            if labels is not None:
                logits = self.model.layers[-1].output
                loss.ops.accumulate_metrics(head(loss.losses, len(labels)), logits, labels, self.sums[:2])
            self.summed = self.common.workers.start(self.sums)
        self.common.after(phase)

    def wait(self) -> None:
        """Wait until all steps are done, which on the CPU they are."""

    def last_loss(self) -> float:
        """Return the mean loss of the last step's batch."""
        return float(self.sums[0] / (self.count * self.model.predictions))


class DeviceBatches:
    """Batches of a data set that lies on the device, gathered there; made as `HostBatches` are.

    Attributes
    ----------
    cursor : device array, shape (1,), int32
        Which batch comes next.
    """

    def __init__(
        self,
        images: np.ndarray,
        labels: np.ndarray,
        mean: float | tuple[float, ...],
        std: float | tuple[float, ...],
        model: Sequential,
        augmentation: Augmentation | None = None,
    ) -> None:
        self.gather, self.augmentation = model.backend.ops.gather, augmentation
        self.images, self.labels = device.to_device(images), device.to_device(labels)
        self.mean, self.std, self.batch_size = mean, std, model.batch_size
        self.x = device.empty((model.batch_size, *images.shape[1:]))
        self.y = device.empty(model.batch_size, np.int32)
        self._prepare(len(images))

    def _prepare(self, count):
        """Allocate cursor and order for so many samples."""
        self.order = device.zeros(count, np.int64)
        self.cursor = device.zeros(1, np.int32)
        self._order = device.pinned(count, np.int64)
        self._zero = np.zeros(1, np.int32)
        # Seed and epoch of the random numbers: there, as the launches of an epoch are replayed in the next.
        self.draw = device.zeros(2, np.uint32)

    def begin(self, order: np.ndarray, epoch: int = 0) -> None:
        """Take the batches from these indices, from the first one on; at most as many as there are images."""
        if self.augmentation is not None:
            device.copy(self.draw, np.array([self.augmentation.seed, epoch], np.uint32))
        self._order[: len(order)] = order
        device.copy(self.order, self._order)
        device.copy(self.cursor, self._zero)

    def take(self, count: int) -> tuple[Array, Array]:
        """Return the batch under the cursor, of `count` images, as device arrays."""
        x, y = head(self.x, count), head(self.y, count)
        what = self.images, self.labels, self.order, self.cursor, self.mean, self.std
        if self.augmentation is None:
            return self.gather.gather_batch_at(*what, x, y, self.batch_size)
        padding, flip, _ = self.augmentation
        return self.gather.gather_augmented_at(*what, padding, flip, self.draw, x, y, self.batch_size)

    def advance(self) -> None:
        """Move the cursor to the next batch."""
        self.gather.advance(self.cursor)


class DeviceSteps:
    """The steps of a training on the GPU; `HostSteps` on the GPU.

    Parameters
    ----------
    common : Common
    dataset : data.Dataset
    log : callable
        Told if there can be no graphs.
    graph : bool
        Whether to use them.
    augmentation : Augmentation, optional
        As for `HostBatches`.
    """

    # Reading the totals waits for the GPU: once an epoch, not after each step.
    cheap_totals = False

    def __init__(
        self,
        common: Common,
        dataset: Dataset,
        log: Callable[[str], object],
        graph: bool = True,
        augmentation: Augmentation | None = None,
    ) -> None:
        self.common, self.model, self.loss = common, common.model, common.loss
        self.optimizer, self.scaler = common.optimizer, common.scaler
        self.stream = device.stream()
        with device.use_stream(self.stream):
            data = dataset.train_images, dataset.train_labels, dataset.mean, dataset.std
            self.batches = batches_of(self.model, *data, augmentation=augmentation)
            steps = device.blocks(len(dataset.train_images), self.model.batch_size)
            self._rates = device.pinned((steps, 2))
            self.rates = device.zeros((steps, 2))
            self._totals = device.zeros(2, np.float64)
            if self.scaler is not None:
                self.scaler.allocate_schedule(steps)
        # The sums of a shared normalisation pass through the host, in the middle of a step.
        if graph and common.together:
            log(
                "Batch normalisation of several workers: kernels are launched one by one, without CUDA graphs"
            )
        graph = graph and not common.together
        self.step = Replay(self._step, common.after, common.between, log, graph)
        self.stop = False

    @property
    def totals(self) -> np.ndarray:
        """Sum of the losses and number of right answers so far, on the host, shape (2,), float64."""
        with device.use_stream(self.stream):
            return self.common.workers.all_reduce(device.to_host(self._totals))

    @totals.setter
    def totals(self, values: ArrayLike) -> None:
        values = np.asarray(values, np.float64)
        with device.use_stream(self.stream):
            # Each worker adds up its own; those of before are one worker's.
            device.copy(self._totals, values if self.common.workers.first else np.zeros(2))

    def begin(self, order: np.ndarray, lrs: Sequence[float], epoch: int = 0) -> None:
        """Prepare for the steps over `order`, shape (n,), with these rates, in an epoch counted from 0."""
        with device.use_stream(self.stream):
            self.batches.begin(order, epoch)
            if self.scaler is not None:
                self.scaler.begin(self.optimizer, lrs)
                return
            self._rates[: len(lrs)] = self.optimizer.rates(lrs)
            device.copy(self.rates, self._rates)

    def take(self, count: int, stop: bool = False) -> None:
        """Take the next step, on `count` images of all workers together; `stop` asks all to stop after it."""
        with device.use_stream(self.stream):
            if self.common.timeline.recording:
                for phase in self._step(count):
                    device.synchronize()
                    self.common.after(phase)
            else:
                self.step(count)
        self.count = count
        self.optimizer.count(1)
        self.stop = self.common.workers.all_reduce(np.array([float(stop)]))[0] > 0

    def wait(self) -> None:
        """Wait until all steps are done: the GPU is given them faster than it takes them."""
        with device.use_stream(self.stream):
            device.synchronize()
            if self.scaler is not None:
                self.scaler.settle(self.optimizer)

    def last_loss(self) -> float:
        """Return the mean loss of the last step's batch; waits for the GPU."""
        mine = self.common.workers.count(self.count) * self.model.predictions
        with device.use_stream(self.stream):
            losses = device.to_host(head(self.loss.losses, mine)) if mine else np.zeros(1)
        total = self.common.workers.all_reduce(losses.sum(keepdims=True, dtype=np.float64))
        return float(total[0] / (self.count * self.model.predictions))

    def _step(self, count):
        """Launch the kernels of one step, all that a graph records; yield the name of each phase."""
        mine = self.common.workers.count(count)
        if mine:
            x, labels = self.batches.take(mine)
            yield "gather"
            logits = self.model.forward(x, training=True)
            yield "forward"
            losses = self.loss.forward(logits, labels)
            yield "loss"
            yield from backward_phases(self.model, self.loss, self.scaler, self.common.weight(count))
        else:
            yield from self.common.phases_of_nothing()
        if self.scaler is None:
            self.optimizer.scheduled_step(self.rates, self.batches.cursor)
        else:
            self.scaler.scheduled_step(self.optimizer, self.batches.cursor)
        yield "update"
        if mine:
            self.loss.ops.accumulate_metrics(losses, logits, labels, self._totals)
        self.batches.advance()
