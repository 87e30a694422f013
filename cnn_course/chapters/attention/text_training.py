"""The training run that notebook 23 shows.

``python -m cnn_course.chapters.attention.text_training`` recorded it: five epochs of
``cnn-numba train --model text_transformer``.
"""

import json
from pathlib import Path

import numpy as np

from cnn_numba.beyond.models import text_transformer
from cnn_numba.beyond.text.data import TEXT
from cnn_numba.data import load
from cnn_numba.device import threads
from cnn_numba.pretrained import TEXT_TRANSFORMER
from cnn_numba.train.checkpoint import save_checkpoint
from cnn_numba.train.loop import fit
from cnn_numba.train.optim import Adam

RECORD = Path(__file__).with_name("text_training.json")
EVERY = 25  # the record has the mean loss of so many steps


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
    save_checkpoint(TEXT_TRANSFORMER, model, progress={"recipe": {"dataset": TEXT}})
    with np.load(TEXT_TRANSFORMER) as file:
        arrays = {**file, "parameters": file["parameters"].astype(np.float16)}
    np.savez(TEXT_TRANSFORMER, **arrays)  # `load_checkpoint` refuses compressed files


def recorded() -> dict:
    """Return the record: ``losses`` (means over ``every`` steps) and the ``history`` of the epochs."""
    return json.loads(RECORD.read_text())


if __name__ == "__main__":
    record()
