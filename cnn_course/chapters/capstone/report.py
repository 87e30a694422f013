"""What a reader hands in: the certificate of Part II, and a report as one HTML file."""

import html
import re

from cnn_course.chapters.capstone.first_launchers import FirstLauncher
from cnn_course.chapters.capstone.parts import PARTS
from cnn_course.chapters.capstone.results import Result, result_of
from cnn_course.chapters.capstone.step import COURSE, TOPIC, YOURS, StepByParts, your_step
from cnn_course.engine import history, plots, progress, workbook
from cnn_course.engine.standalone import NotStandalone, standalone
from cnn_numba.whole_files import written_whole

_STYLE = """
:root { color-scheme: light dark }
body { max-width: 46rem; margin: 2rem auto; padding: 0 1rem; font: 16px/1.5 system-ui, sans-serif }
table { border-collapse: collapse; margin: 1rem 0 }
th, td { border-bottom: 1px solid #8886; padding: 0.25rem 0.8rem 0.25rem 0; text-align: left }
pre { overflow-x: auto; padding: 0.8rem; background: #8882; border-radius: 6px; font-size: 13px }
img { max-width: 100% }
"""


class PartTwo:
    """The certificate of Part II: the first and the last step, and the reader's swaps."""

    def __init__(self, result: Result):
        self.result = result

    @property
    def lines(self):
        """The lines of its text."""
        ratios = ", ".join(f"{ratio:.3g} times on {gpu}" for gpu, ratio in self.result.ratio.items())
        own = len(self.result.swaps)
        return (
            f"{self.result.name} made a training step of a CNN faster by the model: {ratios}.",
            f"{plots.counted(own, 'part')} of {len(PARTS)} swapped for kernels of their own: "
            f"{', '.join(PARTS[name].title for name in self.result.swaps)}.",
            *_times(self.result),
        )

    def __repr__(self):
        return "\n".join(["Part II: made fast", *self.lines])

    def _repr_html_(self):
        return self.picture()._repr_html_()

    def picture(self) -> plots.Picture:
        """Draw the certificate."""
        found = history.entries() or [self.result.first, self.result.last]
        fig, top, bottom = plots.figure_in_two((7.2, 2.4 + 0.35 * len(found)), (1.6, 0.8 + 0.35 * len(found)))
        ax = top.subplots()
        ax.set_axis_off()
        gpu, ratio = max(self.result.ratio.items(), key=lambda pair: pair[1])
        ax.text(0.5, 0.8, "Part II: made fast", ha="center", fontsize=13, color=plots.INK)
        ax.text(0.5, 0.35, f"{ratio:.3g} times as fast on {gpu}", ha="center", fontsize=22, color=plots.GREEN)
        words = f"{self.result.name}, {plots.counted(len(self.result.swaps), 'swap')}, modelled"
        ax.text(0.5, 0.08, words, ha="center", fontsize=9, color=plots.INK)
        progress.draw_history(bottom.subplots(), found)
        return plots.picture(fig, " ".join(self.lines), "A certificate. " + " ".join(self.lines))


def _times(result):
    """Return a line for each GPU: the step before and after, with its range."""
    for first, last in zip(result.first.steps, result.last.steps, strict=True):
        yield (
            f"{first.gpu}: {_ms(first)} ms became {_ms(last)} ms, modelled; between {last.low / 1000:.3g} "
            f"and {last.high / 1000:.3g} four times out of five"
        )


def certificate(name: str, step: StepByParts | None = None) -> PartTwo:
    """Return the certificate of Part II, and keep it beside the workbook as text and as a picture.

    Parameters
    ----------
    name : str
        Your name.
    step : StepByParts, optional
        None takes the step with your swaps.

    Raises
    ------
    ValueError
        If there is no swap of yours yet.
    """
    result = _own_result(name, step or your_step())
    found = PartTwo(result)
    for file, content in (("part_2.txt", repr(found).encode()), ("part_2.png", found.picture().png)):
        _write(file, content)
    return found


def report(name: str, reasons: str = "", step: StepByParts | None = None):
    """Write the report to ``capstone.html`` beside the workbook; return its path.

    The file loads nothing else. It has your name, times before and after with their ranges, the history, your
    reasons, the swaps, where the time goes now, and the source of your code.

    Parameters
    ----------
    name : str
        Your name.
    reasons : str
        What you write about your swaps; an empty line begins a paragraph.
    step : StepByParts, optional
        None takes the step with your swaps.

    Raises
    ------
    ValueError
        If there is no swap of yours yet.
    """
    step = step or your_step()
    return _write("capstone.html", page(_own_result(name, step), step, reasons).encode())


def page(result: Result, step: StepByParts, reasons: str = "") -> str:
    """Return the report as HTML."""
    title = f"Capstone: {html.escape(result.name)}"
    now = step.picture()
    return "".join(
        [
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>',
            f"<style>{_STYLE}</style><h1>{title}</h1>",
            "<p>One training step of mnist_cnn, batch 64. All times are modelled by gpuless: none is "
            "measured.</p><h2>Before and after</h2>",
            _table(
                ("GPU", "before, ms", "after, ms", "between", "times as fast"),
                [_row(*pair) for pair in zip(result.first.steps, result.last.steps, strict=True)],
            ),
            *_history(),
            "<h2>Reasons</h2>",
            *_paragraphs(reasons),
            "<h2>Parts</h2>",
            _table(("part", "kernels", f"us on a {step.times[0].gpu}", "share"), _parts(step)),
            now._repr_html_(),
            "<h2>Sources</h2>",
            *_sources(step),
        ]
    )


def _history():
    """Return the history as a table, if there is one."""
    if found := history.entries():
        yield f"<h2>The way, as recorded</h2><pre>{html.escape(history.table(found))}</pre>"


def _paragraphs(text):
    found = [each.strip() for each in re.split(r"\n\s*\n", text) if each.strip()]
    for each in found or ["None were given."]:
        yield f"<p>{'<br>'.join(html.escape(each).splitlines())}</p>"


def _own_result(name, step):
    if not step.own:
        raise ValueError("there is no swap of yours in the step yet: solve exercise 1 first")
    return result_of(name, step)


def _row(first, last):
    between = f"{last.low / 1000:.3g} to {last.high / 1000:.3g}"
    ratio = first.microseconds / last.microseconds
    return first.gpu, _ms(first), _ms(last), between, f"{ratio:.3g}"


def _parts(step):
    whose = {YOURS: "yours, a swap", COURSE: "the course's swap"}
    for name, time, share, mark in step.rows():
        launcher = step.holders[name].launcher
        first = isinstance(launcher, FirstLauncher) and launcher.own
        owner = whose.get(mark, "yours, of Part I" if first else "the course's, of Part I")
        yield PARTS[name].title, owner, f"{time:.0f}", f"{share:.0%}"


def _sources(step):
    found = {PARTS[name].title: step.holders[name].launcher for name in step.own}
    if layer := workbook.answer(TOPIC, "your_layer"):
        found["A layer of my own"] = layer
    for title, launcher in found.items():
        function = getattr(launcher, "kernel", launcher)
        try:
            source = standalone(getattr(function, "py_func", function))
        except NotStandalone as reason:
            source = f"There is no source: {reason}."
        yield f"<h3>{html.escape(title)}</h3><pre>{html.escape(source)}</pre>"


def _table(heading, rows):
    lines = ["".join(f"<th>{html.escape(text)}</th>" for text in heading)]
    lines += ["".join(f"<td>{html.escape(text)}</td>" for text in row) for row in rows]
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def _ms(step):
    return f"{step.microseconds / 1000:.3g}"


def _write(name, content):
    path = workbook.folder() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as file:
        file.write(content)
    return path
