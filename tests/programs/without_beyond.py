"""Trains a network for MNIST without `cnn_numba.beyond`, and prints the results as JSON."""

import dataclasses
import json
import sys


class Nothing:
    """Hides `cnn_numba.beyond`."""

    def find_spec(self, name, path=None, target=None):
        if f"{name}.".startswith("cnn_numba.beyond."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def error_of(function, *arguments, **options):
    """Return the message of a call that needs `beyond`."""
    try:
        function(*arguments, **options)
    except (AttributeError, ValueError) as error:
        return str(error)


def main(out):
    """Train for a few steps; only in a process that has not imported the package before."""
    sys.meta_path.insert(0, Nothing())
    from cnn_numba.data import load
    from cnn_numba.device import simulated
    from cnn_numba.nn.models import MODELS, mnist_cnn
    from cnn_numba.ops.backends import backend
    from cnn_numba.train.callbacks import saving
    from cnn_numba.train.loop import evaluate, fit
    from cnn_numba.train.optim import Adam

    # Training writes its curves in test_training.py, and importing Matplotlib takes longer than these steps.
    saving.plot_history = lambda history, path: None

    def first(count):
        parts = "train_images", "train_labels", "test_images", "test_labels"
        return dataclasses.replace(mnist, **{part: getattr(mnist, part)[:count] for part in parts})

    def train(data, device="cpu", **options):
        model = mnist_cnn(batch_size=32, device=device)
        return model, fit(model, data, Adam(model, lr=3e-3), epochs=1, progress=False, **options)

    mnist, lines = load("mnist"), []
    data = first(640)
    model, history = train(data, out=out, log=lines.append)
    devices = ["cpu"] if simulated() else ["cpu", "gpu"]
    found = {
        "history": history,
        "evaluated": evaluate(model, data.test_images, data.test_labels, data.mean, data.std),
        "lines": lines,
        "losses": {device: train(first(64), device)[1][0]["train_loss"] for device in devices},
        "models": list(MODELS),
        "errors": {
            "scaler": error_of(train, data, scaler=True),
            "timeline": error_of(train, data, timeline="timeline.json"),
            "norm": error_of(lambda: backend("cpu").ops.norm),
            "text": error_of(load, "course-text"),
        },
        "imported": [name for name in sys.modules if name.startswith("cnn_numba.beyond")],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
