"""Pictures of a backward pass: which kernel computes what, who gathers from whom, what the pixels get."""

from collections.abc import Iterable

import numpy as np
from matplotlib.patches import FancyArrowPatch, Rectangle

from cnn_course.engine import plots

_BOX = "#e6e4de"
_DONE = "#cfe3d4"

# A layer: what stands in its box, the kernel that goes on to the left (its exercise, its name), and those
# that give its parameters their gradients.
_LAYERS = (
    ("convolution", (8, "conv2d_backward_input_kernel"), (7, "conv2d_backward_weight_kernel"), True),
    ("ReLU", (5, "relu_backward_kernel"), None, False),
    ("max pooling", (6, "max_pool_backward_kernel"), None, False),
    ("dense", (3, "dense_backward_input_kernel"), (2, "dense_backward_weight_kernel"), True),
    ("softmax, loss", (1, "cross_entropy_kernel"), None, False),
)
_BIAS = (4, "bias_gradient_kernel")


def network_map(right: Iterable[str] = ()) -> plots.Picture:
    """Draw a network's layers, and below them the kernels that carry the gradients back.

    Parameters
    ----------
    right : iterable of str
        The names of the reader's kernels that their checks have found right.

    Examples
    --------
    >>> network_map(["relu_backward_kernel"]).caption[-52:]
    'kernels of yours that the checks find right: 1 of 8.'
    """
    right = set(right)
    fig, ax = plots.figure(size=(7.2, 2.4))
    ax.set(xlim=(-0.75, 10.25), ylim=(-2.2, 0.45))
    ax.axis("off")
    _box(ax, 0, "images", _BOX)
    for place, (title, passed, weight, bias) in enumerate(_LAYERS, 1):
        x = 1.9 * place
        needed = [part for part in (passed, weight, _BIAS if bias else None) if part]
        _box(ax, x, title, _DONE if {name for _, name in needed} <= right else _BOX)
        _arrow(ax, (x - 1.19, 0.12), (x - 0.71, 0.12), plots.BLUE)
        _arrow(ax, (x - 0.71, -0.12), (x - 1.19, -0.12), plots.RED)
        _kernel(ax, x - 0.95, -0.66, passed, right)
        for row, part in enumerate(needed[1:]):
            _kernel(ax, x, -1.2 - 0.62 * row, part, right, what="weights" if row == 0 else "bias")
        if bias:
            _arrow(ax, (x, -0.34), (x, -0.92), plots.RED)
    caption = (
        "To the right, the forward pass; to the left and down, the gradients. Numbers are those of the "
        f"exercises, a tick marks kernels of yours that the checks find right: {len(right)} of 8."
    )
    alt = (
        "Boxes in a row: images, convolution, ReLU, max pooling, dense, softmax and loss. Gradients go back "
        "by kernel 1 from the loss, 3 from the dense layer, 6 from max pooling, 5 from ReLU and 8 from the "
        "convolution to the images. Kernels 2 and 7 give the gradients of the weights, 4 those of both "
        "biases. "
        f"Right so far: {', '.join(sorted(right)) or 'none'}."
    )
    return plots.picture(fig, caption, alt)


def _box(ax, x, title, colour):
    ax.add_patch(Rectangle((x - 0.7, -0.32), 1.4, 0.64, facecolor=colour, edgecolor=plots.INK))
    ax.text(x, 0, title.replace(", ", ",\n"), fontsize=8.5, ha="center", va="center", color=plots.INK)


def _arrow(ax, start, end, colour):
    style = {"arrowstyle": "-|>", "mutation_scale": 9, "linewidth": 1.3, "shrinkA": 0, "shrinkB": 0}
    ax.add_patch(FancyArrowPatch(start, end, color=colour, **style))


def _kernel(ax, x, y, part, right, what=""):
    """Draw the number of a kernel in a disc, ticked if it is right, and what it gives its gradient to."""
    number, name = part
    done = name in right
    ax.plot(x, y, "o", markersize=17, color=_DONE if done else plots.PAPER, markeredgecolor=plots.RED)
    ax.text(x, y, number, fontsize=10, ha="center", va="center", color=plots.INK)
    note = " ".join(filter(None, (what, "\N{CHECK MARK}" if done else "")))
    ax.text(x + 0.32, y, note, fontsize=8.5, ha="left", va="center", color=plots.INK)


_LETTERS = np.array(list("abcdefghi")).reshape(3, 3)
_WEIGHTS = np.array([[0.55, 0.76, 0.90], [0.95, 0.78, 0.45], [0.62, 0.84, 0.72]])


def gather_picture() -> plots.Picture:
    """Draw a 3 x 3 filter on its window, and the outputs that a pixel gathers from, for strides 1 and 2.

    Examples
    --------
    >>> "i h g, f e d, c b a" in gather_picture().alt
    True
    """
    fig, axes = plots.figure(1, 3, size=(7.2, 3.6), width_ratios=[7, 5, 3])
    pixels = np.full((7, 7), "")
    pixels[2:5, 2:5] = _LETTERS
    _letters(axes[0], pixels, "pixels:\nthe window of one output")
    gathered = [_gathered(1, (3, 3)), _gathered(2, (2, 2))]
    _letters(axes[1], gathered[0], "stride 1, outputs:\nwhat one pixel gathers")
    _letters(axes[2], gathered[1], "stride 2, outputs:\nwhat one gathers")
    rows = [", ".join(" ".join(row[row != ""]) for row in array if (row != "").any()) for array in gathered]
    caption = (
        "The filter a to i lies on the window of an output. Seen from a pixel, it lies on the outputs, and "
        "turned by 180 degrees; with stride 2 only some of it meets an output."
    )
    alt = (
        "Three grids. The first has 7 by 7 pixels, with the letters a b c, d e f, g h i on 3 by 3 of them. "
        f"The second has 5 by 5 outputs, with {rows[0]} on 3 by 3 of them. The third has 3 by 3 outputs, "
        f"with {rows[1]} on 2 by 2 of them."
    )
    return plots.picture(fig, caption, alt)


def _gathered(stride, pixel, size=7):
    """Return which weight sends a pixel the gradient of each output, "" for none; no padding."""
    outputs = (size - 3) // stride + 1
    letters = np.full((outputs, outputs), "")
    for oh, ow in np.ndindex(outputs, outputs):
        kh, kw = pixel[0] - oh * stride, pixel[1] - ow * stride
        if 0 <= kh < 3 and 0 <= kw < 3:
            letters[oh, ow] = _LETTERS[kh, kw]
    return letters


def _letters(ax, letters, title):
    """Draw a grid of letters, each row of the filter in its colour."""
    rows = {letter: row for row, line in enumerate(_LETTERS) for letter in line}
    shades = np.array([[_WEIGHTS[rows[x]] if x else (1, 1, 1) for x in line] for line in letters])
    ax.imshow(shades, interpolation="nearest")
    ax.set_anchor("N")
    for (row, column), letter in np.ndenumerate(letters):
        ax.text(column, row, letter, ha="center", va="center", fontsize=12, color=plots.INK)
    ax.set_title(title, fontsize=10, color=plots.INK)
    for axis, count in ((ax.xaxis, letters.shape[1]), (ax.yaxis, letters.shape[0])):
        axis.set_ticks(np.arange(count + 1) - 0.5, labels=[])
        axis.set_tick_params(length=0)
    ax.grid(color=plots.FAINT, linewidth=0.8)
    ax.spines[:].set_visible(False)


def pixel_picture(
    images: np.ndarray, gradient: np.ndarray, changed: np.ndarray, read: Iterable[int], after: Iterable[int]
) -> plots.Picture:
    """Draw digits, the gradients of their pixels, and the digits after some steps down their slopes.

    Parameters
    ----------
    images, gradient, changed : ndarray, shape (N, 1, H, W)
    read, after : iterable of int
        What the network takes them for, before and after.

    Examples
    --------
    >>> image = np.eye(4)[None, None]
    >>> pixel_picture(image, image - 0.5, image, [7], [9]).caption[:12]
    'Above, what '
    """
    fig, axes = plots.figure(4, len(images), size=(7.2, 7.2), squeeze=False)
    read, after = map(list, (read, after))
    limit = np.abs(gradient).max(axis=(1, 2, 3)).clip(1e-30)
    for column, line in enumerate(axes.T):
        plots.show_image(line[0], images[column, 0], f"read as {read[column]}", limits=(0, 1))
        for ax, sign, title in ((line[1], -1, "wants to be brighter"), (line[2], 1, "wants to be darker")):
            wish = (sign * gradient[column, 0]).clip(0)
            plots.show_image(ax, wish, title, cmap="Greys", limits=(0, limit[column]))
        plots.show_image(line[3], changed[column, 0], f"read as {after[column]}", limits=(0, 1))
    caption = (
        "Above, what the trained network reads. Then, what its loss wants changed: the blacker, the more. "
        "Below, the digits after some small steps that way."
    )
    alt = (
        f"{len(images)} digits, read as {', '.join(map(str, read))}. Below each, two maps of its gradient: "
        "dots on the stroke and beside it. Last the digit with a faint pattern over it, now read as "
        f"{', '.join(map(str, after))}."
    )
    return plots.picture(fig, caption, alt)
