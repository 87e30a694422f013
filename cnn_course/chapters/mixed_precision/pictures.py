"""Pictures of short floating-point formats: bits, spacing, sums and gradients."""

import numpy as np
from matplotlib.patches import Rectangle

from cnn_course.engine import plots

#: Bits of exponent and mantissa.
FORMATS = {"float32": (8, 23), "tf32": (8, 10), "bfloat16": (8, 7), "float16": (5, 10)}
_CENTRED = {"ha": "center", "va": "center"}
_DASHES = "-", "--", ":", "-."
_COLOURS = {"float32": plots.BLUE, "tf32": plots.ORANGE, "bfloat16": plots.GREEN, "float16": plots.RED}


def limits(name) -> tuple[float, float, float]:
    """Return the smallest number above 0, the smallest normal one, and the largest of a format."""
    exponent, mantissa = FORMATS[name]
    bias = 2 ** (exponent - 1) - 1
    return 2.0 ** (1 - bias - mantissa), 2.0 ** (1 - bias), (2 - 2.0**-mantissa) * 2.0**bias


def bits_picture() -> plots.Picture:
    """Draw the four formats bit by bit, with their ranges and the step after 1."""
    fig, ax = plots.figure(size=(7.2, 2.7))
    for row, (name, (exponent, mantissa)) in enumerate(FORMATS.items()):
        parts = [plots.PURPLE] + exponent * [plots.ORANGE] + mantissa * [plots.SKY]
        for bit, colour in enumerate(parts):
            ax.add_patch(Rectangle((bit, -row), 0.9, 0.55, facecolor=colour, alpha=0.75, linewidth=0))
        ax.text(-0.6, 0.27 - row, name, ha="right", va="center", fontsize=10, color=plots.INK)
        _, smallest, largest = limits(name)
        text = f"{smallest:.1e} to {largest:.1e}, step $2^{{{-mantissa}}}$"
        ax.text(len(parts) + 0.6, 0.27 - row, text, va="center", fontsize=9, color=plots.INK)
    for label, colour, place in (
        ("sign", plots.PURPLE, 0),
        ("exponent", plots.ORANGE, 5),
        ("mantissa", plots.SKY, 13),
    ):
        ax.add_patch(Rectangle((place, 0.95), 0.9, 0.45, facecolor=colour, alpha=0.75, linewidth=0))
        ax.text(place + 1.2, 1.17, label, va="center", fontsize=9, color=plots.INK)
    ax.set(xlim=(-6, 47), ylim=(-3.2, 1.6))
    ax.axis("off")
    shapes = ", ".join(
        f"{name} 1, {exponent} and {mantissa}" for name, (exponent, mantissa) in FORMATS.items()
    )
    return plots.picture(
        fig,
        "Sign, exponent and mantissa. Beside them the normal numbers, from the smallest to the largest, and "
        "the step from 1 to the next.",
        f"A row of boxes for each format, one for each bit of sign, exponent and mantissa: {shapes}.",
    )


def spacing_picture() -> plots.Picture:
    """Draw the distance to the next number, over the size of a number, in the four formats."""
    sizes = 10.0 ** np.linspace(-9, 7, 800)
    fig, ax = plots.figure(size=(7.2, 2.9))
    for dash, (name, (_, mantissa)) in zip(_DASHES, FORMATS.items(), strict=True):
        tiny, normal, largest = limits(name)
        steps = 2.0 ** (np.floor(np.log2(np.maximum(sizes, normal))) - mantissa)
        steps[(sizes > largest) | (sizes < tiny)] = np.nan
        ax.plot(sizes, steps, dash, color=_COLOURS[name], label=name, linewidth=1.6)
    ax.set(xscale="log", yscale="log", xlabel="a number", ylabel="distance to the next")
    ax.axvspan(sizes[0], limits("float16")[0], color=plots.RED, alpha=0.12, linewidth=0)
    ax.axvspan(limits("float16")[2], sizes[-1], color=plots.RED, alpha=0.12, linewidth=0)
    plots.legend(ax, loc="lower right", bbox_to_anchor=(0.8, 0.0))
    return plots.picture(
        fig,
        "The distance between neighbouring numbers. float16 has no numbers in the tinted ranges.",
        "Four rising lines of steps. That of float32 is lowest, that of bfloat16 highest. float16 lies on "
        "tf32 in the middle, is level below 6e-5, and ends at 6e-8 and at 65504, where the others go on.",
    )


def running_sum_picture(sums, exact) -> plots.Picture:
    """Draw how sums of many small numbers grow.

    Parameters
    ----------
    sums : dict of str to array_like
        The sum after each number, by name.
    exact : float
        The exact sum.
    """
    fig, ax = plots.figure(size=(7.2, 2.6))
    for dash, (name, values) in zip(_DASHES, sums.items(), strict=False):
        ax.plot(np.arange(1, len(values) + 1), values, dash, label=name)
    ax.axhline(exact, color=plots.FAINT, linewidth=1)
    ax.set(xlabel="numbers added", ylabel="sum")
    plots.legend(ax, loc="lower right", bbox_to_anchor=(1.0, 0.1))
    ends = ", ".join(f"{name} at {float(values[-1]):.2f}" for name, values in sums.items())
    return plots.picture(
        fig, f"Adding up {len(values):,} numbers of 0.0001. The sum is {exact:g}.", f"Lines that end: {ends}."
    )


def gradients_picture(gradients, scale) -> plots.Picture:
    """Draw how large the gradients that reach each layer are, and which of them underflow in float16.

    Parameters
    ----------
    gradients : dict of str to ndarray
        By the layer's name, from the first to the last.
    scale : float
        The loss scale to draw them with as well.
    """
    fig, axes = plots.figure(1, len(gradients), size=(7.2, 2.3), sharey=True, sharex=True)
    bins = np.arange(-44.0, 12.0)
    for ax, (name, values) in zip(axes, gradients.items(), strict=True):
        powers = np.log2(np.abs(values[values != 0]))
        for factor, colour, label in (
            (1, plots.BLUE, "as they are"),
            (scale, plots.ORANGE, f"times {scale:g}"),
        ):
            shifted = np.clip(powers + np.log2(factor), bins[0], bins[-1])
            weights = np.full(powers.size, 1 / powers.size)
            ax.hist(shifted, bins=bins, weights=weights, color=colour, alpha=0.65, label=label)
        ax.axvspan(bins[0], -25, color=plots.RED, alpha=0.12, linewidth=0)
        ax.set_title(name, fontsize=10, color=plots.INK)
        ax.set_xticks([-40, -25, -10, 5])
    axes[0].set_ylabel("share")
    fig.supxlabel("power of two", fontsize=10, color=plots.INK)
    plots.legend(axes[-1], loc="upper right", bbox_to_anchor=(1.0, 1.0), handlelength=1)
    lost = "; ".join(f"{name} {underflow(values):.0%}" for name, values in gradients.items())
    return plots.picture(
        fig,
        "The gradients that reach each layer, without zeros. The leftmost bar also counts all smaller ones. "
        "In the tinted range they become 0 in float16.",
        f"Histograms over powers of two, one for each layer. These shares lie where float16 has only 0: "
        f"{lost}. Times {scale:g}, most lie to the right of it.",
    )


def underflow(gradients, scale=1.0) -> float:
    """Return the share of the nonzero gradients that become 0 when rounded to float16."""
    there = gradients[gradients != 0] * np.float32(scale)
    with np.errstate(over="ignore"):
        return float(np.mean(there.astype(np.float16) == 0))


def trainings_picture(recorded) -> plots.Picture:
    """Draw the recorded training runs, one per row: the share of misread test digits after each epoch.

    Parameters
    ----------
    recorded : list of dict
        As `cnn_course.chapters.mixed_precision.trainings.recorded` returns it.
    """
    fig, ax = plots.figure(size=(7.2, 0.9 + 0.33 * len(recorded)))
    for row, entry in enumerate(recorded):
        wrong = [100 * (1 - epoch["test_accuracy"]) for epoch in entry["history"]]
        colour = _COLOURS[entry["precision"]]
        ax.plot([min(wrong), max(wrong)], [row, row], color=plots.FAINT, linewidth=1, zorder=1)
        for epoch, share in enumerate(wrong, 1):
            face = colour if epoch == len(wrong) else plots.PAPER
            ax.plot(share, row, "o", color=colour, markerfacecolor=face, markersize=13, zorder=2)
            ink = plots.PAPER if epoch == len(wrong) else plots.INK
            ax.text(share, row - 0.02, str(epoch), **_CENTRED, fontsize=8, color=ink, zorder=3 + epoch)
    ax.axvline(1, color=plots.INK, linewidth=1, linestyle="--", zorder=0)
    ax.set(yticks=range(len(recorded)), yticklabels=[training_name(entry) for entry in recorded])
    ax.set(xlim=(0, None), ylim=(len(recorded) - 0.4, -0.6), xlabel="test digits read wrong, %")
    ax.tick_params(axis="y", length=0)
    ends = "; ".join(f"{training_name(e)} {e['history'][-1]['test_accuracy']:.2%}" for e in recorded)
    return plots.picture(
        fig,
        "Recorded training runs of notebook 09's network with its default recipe: the share of misread "
        "digits after epochs 1, 2 and 3. The dashed line is 1%.",
        f"A row for each training run, with three numbered marks from the right to the left. Read right in "
        f"the end: {ends}.",
    )


def training_name(entry) -> str:
    """Return the name of a recorded training run."""
    where = {"cpu": "CPU", "gpu": "emulated GPU"}[entry["place"]]
    return f"{entry['precision']}, {where}" + (", no scaling" if _is_unscaled(entry) else "")


def _is_unscaled(entry):
    return entry["precision"] == "float16" and not entry["scaled"]


def scale_picture(scales) -> plots.Picture:
    """Draw the loss scale at the start of a training run and after each step, on an axis of powers of two."""
    scales = np.asarray(scales)
    steps = np.arange(len(scales))
    skipped = 1 + np.flatnonzero(np.diff(scales) < 0)
    fig, ax = plots.figure(size=(7.2, 2.4))
    ax.step(steps, scales, where="post", label="loss scale")
    ax.plot(steps[skipped], scales[skipped], "v", color=plots.RED, markersize=6, label="step skipped")
    ax.set_yscale("log", base=2)
    ax.set(xlabel="step", ylabel="loss scale")
    plots.legend(ax, loc="upper right")
    return plots.picture(
        fig,
        "A loss scale finds its size: halved where a gradient is infinite, doubled after twenty good steps.",
        f"A staircase over {len(scales) - 1} steps, with {len(skipped)} of them marked as skipped. The scale "
        f"ends at {scales[-1]:g}.",
    )
