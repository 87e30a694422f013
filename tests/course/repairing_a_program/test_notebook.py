"""Notebook 19: modelled times of the program at full size."""

import re
from pathlib import Path

from cnn_course.engine import notebooks

NOTEBOOK = Path(__file__).parents[3] / "notebooks" / "19_repairing_a_program.ipynb"


def test_a_large_image_fills_the_gpu():
    (cell,) = (cell for cell in notebooks.read(NOTEBOOK).cells if cell.id == "sheet-times")
    shown = cell.outputs[0].data["text/plain"]
    assert "modelled times, not measured" in shown
    units = {"us": 1, "ms": 1000}
    one, all_ = (
        [float(number) * units[unit] for number, unit in re.findall(r"([\d.]+) (us|ms) \(", line)]
        for line in re.findall(r"^(?:one digit|the sheet) .*$", shown, re.MULTILINE)[:2]
    )
    assert len(one) == 3
    assert all(sheet < 300 * digit for digit, sheet in zip(one, all_, strict=True))
