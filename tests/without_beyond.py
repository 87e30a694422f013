"""Trains a network for MNIST where `cnn_numba.beyond` cannot be imported, and prints the results as JSON."""

import dataclasses
import json
import sys


class Nothing:
    """Lets nothing of `cnn_numba.beyond` be found."""

    def find_spec(self, name, path=None, target=None):
        if f"{name}.".startswith("cnn_numba.beyond."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Nothing())

from cnn_numba.data import load  # noqa: E402
from cnn_numba.device import simulated  # noqa: E402
from cnn_numba.nn.models import MODELS, mnist_cnn  # noqa: E402
from cnn_numba.ops.backends import backend  # noqa: E402
from cnn_numba.train.loop import evaluate, fit  # noqa: E402
from cnn_numba.train.optim import Adam  # noqa: E402


def first(data, count):
    """Return the first images of a data set, to train on and to test with."""
    parts = "train_images", "train_labels", "test_images", "test_labels"
    return dataclasses.replace(data, **{part: getattr(data, part)[:count] for part in parts})


def error_of(function, *arguments, **options):
    """Return the message of a call that needs `beyond`."""
    try:
        function(*arguments, **options)
    except (AttributeError, ValueError) as error:
        return str(error)


def train(data, device="cpu", **options):
    """Train for an epoch; return the network and the history."""
    model = mnist_cnn(batch_size=32, device=device)
    return model, fit(model, data, Adam(model, lr=3e-3), epochs=1, progress=False, **options)


DATA = first(load("mnist"), 640)

if __name__ == "__main__":
    lines = []
    model, history = train(DATA, out=sys.argv[1], log=lines.append)
    few = first(DATA, 64)
    devices = ["cpu"] if simulated() else ["cpu", "gpu"]
    found = {
        "history": history,
        "evaluated": evaluate(model, DATA.test_images, DATA.test_labels, DATA.mean, DATA.std),
        "lines": lines,
        "devices": {device: train(few, device)[1][0]["train_loss"] for device in devices},
        "models": list(MODELS),
        "errors": {
            "scaler": error_of(train, DATA, scaler=True),
            "timeline": error_of(train, DATA, timeline="timeline.json"),
            "norm": error_of(lambda: backend("cpu").ops.norm),
            "text": error_of(load, "course-text"),
        },
        "imported": [name for name in sys.modules if name.startswith("cnn_numba.beyond")],
    }
    print(json.dumps(found))
