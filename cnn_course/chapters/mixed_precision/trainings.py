"""The training runs of notebook 16, recorded: `mnist_cnn` in each precision; and sums rounded to bfloat16.

``python -m cnn_course.chapters.mixed_precision.trainings gpu float16`` trains the default recipe on that
device in that precision, and writes the result to `RECORD`; ``unscaled`` after it trains without loss
scaling.
"""

import datetime
import json
import sys
import time
from pathlib import Path

import numpy as np

from cnn_numba import device
from cnn_numba.data import load
from cnn_numba.nn.models import mnist_cnn
from cnn_numba.train.loop import fit
from cnn_numba.train.optim import Adam

RECORD = Path(__file__).with_name("precision_trainings.json")


def recorded() -> list[dict]:
    """Return the recorded training runs, a dict for each."""
    return json.loads(RECORD.read_text()) if RECORD.exists() else []


def record(place: str, precision: str, scaled: bool = True) -> dict:
    """Train `mnist_cnn` with the default recipe, and record the run; it replaces an earlier one.

    Parameters
    ----------
    place : {"cpu", "gpu"}
    precision : {"float32", "tf32", "float16", "bfloat16"}
    scaled : bool
        False trains in float16 without loss scaling.

    Returns
    -------
    dict
        Where, how, when, for how long, and the history.
    """
    model = mnist_cnn(device=place, precision=precision)
    started = time.process_time()
    history = fit(
        *(model, load("mnist"), Adam(model, lr=3e-3)),
        scaler=None if scaled else False,
        progress=False,
        log=lambda line: print(line, flush=True),
    )
    key = {"place": place, "precision": precision, "scaled": "loss_scale" in history[0]}
    entry = key | {
        "where": _where(place),
        "date": datetime.date.today().isoformat(),
        "processor_seconds": round(time.process_time() - started),
        "history": history,
    }
    others = [other for other in recorded() if any(other[name] != value for name, value in key.items())]
    lines = (json.dumps(one) for one in [*others, entry])
    RECORD.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    return entry


def _where(place):
    threads = f"{device.threads()} CPU threads"
    if place == "cpu":
        return threads
    return f"emulated GPU, on {threads}" if device.SELECTION.emulated else device.place_of(place)


def round_to_bfloat16(x: np.ndarray, noise: np.random.Generator | None = None) -> np.ndarray:
    """Round float32 numbers to bfloat16: to the nearest, or stochastically with `noise`.

    Examples
    --------
    >>> round_to_bfloat16(np.float32([1.001, 1.006])).tolist()
    [1.0, 1.0078125]
    """
    bits = x.view(np.uint32)
    if noise is None:
        added = np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))  # ties to even
    else:
        added = noise.integers(0, 2**16, x.shape, np.uint32)
    return (bits + added & np.uint32(0xFFFF0000)).view(np.float32)


def running_sum(value: float, count: int, noise: np.random.Generator | None = None) -> np.ndarray:
    """Return the sums of 1 to `count` times a value, each rounded to bfloat16 before the next is added."""
    sums, total = np.empty(count, np.float32), np.zeros(1, np.float32)
    for index in range(count):
        total = round_to_bfloat16(total + np.float32(value), noise)
        sums[index] = total[0]
    return sums


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(
            "usage: python -m cnn_course.chapters.mixed_precision.trainings cpu|gpu PRECISION [unscaled]"
        )
    record(sys.argv[1], sys.argv[2], scaled="unscaled" not in sys.argv)
