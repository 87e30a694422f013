"""Pictures of a training run: the curve while it runs, what was learned, and what went wrong."""

import json
import math
import time

import numpy as np
from matplotlib.ticker import NullFormatter, PercentFormatter

from cnn_course.engine import plots
from cnn_numba.train.loop import evaluate
from cnn_numba.whole_files import written_whole

# A marker and a line style for each line, so that colour is not the only difference.
_LINES = ("o", "-"), ("s", "--"), ("^", ":")


def smoothed(values, width):
    """Average each value with those before it, at most `width` of them.

    Parameters
    ----------
    values : array_like, shape (n,)
    width : int

    Returns
    -------
    ndarray, shape (n,)

    Examples
    --------
    >>> smoothed([4, 2, 6, 4], 2)
    array([4., 3., 4., 5.])
    """
    sums = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    last = np.arange(1, len(sums))
    first = np.maximum(last - width, 0)
    return (sums[last] - sums[first]) / (last - first)


class TrainingCurve:
    """Loss and accuracy of a training run, drawn while it runs; hand it to `fit` as ``on_step``.

    Parameters
    ----------
    model : Sequential
        The one that is trained.
    images : ndarray, shape (N, C, H, W), uint8
        The accuracy is measured on these from time to time.
    labels : ndarray, shape (N,), int32
    steps : int
        Steps of the whole training run, where the axis ends.
    every : int
        Steps between two measurements.
    show : callable, optional
        Takes each new `Picture`. None displays it in the notebook, in place of the one before.

    Attributes
    ----------
    losses : list of float
        The loss of each batch, from the first step seen: a training run may be resumed.
    measured : list of (int, float)
        Step and accuracy.
    """

    # Seconds from one picture to the next: drawing takes time away from training.
    PATIENCE = 2.0

    def __init__(self, model, images, labels, steps, every=100, show=None):
        self.model, self.images, self.labels = model, images, labels
        self.steps, self.every = steps, every
        self.losses, self.measured, self._earlier = [], [], 0
        self._show = show or _Display()
        self._shown = self._begun = time.monotonic()

    def __call__(self, step, loss):
        """Note the loss of a step; measure and draw if it is time."""
        self.losses.append(loss)
        self.step = step
        if step % self.every == 0 or step == self.steps:
            self.measured.append((step, evaluate(self.model, self.images, self.labels)[1]))
            if step == self.steps or time.monotonic() - self._shown > self.PATIENCE:
                self._show(self.picture())
                self._shown = time.monotonic()

    def picture(self) -> plots.Picture:
        """Draw what there is so far."""
        fig, axes = plots.figure(1, 2, size=(7.2, 2.7))
        steps = np.arange(self.step - len(self.losses), self.step) + 1
        axes[0].plot(steps, self.losses, color=plots.SKY, linewidth=0.6, alpha=0.7, label="each batch")
        width = 50 if self.steps >= 500 else 10
        axes[0].plot(steps, smoothed(self.losses, width), color=plots.BLUE, label=f"mean of the last {width}")
        axes[0].set_yscale("log")
        ticks = [0.01, 0.03, 0.1, 0.3, 1, 3]
        axes[0].set_yticks(ticks, [f"{tick:g}" for tick in ticks])  # as people write them
        axes[0].yaxis.set_minor_formatter(NullFormatter())
        axes[0].set(ylim=(0.005, 4), ylabel="training loss")
        axes[0].legend(frameon=False, fontsize=8, labelcolor=plots.INK)
        if self.measured:
            axes[1].plot(*zip(*self.measured, strict=True), "o-", color=plots.ORANGE, markersize=3)
        low = min([0.9, *(math.floor(10 * accuracy) / 10 for _, accuracy in self.measured)])
        axes[1].set_ylim(low, 1.0)
        axes[1].yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axes[1].set_ylabel("accuracy on unseen images")
        for ax in axes:
            ax.set(xlim=(0, self.steps), xlabel="step")
        return plots.picture(
            fig,
            "Left: the loss of each batch, on a logarithmic axis. Right: the share of right answers on "
            f"images that are not trained on, from {low:.0%} upwards.{self._remaining()}",
            "Two curves over the steps of the training. The loss falls steeply at first, then ever more "
            "slowly, and jumps up and down from batch to batch. The accuracy rises.",
        )

    def _remaining(self):
        """Return how long the rest will take at the pace so far; "" once it is done."""
        if self.step >= self.steps:
            return ""
        pace = (time.monotonic() - self._begun) / (len(self.losses) - self._earlier)
        minutes = (self.steps - self.step) * pace / 60
        left = f"about {plots.counted(round(minutes), 'minute')}" if minutes >= 1 else "less than a minute"
        return f" Step {self.step} of {self.steps}, {left} left."

    def save(self, path):
        """Save the curve to a file, for a training run that is resumed later."""
        with written_whole(path) as file:
            file.write(json.dumps({"losses": self.losses, "measured": self.measured}).encode())

    def load(self, path):
        """Continue the curve that `save` wrote, if there is such a file."""
        if path.is_file():
            drawn = json.loads(path.read_text(encoding="utf-8"))
            self.losses, self.measured = drawn["losses"], [tuple(pair) for pair in drawn["measured"]]
            self._earlier = len(self.losses)


class _Display:
    """Displays pictures in a cell, each in the place of the last."""

    def __init__(self):
        self._handle = None

    def __call__(self, picture):
        from IPython.display import display

        if self._handle is None:
            self._handle = display(picture, display_id=True)
        else:
            self._handle.update(picture)


def receptive_picture(image, sizes, names) -> plots.Picture:
    """Draw how much of an image one output of each layer depends on.

    Parameters
    ----------
    image : ndarray, shape (H, W)
    sizes : list of int
        Edge of the receptive field after each layer.
    names : list of str
    """
    fig, axes = plots.figure(1, len(sizes), size=(7.2, 2.0))
    for ax, size, name in zip(axes, sizes, names, strict=True):
        plots.show_image(ax, image, f"{name}: {size} x {size}")
        plots.outline(ax, 9, 8, size, size)
    fields = ", ".join(f"{size} by {size} after {name}" for size, name in zip(sizes, names, strict=True))
    return plots.picture(
        fig,
        "What one number sees: its receptive field, layer by layer.",
        f"The same digit {len(sizes)} times, each with a frame around the pixels that one output of a layer "
        f"depends on: {fields}.",
    )


def ravine_picture(loss, paths) -> plots.Picture:
    """Draw the paths of optimisers down a narrow valley.

    Parameters
    ----------
    loss : callable
        Takes arrays x and y.
    paths : dict of str to ndarray, shape (steps, 2)
    """
    fig, axes = plots.figure(len(paths), 1, size=(7.2, 1.45 * len(paths)), sharex=True)
    x, y = np.meshgrid(np.linspace(-10.5, 1.5, 200), np.linspace(-2.2, 2.2, 80))
    for ax, colour, (name, path) in zip(axes, plots.COLOURS, paths.items(), strict=False):
        ax.contour(x, y, loss(x, y), levels=[0.1, 0.4, 1, 2, 4, 7, 11, 16], colors=plots.FAINT, linewidths=1)
        ax.plot(*path.T, "o-", color=colour, markersize=3, linewidth=1.2)
        ax.plot(0, 0, "x", color=plots.INK)
        ax.set_title(f"{name}, {len(path) - 1} steps", fontsize=10, color=plots.INK, loc="left")
        ax.set_yticks([])
    return plots.picture(
        fig,
        "A valley, steep across and gentle along, and the path of each optimiser from the left towards the "
        "lowest point, the cross.",
        "Contour lines of a long valley, once for each optimiser. Plain descent jumps from side to side and "
        "gets slower along the valley; at a smaller rate it doesn't jump, and creeps; with momentum the path "
        "runs fast to the lowest point, a little past it, and back.",
    )


def race_picture(runs) -> plots.Picture:
    """Draw the losses of several short training runs.

    Parameters
    ----------
    runs : dict of str to ndarray, shape (steps,)
    """
    fig, ax = plots.figure(size=(7.2, 2.8))
    for (_, dash), (name, losses) in zip(_LINES, runs.items(), strict=False):
        ax.plot(np.arange(1, len(losses) + 1), smoothed(losses, 10), dash, label=name)
    ax.set(xlabel="step", ylabel="training loss, mean of 10", ylim=(0, 4))
    plots.legend(ax)
    return plots.picture(
        fig,
        f"The same network, the same batches in the same order, {len(runs)} optimisers.",
        f"Falling curves of the loss for {', '.join(runs)}. Plain descent is the slowest; with momentum and "
        "with Adam the loss falls faster.",
    )


def rates_picture(runs) -> plots.Picture:
    """Draw for each optimiser how its final loss depends on the learning rate.

    Parameters
    ----------
    runs : dict of (str, float) to ndarray, shape (steps,)
        The losses of a short training run with this optimiser and this learning rate; NaN once it diverged.
    """
    fig, ax = plots.figure(size=(7.2, 2.8))
    names = dict.fromkeys(name for name, _ in runs)
    for row, ((mark, dash), name) in enumerate(zip(_LINES, names, strict=False)):
        rates, finals = _finals(runs, name)
        (line,) = ax.plot(rates, finals, mark + dash, label=name, markersize=4)
        lost = rates[~np.isfinite(finals)]
        ax.plot(lost, np.full(len(lost), 3.8 - 0.3 * row), "x", color=line.get_color())
    _rate_axis(ax)
    plots.legend(ax, loc="upper center")
    return plots.picture(
        fig,
        "The loss after a short training run, for each optimiser and learning rate. A cross: the loss became "
        "infinite.",
        "Three valley-shaped curves over a logarithmic axis of learning rates. Each falls, has a flat "
        "bottom and rises again or ends in crosses. The bottom of Adam lies at smaller learning rates than "
        "that of momentum, and that of plain descent at the largest.",
    )


def rate_picture(runs, optimiser, rate) -> plots.Picture:
    """Draw one short training run among those with other learning rates; for an explorer.

    Parameters
    ----------
    runs : dict
        As for `rates_picture`.
    optimiser : str
    rate : float
    """
    fig, axes = plots.figure(1, 2, size=(7.2, 2.8), width_ratios=[1.5, 1])
    for (name, other), losses in runs.items():
        if name == optimiser and other != rate:
            axes[0].plot(smoothed(losses, 5), color=plots.FAINT, linewidth=1)
    losses = runs[optimiser, rate]
    axes[0].plot(smoothed(losses, 5), color=plots.BLUE)
    axes[0].set(xlabel="step", ylabel="training loss", ylim=(0, 4))
    rates, finals = _finals(runs, optimiser)
    axes[1].plot(rates, finals, "o-", color=plots.FAINT, markersize=4)
    axes[1].plot(rate, np.nan_to_num(_final(losses), nan=3.75, posinf=3.75), "o", color=plots.BLUE)
    _rate_axis(axes[1])
    end = f"ends at {_final(losses):.2f}" if np.isfinite(_final(losses)) else "diverges"
    return plots.picture(
        fig,
        f"{optimiser}, learning rate {rate:g}: the loss {end}.",
        "Left: the loss over the steps of one short training run in blue, those with other learning rates in "
        "grey. Right: the loss at the end over the learning rate, with a blue dot for this one.",
    )


def _final(losses):
    """Return the mean of the last ten losses, NaN if they are not finite."""
    return float(np.mean(losses[-10:])) if np.isfinite(losses[-10:]).all() else np.nan


def _finals(runs, optimiser):
    entries = sorted((rate, _final(losses)) for (name, rate), losses in runs.items() if name == optimiser)
    return np.array(entries).T


def _rate_axis(ax):
    ax.set(xscale="log", xlabel="learning rate", ylabel="loss at the end", ylim=(0, 4))


def filters_picture(before, after) -> plots.Picture:
    """Draw the filters of the first layer before and after training.

    Parameters
    ----------
    before, after : ndarray, shape (C, 1, kH, kW)
    """
    count = len(after)
    blocks = {"before": before, "after": after, "change": after - before}
    fig, axes = plots.figure(8, count // 2, size=(7.2, 4.0), height_ratios=[1, 1, 0.25, 1, 1, 0.25, 1, 1])
    for ax in axes[[2, 5]].ravel():
        ax.set_visible(False)
    for first, (name, weights) in zip((0, 3, 6), blocks.items(), strict=True):
        limit = float(np.abs(weights if first == 6 else [before, after]).max())
        for ax, weight in zip(axes[first : first + 2].ravel(), weights[:, 0], strict=True):
            plots.show_image(ax, weight, cmap="RdBu", limits=(-limit, limit))
        axes[first, 0].set_title(name, fontsize=10, color=plots.INK, loc="left")
    return plots.picture(
        fig,
        f"The {count} filters of the first layer, before and after training, and the difference, on its own "
        f"scale: its largest value is {limit / np.abs([before, after]).max():.0%} of the largest weight. "
        "Blue is positive, red negative.",
        f"Three blocks of {count} small squares of 3 by 3 weights, each another pattern of blue and red. "
        "Before and after training they differ in shades; the third block shows by how much.",
    )


def feature_maps_picture(image, layers, titles, count=7) -> plots.Picture:
    """Draw the maps of several layers that vary most, a row for each layer.

    Parameters
    ----------
    image : ndarray, shape (H, W)
    layers : list of ndarray, shape (C, H, W)
    titles : list of str
    count : int
        Maps of each layer.
    """
    fig, axes = plots.figure(len(layers), count + 1, size=(7.2, 1.05 * len(layers)), squeeze=False)
    busiest = plots.busiest_maps(layers, count)
    for row, (maps, title, channels) in enumerate(zip(layers, titles, busiest, strict=True)):
        axes[row, 0].set_axis_off()
        axes[row, 0].text(0, 0.5, title, fontsize=8.5, color=plots.INK, va="center")
        for ax, channel in zip(axes[row, 1:], channels, strict=True):
            plots.show_image(ax, maps[channel], cmap="RdBu")
    height, width = image.shape
    return plots.picture(
        fig,
        "The busiest maps of each convolution for one digit, and below them the same maps after the pooling. "
        "Blue is above zero, red below; each map has its own scale.",
        f"One row for each of {len(layers)} layers, with {count} maps each, of a digit of {height} by "
        f"{width} pixels. In the first rows its edges can be recognised; further down the maps get smaller "
        "and show coarse spots.",
    )


def confusion_picture(matrix) -> plots.Picture:
    """Draw a confusion matrix, its right answers in grey so that the wrong ones stand out.

    Parameters
    ----------
    matrix : ndarray, shape (10, 10), int
        Row: what the image is; column: the answer.
    """
    fig, ax = plots.figure(size=(5.0, 4.2))
    wrong = np.where(np.eye(len(matrix), dtype=bool), np.nan, matrix)
    ax.imshow(wrong, cmap="Oranges", vmin=0, vmax=max(np.nanmax(wrong), 1))
    for (row, column), count in np.ndenumerate(matrix):
        if count:
            colour = "white" if row != column and count > 0.6 * np.nanmax(wrong) else plots.INK
            ax.text(column, row, count, ha="center", va="center", fontsize=8, color=colour)
    ax.set(xticks=range(len(matrix)), yticks=range(len(matrix)))
    ax.set(xlabel="what the network says", ylabel="what it is")
    return plots.picture(
        fig,
        "All test images, counted by what they are and by what the network says. The deeper the orange, the "
        "more frequent the mistake.",
        "A table of ten rows and ten columns. On its diagonal are the right answers, about a thousand for "
        "each digit; off the diagonal are small numbers, most of them 0.",
    )


def mistakes_picture(images, labels, chances, count=12) -> plots.Picture:
    """Draw the wrong answers that the network is surest of.

    Parameters
    ----------
    images : ndarray, shape (N, 1, H, W)
    labels : ndarray, shape (N,)
    chances : ndarray, shape (N, classes)
    count : int
    """
    answers = chances.argmax(axis=1)
    wrong = np.flatnonzero(answers != labels)
    worst = wrong[np.argsort(chances[wrong].max(axis=1))[::-1]][:count]
    fig, axes = plots.figure(2, count // 2, size=(7.2, 3.1))
    for ax in axes.ravel():
        ax.set_axis_off()
    for ax, index in zip(axes.ravel(), worst, strict=False):
        says = f"{labels[index]}, says {answers[index]}\n{chances[index].max():.0%} sure"
        plots.show_image(ax, images[index, 0], says)
        ax.title.set_fontsize(9)
    return plots.picture(
        fig,
        "The worst mistakes: what the image is, what the network says, and how sure it is.",
        f"The {count} test images that the network gets wrong with the greatest confidence, many of them "
        "badly written: open loops, missing strokes, digits that could be another.",
    )
