"""Stored outputs of notebooks: the text of a cell, and the modelled times in it."""

import re
from pathlib import Path

from cnn_course.engine import notebooks

FOLDER = Path(__file__).parents[2] / "notebooks"
_UNITS = {"us": 1, "ms": 1000}


def shown(name, cell_id):
    """Return the first output of a cell as text."""
    (cell,) = (cell for cell in notebooks.read(FOLDER / name).cells if cell.id == cell_id)
    return cell.outputs[0].get("text") or cell.outputs[0].data["text/plain"]


def all_shown(name, cell_id):
    """Return all outputs of a cell as text."""
    (cell,) = (cell for cell in notebooks.read(FOLDER / name).cells if cell.id == cell_id)
    return "".join(output.get("text") or output.data["text/plain"] for output in cell.outputs)


def microseconds(text):
    """Return the times of a `ModelledLadder` as it is printed, by rung: one for each GPU."""
    rows = (line for line in text.splitlines() if re.search(r"(us|ms) \(.* to ", line))
    return {
        row.partition("  ")[0]: [
            float(time) * _UNITS[unit] for time, unit in re.findall(r"([\d.]+) (us|ms)", row)
        ]
        for row in rows
    }
