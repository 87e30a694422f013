"""Pictures of gradients: a chain of functions, a convolution as a matrix, and where a gradient is wrong."""

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import FancyArrowPatch, Rectangle

from cnn_course.engine import plots


def chain_picture(names, values, slopes, gradients) -> plots.Picture:
    """Draw a chain of functions: values go to the right, gradients come back.

    Parameters
    ----------
    names : list of str
        What is computed, from the input to the loss.
    values : list of float
        The value of each.
    slopes : list of float
        The slope of each but the first, with respect to the one before it.
    gradients : list of float
        The derivative of the loss with respect to each.

    Examples
    --------
    >>> chain_picture(["x", "2x", "L"], [1, 2, 4], [2, 4], [8, 4, 1]).caption[:32]
    'Above, what the forward pass has'
    """
    fig, ax = plots.figure(size=(7.2, 1.7))
    ax.set(xlim=(-0.45, len(names) - 0.55), ylim=(-1.15, 0.85))
    ax.axis("off")
    text = {"ha": "center", "va": "center", "color": plots.INK}
    for place, (name, value, gradient) in enumerate(zip(names, values, gradients, strict=True)):
        box = Rectangle((place - 0.33, -0.32), 0.66, 0.64, facecolor="#e6e4de", edgecolor=plots.INK)
        ax.add_patch(box)
        ax.text(place, 0, name, fontsize=10, **text)
        ax.text(place, 0.6, _text(value), fontsize=11, **(text | {"color": plots.BLUE}))
        ax.text(place, -0.6, _text(gradient), fontsize=11, **(text | {"color": plots.RED}))
    for place, slope in enumerate(slopes):
        arrow = {"arrowstyle": "-|>", "mutation_scale": 11, "linewidth": 1.4}
        ax.add_patch(FancyArrowPatch((place + 0.22, 0.6), (place + 0.8, 0.6), color=plots.BLUE, **arrow))
        ax.add_patch(FancyArrowPatch((place + 0.8, -0.6), (place + 0.22, -0.6), color=plots.RED, **arrow))
        ax.text(
            place + 0.5,
            -0.95,
            f"\N{MULTIPLICATION SIGN} {_text(slope)}",
            fontsize=10,
            **(text | {"color": plots.RED}),
        )
    caption = "Above, what the forward pass has computed. Below, the gradients, from right to left."
    steps = ", ".join(f"{name} = {value:g}" for name, value in zip(names, values, strict=True))
    back = ", ".join(f"{gradient:g}" for gradient in reversed(gradients))
    alt = f"A row of boxes. Forward, from left to right: {steps}. Backward, from right to left: {back}."
    return plots.picture(fig, caption, alt)


def _text(number):
    return f"{number:g}".replace("-", "\N{MINUS SIGN}")


def epsilon_picture(epsilons, errors) -> plots.Picture:
    """Draw the error of the central difference of x cubed at 1.7 against the step, with its two causes.

    Parameters
    ----------
    epsilons : ndarray
    errors : dict of str to ndarray
        By the dtype of the computation: ``"float64"``, ``"float32"``.

    Examples
    --------
    >>> epsilons = np.logspace(-6, -1, 6)
    >>> epsilon_picture(epsilons, {"float64": epsilons**2}).caption[:26]
    'Too large a step (right): '
    """
    fig, ax = plots.figure(size=(7.2, 3.4))
    for (dtype, error), colour, marker in zip(errors.items(), (plots.BLUE, plots.ORANGE), ".x", strict=False):
        style = {"color": colour, "linewidth": 0.8}
        ax.loglog(epsilons, error + 1e-17, f"{marker}-", markersize=3, label=dtype, **style)
        ax.loglog(epsilons, np.finfo(dtype).eps / 2 * 1.7**3 / epsilons, "--", **style)
    ax.loglog(epsilons, epsilons**2, ":", color=plots.INK, linewidth=1.5, label="truncation, ε²")
    ax.set(xlabel="ε", ylabel="error of the central difference", ylim=(1e-13, 1e2))
    ax.legend(frameon=False, fontsize=9)
    return plots.picture(
        fig,
        caption="Too large a step (right): the formula is wrong. Too small (left): only rounding errors are "
        "left.",
        alt="Error against epsilon, both axes logarithmic: two curves shaped like a U. On the right both "
        "follow the line epsilon squared. On the left they rise again, float64 from 1e-5 on, float32 from "
        "5e-3 on.",
    )


def promise_picture(rates, kept) -> plots.Picture:
    """Draw how much one step reduces the loss, as a fraction of what the gradient promises.

    Parameters
    ----------
    rates : ndarray
        The learning rates.
    kept : dict of str to list of float
        For all biases of 0.1, and of 0.

    Examples
    --------
    >>> promise_picture([0.01, 0.1], {"all biases 0": [0.9, 0.8]}).caption[:20]
    'How much one step re'
    """
    fig, ax = plots.figure(size=(7.2, 2.4))
    for (label, parts), colour, marker in zip(kept.items(), (plots.BLUE, plots.ORANGE), "os", strict=False):
        ax.semilogx(rates, parts, f"{marker}-", color=colour, label=label)
    ax.axhline(1, color=plots.FAINT, linewidth=4, zorder=0)
    ax.set(xlabel="learning rate", ylabel="kept of the promise", ylim=(0.5, 1.1))
    ax.legend(frameon=False, fontsize=9, loc="lower left")
    return plots.picture(
        fig,
        caption="How much one step reduces the loss, as a fraction of what the gradient promised (grey: all "
        "of it).",
        alt="The kept fraction against the learning rate. With biases of 0.1 the curve comes close to 1 on "
        "the left, with biases of 0 it stays near 0.9. On the right both fall: the steps are too long.",
    )


def matrix_picture(weights, size, stride=1, padding=0) -> plots.Picture:
    """Draw a one-dimensional convolution as a matrix, and beside it the transpose, for the backward pass.

    Parameters
    ----------
    weights : list of str
        Names of the filter's weights.
    size : int
        The number of pixels.
    stride, padding : int

    Examples
    --------
    >>> "4 rows of 6" in matrix_picture(["a", "b", "c"], 6).alt
    True
    """
    outputs = (size + 2 * padding - len(weights)) // stride + 1
    taps = np.full((outputs, size), -1)
    for out in range(outputs):
        for k in range(len(weights)):
            if 0 <= out * stride + k - padding < size:
                taps[out, out * stride + k - padding] = k
    fig, axes = plots.figure(
        1,
        2,
        size=(1.4 + 0.4 * (size + outputs), 1.0 + 0.4 * max(size, outputs)),
        width_ratios=[size, outputs],
        squeeze=False,
    )
    sides = {"forward": ("output", "pixel", taps), "backward": ("pixel", "output", taps.T)}
    for ax, (title, (each_row, each_column, matrix)) in zip(axes[0], sides.items(), strict=True):
        shade = np.array([*_SHADES[: len(weights)], (1, 1, 1)])[matrix]
        ax.imshow(shade, interpolation="nearest")
        for (row, column), k in np.ndenumerate(matrix):
            name = weights[k] if k >= 0 else "0"
            colour = plots.INK if k >= 0 else plots.FAINT
            ax.text(column, row, name, ha="center", va="center", fontsize=10, color=colour)
        ax.set_title(title, fontsize=10, color=plots.INK)
        ax.set(xticks=range(matrix.shape[1]), yticks=range(matrix.shape[0]))
        ax.set(xlabel=each_column, ylabel=each_row)
        ax.tick_params(length=0)
        ax.set_anchor("N")
    caption = (
        f"A filter of {len(weights)} weights on {size} pixels, stride {stride}, padding {padding}, as a "
        "matrix, and transposed."
    )
    rows = ", then ".join(" ".join(weights[k] if k >= 0 else "0" for k in row) for row in taps.tolist())
    alt = f"On the left a matrix of {outputs} rows of {size}: {rows}. On the right its transpose."
    return plots.picture(fig, caption, alt)


_SHADES = np.array([[0.55, 0.76, 0.90], [0.95, 0.78, 0.45], [0.62, 0.84, 0.72], [0.85, 0.72, 0.85]])


def error_maps(rows, caption):
    """Draw where gradients are wrong: one row of heatmaps per attempt, from the loss backwards.

    Parameters
    ----------
    rows : dict of str to list of cnn_numba.nn.gradcheck.GradientReport
        By the name of the attempt; all rows have reports of the same gradients.
    caption : str

    Returns
    -------
    cnn_course.engine.plots.Picture
        Each error is drawn relative to the largest right value of its array: white where there is none.

    Examples
    --------
    >>> from cnn_numba.nn.gradcheck import compare_gradients
    >>> report = compare_gradients([[1.0, 2.0]], [[1.0, 1.0]], "weight")
    >>> picture = error_maps({"mine": [report]}, "One error.")
    >>> "mine: weight 1 of 2 wrong" in picture.alt
    True
    """
    first = next(iter(rows.values()))
    widths = np.array([_laid_out(report.error).shape[1] for report in first])
    fig, axes = plots.figure(
        *(len(rows), len(first)),
        size=(7.2, 0.4 + 0.75 * len(rows)),
        squeeze=False,
        width_ratios=widths.clip(0.5 * widths.max()),
    )
    counts = []
    for line, (title, reports) in zip(axes, rows.items(), strict=True):
        for ax, report in zip(line, reports, strict=True):
            _show(ax, _laid_out(report.error) / _scale(report), _ERRORS, (0, 1))
        line[0].set_ylabel(title, fontsize=11, color=plots.INK, rotation=0, ha="right", va="center")
        wrong = (f"{r.name} {int(r.wrong.sum())} of {r.error.size} wrong" for r in reports)
        counts.append(f"{title}: {', '.join(wrong)}")
    for ax, report in zip(axes[0], first, strict=True):
        ax.set_title(report.name, fontsize=9, color=plots.INK)
    return plots.picture(fig, caption, f"Heatmaps of errors, white where there is none. {'; '.join(counts)}.")


def comparison_picture(report, caption) -> plots.Picture:
    """Draw a gradient, the right one, and the error of each element.

    Parameters
    ----------
    report : cnn_numba.nn.gradcheck.GradientReport
    caption : str

    Examples
    --------
    >>> from cnn_numba.nn.gradcheck import compare_gradients
    >>> comparison_picture(compare_gradients([[1.0, 2.0]], [[1.0, 1.0]], "weight"), "One error.").alt[:46]
    'Three heatmaps of weight: received, expected, '
    """
    fig, axes = plots.figure(1, 3, size=(7.2, 1.7))
    limits = (-_scale(report), _scale(report))
    for ax, what in zip(axes[:2], ("received", "expected"), strict=True):
        _show(ax, _laid_out(getattr(report, what)), "RdBu", limits)
        ax.set_title(what, fontsize=10, color=plots.INK)
    _show(axes[2], _laid_out(report.error), _ERRORS, (0, limits[1]))
    axes[2].set_title("error", fontsize=10, color=plots.INK)
    wrong = f"{int(report.wrong.sum())} of {report.error.size} elements are wrong"
    alt = f"Three heatmaps of {report.name}: received, expected, and the error of each element. {wrong}."
    return plots.picture(fig, caption, alt)


_ERRORS = LinearSegmentedColormap.from_list("errors", ["#ffffff", "#f3a44a", "#c2410c", "#5c1505"])


def _show(ax, image, colours, limits):
    """Draw a heatmap that fills its axes; its pixels may not be square."""
    plots.show_image(ax, image, cmap=colours, limits=limits)
    ax.set_aspect("auto")
    ax.spines[:].set_color(plots.FAINT)


def _scale(report):
    """Return the largest magnitude among the right values."""
    return np.abs(report.expected).max() or 1.0


def _laid_out(array):
    """Lay an array out in two dimensions: images side by side, their channels below each other."""
    if array.ndim <= 2:
        return np.atleast_2d(array)
    # A row and a column of NaN, which isn't drawn, separate them.
    apart = np.pad(array, [(0, 0), (0, 0), (0, 1), (0, 1)], constant_values=np.nan)
    images, channels, height, width = apart.shape
    return apart.transpose(1, 2, 0, 3).reshape(channels * height, images * width)[:-1, :-1]
