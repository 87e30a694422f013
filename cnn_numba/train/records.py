"""The files of a training run: its history and curves, and moving those of an earlier run."""

import csv
import io
import itertools
import json
import shutil
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

from cnn_numba.train.checkpoint_contents import HISTORY_KEYS, check_history
from cnn_numba.whole_files import written_whole

#: The files that are made from the checkpoint.
RECORDS = ("history.json", "history.csv", "curves.png")
#: All files of a run.
FILES = ("checkpoint.npz", *RECORDS)


def move_earlier_run(folder: Path, log: Callable[[str], object]) -> None:
    """Move the files of an earlier run, if any, to a new folder within `folder`; log its name."""
    files = [folder / name for name in FILES if (folder / name).exists()]
    if not files:
        return
    # Copy, rename the copy, then delete; the checkpoint stays until the new run's replaces it. A kill at any
    # moment loses nothing, and there is always a checkpoint to resume.
    partial = folder / ".earlier.partial"
    shutil.rmtree(partial, ignore_errors=True)  # left by a killed process
    try:
        partial.mkdir()
        for file in files:
            shutil.copy2(file, partial)
        numbered = (folder / f"earlier-{number}" for number in itertools.count(1))
        earlier = partial.rename(next(path for path in numbered if not path.exists()))
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    for name in RECORDS:
        (folder / name).unlink(missing_ok=True)
    network = earlier / "checkpoint.npz"
    log(f"Moved the earlier run to {earlier}" + (f"; its network: {network}" if network.exists() else ""))


def write_history(history: list[dict[str, float]], folder: str | PathLike) -> None:
    """Write ``history.json`` and ``history.csv``; TypeError or ValueError unless `history` is from `fit`."""
    check_history(history)
    table = io.StringIO()
    writer = csv.DictWriter(table, history[0] if history else HISTORY_KEYS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(history)
    texts = {"history.json": json.dumps(history, indent=2) + "\n", "history.csv": table.getvalue()}
    for name, text in texts.items():
        with written_whole(Path(folder) / name) as file:
            file.write(text.encode())


def plot_history(history: list[dict[str, float]], path: str | PathLike | None = None) -> Any:
    """Draw loss and accuracy over the epochs.

    Parameters
    ----------
    history : list of dict
        As `fit` returns it.
    path : path, optional
        Where to save the picture.

    Returns
    -------
    matplotlib.figure.Figure
    """
    check_history(history)
    # Imported here because it takes half a second.
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    figure = Figure(figsize=(8, 3.2), layout="constrained")
    epochs = [entry["epoch"] for entry in history]
    for axes, quantity in zip(figure.subplots(1, 2), ("loss", "accuracy"), strict=True):
        for part, style in (("train", "o--"), ("test", "o-")):
            axes.plot(epochs, [entry[f"{part}_{quantity}"] for entry in history], style, label=part)
        axes.set(xlabel="epoch", ylabel=quantity)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
        if quantity == "accuracy":
            axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=1))
    if path is not None:
        with written_whole(path) as file:
            figure.savefig(file, dpi=150, format=Path(path).suffix[1:] or None)
    return figure
