"""Ladders of kernels by modelled time: how long each rung would take on named GPUs, and what limits it.

`gpuless.profile` models the launches. The text is the same on every machine. ``docs/profiling.md`` explains
the numbers and their errors.
"""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import gpuless
from benchmarks.records import text_table
from cnn_course.engine import plots
from cnn_course.engine.ledger import duration
from cnn_numba import device
from gpuless.wrapping import wrapped

GPUS = ("T4", "A100", "H100")
#: If two modelled times differ by a larger factor, their order is nearly always right.
CLEAR = 1.25
_MARKS = tuple(zip((plots.BLUE, plots.ORANGE, plots.GREEN, plots.PURPLE), "osD^", strict=True))
_NO_TIMES = (
    "No modelled times: they need compiled kernels, and here the simulator runs them. "
    "GPULESS=emulator selects the emulated GPU, if this machine can run it."
)
_RANGE = "A measured time would lie in the range in brackets four times out of five."


class Time(NamedTuple):
    """The modelled time of a rung on a GPU in microseconds, its range, and what limits the rung."""

    microseconds: float
    low: float
    high: float
    limiter: str
    """A unit of the GPU, or "latency"."""
    line: str
    """The source line that uses it most, with its number."""

    def __str__(self):
        time = duration(self.microseconds / 1e6)
        size = {"s": 1e6, "ms": 1e3, "us": 1.0}[time.split()[1]]
        low, high = (f"{float(f'{bound / size:.2g}'):g}" for bound in (self.low, self.high))
        return f"{time} ({low} to {high})"


class ModelledLadder:
    """What `modelled` returns: a table, readable as text, and a picture.

    Parameters
    ----------
    title : str
    times : dict of str to dict of str to Time
        By rung and by GPU; empty if nothing can be modelled.
    """

    def __init__(self, title: str, times: dict[str, dict[str, Time]]):
        self.title, self.times = title, times

    def __bool__(self):
        return bool(self.times)

    def microseconds(self, gpu: str) -> dict:
        """Return the modelled microseconds of each rung on a GPU; empty if nothing can be modelled."""
        return {rung: times[gpu].microseconds for rung, times in self.times.items()}

    def close(self) -> dict[tuple[str, ...], list[str]]:
        """Return groups of rungs within the model's error, fastest first, and on which GPUs."""
        found: dict[tuple[str, ...], list[str]] = {}
        for gpu in next(iter(self.times.values()), ()):
            times = self.microseconds(gpu)
            rungs, end = sorted(times, key=lambda rung: times[rung]), 0
            for first, rung in enumerate(rungs):
                near = [other for other in rungs[first:] if times[other] <= CLEAR * times[rung]]
                if len(near) > 1 and first + len(near) > end:  # else the last group has them all
                    end = first + len(near)
                    group = next((each for each in found if set(each) == set(near)), tuple(near))
                    found.setdefault(group, []).append(gpu)
        return found

    def __repr__(self):
        if not self:
            return _NO_TIMES
        gpus = list(next(iter(self.times.values())))
        rows = [("", *gpus)]
        rows += [(rung, *(str(times[gpu]) for gpu in gpus)) for rung, times in self.times.items()]
        title = f"{self.title}: " if self.title else ""
        lines = [f"{title}modelled times, not measured", text_table(rows), _RANGE]
        if close := self.close():
            groups = (
                " / ".join(group) + (f" ({', '.join(where)})" if len(where) < len(gpus) else "")
                for group, where in close.items()
            )
            lines += wrapped(f"Too close for the model to tell apart: {'; '.join(groups)}.", rest="  ")
        width = 2 + max(map(len, self.times))
        lines += ["", "limited by"]
        for rung in self.times:
            for number, limit in enumerate(self.limits(rung)):
                lines += wrapped(limit, first=f"{'' if number else rung:{width}}", rest=" " * width)
        return "\n".join(lines)

    def limits(self, rung: str) -> list[str]:
        """Return what limits a rung, with the line; GPUs with the same limit are listed together."""
        times, found = self.times[rung], {}
        for gpu, time in times.items():
            found.setdefault((time.limiter, time.line), []).append(gpu)
        if len(found) == 1:
            return [", ".join(*found)]
        return [f"{limiter} ({', '.join(gpus)}), {line}" for (limiter, line), gpus in found.items()]

    def picture(self) -> plots.Picture | None:
        """Draw the modelled times on a logarithmic axis, their ranges as bars; None if there are none."""
        if not self:
            return None
        from matplotlib.ticker import FuncFormatter, NullLocator  # not needed for the times alone

        gpus = list(next(iter(self.times.values())))
        apart = 0.8 / len(gpus)
        fig, ax = plots.figure(size=(7.2, 1.0 + 0.22 * len(gpus) * len(self.times)))
        for number, (gpu, (colour, mark)) in enumerate(zip(gpus, itertools.cycle(_MARKS), strict=False)):
            for row, times in enumerate(self.times.values()):
                time, y = times[gpu], row + (number - (len(gpus) - 1) / 2) * apart
                bar = {"color": colour, "alpha": 0.3, "linewidth": 7, "solid_capstyle": "butt"}
                ax.plot([time.low, time.high], [y, y], **bar)
                ax.plot(time.microseconds, y, mark, color=colour, markersize=6, label=None if row else gpu)
                text = f"  {duration(time.microseconds / 1e6)}"
                ax.text(time.high, y, text, va="center", fontsize=8.5, color=plots.INK)
        every = [time for times in self.times.values() for time in times.values()]
        ax.set(xscale="log", xlim=(min(t.low for t in every) / 1.1, max(t.high for t in every) * 2.5))
        ax.set(yticks=range(len(self.times)), yticklabels=self.times, xlabel="modelled time")
        ax.xaxis.set_major_formatter(FuncFormatter(lambda microseconds, _: duration(microseconds / 1e6)))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.tick_params(axis="y", length=0)
        ax.invert_yaxis()
        fig.legend(loc="outside upper right", ncols=len(gpus), frameon=False, fontsize=9)
        title = f"{self.title}: modelled" if self.title else "Modelled"
        caption = f"{title}, not measured. The bar of a mark: four of five measured times would lie in it."
        rows = {rung: ", ".join(f"{gpu} {times[gpu]}" for gpu in gpus) for rung, times in self.times.items()}
        said = "; ".join(f"{rung}: {times}" for rung, times in rows.items())
        alt = f"For each rung and GPU a mark with a bar, on a logarithmic axis. {said}."
        return plots.picture(fig, caption, alt)


def modelled(rungs: dict, gpus: Sequence[str] = GPUS, title: str = "") -> ModelledLadder:
    """Model how long each rung would take on some GPUs.

    Nothing is measured, even if kernels run on a real GPU. The time of a rung is the sum of its launches,
    each with cold caches, without copies and without the host's time.

    Parameters
    ----------
    rungs : dict of str to callable or tuple
        By name: one launch, which is not run: kernel, grid, block, a tuple of arguments, and optionally the
        bytes of dynamic shared memory; or a function without arguments that launches kernels, which is run
        once. On a real GPU it must launch with `device.launch`, as the package's functions do.
    gpus : sequence of str
        Names that `gpuless.profile` knows.
    title : str
        What they compute.

    Raises
    ------
    ValueError
        If a GPU is not known, or if a rung launches nothing.

    Examples
    --------
    >>> import numpy as np
    >>> from cnn_numba.ops.activation.gpu import relu_forward_naive, relu_forward_vectorized
    >>> x = device.zeros(1 << 20)
    >>> ladder = modelled({"one": lambda: relu_forward_naive(x), "four": lambda: relu_forward_vectorized(x)})
    >>> ladder.times["four"]["T4"].limiter if ladder else "DRAM"
    'DRAM'
    """
    if device.simulated():
        return ModelledLadder(title, {})
    return ModelledLadder(title, {name: _times(name, rung, gpus) for name, rung in rungs.items()})


def work_of(rung: Any):
    """Return a rung as a function without arguments: see `modelled`."""
    if callable(rung):
        return rung
    kernel, grid, block, arguments, *shared = rung
    return lambda: device.launch(kernel, grid, block, *arguments, shared=sum(shared))


def _times(name, rung, gpus):
    reports = (
        _reports(rung, gpus)
        if callable(rung)
        else [[report] for report in _profiled(device.Launch(*rung), gpus)]
    )
    if not all(reports):
        raise ValueError(f"the rung {name!r} launches no kernel that can be modelled")
    return {gpu: _time(own) for gpu, own in zip(gpus, reports, strict=True)}


def _reports(work, gpus):
    """Return for each GPU the reports of the launches that some code makes."""
    if device.SELECTION.emulated:
        with gpuless.profiling(list(gpus)) as timelines:
            work()
        return [[event.report for event in timeline.events if event.report] for timeline in timelines]
    launches: list[device.Launch] = []

    def run(launch):
        launches.append(launch)
        launch.run()

    with device.observe_launches(run):
        work()
    return list(zip(*(_profiled(each, gpus) for each in launches), strict=True)) or [[]]


def _profiled(launch, gpus):
    """Return the report of a launch for each GPU."""
    configured = launch.kernel[launch.grid, launch.block, 0, launch.shared]
    return gpuless.profile(configured, list(gpus))(*launch.arguments)


def _time(reports):
    from gpuless.profile.report import LIMITS  # which a page of the book lacks
    from gpuless.profile.texts import line_text

    sums = (sum(getattr(report, name) for report in reports) for name in ("microseconds", "low", "high"))
    longest = max(reports, key=lambda report: report.microseconds)
    limiter, line = LIMITS[longest.bound][0], line_text(*longest.limiting_line)
    return Time(*sums, limiter, line if len(reports) == 1 else f"in {longest.kernel}, {line}")
