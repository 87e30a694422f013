"""The training that notebook 13b shows: run once by ``python -m cnn_numba.course.text_training``, and kept.

It took the default recipe of ``cnn-numba train --model text_transformer``, five epochs of it.
"""

import json
from pathlib import Path

import numpy as np

from cnn_numba.data import load
from cnn_numba.data.text import TEXT
from cnn_numba.device import threads
from cnn_numba.nn.models import Sequential, text_transformer
from cnn_numba.train.loop import fit
from cnn_numba.train.optim import Adam

RECORD = Path(__file__).with_name("text_training.json")
WEIGHTS = Path(__file__).with_name("text_transformer.npz")
EVERY = 25  # steps of which the record has the mean loss


def record(epochs: int = 5) -> None:
    """Train, and write the record and the weights."""
    model, losses = text_transformer(), []
    history = fit(
        model,
        load(TEXT),
        Adam(model, lr=3e-3),
        epochs=epochs,
        progress=False,
        log=print,
        on_step=lambda step, loss: losses.append(loss),
    )
    means = [round(float(np.mean(losses[i : i + EVERY])), 4) for i in range(0, len(losses), EVERY)]
    text = {"every": EVERY, "losses": means, "history": history, "threads": threads(), "device": model.device}
    RECORD.write_text(json.dumps(text, indent=1) + "\n")
    np.savez_compressed(WEIGHTS, parameters=model.parameters.astype(np.float16))


def trained(batch_size: int = 1) -> Sequential:
    """Return the network of the record; its weights were kept as float16."""
    model = text_transformer(batch_size)
    with np.load(WEIGHTS) as file:
        model.parameters[:] = file["parameters"]
    return model


def recorded() -> dict:
    """Return the record: ``losses``, the mean of each ``every`` steps, and the ``history`` of the epochs."""
    return json.loads(RECORD.read_text())


if __name__ == "__main__":
    record()
