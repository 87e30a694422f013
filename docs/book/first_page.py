"""The two cells of the page that comes before any explanation: a kernel to change, and a race to repair.

Stubs and checks are those of notebook 00; what shows them at work needs no Matplotlib.
"""

from pathlib import Path

from cnn_course.engine import notebooks

ROOT = Path(__file__).parents[2]
#: The name of the page, and of its cells in the archive.
NAME = "try"
_SETUP = """\
import numpy as np
from numba import cuda

from cnn_course.chapters.start_here import exercises as check
from cnn_course.engine.pixels import Pixels
from cnn_numba import data

digits = data.load("mnist").test_images[:4, 0]
"""
_SHOW = {
    "brighten_kernel": """\
d_out = cuda.to_device(np.zeros((28, 28), np.uint8))
brighten_kernel[(1, 1), (32, 32)](cuda.to_device(digits[0] // 3), d_out)
Pixels({"a dark digit": digits[0] // 3, "after your kernel": d_out.copy_to_host()})
""",
    "count_kernel": """\
d_counts = cuda.to_device(np.zeros(check.LEVELS, np.int32))
count_kernel[(1, 1, len(digits)), (32, 32)](cuda.to_device(digits), d_counts)
print(f"{d_counts.copy_to_host().sum():,} of {digits.size:,} pixels are counted")
""",
}


def cells():
    """Return the cells of the page, each as id, kind and source."""
    found = {
        each.name: each
        for each in notebooks.exercises(notebooks.read(ROOT / "notebooks/00_start_here.ipynb"))
    }
    made = [("setup", "setup", _SETUP)]
    for name, show in _SHOW.items():
        stem = name.replace("_", "-")
        made += [
            (f"{stem}-stub", "stub", found[name].stub),
            (f"{stem}-check", "check", found[name].check),
            (f"{stem}-show", "code", show),
        ]
    return made


def stub(cell):
    """Return the source of a cell."""
    return next(source for name, _, source in cells() if name == cell)
