"""Training: epochs of steps, and callbacks around them."""

from collections.abc import Callable
from os import PathLike

from cnn_numba.arguments import instance, settings, shown
from cnn_numba.data import Dataset
from cnn_numba.nn.models import Sequential
from cnn_numba.train.callbacks.base import Untimed
from cnn_numba.train.callbacks.divergence import Divergence, TrainingDiverged
from cnn_numba.train.callbacks.interrupts import Interrupted, Interrupts
from cnn_numba.train.callbacks.log import Log
from cnn_numba.train.callbacks.progress import OnStep, Progress
from cnn_numba.train.callbacks.saving import Saving
from cnn_numba.train.evaluation import Evaluation, evaluate
from cnn_numba.train.extensions import extension
from cnn_numba.train.optim import Optimizer, check_optimizer
from cnn_numba.train.recipe import Plan
from cnn_numba.train.run import Run
from cnn_numba.train.scaler import Scaler
from cnn_numba.train.single_process import SINGLE, SingleProcess, check_workers

__all__ = ["Interrupted", "TrainingDiverged", "evaluate", "fit"]


def fit(  # noqa: PLR0913 (these are the options of training)
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
    scaler: Scaler | bool | None = None,
    augment: str = "none",
    label_smoothing: float = 0.0,
    workers: SingleProcess = SINGLE,
    timeline: str | PathLike | None = None,
) -> list[dict[str, float]]:
    """Train a model on a data set, measuring it on the test images after each epoch.

    Parameters
    ----------
    model, dataset
    optimizer : Optimizer
        Its `lr` is the schedule's peak.
    epochs, seed : int
        The seed orders the training images, and draws how they are augmented.
    schedule : {"one-cycle", "cosine", "constant"}
    out : path, optional
        A folder for ``checkpoint.npz``, ``history.json``, ``history.csv`` (after each epoch) and
        ``curves.png`` (at the end). The files of an earlier run are moved to ``earlier-1`` in the folder, or
        the next free number, when the first of these is written.
    resume : bool
        Continue from the checkpoint in `out`, with exactly the numbers of an uninterrupted run, and rewrite
        the other files from it. With a constant schedule `epochs` may change.
    progress : bool
        Show a progress bar.
    log : callable, optional
        Called with a line of text for each epoch, and before something slow. A line of type
        `callbacks.log.Warned` says that the training run is too short or did not learn.
    on_step : callable, optional
        Called as ``on_step(step, loss)`` with steps from 1 over all epochs. Each call waits for the GPU.
    graph : bool
        On the GPU, record each training step and each test batch as a CUDA graph, and replay it. Must be
        False for a backend with its own updates.
    scaler : LossScaler or bool, optional
        Scales the gradients, and skips a step whose gradients are not finite. True makes one, False none,
        None makes one for a model in float16 only.
    augment : {"none", "crop", "crop-flip"}
        Random changes of the training images, new in each epoch: move by up to an eighth; mirror too.
    label_smoothing : float
        The share of the target that is spread over all classes, in the training loss only.
    workers : Workers, optional
        From `beyond.workers.joining.join`. Each calls `fit` with a model built for its share of a batch,
        ``workers.count(batch_size)``. Only the first one logs, reads and writes.
    timeline : path, optional
        A file for the times of each worker's work in three steps. All workers must be on one machine.

    Returns
    -------
    list of dict
        For each epoch ``epoch, train_loss, train_accuracy, test_loss, test_accuracy, seconds``. The training
        figures are means over the epoch's steps; the seconds are without the test. With a scaler also
        ``loss_scale``, at the epoch's end, and ``skipped_steps``.

    Raises
    ------
    TypeError, ValueError
        If an argument is out of range, the optimiser belongs to another model, there is nothing to
        resume from, or the checkpoint belongs to another training run.
    OSError
        If `out` can't be written to (full disk: the last checkpoint stays) or is in use (`lock.FolderInUse`).
    TrainingDiverged
        If the loss or the parameters become NaN or infinite, or the loss scale collapses. The last good
        checkpoint stays.
    Interrupted
        After Ctrl-C, once the step is finished and, with `out`, saved.
    WorkersError
        If another worker ends or does not answer, or the workers differ.
    """
    _check_types(model, dataset, optimizer, workers, {"log": log, "on_step": on_step})
    settings(resume=resume, progress=progress, graph=graph)
    if not workers.first:
        progress, log = False, None
    plan = Plan(epochs, schedule, seed, augment, label_smoothing, graph, out, resume)
    times = Untimed() if timeline is None else extension("timeline")(timeline)
    run = Run(model, dataset, optimizer, plan, workers, scaler, times, log)
    callbacks = [
        # In this order: divergence is found before anything is saved, and workers start from what was saved.
        Divergence(),
        *run.scaler.callbacks(),
        Saving(),
        *workers.callbacks(),
        times,
        Log(),
        *([Progress()] if progress else []),
        *([] if on_step is None else [OnStep(on_step)]),
        Interrupts(),
    ]
    test = dataset.test_images, dataset.test_labels, dataset.mean, dataset.std
    _train(run, callbacks, Evaluation(model, *test, workers=workers, graph=graph))
    return run.history


def _train(run, callbacks, evaluation):
    """Run all steps of all epochs, and call the callbacks in order at each event."""

    def notify(event):
        for callback in callbacks:
            getattr(callback, event)(run)

    with run.exits:
        notify("prepare")
        notify("begin")
        while run.epoch < run.epochs:
            batches = run.begin_epoch()
            notify("epoch_begin")
            for count in batches:
                notify("step_begin")
                run.take(count)
                notify("step_end")
                if run.stop:
                    run.wait()
                    notify("interrupted")
                    raise Interrupted(run)
            run.wait()
            notify("epoch_trained")
            run.measured(evaluation())
            notify("epoch_measured")
            run.finish_epoch()
            notify("epoch_end")
        notify("end")


def _check_types(model, dataset, optimizer, workers, functions):
    instance(model, "model", Sequential)
    instance(dataset, "dataset", Dataset)
    check_optimizer(optimizer, model)
    check_workers(workers)
    for name, value in functions.items():
        if value is not None and not callable(value):
            raise TypeError(f"{name} must be a function or None, got {shown(value)}")
