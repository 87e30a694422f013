"""A recorded training run on the solutions' kernels, for readers who have no kernels yet."""

import json
from dataclasses import replace
from pathlib import Path

from cnn_course.chapters.mnist_cnn.network import multiplications
from cnn_course.chapters.mnist_cnn.own_backend import PARTS
from cnn_course.chapters.mnist_cnn.pictures import TrainingCurve
from cnn_course.engine import history, plots, progress
from cnn_numba.nn.models import mnist_cnn

TRAINING = Path(__file__).with_name("own_training.json")
STEPS = Path(__file__).with_name("own_steps.json")


def curve() -> plots.Picture:
    """Draw its curve; the record says when and where it ran."""
    record = json.loads(TRAINING.read_text(encoding="utf-8"))
    drawn = TrainingCurve(None, None, None, steps=len(record["losses"]), show=lambda picture: None)
    drawn.losses, drawn.measured, drawn.step = record["losses"], record["measured"], len(record["losses"])
    picture = drawn.picture()
    ends = ", then ".join(f"{entry['test_accuracy']:.2%}" for entry in record["history"])
    return replace(
        picture,
        caption=f"{picture.caption} Recorded on {record['date']}: after each epoch {ends} of the 10,000 test "
        f"images right.",
    )


def steps() -> tuple:
    """Return the modelled times of one of its steps on three GPUs."""
    return tuple(history.Step(**step) for step in json.loads(STEPS.read_text(encoding="utf-8")))


def certificate() -> progress.Certificate:
    """Return its certificate, as an example."""
    record = json.loads(TRAINING.read_text(encoding="utf-8"))
    last, images = record["history"][-1], 60_000
    products = last["epoch"] * images * multiplications(mnist_cnn(1)).total()
    return progress.Certificate(
        accuracy=last["test_accuracy"],
        test_images=10_000,
        epochs=last["epoch"],
        images=images,
        multiplications=products,
        all_multiplications=products,
        kernels=tuple((part.title, part.name, True) for part in PARTS),
        where="the emulated GPU",
        date=record["date"],
        steps=steps(),
        example=True,
    )
