"""The recipe of a training run: what must be the same on all workers, and after resuming."""

import json
import zlib
from collections.abc import Mapping
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from cnn_numba.arguments import shown
from cnn_numba.device import to_host


class Plan(NamedTuple):
    """Arguments of `fit`."""

    epochs: int
    schedule: str
    seed: int
    augment: str
    label_smoothing: float
    graph: bool
    out: str | PathLike | None
    resume: bool


def checksum(*arrays: Any) -> int:
    """Return a checksum of the bytes of all arrays."""
    value = 0
    for array in arrays:
        value = zlib.crc32(np.ascontiguousarray(to_host(array)).data, value)
    return value


def recipe_of(run: Any) -> dict[str, Any]:
    """Return the recipe of a training run, a `train.run.Run`, as JSON."""
    model, dataset, optimizer, plan = run.model, run.dataset, run.optimizer, run.plan
    return {
        "dataset": dataset.name,
        "train_images": len(dataset.train_images),
        "train_crc32": checksum(dataset.train_images, dataset.train_labels),
        "test_crc32": checksum(dataset.test_images, dataset.test_labels),
        "mean": np.asarray(dataset.mean).tolist(),
        "std": np.asarray(dataset.std).tolist(),
        "device": model.device,
        "precision": model.precision,
        "loss_scaling": run.scaler.settings,
        "batch_size": run.batch_size,  # of all workers together
        "optimizer": type(optimizer).__name__,
        **optimizer.settings,
        "lr": optimizer.lr,
        "schedule": plan.schedule,
        "augment": plan.augment,
        "label_smoothing": plan.label_smoothing,
        "epochs": plan.epochs,
        "seed": plan.seed,
    }


def check_recipe(saved: Mapping[str, Any], recipe: Mapping[str, Any]) -> None:
    """Raise a ValueError that names each entry that differs, if a training run can't go on with a recipe."""
    # Fields that older files lack.
    older = {"precision": "float32", "loss_scaling": None, "augment": "none", "label_smoothing": 0.0}
    saved = {**older, **saved}
    free = {"train_crc32", "test_crc32"} - saved.keys()
    # A constant schedule does not depend on the number of epochs. The device changes only the last digits,
    # unless one of the two is the reference, which computes in float64.
    if recipe["schedule"] == "constant":
        free.add("epochs")
    if "reference" not in (saved.get("device"), recipe["device"]):
        free.add("device")
    differing = {
        key: f"{key} {shown(saved.get(key))}, now {shown(value)}"
        for key, value in json.loads(json.dumps(recipe)).items()  # JSON knows no tuples
        if saved.get(key) != value and key not in free
    }
    advice = ""
    if differing.keys() == {"epochs"}:
        advice = (
            f"; the learning rates of {recipe['schedule']} depend on the last epoch: leave "
            "the number as it was, or train anew (only a constant schedule may be prolonged)"
        )
    elif differing.keys() & {"dataset", "train_images", "train_crc32", "test_crc32"}:
        advice = "; the data differ: give those it was trained on (--data-dir on the command line)"
    if differing:
        raise ValueError(f"it was trained with {'; '.join(differing.values())}{advice}")
