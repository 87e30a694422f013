"""Training steps on the GPU: everything resident there, and a whole step replayed as one CUDA graph.

A step of the course's network is some twenty launches of a few microseconds each, and launching a kernel from
Python costs more than that. A CUDA graph holds all of them, recorded once for each size of batch, and costs
one launch. So nothing in a step may come from the host: the order of the images, the learning rates and the
running totals lie on the device, and a cursor there, advanced by the step itself, says which batch it is.
"""

import functools
from contextlib import suppress

import numpy as np

from cnn_numba import device
from cnn_numba.layers import head
from cnn_numba.ops.gather.gpu import advance, gather_batch_at


class GraphsUnavailable(RuntimeError):
    """Why a step cannot be recorded here."""


def record(function):
    """Record what a function launches as a CUDA graph, without running it.

    Parameters
    ----------
    function : callable
        Only launches kernels, each of which has been launched before, so that it is compiled and loaded. The
        arrays it uses must live as long as the graph.

    Returns
    -------
    callable
        Launches the graph on the stream that is current now.

    Raises
    ------
    GraphsUnavailable
        In the simulator, and where the CUDA driver or `cuda.core` cannot record.
    """
    if device.simulated():
        raise GraphsUnavailable("the simulator has none")
    try:
        from cuda.core import Stream

        stream = Stream.from_handle(int(device.current_stream()))
        builder = stream.create_graph_builder()
        builder.begin_building()
        try:
            with device.use_stream(builder):
                function()
            graph = builder.end_building().complete()
        finally:
            # Ends a recording that failed as well, which `end_building` refuses to do if the driver has
            # given it up; until then nothing could be launched on the stream.
            with suppress(Exception):
                builder.close()
        return functools.partial(graph.launch, stream)
    except Exception as error:
        # The function has run before: whatever goes wrong now is the recording's fault.
        raise GraphsUnavailable(str(error) or type(error).__name__) from error


class Replay:
    """A function of launches that becomes a graph for each argument: run, then recorded, then replayed.

    Parameters
    ----------
    function : callable
        Called with the batch's size, as in `record` for each of them.
    log : callable
        Told once if there can be no graphs, which leaves the function to be called as it is.
    enabled : bool
        False calls it as it is from the start.
    """

    def __init__(self, function, log, enabled=True):
        self.function, self.log, self.enabled = function, log, enabled
        self.graphs, self.compiled = {}, set()

    def __call__(self, count):
        """Do for `count` what the function does."""
        # The first time compiles the kernels, which cannot be recorded.
        if self.enabled and count in self.compiled and count not in self.graphs:
            self._record(count)
        if count in self.graphs:
            self.graphs[count]()
        else:
            self.function(count)
            self.compiled.add(count)

    def _record(self, count):
        try:
            self.graphs[count] = record(functools.partial(self.function, count))
        except GraphsUnavailable as error:
            self.enabled = False
            self.log(f"No CUDA graphs here ({error}): every kernel is launched by itself, which is slower")


class DeviceBatches:
    """Batches of a data set that lies on the device, gathered there; `training.HostBatches` on the GPU.

    Parameters
    ----------
    images : ndarray, shape (N, C, H, W), uint8
    labels : ndarray, shape (N,), int32
    mean, std : float or tuple of C floats
    model : Sequential

    Attributes
    ----------
    cursor : device array, shape (1,), int32
        Which batch comes next.
    """

    def __init__(self, images, labels, mean, std, model):
        self.images, self.labels = device.to_device(images), device.to_device(labels)
        self.mean, self.std, self.batch_size = mean, std, model.batch_size
        self.x = device.empty((model.batch_size, *images.shape[1:]))
        self.y = device.empty(model.batch_size, np.int32)
        self.order = device.zeros(len(images), np.int64)
        self.cursor = device.zeros(1, np.int32)
        self._order = device.pinned(len(images), np.int64)
        self._zero = np.zeros(1, np.int32)

    def begin(self, order):
        """Take the batches from these indices, from the first one on; at most as many as there are images."""
        self._order[: len(order)] = order
        device.copy(self.order, self._order)
        device.copy(self.cursor, self._zero)

    def take(self, count):
        """Return the batch under the cursor, of `count` images, as device arrays."""
        x, y = head(self.x, count), head(self.y, count)
        where, how = (self.order, self.cursor), (self.mean, self.std)
        return gather_batch_at(self.images, self.labels, *where, *how, x, y, self.batch_size)

    def advance(self):
        """Move the cursor to the next batch."""
        advance(self.cursor)


class DeviceSteps:
    """The steps of a training on the GPU; `training.HostSteps` on the GPU.

    Parameters
    ----------
    model : Sequential
    loss : CrossEntropyLoss
    optimizer : Optimizer
    dataset : data.Dataset
    log : callable
        Told if there can be no graphs.
    graph : bool
        Whether to use them.
    """

    # Reading the totals waits for the GPU: once an epoch, not after each step.
    cheap_totals = False

    def __init__(self, model, loss, optimizer, dataset, log, graph=True):
        self.model, self.loss, self.optimizer = model, loss, optimizer
        self.stream = device.stream()
        with device.use_stream(self.stream):
            self.batches = DeviceBatches(
                dataset.train_images, dataset.train_labels, dataset.mean, dataset.std, model
            )
            steps = device.blocks(len(dataset.train_images), model.batch_size)
            self._rates = device.pinned((steps, 2))
            self.rates = device.zeros((steps, 2))
            self._totals = device.zeros(2, np.float64)
        self.step = Replay(self._step, log, graph)

    @property
    def totals(self):
        """Sum of the losses and number of right answers so far, on the host, shape (2,), float64."""
        with device.use_stream(self.stream):
            return device.to_host(self._totals)

    @totals.setter
    def totals(self, values):
        with device.use_stream(self.stream):
            device.copy(self._totals, np.asarray(values, np.float64))

    def begin(self, order, lrs):
        """Prepare for the steps over `order`, shape (n,), with these learning rates."""
        with device.use_stream(self.stream):
            self.batches.begin(order)
            self._rates[: len(lrs)] = self.optimizer.rates(lrs)
            device.copy(self.rates, self._rates)

    def take(self, count):
        """Take the next step, on `count` images."""
        with device.use_stream(self.stream):
            self.step(count)
        self.count = count
        self.optimizer.count(1)

    def wait(self):
        """Wait until all steps are done: the GPU is given them faster than it takes them."""
        with device.use_stream(self.stream):
            device.synchronize()

    def last_loss(self):
        """Return the mean loss of the last step's batch; waits for the GPU."""
        with device.use_stream(self.stream):
            return float(device.to_host(head(self.loss.losses, self.count)).mean())

    def _step(self, count):
        """Launch the kernels of one step: all that a graph records."""
        x, labels = self.batches.take(count)
        logits = self.model.forward(x, training=True)
        losses = self.loss.forward(logits, labels)
        self.model.backward(self.loss.backward())
        self.optimizer.scheduled_step(self.rates, self.batches.cursor)
        self.loss.ops.accumulate_metrics(losses, logits, labels, self._totals)
        self.batches.advance()
