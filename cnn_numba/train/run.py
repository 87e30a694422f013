"""The state of a training run. `loop.fit` advances it; callbacks read and save it."""

import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from cnn_numba.arguments import choice, instance, integer, settings
from cnn_numba.data import Dataset, batches
from cnn_numba.nn.layers import CrossEntropyLoss
from cnn_numba.nn.models import Sequential
from cnn_numba.ops.backends import backend
from cnn_numba.train.augment import augmentation
from cnn_numba.train.callbacks.base import Untimed
from cnn_numba.train.checkpoint_contents import HISTORY_KEYS
from cnn_numba.train.evaluation import check_samples
from cnn_numba.train.optim import SCHEDULES, Optimizer
from cnn_numba.train.recipe import Plan, recipe_of
from cnn_numba.train.scaler import scaler_for
from cnn_numba.train.single_process import SingleProcess
from cnn_numba.train.step import steps_of


class Run:
    """One training run; its arguments are those of `fit`."""

    def __init__(
        self,
        model: Sequential,
        dataset: Dataset,
        optimizer: Optimizer,
        plan: Plan,
        workers: SingleProcess,
        scaler: Any,
        timeline: Untimed,
        log: Callable[[str], object] | None,
    ) -> None:
        plan = plan._replace(
            epochs=integer(plan.epochs, "epochs", minimum=1),
            seed=integer(plan.seed, "seed", maximum=None),
            label_smoothing=settings(label_smoothing=plan.label_smoothing)[0],
        )
        for split in ("train", "test"):
            samples = getattr(dataset, f"{split}_images"), getattr(dataset, f"{split}_labels")
            check_samples(model, *samples, f"{dataset.name} ({split})")
        _check_graph(model, plan.graph)
        choice(plan.schedule, "schedule", SCHEDULES)
        self.model, self.dataset, self.optimizer, self.plan = model, dataset, optimizer, plan
        self.workers, self.timeline, self.log = workers, timeline, log or (lambda line: None)
        self.batch_size = workers.batch_size(model)
        self.scaler = scaler_for(model, scaler)
        if plan.out is not None:
            instance(plan.out, "out", str, PathLike)
        self.out = None if plan.out is None else Path(plan.out)
        batch_size, classes = model.shapes[-1]
        loss = CrossEntropyLoss(batch_size, classes, model.backend, plan.label_smoothing)
        how = augmentation(plan.augment, dataset.image_shape, plan.seed)
        part = workers.part(model, self.scaler, timeline)
        self.stepper = steps_of(model, loss, optimizer, dataset, self.log, plan.graph, how, part)
        self.epochs = plan.epochs
        self.steps_per_epoch = math.ceil(len(dataset.train_images) / self.batch_size)
        # The initial weights are drawn from the model's seed: the order must not repeat that stream.
        self.generator = np.random.default_rng([plan.seed, 1])
        #: The generator's state at the start of the epoch: a resumed run draws the same order again.
        self.order_state = self.generator.bit_generator.state
        self.epoch, self.step = 0, 0  #: Finished epochs, and finished steps of the next one
        self.seconds = 0.0  #: How long the steps of this epoch have taken
        self.history: list[dict] = []
        self.entry: dict[str, Any] = {}  #: The history's entry of the last epoch that was measured
        self.remarks: list[str] = []  #: What callbacks add to the log line of that epoch
        self.first_loss: float | None = None
        self.resumed = False  #: Whether the checkpoint in the folder is this run's
        #: Epoch and step of this run's checkpoint, once this worker knows that it is saved.
        self.saved: tuple[int, int] | None = None
        self.stop_asked = False  #: Whether this worker asks to stop after the next step
        self.stop = False  #: Whether all workers stop now
        self.exits = ExitStack()  #: What must be undone when the training run ends, for whatever reason
        self.recipe = recipe_of(self)

    @property
    def checkpoint_path(self) -> Path:
        """Where the checkpoint is, in a run with a folder."""
        assert self.out is not None
        return self.out / "checkpoint.npz"

    @property
    def steps_taken(self) -> int:
        """How many steps were taken, over all epochs."""
        return self.epoch * self.steps_per_epoch + self.step

    def lr(self, ahead: int = 0) -> float:
        """Return the learning rate of the next step, or of the step `ahead` steps later."""
        schedule, total = SCHEDULES[self.plan.schedule], self.epochs * self.steps_per_epoch
        return schedule(self.optimizer.lr, self.steps_taken + ahead, total)

    def begin_epoch(self) -> list[int]:
        """Prepare the remaining steps of this epoch; return the size of each batch."""
        self.begun = time.perf_counter() - self.seconds
        self.order_state = self.generator.bit_generator.state
        order = list(batches(len(self.dataset.train_images), self.batch_size, self.generator))[self.step :]
        lrs = [self.lr(ahead) for ahead in range(len(order))]
        mine = [indices[self.workers.share(len(indices))] for indices in order]
        self.stepper.begin(np.concatenate([np.empty(0, np.int64), *mine]), lrs, self.epoch)
        return list(map(len, order))

    def take(self, count: int) -> None:
        """Take the next step, on `count` samples."""
        self.stepper.take(count, self.stop_asked)
        self.count, self.step = count, self.step + 1
        self.seconds = time.perf_counter() - self.begun

    def wait(self) -> None:
        """Wait until all steps are done."""
        self.stepper.wait()
        self.seconds = time.perf_counter() - self.begun

    def measured(self, test: tuple[float, float]) -> None:
        """Make the epoch's entry of the history, with loss and accuracy on the test images."""
        means = self.stepper.totals / (len(self.dataset.train_images) * self.model.predictions)
        values = self.epoch + 1, *means.tolist(), *test, self.seconds
        self.entry, self.remarks = dict(zip(HISTORY_KEYS, values, strict=True)), []

    def finish_epoch(self) -> None:
        """Add the epoch to the history, and go to the start of the next one."""
        self.history.append(self.entry)
        self.epoch, self.step, self.seconds = self.epoch + 1, 0, 0.0
        self.stepper.totals = np.zeros(2)
        self.order_state = self.generator.bit_generator.state


def _check_graph(model, graph):
    """Refuse a graph with updates other than the package's: only those read the step's numbers on the GPU."""
    update, known = model.backend.ops.update, backend(model.backend.name).ops.update
    if graph and model.backend.on_device and update is not known:
        raise ValueError(
            "graph must be False for a backend with its own updates: a CUDA graph repeats the arguments of "
            f"one step, its learning rate too; got True and {type(update).__name__}"
        )
