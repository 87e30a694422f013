"""Training: the loop around the steps, what it measures, and how it is interrupted and resumed."""

import json
import math
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from os import PathLike
from pathlib import Path

import numpy as np
from tqdm.auto import tqdm

from cnn_numba.arguments import choice, instance, integer, settings, shown
from cnn_numba.data import Dataset, batches
from cnn_numba.device import threads, to_host
from cnn_numba.nn.layers import CrossEntropyLoss
from cnn_numba.nn.models import Sequential
from cnn_numba.train.augment import augmentation
from cnn_numba.train.checkpoint import (
    HISTORY_KEYS,
    SCALING_KEYS,
    load_checkpoint,
    naming,
    restore,
    save_checkpoint,
)
from cnn_numba.train.lock import locked
from cnn_numba.train.optim import SCHEDULES, Optimizer
from cnn_numba.train.parallel import ALONE, Workers, WorkersError, checksum
from cnn_numba.train.records import move_earlier_run, plot_history, write_history
from cnn_numba.train.scaling import LossScaler
from cnn_numba.train.steps import OTHER_BATCHES, batches_of, steps_of
from cnn_numba.train.timeline import Timeline

#: With fewer steps than this a network has learned little, and `fit` says so.
FEW_STEPS = 50
#: Seconds in which the terminal and torchrun pass on the same Ctrl-C.
TOLD_TWICE = 3.0
#: What a checkpoint must tell for a training to go on from it.
_NEEDED_TO_RESUME = ("recipe", "epoch", "step", "totals", "seconds", "generator", "history", "threads")


class TrainingDiverged(ArithmeticError):
    """The loss became NaN or infinite, or the loss scale collapsed; the message says at which step."""


class Interrupted(KeyboardInterrupt):
    """Training was interrupted between two steps, after saving; `history` has the finished epochs."""

    def __init__(self, message: str, history: list[dict[str, float]]) -> None:
        super().__init__(message)
        self.history = history


def evaluate(
    model: Sequential,
    images: np.ndarray,
    labels: np.ndarray,
    mean: float | tuple[float, ...] = 0.0,
    std: float | tuple[float, ...] = 1.0,
    workers: Workers = ALONE,
) -> tuple[float, float]:
    """Measure the mean loss and the accuracy on labelled images.

    Parameters
    ----------
    model : Sequential
    images : ndarray, shape (N, C, H, W), uint8
    labels : ndarray, shape (N,), int32
    mean, std : float or tuple of C floats
        As in `ops.gather`.
    workers : Workers, optional
        Each measures its share of the images; all get the figures of the whole.

    Returns
    -------
    loss, accuracy : float
        The accuracy is between 0 and 1.

    Raises
    ------
    TypeError, ValueError
        If images and labels are not as above, or there are none.
    """
    instance(model, "model", Sequential)
    _check_counts(images, labels)
    loss = CrossEntropyLoss(*model.shapes[-1], model.backend)
    source = batches_of(model, images, labels, mean, std)
    totals = model.backend.zeros(2, np.float64)
    mine = np.arange(len(images), dtype=np.int64)[workers.share(len(images))]
    source.begin(mine)
    for first in range(0, len(mine), model.batch_size):
        x, y = source.take(min(model.batch_size, len(mine) - first))
        logits = model.forward(x)
        loss.ops.accumulate_metrics(loss.forward(logits, y), logits, y, totals)
        source.advance()
    loss_sum, right = workers.all_reduce(to_host(totals)) / (len(images) * model.predictions)
    return float(loss_sum), float(right)


def _check_counts(images, labels):
    for name, array in (("images", images), ("labels", labels)):
        instance(array, name, np.ndarray, *OTHER_BATCHES)
    if len(images) == 0 or len(images) != len(labels):
        raise ValueError(
            f"need as many labels as images and at least one, got {len(images)} images, {len(labels)} labels"
        )


def _check_writable(folder):
    """Make the folder, and a file in it that is gone at once."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


def fit(
    model: Sequential,
    dataset: Dataset,
    optimizer: Optimizer,
    *,
    epochs: int = 3,
    schedule: str = "one-cycle",
    seed: int = 0,
    out: str | PathLike | None = None,
    resume: bool = False,
    progress: bool = True,
    log: Callable[[str], object] | None = None,
    on_step: Callable[[int, float], object] | None = None,
    graph: bool = True,
    scaler: LossScaler | bool | None = None,
    augment: str = "none",
    workers: Workers = ALONE,
    timeline: str | PathLike | None = None,
) -> list[dict[str, float]]:
    """Train a model on a data set, measuring it on the test images after each epoch.

    Parameters
    ----------
    model : Sequential
    dataset : data.Dataset
    optimizer : Optimizer
        Its `lr` is the schedule's peak.
    epochs : int
    schedule : {"one-cycle", "cosine", "constant"}
    seed : int
        Orders the training images.
    out : path, optional
        A folder for ``checkpoint.npz``, ``history.json``, ``history.csv`` (after each epoch) and
        ``curves.png`` (in the end). When the first of them is written, those of an earlier run are moved to
        ``earlier-1`` in the folder, or the next free number. Nothing is written without `out`.
    resume : bool
        Go on from the checkpoint in `out`, to the very numbers of an uninterrupted run, and write the other
        files anew from it. With a constant schedule `epochs` may be more than before, or fewer.
    progress : bool
        Show a progress bar.
    log : callable, optional
        Called with a line of text for each epoch, and before something slow. A line that begins with
        "warning: " says that the training is too short or did not learn.
    on_step : callable, optional
        Called as ``on_step(step, loss)`` after each step, counted from 1 over all epochs. On the GPU
        every such call waits for the loss, which costs most of its speed.
    graph : bool
        On the GPU, replay a whole step as one CUDA graph; False launches each kernel by itself.
    scaler : LossScaler or bool, optional
        Scales the gradients, and skips a step whose gradients are not finite. True makes one, None makes one
        for a model in float16 only, and False trains without.
    augment : {"none", "crop", "crop-flip"}
        What is done to the training images by chance, anew in each epoch: moved by up to an eighth of their
        size, or moved and mirrored.
    workers : Workers, optional
        What `parallel.join` yields. A batch is then that of all workers together: each calls this with a
        model built for its share, ``workers.count(batch_size)``. The first alone logs, reads and writes.
    timeline : path, optional
        Where to write what each worker did when, in three steps. All have to be on one machine.

    Returns
    -------
    list of dict
        For each epoch ``epoch, train_loss, train_accuracy, test_loss, test_accuracy, seconds``. The
        training figures are means over the epoch, while the model changed; `seconds` is the time
        its training took, without the test. With a scaler also ``loss_scale``, at the epoch's end, and
        ``skipped_steps``, in it.

    Raises
    ------
    TypeError, ValueError
        If an argument is out of range, the optimiser belongs to another model, there is nothing to
        resume from, or the checkpoint belongs to another training.
    OSError
        If `out` cannot be written to, or another training writes to it (`train.lock.FolderInUse`).
    TrainingDiverged
        If the loss or the parameters become NaN or infinite, or the loss scale has collapsed; a skipped step
        alone is no reason, for its loss is finite. The checkpoint stays the last good one.
    Interrupted
        After Ctrl-C, when the step has been finished and, with `out`, saved.
    WorkersError
        If another worker has ended or does not answer, or the workers are not alike.
    """
    for name, value, kind in (
        ("model", model, Sequential),
        ("dataset", dataset, Dataset),
        ("optimizer", optimizer, Optimizer),
        ("workers", workers, Workers),
    ):
        instance(value, name, kind)
    for name, value in (("log", log), ("on_step", on_step)):
        if value is not None and not callable(value):
            raise TypeError(f"{name} must be a function or None, got {shown(value)}")
    settings(resume=resume, progress=progress, graph=graph)
    if not workers.first:
        progress, log = False, None
    run = _Run(
        *(model, dataset, optimizer, epochs, schedule, seed, out, log, graph, scaler, augment),
        *(workers, Timeline(timeline)),
    )
    try:
        with run.alone_in_its_folder():
            run.start(resume)
            with _interrupts_noted(workers) as interrupted, _notice_if_slow(run.log) as first_step_done:
                while run.epoch < epochs:
                    _train_epoch(run, progress, interrupted, first_step_done, on_step)
                    run.finish_epoch()
    except WorkersError as error:
        raise WorkersError(f"{error}; {run.what_is_saved()}", error.reason) from None
    run.warn_if_worse()
    return run.history


class _Run:
    """One training: what it consists of, how far it is, and its files."""

    def __init__(
        self,
        model,
        dataset,
        optimizer,
        epochs,
        schedule,
        seed,
        out,
        log,
        graph,
        scaler,
        augment,
        workers,
        timeline,
    ):
        epochs, seed = integer(epochs, "epochs", minimum=1), integer(seed, "seed", maximum=None)
        if optimizer.parameters is not model.parameters:
            raise ValueError("the optimizer was made for another model: it would train that one")
        _check_counts(dataset.train_images, dataset.train_labels)
        _check_counts(dataset.test_images, dataset.test_labels)
        choice(schedule, "schedule", SCHEDULES)
        if tuple(dataset.image_shape) != model.input_shape:
            raise ValueError(
                f"{dataset.name} has images of shape {tuple(dataset.image_shape)}, "
                f"but {model.name} takes {model.input_shape}"
            )
        self.model, self.dataset, self.optimizer = model, dataset, optimizer
        self.workers, self.timeline = workers, timeline
        self.batch_size = _batch_of_all(model, workers)
        self.scaler = _scaler_for(model, scaler)
        self.log = log or (lambda line: None)
        self.out = None if out is None else Path(out)
        loss = CrossEntropyLoss(*model.shapes[-1], model.backend)
        how = augmentation(augment, dataset.image_shape, seed)
        self.steps = steps_of(
            model, loss, optimizer, dataset, self.log, graph, self.scaler, how, workers, timeline
        )
        self.steps_per_epoch = math.ceil(len(dataset.train_images) / self.batch_size)
        self.epochs, self.schedule = epochs, schedule
        # The initial weights are drawn from the model's seed: the order must not repeat that stream.
        self.generator = np.random.default_rng([seed, 1])
        self.epoch, self.step, self.history = 0, 0, []
        self.seconds, self.first_loss = 0.0, None
        self.resumed = False
        # Epoch and step of this run's checkpoint, as far as this worker has been told that it is there.
        self.saved = None
        self.order_state = self.generator.bit_generator.state
        self.recipe = {
            "dataset": dataset.name,
            "train_images": len(dataset.train_images),
            "train_crc32": checksum(dataset.train_images, dataset.train_labels),
            "test_crc32": checksum(dataset.test_images, dataset.test_labels),
            "mean": np.asarray(dataset.mean).tolist(),
            "std": np.asarray(dataset.std).tolist(),
            "device": model.device,
            "precision": model.precision,
            "loss_scaling": self.scaler and self.scaler.settings,
            "batch_size": self.batch_size,
            "optimizer": type(optimizer).__name__,
            **optimizer.settings,
            "lr": optimizer.lr,
            "schedule": schedule,
            "augment": augment,
            "epochs": epochs,
            "seed": seed,
        }

    def alone_in_its_folder(self):
        """Return the context in which no other training writes there; the first worker alone does."""
        return locked(self.out) if self.out is not None and self.workers.first else nullcontext()

    def start(self, resume):
        """Begin, or go on from the checkpoint; all workers from the same numbers."""
        workers = self.workers
        if workers.many:
            also = {"model": self.model.name, "parameters": self.model.parameters.size, "resume": resume}
            also["timeline"] = self.timeline.path is not None
            workers.insist_equal(also | self.recipe)
        if self.timeline.path is not None:
            self.prepare_timeline()
        resume = workers.from_first(lambda: resume or self.is_restarted())
        if workers.first:
            self.load() if resume else self.begin()
        if workers.many:
            self._share_state()
        self.timeline.plan(self.epoch * self.steps_per_epoch + self.step, self.epochs * self.steps_per_epoch)

    def prepare_timeline(self):
        """Refuse, before any work, a timeline that would be wrong or could not be written."""
        hosts = sorted(set(self.workers.exchange(socket.gethostname())))
        if len(hosts) > 1:
            raise WorkersError(
                "a timeline needs all workers on one machine, as each has a clock of its own; these are on "
                + ", ".join(hosts)
            )
        if self.workers.first:
            if self.timeline.path.is_dir():
                raise IsADirectoryError(f"the timeline cannot be written to {self.timeline.path}: a folder")
            _check_writable(self.timeline.path.parent)

    def is_restarted(self):
        """Whether torchrun has started the workers again, and they had saved something before."""
        if not self.workers.restarted or self.out is None or not self.checkpoint_path.exists():
            return False
        return load_checkpoint(self.checkpoint_path).progress.get("run") == self.workers.run

    def _share_state(self):
        """Give all workers what the first one has drawn or read."""
        states = [self.optimizer.state] + ([self.scaler.state] if self.scaler else [])
        arrays = [array for state in states for _, array in sorted(state.items())]
        for array in (self.model.parameters, self.model.buffers, *arrays):
            self.workers.broadcast(array)
        totals = self.steps.totals.tolist()
        names = "epoch", "step", "history", "seconds", "first_loss", "resumed", "saved"
        told = self.workers.from_first(
            lambda: (
                {name: getattr(self, name) for name in names},
                self.generator.bit_generator.state,
                totals,
            )
        )
        vars(self).update(told[0])
        self.generator.bit_generator.state = told[1]
        self.steps.totals = np.array(told[2])

    def begin(self):
        """Look, before an epoch's work, whether it can be saved and is enough to learn something."""
        if self.out is not None:
            _check_writable(self.out)
        steps = self.epochs * self.steps_per_epoch
        if steps < FEW_STEPS:
            batch_size = max(len(self.dataset.train_images) * self.epochs // FEW_STEPS, 1)
            epochs = math.ceil(FEW_STEPS / self.steps_per_epoch)
            self.log(
                f"warning: few steps to learn from, {steps} in all: choose a batch size of at most "
                f"{batch_size}, or at least {epochs} epochs"
            )

    def lr(self, ahead=0):
        """Return the learning rate of the step that comes next, or of one so many steps ahead of it."""
        step = self.epoch * self.steps_per_epoch + self.step + ahead
        return SCHEDULES[self.schedule](self.optimizer.lr, step, self.epochs * self.steps_per_epoch)

    def begin_epoch(self):
        """Prepare the steps of this epoch that are still to come; return the size of each one's batch."""
        self.order_state = self.generator.bit_generator.state
        order = list(batches(len(self.dataset.train_images), self.batch_size, self.generator))[self.step :]
        counts = list(map(len, order))
        lrs = [self.lr(ahead) for ahead in range(len(counts))]
        mine = [indices[self.workers.share(len(indices))] for indices in order]
        self.steps.begin(np.concatenate([np.empty(0, np.int64), *mine]), lrs, self.epoch)
        return counts

    def finish_epoch(self):
        """Measure the model on the test images and write the records."""
        data = self.dataset
        count = len(data.train_images) * self.model.predictions
        totals = self.steps.totals
        if not math.isfinite(totals[0]):
            raise TrainingDiverged(_where_diverged(self))
        test = evaluate(
            self.model, data.test_images, data.test_labels, data.mean, data.std, workers=self.workers
        )
        if not math.isfinite(test[0]):
            # The last step ruined the model; its own loss was still that of the model before.
            raise TrainingDiverged(_where_diverged(self))
        self.check_finite()
        self.check_scale()
        self.check_alike()
        values = self.epoch + 1, *(totals / count).tolist(), *test, self.seconds
        self.history.append(dict(zip(HISTORY_KEYS, values, strict=True)) | self.scaling())
        self.epoch, self.step, self.seconds = self.epoch + 1, 0, 0.0
        self.steps.totals = np.zeros(2)
        self.order_state = self.generator.bit_generator.state
        self.save()
        if self.epoch == self.epochs:
            self.plot()
        self.write_timeline()
        last = self.history[-1]
        self.log(
            f"epoch {self.epoch}/{self.epochs}: train loss {last['train_loss']:.4f}, "
            f"accuracy {last['train_accuracy']:.2%}; test loss {last['test_loss']:.4f}, "
            f"accuracy {last['test_accuracy']:.2%}; {last['seconds']:.1f} s{_scaling_text(last)}"
        )

    def scaling(self):
        """Return what the history tells of an epoch's loss scale: nothing without one."""
        if self.scaler is None:
            return {}
        before = sum(entry["skipped_steps"] for entry in self.history)
        return dict(zip(SCALING_KEYS, (self.scaler.scale, self.scaler.skipped - before), strict=True))

    def check_scale(self):
        """Give up where step after step is skipped: the gradients are not finite at any scale."""
        if self.scaler is not None and self.scaler.collapsed:
            raise TrainingDiverged(
                f"the loss scale collapsed to {self.scaler.scale:g} by epoch {self.epoch + 1}, step "
                f"{self.step}: at any scale the gradients are NaN or infinite, and so every step is skipped. "
                "Try a smaller learning rate, or bfloat16."
            )

    def check_alike(self):
        """Insist that all workers have the same parameters still."""
        if self.workers.many:
            state = self.model.parameters, self.model.buffers
            where = f" after epoch {self.epoch + 1}: they have computed different numbers"
            self.workers.insist_equal({"the checksum of the parameters": checksum(*state)}, where)

    def write_timeline(self):
        """Write the timeline when its steps have been taken."""
        steps = self.timeline.steps
        if not steps or self.epoch * self.steps_per_epoch < steps[-1] or not self.timeline.events:
            return
        everyone = self.workers.exchange(self.timeline.events)
        self.timeline.events = []
        if self.workers.first:
            buckets = self.steps.common.buckets
            self.timeline.write(
                everyone,
                {
                    "workers": self.workers.size,
                    "device": self.model.device,
                    "model": self.model.name,
                    "batch_size": self.batch_size,
                    "steps": list(steps),
                    "buckets": buckets.about(),
                },
            )

    def check_finite(self):
        """Refuse to save what no training could go on from: the last good checkpoint is worth more."""
        state = self.model.parameters, self.model.buffers, *self.optimizer.state.values(), self.steps.totals
        if not all(np.isfinite(to_host(array)).all() for array in state):
            raise TrainingDiverged(
                f"the parameters became NaN or infinite at epoch {self.epoch + 1}, step {self.step}. "
                "Try a smaller learning rate."
            )

    @property
    def checkpoint_path(self):
        return self.out / "checkpoint.npz"

    def save(self):
        """Write checkpoint and history, each all or nothing; an earlier run's are kept."""
        totals = self.steps.totals.tolist()  # of all workers
        if self.out is None:
            return
        if self.workers.first:
            self.write_checkpoint(totals)
        # What is not known to be there must not be told of, whatever becomes of the first worker.
        self.workers.exchange("saved")
        self.saved = self.epoch, self.step
        if self.workers.first:
            write_history(self.history, self.out)

    def write_checkpoint(self, totals):
        """Write the checkpoint, with these totals of all workers."""
        if not self.resumed:
            move_earlier_run(self.out, self.log)
            self.resumed = True
        progress = {
            "recipe": self.recipe,
            "epoch": self.epoch,
            "step": self.step,
            "totals": totals,
            "seconds": self.seconds,
            # As it was when the epoch began: resuming draws the same order again and skips what is done.
            "generator": self.order_state,
            "history": self.history,
            "threads": threads(),
        }
        if self.first_loss is not None:
            progress["first_loss"] = self.first_loss
        if self.workers.many:
            progress["workers"] = self.workers.size
        if self.workers.run:
            progress["run"] = self.workers.run
        save_checkpoint(self.checkpoint_path, self.model, self.optimizer, progress, self.scaler)

    def load(self):
        """Go back to where the checkpoint was saved, and write the records from it."""
        if self.out is None or not self.checkpoint_path.exists():
            where = "no folder was given" if self.out is None else f"there is no {self.checkpoint_path}"
            raise ValueError(f"nothing to resume from: {where}")
        checkpoint = load_checkpoint(self.checkpoint_path)
        progress = checkpoint.progress
        with naming(self.checkpoint_path):
            self._check_progress(progress)
            restore(checkpoint, self.model)
            self.optimizer.load_state(checkpoint.optimizer)
            if self.scaler is not None:
                self.scaler.load_state(checkpoint.scaler)
        self.epoch, self.step, self.history = progress["epoch"], progress["step"], progress["history"]
        self.steps.totals, self.seconds = np.array(progress["totals"]), progress["seconds"]
        self.first_loss = progress.get("first_loss")
        self.generator.bit_generator.state = progress["generator"]
        self.resumed, self.saved = True, (self.epoch, self.step)
        # A process killed after it wrote the checkpoint left those of the epoch before.
        write_history(self.history, self.out)
        self.plot()
        if self.epoch >= self.epochs:
            self.log(f"{self.checkpoint_path} is of a finished training: nothing is left to do")
            return
        self.log(f"Resuming {self.checkpoint_path} at epoch {self.epoch + 1}, step {self.step + 1}")
        # Sums over a batch are split among the threads, so their last digits depend on the number.
        before = progress["recipe"].get("device"), progress["threads"]
        now = self.model.device, threads()
        by, by_now = progress.get("workers", 1), self.workers.size
        stays_on_device = self.model.backend.on_device and before[0] == now[0]
        if by != by_now:
            self.log(f"It was trained by {_counted(by)}, now by {by_now}: the last digits will differ")
        elif before != now and not stays_on_device:
            self.log(
                f"It was trained on {before[0]} with {before[1]} threads, now on {now[0]} with {now[1]}: "
                "the last digits will differ"
            )

    def what_is_saved(self):
        """Say where the last checkpoint of this training is."""
        if self.saved is None:
            return "no checkpoint of this run has been written yet"
        epoch, step = self.saved
        place = f"epoch {epoch + 1}, step {step}" if step else f"epoch {epoch}"
        return f"the last checkpoint is {self.checkpoint_path}, after {place}"

    def _check_progress(self, progress):
        """Refuse to resume what is no training, another one, or one that is further than this shall go."""
        missing = [key for key in _NEEDED_TO_RESUME if key not in progress]
        if missing:
            raise ValueError(f"this is a model, but no training to resume: it lacks {', '.join(missing)}")
        self._check_recipe(progress["recipe"])
        epoch, step = progress["epoch"], progress["step"]
        if step > self.steps_per_epoch:
            raise ValueError(f"it is at step {step} of an epoch that has {self.steps_per_epoch}")
        begun = epoch + (step > 0)
        if begun > self.epochs:
            raise ValueError(f"epoch {begun} has begun: epochs must be at least {begun}, got {self.epochs}")

    def _check_recipe(self, saved):
        """Refuse to resume a training with another recipe: it would not be the same training."""
        # Older files have none of these.
        saved = {"precision": "float32", "loss_scaling": None, "augment": "none", **saved}
        # Without a schedule that depends on the end, training may go on longer. Where it goes on matters for
        # the last digits only, unless one of the two is the reference in float64.
        free = {"epochs"} if self.schedule == "constant" else set()
        free |= {"train_crc32", "test_crc32"} - saved.keys()  # older files have none
        if "reference" not in (saved.get("device"), self.model.device):
            free.add("device")
        differing = {
            key: f"{key} {shown(saved.get(key))}, now {shown(value)}"
            for key, value in json.loads(json.dumps(self.recipe)).items()  # JSON knows no tuples
            if saved.get(key) != value and key not in free
        }
        advice = ""
        if differing.keys() == {"epochs"}:
            advice = (
                f"; the learning rates of {self.schedule} depend on the last epoch: leave "
                "the number as it was, or train anew (only a constant schedule may be prolonged)"
            )
        elif differing.keys() & {"dataset", "train_images", "train_crc32", "test_crc32"}:
            advice = "; these are other data: give those it was trained on (--data-dir on the command line)"
        if differing:
            raise ValueError(f"it was trained with {'; '.join(differing.values())}{advice}")

    def warn_if_worse(self):
        """Say so if the loss ended above where it began."""
        last = self.history[-1]["train_loss"]
        if self.first_loss is not None and last > self.first_loss:
            self.log(
                f"warning: the loss rose from {self.first_loss:.4g} in the first step to {last:.4g} in "
                f"the last epoch: choose a learning rate below {self.optimizer.lr:g}"
            )

    def plot(self):
        """Draw the curves."""
        if self.out is not None and self.history and self.workers.first:
            plot_history(self.history, self.out / "curves.png")


def _train_epoch(run, progress, interrupted, first_step_done, on_step):
    """Train to the end of the epoch that `run` is in."""
    begun = time.perf_counter() - run.seconds
    with tqdm(
        desc=f"epoch {run.epoch + 1}/{run.epochs}",
        total=len(run.dataset.train_images),
        initial=run.step * run.batch_size,
        unit=" images",
        disable=not progress,
    ) as bar:
        for count in run.begin_epoch():
            run.timeline.begin(run.epoch * run.steps_per_epoch + run.step + 1)
            run.steps.take(count, run.workers.many and interrupted())
            run.step += 1
            run.seconds = time.perf_counter() - begun
            if run.steps.cheap_totals:
                if not math.isfinite(run.steps.totals[0]):
                    raise TrainingDiverged(_where_diverged(run))
                run.check_scale()
            if run.epoch == 0 and run.step == 1:
                run.first_loss = run.steps.last_loss()
            first_step_done()
            _show(bar, run, count)
            if on_step:
                on_step(run.epoch * run.steps_per_epoch + run.step, run.steps.last_loss())
            if run.steps.stop if run.workers.many else interrupted():
                _leave(run)
        run.steps.wait()
        run.seconds = time.perf_counter() - begun


def _show(bar, run, count):
    # True where the bar was redrawn: only then the figures are worth formatting.
    if bar.update(count) and run.steps.cheap_totals:
        seen = min(run.step * run.batch_size, len(run.dataset.train_images))
        loss, accuracy = run.steps.totals / (seen * run.model.predictions)
        bar.set_postfix_str(f"loss {loss:.4f}, accuracy {accuracy:.2%}", refresh=False)


def _leave(run):
    run.steps.wait()
    run.check_finite()
    run.save()
    run.plot()
    run.workers.exchange("saved")  # until then nobody leaves: torchrun would end the others
    place = f"epoch {run.epoch + 1}, step {run.step}"
    kept = "" if run.out is None else f"; saved in {run.out}, resume to go on"
    raise Interrupted(f"interrupted at {place}{kept}", run.history)


def _batch_of_all(model, workers):
    """Return how many samples the workers' models take together."""
    if not workers.many:
        return model.batch_size
    sizes = workers.exchange(model.batch_size)
    if sizes != [Workers(rank, len(sizes)).count(sum(sizes)) for rank in range(len(sizes))]:
        raise WorkersError(f"the models must be built for workers.count(batch_size), got batches of {sizes}")
    return sum(sizes)


def _counted(workers):
    return "1 worker" if workers == 1 else f"{workers} workers"


def _scaler_for(model, scaler):
    """Return the loss scaler of a training, or None."""
    if scaler is None:
        scaler = model.precision == "float16"
    if not isinstance(scaler, bool):
        if getattr(scaler, "gradients", None) is not model.gradients:
            raise ValueError(
                f"scaler must be made for this model, or be True, False or None; got {shown(scaler)}"
            )
        return scaler
    return LossScaler(model) if scaler else None


def _scaling_text(entry):
    """Return what the line of an epoch says of its loss scale."""
    if "loss_scale" not in entry:
        return ""
    count = entry["skipped_steps"]
    return f"; loss scale {entry['loss_scale']:g}, {count} step{'s' * (count != 1)} skipped"


def _where_diverged(run):
    """Say when the loss became NaN or infinite, and in which layer it first shows."""
    if not run.steps.cheap_totals:
        return (
            f"the loss became NaN or infinite in epoch {run.epoch + 1}; on the GPU it is looked at once an "
            "epoch. Try a smaller learning rate, or train on the CPU to see in which step it begins."
        )
    where = f"epoch {run.epoch + 1}, step {run.step}, learning rate {run.lr(-1):g}"
    place = f"the loss became NaN or infinite at {where}"
    first = [each for each in run.workers.exchange(_first_not_finite(run.model)) if each is not None]
    if first:
        layer = run.model.every_layer[min(first)]
        return f"{place}: it begins in the output of {layer.name}, {layer!r}. Try a smaller learning rate."
    return f"{place}: the logits are finite, their loss is not. Try a smaller learning rate."


def _first_not_finite(model):
    """Return the number of the first layer whose output is not finite, None if all are."""
    for number, layer in enumerate(model.every_layer):
        # None: a worker that had no image yet
        if layer.output is not None and not np.isfinite(to_host(layer.output)).all():
            return number
    return None


@contextmanager
def _interrupts_noted(workers):
    """Turn Ctrl-C into a note that is read between two steps; a second one interrupts at once.

    Each of several workers is told by the terminal and by torchrun: what follows soon is no second one.
    """
    noted = []

    def is_noted():
        return bool(noted) or workers.asked_to_end

    if threading.current_thread() is not threading.main_thread():
        yield is_noted  # Python delivers signals to the main thread only
        return

    def note(number, frame):
        noted.append(time.monotonic())
        if noted[-1] - noted[0] > TOLD_TWICE:
            raise KeyboardInterrupt
        if not workers.many:
            signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield is_noted
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _notice_if_slow(log):
    """Say that kernels are being compiled if the first step is not done within two seconds."""
    timer = threading.Timer(2.0, log, ["Compiling kernels (once) ..."])
    timer.daemon = True
    timer.start()
    try:
        yield timer.cancel
    finally:
        timer.cancel()
