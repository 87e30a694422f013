"""Training runs with one worker and with several, as in notebook 24: in processes, on a few digits."""

import atexit
import importlib.util
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cnn_numba.data import load

#: The number of training and test digits.
TRAINED_ON, JUDGED_BY = 2048, 512
#: The most seconds for a training run, on a busy machine.
LIMIT = 300
TIMELINE = Path(__file__).with_name("timeline.json")


class Training(NamedTuple):
    """The result of a training run.

    Attributes
    ----------
    folder : Path
        Where its checkpoint is.
    history : list of dict
        Of each epoch.
    complaints : list of str
        Its error messages, if it failed.
    timeline : dict
        Of a few steps; empty if they weren't reached.
    """

    folder: Path
    history: list
    complaints: list
    timeline: dict


def can_start_several() -> bool:
    """Return whether several workers can be started, which needs torch."""
    return importlib.util.find_spec("torch") is not None


def options(epochs: int) -> list[str]:
    """Return the arguments of the training runs, after ``cnn-numba train``."""
    return ["--batch-size", "64", "--schedule", "constant", "--device", "cpu", "--epochs", str(epochs)]


def command(workers: int, epochs: int) -> str:
    """Return the shell command."""
    begin = f"torchrun --standalone --nproc-per-node {workers} -m cnn_numba" if workers > 1 else "cnn-numba"
    return shlex.join([*begin.split(), "train", *options(epochs)])


def write_few_digits(folder: Path, train: int = TRAINED_ON, test: int = JUDGED_BY) -> None:
    """Write the first `train` and `test` digits of MNIST's two sets to a folder, in MNIST's format."""
    mnist = load("mnist")
    for part, images, labels in (
        ("train", mnist.train_images[:train], mnist.train_labels[:train]),
        ("t10k", mnist.test_images[:test], mnist.test_labels[:test]),
    ):
        for kind, array in (("images", images[:, 0]), ("labels", labels)):
            header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
            path = folder / f"{part}-{kind}-idx{array.ndim}-ubyte"
            path.write_bytes(header + array.astype(np.uint8).tobytes())


def train(workers: int, epochs: int, kill_after: int | None = None) -> Training:
    """Train `mnist_cnn` on a few digits with one or several workers.

    Parameters
    ----------
    workers, epochs : int
    kill_after : int, optional
        After this many epochs the last worker is killed.
    """
    folder = Path(tempfile.mkdtemp(prefix="workers-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    write_few_digits(folder)
    timeline = ["--timeline", str(folder / "timeline.json")] if workers > 1 else []
    return _run(folder, workers, [*options(epochs), *timeline], kill_after)


def resume(training: Training, workers: int, epochs: int) -> Training:
    """Resume a training run with `workers` workers, up to `epochs` epochs in total."""
    return _run(training.folder, workers, ["--resume", "--epochs", str(epochs)], None)


def wrapped(line: str, folder: Path) -> list[str]:
    """Return a line wrapped for a page, with this machine's folder replaced by a word."""
    return textwrap.wrap(
        line.replace(str(folder), "FOLDER"), 100, break_long_words=False, break_on_hyphens=False
    )


def kept_timeline() -> dict:
    """Return the timeline that was saved when the notebook was made."""
    return json.loads(TIMELINE.read_text())


def _run(folder, workers, given, kill_after):
    launcher = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(workers), "-m"]
    command = [sys.executable, "-m", *(launcher if workers > 1 else []), "cnn_numba", "train", *given]
    command += ["--data-dir", str(folder), "--out", str(folder / "run")]
    environment = os.environ | {"CNN_NUMBA_CACHE": str(folder / "cache"), "PYTHONUNBUFFERED": "1"}
    log = folder / "log"
    with log.open("w") as file:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT
        )
        try:
            if kill_after:
                _kill_last(process, folder / "run" / "history.json", kill_after)
            process.wait(LIMIT)
        finally:
            process.terminate()  # torchrun ends its workers
            process.wait()
    output = log.read_text()
    complaints = [line.strip() for line in output.splitlines() if line.strip().startswith("cnn-numba:")]
    if process.returncode and not kill_after:
        raise RuntimeError(f"{shlex.join(command)} has failed:\n{output[-2000:]}")
    timeline = folder / "timeline.json"
    events = json.loads(timeline.read_text()) if timeline.exists() else {}
    return Training(folder, _epochs(folder / "run" / "history.json"), complaints, events)


def _epochs(path):
    """Return the history written so far."""
    return json.loads(path.read_text()) if path.exists() else []


def _kill_last(process, history, after):
    """Kill the youngest worker of torchrun once `after` epochs are done."""
    deadline = time.monotonic() + LIMIT
    while len(_epochs(history)) < after:
        if process.poll() is not None or time.monotonic() > deadline or not shutil.which("ps"):
            return
        time.sleep(0.05)
    table = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    ).stdout
    pairs = [tuple(map(int, line.split())) for line in table.splitlines()]
    os.kill(max(pid for pid, parent in pairs if parent == process.pid), signal.SIGKILL)
