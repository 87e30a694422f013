"""Which cells of the notebooks run in a page of the book: found by running them as a page does.

An exercise does whose solution is found right by a Python that has NumPy and nothing else, which no list has
to say; what is in the way of the others is a compiler, or threads: a browser has neither.
"""

import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import first_page
import numpy as np

from cnn_course.engine import notebooks

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
#: What a page fetches where a cell needs it, from where it has NumPy.
ON_DEMAND = ("matplotlib", "PIL", "scipy")


def unpack(archive, folder):
    """Unpack an archive, and lay NumPy beside it; return both folders."""
    folder = Path(folder)
    with zipfile.ZipFile(archive) as file:
        file.extractall(folder / "course")
    (folder / "numpy").mkdir()
    installed = Path(np.__file__).parent
    for path in (installed, installed.with_name("numpy.libs")):
        if path.exists():
            (folder / "numpy" / path.name).symlink_to(path, target_is_directory=True)
    return folder / "course", folder / "numpy"


def outcomes(archive):
    """Return what comes of each cell, by notebook and cell: "" if it runs, else what is in the way.

    Kept beside the archive, whose name tells its content: it takes a minute or two.
    """
    kept = Path(archive).with_suffix(".json")
    if not kept.exists():
        solutions = {
            path.stem: {
                f"{exercise.name.replace('_', '-')}-stub": exercise.solution
                for exercise in notebooks.exercises(notebooks.read(path))
            }
            for path in sorted(ROOT.glob("notebooks/*.ipynb"))
        }
        solutions[first_page.NAME] = solutions["00_start_here"]
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-I", "-S", HERE / "alone.py", *unpack(archive, folder)]
            done = subprocess.run(
                command, input=json.dumps(solutions), capture_output=True, text=True, check=True
            )
        kept.write_text(done.stdout, encoding="utf-8")
    return json.loads(kept.read_text(encoding="utf-8"))


def live(found):
    """Return the ids of the cells that run in a page, of one notebook's outcomes."""
    fetched = [f"lacks {package}" for package in ON_DEMAND]
    return [cell for cell, outcome in found.items() if outcome == "" or outcome in fetched]
