"""The open exercise of notebook 03: a picture of shrunk rings, and modelled times on a T4."""

from typing import NamedTuple

import numpy as np

import gpuless
from benchmarks.records import text_table
from cnn_course.chapters.convolution_on_the_gpu.exercises.shrink import shrunk
from cnn_course.engine import plots
from cnn_numba import data
from gpuless import frontends

DIGITS = 1000


def rings(size=121):
    """Return an image of rings that become finer towards the edge."""
    row, column = np.indices((size, size)) - size // 2
    return (0.5 + 0.5 * np.cos(np.pi * (row**2 + column**2) / size)).astype(np.float32)


def rings_picture(shrink=None) -> plots.Picture:
    """Draw rings, every other pixel of them, and the result of a right `shrink`, pale without one."""
    image = rings()
    half = shrunk(image[None]) if shrink is None else shrink(image[None])
    fig, axes = plots.figure(1, 3, size=(7.2, 2.7))
    plots.show_image(axes[0], image, f"the image, {len(image)} x {len(image)}", limits=(0, 1))
    plots.show_image(axes[1], image[::2, ::2], "every other pixel, not blurred", limits=(0, 1))
    plots.show_image(axes[2], half[0], "yours", limits=(0, 1))
    if shrink is None:
        axes[2].images[0].set_alpha(0.3)
    return plots.picture(
        fig,
        "Rings too fine for half the pixels. Without the blur, false rings appear. Pale: the right result of "
        "your function.",
        "Three images. Rings around the middle, finer towards the edge; the same at half the size by leaving "
        "out pixels, with false rings around the middle of each side and the corners; and blurred first, "
        "where the fine rings fade to an even grey: pale until the exercise is solved.",
    )


class Times(NamedTuple):
    """A program's launches and modelled microseconds on a T4 for `DIGITS` digits.

    A measured time of the kernels would be between `low` and `high` four times out of five.
    """

    launches: int
    kernels: float
    low: float
    high: float
    copies: float


#: The times of the notebook's solution; a test models it again.
SOLUTION = Times(1, 14.4, 8.62, 35.9, 716)


def times_of(shrink) -> Times:
    """Model the times of a function's launches and copies."""
    digits = data.load("mnist").test_images[:DIGITS, 0].astype(np.float32)
    with gpuless.profiling("T4") as timeline:
        shrink(digits)
    reports = [event.report for event in timeline.events if event.report is not None]
    sums = (sum(getattr(report, name) for report in reports) for name in ("microseconds", "low", "high"))
    return Times(len(reports), *sums, sum(row.total for row in timeline.rows("copy")))


class Comparison:
    """The solution's times, and below them those of the reader's function."""

    def __init__(self, yours, note=""):
        self.yours, self.note = yours, note

    def __repr__(self):
        rows = [(f"{DIGITS} digits on a T4, modelled", "launches", "kernels", "4 times out of 5", "copies")]
        rows += [_row("the course's solution", SOLUTION)]
        rows += [_row("yours", self.yours)] if self.yours else []
        return "\n".join([text_table(rows), *filter(None, [self.note])])


def _row(name, times):
    between = f"{times.low:.2g} to {times.high:.2g} us"
    return name, str(times.launches), f"{times.kernels:.2g} us", between, f"{times.copies:.0f} us"


def modelled(shrink=None) -> Comparison:
    """Compare a right `shrink` with the notebook's solution by their modelled times on a T4."""
    if shrink is None:
        return Comparison(None, "Yours follows when the check is green.")
    if not frontends.installed():
        return Comparison(None, "Yours can be modelled where kernels run on the emulated GPU.")
    return Comparison(times_of(shrink))
