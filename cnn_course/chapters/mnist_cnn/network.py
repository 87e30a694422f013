"""The network of notebook 09: `mnist_cnn` on the reader's own kernels, trained and certified."""

import dataclasses
import datetime
import hashlib
import json
from collections import Counter
from collections.abc import Callable

import numpy as np

import gpuless
from cnn_course.chapters.mnist_cnn.gradient_check import GradientCheck, check_gradients
from cnn_course.chapters.mnist_cnn.own_backend import PARTS, from_workbook, own_backend
from cnn_course.chapters.mnist_cnn.pictures import TrainingCurve
from cnn_course.engine import history, progress as pictures, workbook
from cnn_course.engine.standalone import standalone
from cnn_numba import device
from cnn_numba.data import DataError, Dataset
from cnn_numba.nn.layers import Conv2d, CrossEntropyLoss, Linear
from cnn_numba.nn.models import Sequential, mnist_cnn
from cnn_numba.train.checkpoint import load_checkpoint
from cnn_numba.train.loop import Interrupted, fit
from cnn_numba.train.optim import Adam
from cnn_numba.train.records import move_earlier_run
from cnn_numba.train.step import train_step
from cnn_numba.whole_files import written_whole
from gpuless import frontends


class OwnNetwork:
    """`mnist_cnn` on the reader's kernels, with the package's where there is none.

    Parameters
    ----------
    batch_size : int
    kernels : dict of str to kernel, optional
        By the names of `own_backend.PARTS`; None takes those of the workbook.

    Attributes
    ----------
    own : dict of str to kernel
    model : Sequential
        A new one for each training run.
    history : list of dict
        Of the last training run on all images, as `fit` returns it; empty before.
    """

    def __init__(self, batch_size: int = 64, kernels: dict | None = None) -> None:
        self.own = from_workbook() if kernels is None else dict(kernels)
        self.backend = own_backend(self.own)
        self.model = mnist_cnn(batch_size, self.backend)
        self.history = []

    def __repr__(self):
        rows = [f"{self.owner(part.name)}  {part.title:30}{part.name}" for part in PARTS]
        return "\n".join([*rows, f"{len(self.own)} of {len(PARTS)} kernels are yours"])

    def owner(self, name: str) -> str:
        """Return whose kernel computes a part, padded to one width."""
        return "✔ yours      " if name in self.own else "○ the package"

    def check(self, images: np.ndarray, labels: np.ndarray) -> GradientCheck:
        """Compare one step, part by part, with the reference; see `check_gradients`."""
        return check_gradients(self.model, images, labels)

    def train(
        self,
        dataset: Dataset,
        epochs: int = 1,
        images: int | None = None,
        on_step: Callable[[int, float], object] | None = None,
    ) -> None:
        """Train with Adam on a one-cycle schedule, and print the result of each epoch.

        Parameters
        ----------
        dataset : Dataset
        epochs : int
        images : int, optional
            A short run, on the first images only. None trains on all of them, and keeps checkpoints in the
            workbook: with the same kernels and data, a stopped training run continues, and a finished one is
            not repeated.
        on_step : callable, optional
            As for `fit`; None draws a `TrainingCurve`.
        """
        data = dataset if images is None else _first(dataset, images)
        self.model, self.history = mnist_cnn(self.model.batch_size, self.backend), []
        out = workbook.folder() / "training" if images is None else None
        resume = out is not None and self._resumes(data, epochs, out)
        on_step = on_step or self._curve(data, epochs, out if resume else None)
        try:
            history = fit(
                *(self.model, data, Adam(self.model, lr=0.003)),
                epochs=epochs,
                out=out,
                resume=resume,
                progress=False,
                log=print,
                on_step=on_step,
                graph=False,  # a graph repeats its arguments, and the kernels take the numbers of one step
            )
        except Interrupted:
            print("Stopped, and saved: train again to go on from there." if out else "Stopped.")
            return
        finally:
            if out is not None and isinstance(on_step, TrainingCurve):
                on_step.save(out / "curve.json")
        if out is not None:
            self.history = history
            self.images, self.test_images = len(data.train_images), len(data.test_images)
            self.batch = _first(data, self.model.batch_size)

    def _curve(self, data, epochs, resumed_from):
        """Return the curve of a training run; a resumed one keeps what it has drawn."""
        steps = epochs * -(-len(data.train_images) // self.model.batch_size)
        every, images = (100, 1000) if steps >= 500 else (-(-steps // 5), 200)
        curve = TrainingCurve(self.model, data.test_images[:images], data.test_labels[:images], steps, every)
        if resumed_from is not None:
            curve.load(resumed_from / "curve.json")
        return curve

    def _resumes(self, data, epochs, out):
        """Return whether this very training run has a checkpoint; if it is new, record its settings."""
        settings = {
            "kernels": _fingerprint(self.own),
            "epochs": epochs,
            "batch_size": self.model.batch_size,
            "images": [data.name, len(data.train_images)],
        }
        out.mkdir(parents=True, exist_ok=True)
        noted, now = out / "kernels.json", json.dumps(settings)
        if not noted.is_file() or noted.read_text(encoding="utf-8") != now:
            # First: if this run is killed before its first checkpoint, the old one must not be taken for it.
            move_earlier_run(out, print)
            (out / "checkpoint.npz").unlink(missing_ok=True)
            (out / "curve.json").unlink(missing_ok=True)
            with written_whole(noted) as file:
                file.write(now.encode())
            return False
        try:
            load_checkpoint(out / "checkpoint.npz")
        except (FileNotFoundError, DataError):
            return False
        return True

    def steps(self, dataset: Dataset, gpus: tuple = ("T4", "A100", "H100")) -> tuple:
        """Return how long a training step would take on some GPUs; empty where that cannot be modelled.

        Parameters
        ----------
        dataset : Dataset
            Its first images are those of the step.
        gpus : tuple of str
            Names that `gpuless.profile` knows.

        Returns
        -------
        tuple of Step
        """
        if not frontends.installed():
            return ()
        batch = _first(dataset, self.model.batch_size)
        x = device.to_device(batch.train_images.astype(np.float32) / 255)
        labels = device.to_device(batch.train_labels.astype(np.int32))
        model = mnist_cnn(self.model.batch_size, self.backend)
        loss = CrossEntropyLoss(self.model.batch_size, 10, device=self.backend)
        optimiser = Adam(model, lr=0.003)  # outside the profile: its arrays are not part of a step
        with gpuless.profiling(gpus) as timelines:
            train_step(model, loss, optimiser, x, labels)
        return tuple(_step(timeline) for timeline in timelines)

    def certificate(self) -> pictures.Certificate:
        """Return the certificate of the last training run on all images, and save it in the workbook.

        It models the time of a step on some GPUs, which takes half a minute, and begins the history that
        `course.progress` draws.

        Raises
        ------
        ValueError
            If there was none yet.
        """
        if not self.history:
            raise ValueError("a certificate needs a finished training run on all images: train(mnist)")
        products = multiplications(self.model)
        last = self.history[-1]
        trained = last["epoch"] * self.images
        certificate = pictures.Certificate(
            accuracy=last["test_accuracy"],
            test_images=self.test_images,
            epochs=last["epoch"],
            images=self.images,
            multiplications=trained * sum(n for name, n in products.items() if name in self.own),
            all_multiplications=trained * products.total(),
            kernels=tuple((part.title, part.name, part.name in self.own) for part in PARTS),
            where="a GPU" if device.hardware() else "the emulated GPU",
            date=datetime.date.today().isoformat(),
            steps=self.steps(self.batch),
        )
        contents = {
            "certificate.txt": repr(certificate).encode(),
            "certificate.png": certificate.picture().png,
        }
        for name, content in contents.items():
            with written_whole(workbook.folder() / name) as file:
                file.write(content)
        history.begin(certificate.steps)
        return certificate


def multiplications(model: Sequential) -> Counter:
    """Count the products of one image's training step, forward and backward, by kernel."""
    counts = Counter()
    for layer, shape in zip(model.layers, model.shapes[1:], strict=True):
        kind = {Conv2d: "conv2d", Linear: "dense"}.get(type(layer))
        if kind:
            products = layer.weight.size * int(np.prod(shape[2:]))
            counts[f"{kind}_kernel"] += products
            counts[f"{kind}_backward_weight_kernel"] += products
            counts[f"{kind}_backward_input_kernel"] += products * layer.needs_grad_input
    return counts


def _step(timeline):
    """Return a timeline as a `Step`."""
    slowest, *others = timeline.rows()
    share = slowest.total / sum(row.total for row in (slowest, *others))
    return history.Step(
        timeline.device.name, timeline.microseconds, timeline.low, timeline.high, slowest.name, share
    )


def _first(dataset, images):
    """Return a data set with only the first of its training images."""
    return dataclasses.replace(
        dataset, train_images=dataset.train_images[:images], train_labels=dataset.train_labels[:images]
    )


def _fingerprint(kernels):
    """Return a hash of the kernels' sources, and of what they use."""
    sources = {name: standalone(kernel.py_func) for name, kernel in sorted(kernels.items())}
    return hashlib.sha256(json.dumps(sources).encode()).hexdigest()
