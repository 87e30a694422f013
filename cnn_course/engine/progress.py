"""Pictures of a reader's progress through the course, and of the certificate of notebook 09."""

import textwrap
from dataclasses import dataclass
from typing import NamedTuple

from matplotlib.patches import FancyBboxPatch, Rectangle
from matplotlib.ticker import StrMethodFormatter

from cnn_course.engine import history, plots

# The colour of an example certificate.
_PALE = "#9cc7ad"
# The layers of `mnist_cnn`: their labels, and the kernels of their forward and backward passes.
_LAYERS = (
    ("convolution\n1 → 32", ("conv2d",), ("conv2d_backward_weight", "bias_gradient")),
    ("max pooling", ("max_pool",), ("max_pool_backward",)),
    (
        "convolution\n32 → 64",
        ("conv2d",),
        ("conv2d_backward_input", "conv2d_backward_weight", "bias_gradient"),
    ),
    ("max pooling", ("max_pool",), ("max_pool_backward",)),
    (
        "dense\n1600 → 128",
        ("dense",),
        ("dense_backward_input", "dense_backward_weight", "bias_gradient"),
    ),
    ("ReLU", ("relu_stride",), ("relu_backward",)),
    (
        "dense\n128 → 10",
        ("dense",),
        ("dense_backward_input", "dense_backward_weight", "bias_gradient"),
    ),
    ("softmax, loss", ("cross_entropy",), ("cross_entropy",)),
    ("update", ("adam",), ("momentum",)),
)


class Chapter(NamedTuple):
    """A notebook, and whether each of its exercises is solved, by name."""

    number: str
    title: str
    solved: dict


class Progress:
    """A reader's progress, as text and as a picture.

    Parameters
    ----------
    chapters : list of Chapter
    own : set of str
        The kernels of the network that are in the workbook.
    needed : int
        How many kernels the network has.
    moved : list of history.Entry
        The modelled times of the reader's step.
    """

    def __init__(self, chapters, own, needed, moved=()):
        self.chapters, self.own, self.needed, self.history = chapters, own, needed, list(moved)

    @property
    def next(self):
        """Notebook number and name of the first unsolved exercise, None if all are solved."""
        entries = ((c.number, name) for c in self.chapters for name, done in c.solved.items() if not done)
        return next(entries, None)

    @property
    def caption(self):
        """The counts, and the next exercise."""
        marks = [done for chapter in self.chapters for done in chapter.solved.values()]
        follows = f"Next: {self.next[1]}, in notebook {self.next[0]}." if self.next else "Nothing is left."
        return (
            f"{sum(marks)} of {len(marks)} exercises solved; {len(self.own)} of {self.needed} kernels of the "
            f"network are yours (one may serve several layers). {follows}{self._moved()}"
        )

    def _moved(self):
        """Return how the step's modelled time has changed, as text; empty without a history."""
        if not self.history:
            return ""
        first, last = self.history[0], self.history[-1]
        pairs = [(step, last.on(step.gpu)) for step in first.steps if last.on(step.gpu)]
        times = ", ".join(f"{_ms(a)} to {_ms(b)} on {a.gpu}" for a, b in pairs)
        if len(self.history) == 1:
            times = ", ".join(f"{_ms(step)} on {step.gpu}" for step in first.steps)
        return f" Your step in ms, modelled: {times}."

    def __repr__(self):
        rows = []
        for chapter in self.chapters:
            marks = "".join("■" if done else "□" for done in chapter.solved.values())
            rows.append(f"{chapter.number:4}{chapter.title:28}{marks}")
        if self.history:
            rows += ["", history.table(self.history), ""]
        return "\n".join([*rows, self.caption])

    def _repr_html_(self):
        return self.picture()._repr_html_()

    def picture(self) -> plots.Picture:
        """Draw the network and the course, and below them the step's modelled times, if there are any."""
        below = 0.6 + 0.3 * len(self.history) if self.history else 0
        fig, axes = plots.figure(1, 2, size=(7.2, 4.0), width_ratios=[1, 1.15])
        words = ""
        if self.history:
            fig, top, bottom = plots.figure_in_two(size=(7.2, 4.0 + below), heights=(4.0, below))
            axes = top.subplots(1, 2, width_ratios=[1, 1.15])
            draw_history(bottom.subplots(), self.history)
            words = "Below, the step's modelled time on each GPU, from the first entry to the last. "
        for ax in axes:
            ax.set_axis_off()
        draw_network(axes[0], self.own)
        _draw_chapters(axes[1], self)
        return plots.picture(
            fig,
            self.caption,
            "On the left the layers of the network, each with a box for its forward and one for its backward "
            "pass, marked where the kernels are the reader's. On the right the notebooks, with a square for "
            f"each exercise, filled where it is solved. {words}{self.caption}",
        )


def draw_history(ax, found):
    """Draw the entries of a history from the top: a mark for each GPU's time, a line for its range."""
    plots.style(ax, 9, labelsize=8, length=3)
    gpus = list(dict.fromkeys(step.gpu for entry in found for step in entry.steps))
    for number, (gpu, colour) in enumerate(zip(gpus, plots.COLOURS * 2, strict=False)):
        rows = [(row, entry.on(gpu)) for row, entry in enumerate(found) if entry.on(gpu)]
        heights = [row + 0.22 * (number - (len(gpus) - 1) / 2) for row, _ in rows]
        steps = [step for _, step in rows]
        ax.hlines(
            heights, [s.low / 1000 for s in steps], [s.high / 1000 for s in steps], color=colour, alpha=0.4
        )
        times = [step.microseconds / 1000 for step in steps]
        ax.plot(times, heights, "os^Dv"[number % 5], color=colour, markersize=5, label=gpu)
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.set(ylim=(len(found) - 0.5, -0.5), yticks=range(len(found)), xlim=(min(0.2, ax.get_xlim()[0]), None))
    ax.set_xlabel("one training step, ms, modelled", fontsize=9)
    ax.set_yticklabels([textwrap.shorten(entry.what, 34, placeholder="...") for entry in found])
    ax.legend(frameon=False, fontsize=8, labelcolor=plots.INK, loc="upper left")


def _ms(step):
    return f"{step.microseconds / 1000:.3g}"


def draw_network(ax, own, colour=plots.GREEN):
    """Draw the layers of `mnist_cnn`; a pass is filled and ticked if all its kernels are the reader's."""
    ax.set(xlim=(0, 4.2), ylim=(-len(_LAYERS) - 0.1, 0.75))
    for x, title in ((2.3, "forward"), (3.45, "backward")):
        ax.text(x, 0.45, title, ha="center", fontsize=8.5, color=plots.INK)
    for row, (name, forward, backward) in enumerate(_LAYERS):
        ax.text(1.6, -row - 0.1, name, ha="right", va="center", fontsize=8, color=plots.INK, linespacing=0.95)
        names = ("Adam", "SGD") if name == "update" else ("", "")
        for x, kernels, text in ((1.8, forward, names[0]), (2.95, backward, names[1])):
            count = sum(f"{kernel}_kernel" in own for kernel in kernels)
            _pass(ax, x, -row - 0.5, count, len(kernels), text, colour)


def _pass(ax, x, y, count, needed, text, green):
    """Draw a box, filled by the share of the reader's kernels."""
    box = {"boxstyle": "round,pad=0,rounding_size=0.12", "linewidth": 1}
    ax.add_patch(FancyBboxPatch((x, y), 1.0, 0.78, facecolor="white", edgecolor=plots.FAINT, **box))
    if count:
        share = count / needed
        ax.add_patch(FancyBboxPatch((x, y), share, 0.78, facecolor=green, edgecolor=green, **box))
    mark = "✔" if count == needed else (f"{count} of {needed}" if count else "")
    label = f"{text} {mark}".strip()
    colour = "white" if count == needed and green == plots.GREEN else plots.INK
    ax.text(x + 0.5, y + 0.38, label, ha="center", va="center", fontsize=8, color=colour)


def _draw_chapters(ax, progress):
    """Draw a line of squares for each notebook."""
    ax.set(xlim=(0, 16.2), ylim=(-len(progress.chapters) - 0.2, 0.9))
    for row, chapter in enumerate(progress.chapters):
        ax.text(0, -row, f"{chapter.number}  {chapter.title}", va="center", fontsize=8, color=plots.INK)
        for column, (name, done) in enumerate(chapter.solved.items()):
            is_next = progress.next == (chapter.number, name)
            ax.add_patch(
                Rectangle(
                    (8.6 + column * 0.85, -row - 0.3),
                    0.66,
                    0.6,
                    facecolor=plots.GREEN if done else "white",
                    edgecolor=plots.ORANGE if is_next else plots.GREEN if done else plots.FAINT,
                    linewidth=2 if is_next else 1,
                )
            )


@dataclass(frozen=True, repr=False)
class Certificate:
    """The result of a training run on the reader's kernels.

    Parameters
    ----------
    accuracy : float
        On the test images.
    test_images : int
    epochs : int
    images : int
        Of one epoch.
    multiplications, all_multiplications : int
        In convolutions and dense layers: by the reader's kernels, and in the whole training run.
    kernels : tuple of (title, name, is_own)
    where : str
        What the kernels ran on.
    date : str
    steps : tuple of Step
        How long a training step would take on some GPUs; empty if it cannot be modelled.
    example : bool
        Whether it is an example, drawn pale, for a reader who has no certificate yet.
    """

    accuracy: float
    test_images: int
    epochs: int
    images: int
    multiplications: int
    all_multiplications: int
    kernels: tuple
    where: str
    date: str
    steps: tuple = ()
    example: bool = False

    @property
    def lines(self):
        """Its lines of text."""
        own = sum(is_own for *_, is_own in self.kernels)
        lines = [
            f"reads {self.accuracy:.2%} of {self.test_images:,} digits that it has never seen",
            f"trained for {plots.counted(self.epochs, 'epoch')} of {self.images:,} digits on {self.where}",
            f"{own} of {len(self.kernels)} kernels are yours{self._share()}",
        ]
        if self.steps:
            lines.append(f"a step, modelled: {', '.join(map(history.Step.in_brief, self.steps))}")
        return tuple(lines)

    @property
    def _title(self):
        return f"{'Example: ' * self.example}MNIST, trained from scratch"

    def _share(self):
        """Return the share of the arithmetic that the reader's kernels did, as text; empty if none."""
        if not self.multiplications:
            return ""
        share = self.multiplications / self.all_multiplications
        return f": {_in_words(self.multiplications)} multiplications, {share:.0%} of all"

    def __repr__(self):
        kernels = [
            f"  {'✔ yours      ' if own else '○ the package'}  {title:30}{name}"
            for title, name, own in self.kernels
        ]
        steps = [f"  {step}" for step in self.steps]
        return "\n".join([self._title, *self.lines, self.date, *kernels, *steps])

    def _repr_html_(self):
        return self.picture()._repr_html_()

    def picture(self) -> plots.Picture:
        """Draw the certificate."""
        fig, axes = plots.figure(1, 2, size=(7.2, 4.0), width_ratios=[1, 1.15])
        for ax in axes:
            ax.set_axis_off()
        colour = _PALE if self.example else plots.GREEN
        draw_network(axes[0], {name for _, name, own in self.kernels if own}, colour)
        ax = axes[1]
        ax.set(xlim=(0, 1), ylim=(0, 1))
        ax.add_patch(Rectangle((0.0, 0.02), 0.99, 0.96, fill=False, edgecolor=colour, linewidth=2))
        ax.text(0.5, 0.88, self._title, ha="center", fontsize=13, color=plots.INK)
        ax.text(0.5, 0.7, f"{self.accuracy:.2%}", ha="center", fontsize=30, color=colour)
        for row, line in enumerate(self.lines):
            wrapped = textwrap.fill(line, 44)
            ax.text(0.5, 0.6 - 0.13 * row, wrapped, ha="center", va="center", fontsize=8.5, color=plots.INK)
        ax.text(0.5, 0.08, self.date, ha="center", fontsize=8.5, color=plots.INK)
        return plots.picture(
            fig,
            f"{'An example' if self.example else 'Your certificate'}: the network {'; '.join(self.lines)}.",
            "A framed certificate beside the layers of the network, marked where the reader's kernels are. "
            + "; ".join(self.lines)
            + ".",
        )


def _in_words(number):
    """Return a large number in words.

    Examples
    --------
    >>> _in_words(1_480_000_000_000), _in_words(2_500_000), _in_words(12)
    ('1.5 trillion', '2.5 million', '12')
    """
    for size, name in ((10**12, "trillion"), (10**9, "billion"), (10**6, "million")):
        if number >= size:
            return f"{number / size:.1f} {name}"
    return f"{number:,}"
