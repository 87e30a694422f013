"""A step, part by part: the launcher of each part, whose it is, and the modelled times."""

from functools import cached_property
from typing import NamedTuple

import numpy as np

from cnn_course.chapters.capstone.faster_kernels import (
    CHANGES,
    SWAPS,
    launch_filter_gradient,
    launch_forward_maps,
)
from cnn_course.chapters.capstone.first_launchers import first_launchers
from cnn_course.chapters.capstone.judging import KernelLauncher
from cnn_course.chapters.capstone.modelling import NAMES, can_model, known, step_times
from cnn_course.chapters.capstone.parts import PARTS, calls_of
from cnn_course.engine import history, plots, progress, workbook

TOPIC = "capstone"
#: Exercises whose answer is a kernel: its part, and its launch.
_GUIDED = {
    "filter_gradient_kernel": ("conv_weight", launch_filter_gradient),
    "forward_maps_kernel": ("conv_forward", launch_forward_maps),
}
YOURS, COURSE, FIRST = "✔ your swap", "○ the course's swap", ""


class Holder(NamedTuple):
    """The launcher of a part, and whose it is."""

    launcher: object
    whose: str


class StepByParts:
    """A step of `mnist_cnn` with batches of 64, and a launcher for each part; prints where the time goes.

    Parameters
    ----------
    holders : dict of str to Holder
    before : StepByParts, optional
        The step to compare with.
    """

    def __init__(self, holders, before=None):
        self.holders, self.before = dict(holders), before

    @cached_property
    def parts(self) -> dict:
        """The modelled times of each part."""
        return {name: known(name, holder.launcher) for name, holder in self.holders.items()}

    @cached_property
    def times(self) -> tuple:
        """A `StepTime` for each GPU; empty if nothing can be modelled."""
        return step_times(self.parts) if can_model() else ()

    def swapped(self, name: str, launcher: object = None) -> "StepByParts":
        """Return the step with one part swapped.

        Parameters
        ----------
        name : str
            Of a part.
        launcher : callable, optional
            One of the course's; None takes the reader's swap, or else the course's first.
        """
        if name not in PARTS:
            raise ValueError(f"name must be one of {', '.join(PARTS)}, got {name!r}")
        mine = your_swaps().get(name) if launcher is None else None
        other = launcher or dict(reversed(SWAPS)).get(name)
        if mine is None and other is None:
            raise ValueError(f"name must be a part that you or the course has a swap for, got {name!r}")
        holder = Holder(other, COURSE) if mine is None else Holder(mine, YOURS)
        return StepByParts(self.holders | {name: holder}, self)

    @property
    def own(self) -> list:
        """The parts whose swap is the reader's."""
        return [name for name, holder in self.holders.items() if holder.whose == YOURS]

    def rows(self, number=0) -> list:
        """Return (part, microseconds, share, whose) on the GPU with this number, the largest first."""
        found = [(name, part.microseconds(number)) for name, part in self.parts.items()]
        whole = sum(time for _, time in found)
        ordered = sorted(found, key=lambda row: -row[1])
        return [(name, time, time / whole, self.holders[name].whose) for name, time in ordered]

    def __repr__(self):
        if not can_model():
            return "Steps are modelled only on the emulated GPU, and kernels run on something else here."
        lines = [f"{'on a ' + NAMES[0] + ', modelled':37}{'us':>8}{'share':>7}"]
        for name, time, share, whose in self.rows():
            lines.append(f"{name:15}{_short(PARTS[name].title):22}{time:8.0f}{share:7.0%}  {whose}".rstrip())
        return "\n".join([*lines, "", self.summary()])

    def summary(self) -> str:
        """Return a line for each GPU: the step now and before, its range, the share of GPU work."""
        rows = [f"{'a step, in ms':16}{'now':>8}{'before':>8}{'from':>8}{'to':>8}{'GPU works':>11}"]
        for k, now in enumerate(self.times):
            was = _ms(self.before.times[k].microseconds) if self.before else ""
            low, high, works = _ms(now.low), _ms(now.high), f"{now.busy / now.microseconds:.0%}"
            rows.append(
                f"{now.gpu:16}{_ms(now.microseconds):>8}{was:>8}{low:>8}{high:>8}{works:>11}".rstrip()
            )
        return "\n".join(rows)

    def by_layer(self, name: str) -> str:
        """Return a part's time in each layer on the first GPU, now and before."""
        if not can_model():
            return repr(self)
        rows = [f"{name + ', us on a ' + NAMES[0]:28}{'now':>8}{'before':>8}"]
        for number, call in enumerate(calls_of(name)):
            steps = [self, *([self.before] if self.before else [])]
            times = [sum(one.times[0][0] for one in step.parts[name].launches[number]) for step in steps]
            rows.append(f"{call.layer:28}" + "".join(f"{time:8.0f}" for time in times))
        return "\n".join(rows)

    def as_graph(self) -> str:
        """Return a line for each GPU: the step launched kernel by kernel, and replayed as one CUDA graph."""
        if not can_model():
            return repr(self)
        rows = [f"{'a step, in ms':16}{'launched':>10}{'as a graph':>12}{'GPU works':>11}"]
        for now in self.times:
            times = (_ms(time) for time in (now.microseconds, now.graph, now.busy))
            rows.append("{:16}{:>10}{:>12}{:>11}".format(now.gpu, *times))
        return "\n".join(rows)

    def picture(self) -> plots.Picture:
        """Draw the parts as bars; pale ones are those of the step before."""
        if not can_model():
            return None
        rows = self.rows()
        fig, ax = plots.figure(size=(7.2, 0.8 + 0.26 * len(rows)))
        heights = np.arange(len(rows))
        if self.before:
            earlier = [self.before.parts[name].microseconds() for name, *_ in rows]
            changed = [was if was > time else 0 for was, (_, time, *_) in zip(earlier, rows, strict=True)]
            ax.barh(heights, changed, color=plots.FAINT, height=0.75)
        colours = [plots.GREEN if whose == YOURS else plots.BLUE for *_, whose in rows]
        ax.barh(heights, [time for _, time, *_ in rows], color=colours, height=0.45)
        right = ax.get_xlim()[1]
        ax.set(xlim=(0, 1.08 * right), ylim=(len(rows) - 0.4, -0.6), xlabel=f"us on a {NAMES[0]}, modelled")
        ax.set_yticks(heights, [_short(PARTS[name].title) for name, *_ in rows])
        for height, (_, time, share, _) in zip(heights, rows, strict=True):
            words = f"{time:.0f}, {share:.0%}"
            ax.text(time + 0.01 * right, height, words, va="center", fontsize=8, color=plots.INK)
        pale = " Pale: the step before." if self.before else ""
        words = "; ".join(f"{PARTS[name].title}: {time:.0f}" for name, time, *_ in rows)
        return plots.picture(
            fig,
            f"Where a step's time goes on a {NAMES[0]}, modelled.{pale}",
            f"A bar for each part of the step, the longest at the top, in microseconds. {words}.{pale}",
        )


def _short(title):
    return title.replace("convolution", "conv").replace(" layer", "").partition(", ")[0]


def _ms(microseconds):
    return f"{microseconds / 1000:.3g}"


def first_step() -> StepByParts:
    """Return the step with the kernels of Part I: the reader's, or the course's where these are missing."""
    return StepByParts({name: Holder(launcher, FIRST) for name, launcher in first_launchers().items()})


def your_swaps() -> dict:
    """Return the launchers in the reader's workbook, by the names of their parts.

    If there are two for a part, the one that is faster on the first GPU.
    """
    found = []
    for name, (part, launch) in _GUIDED.items():
        if (kernel := workbook.answer(TOPIC, name)) is not None:
            found.append((part, KernelLauncher(kernel, launch)))
    own = workbook.answer(TOPIC, "your_swaps")
    found += [pair for pair in (own().items() if own is not None else ()) if pair[0] in PARTS]
    chosen = {}
    for part, launcher in found:
        if part not in chosen or not can_model() or _time(part, launcher) < _time(part, chosen[part]):
            chosen[part] = launcher
    return chosen


def your_step() -> StepByParts:
    """Return the step with the reader's swaps, and none of the course's."""
    first = first_step()
    holders = first.holders | {name: Holder(launcher, YOURS) for name, launcher in your_swaps().items()}
    return StepByParts(holders, first)


def best_step() -> StepByParts:
    """Return the step in which each part has the faster of the reader's swap and the course's."""
    first, course = first_step(), dict(SWAPS)
    holders = first.holders | {name: Holder(launcher, COURSE) for name, launcher in course.items()}
    for name, mine in your_swaps().items():
        if name not in course or not can_model() or _time(name, mine) <= _time(name, course[name]):
            holders[name] = Holder(mine, YOURS)
    return StepByParts(holders, first)


def _time(name, launcher):
    """Return the microseconds of a part with a launcher on the first GPU."""
    return known(name, launcher).microseconds()


def course_path() -> list:
    """Return the course's own steps: the first, and the step after each of its swaps."""
    steps = [StepByParts({name: Holder(one, FIRST) for name, one in first_launchers({}).items()})]
    for name, launcher in SWAPS:
        holders = steps[-1].holders | {name: Holder(launcher, COURSE)}
        steps.append(StepByParts(holders, steps[-1]))
    return steps


def record(what: str) -> plots.Picture | None:
    """Add the step with the reader's swaps to the history, and draw it.

    Parameters
    ----------
    what : str
        What changed.

    Returns
    -------
    Picture
        Of the reader's history, or, if there is no swap yet, of the course's own steps.
    """
    if not can_model():
        return None
    step = your_step()
    if step.own:
        if not history.entries():
            history.add("kernels of Part I", [time.step for time in step.before.times])
        history.add(what, [time.step for time in step.times])
        return _drawn(history.entries(), "Your step")
    steps = [tuple(time.step for time in one.times) for one in course_path()]
    names = "kernels of Part I", *CHANGES
    found = [history.Entry(name, step) for name, step in zip(names, steps, strict=True)]
    return _drawn(found, "The course's step, until yours is there")


def _drawn(found, whose):
    fig, ax = plots.figure(size=(7.2, 1.0 + 0.3 * len(found)))
    progress.draw_history(ax, found)
    first, last = found[0], found[-1]
    times = ", ".join(
        f"{_ms(step.microseconds)} to {_ms(last.on(step.gpu).microseconds)} on {step.gpu}"
        for step in first.steps
    )
    caption = f"{whose}, from the first modelled time to the last, in milliseconds: {times}."
    return plots.picture(
        fig, caption, f"A row for each entry, with a mark for each GPU and its range. {caption}"
    )
