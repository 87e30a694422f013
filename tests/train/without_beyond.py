"""Trains a network for MNIST where `cnn_numba.beyond` cannot be imported, and prints the results as JSON."""

import dataclasses
import json
import sys


class Nothing:
    """Lets nothing of `cnn_numba.beyond` be found."""

    def find_spec(self, name, path=None, target=None):
        if f"{name}.".startswith("cnn_numba.beyond."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def main(out):
    """Train for a few steps; only in a process in which nothing of the package was imported before."""
    sys.meta_path.insert(0, Nothing())
    from cnn_numba.data import load
    from cnn_numba.nn.models import mnist_cnn
    from cnn_numba.train.loop import evaluate, fit
    from cnn_numba.train.optim import Adam

    mnist = load("mnist")
    parts = "train_images", "train_labels", "test_images", "test_labels"
    few = dataclasses.replace(mnist, **{part: getattr(mnist, part)[:640] for part in parts})

    def train(**options):
        model = mnist_cnn(batch_size=32)
        return model, fit(model, few, Adam(model, lr=3e-3), epochs=1, progress=False, **options)

    def error_of(**options):
        try:
            train(**options)
        except ValueError as error:
            return str(error)

    lines = []
    model, history = train(out=out, log=lines.append)
    found = {
        "history": history,
        "evaluated": evaluate(model, few.test_images, few.test_labels, few.mean, few.std),
        "lines": lines,
        "errors": {"scaler": error_of(scaler=True), "timeline": error_of(timeline="timeline.json")},
        "imported": [name for name in sys.modules if name.startswith("cnn_numba.beyond")],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
