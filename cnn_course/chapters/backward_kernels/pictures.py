"""Pictures of a backward pass: which kernel computes what, and what the pixels get."""

from collections.abc import Iterable

import numpy as np
from matplotlib.patches import FancyArrowPatch, Rectangle

from cnn_course.engine import plots

_BOX = "#e6e4de"
_DONE = "#cfe3d4"

# A layer: the text in its box, the kernel of its input's gradient (exercise, name), and the kernels of its
# parameters' gradients.
_LAYERS = (
    ("convolution", (8, "conv2d_backward_input_kernel"), (7, "conv2d_backward_weight_kernel"), True),
    ("ReLU", (4, "relu_backward_kernel"), None, False),
    ("max pooling", (6, "max_pool_backward_kernel"), None, False),
    ("dense", (3, "dense_backward_input_kernel"), (2, "dense_backward_weight_kernel"), True),
    ("softmax, loss", (1, "cross_entropy_kernel"), None, False),
)
_BIAS = (5, "bias_gradient_kernel")


def network_map(right: Iterable[str] = ()) -> plots.Picture:
    """Draw a network's layers, and below them the kernels of the backward pass.

    Parameters
    ----------
    right : iterable of str
        The names of the reader's kernels that pass their checks.

    Examples
    --------
    >>> network_map(["relu_backward_kernel"]).caption.split(". ")[-1]
    'A tick marks a kernel of yours that passes its check: 1 of 8.'
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
        "To the right, the forward pass; to the left and down, the gradients. The numbers are those of the "
        f"exercises. A tick marks a kernel of yours that passes its check: {len(right)} of 8."
    )
    alt = (
        "Boxes in a row: images, convolution, ReLU, max pooling, dense, softmax and loss. Gradients go back "
        "by kernel 1 from the loss, 3 from the dense layer, 6 from max pooling, 4 from ReLU and 8 from the "
        "convolution to the images. Kernels 2 and 7 compute the gradients of the weights, 5 those of both "
        f"biases. Right so far: {', '.join(sorted(right)) or 'none'}."
    )
    return plots.picture(fig, caption, alt)


def _box(ax, x, title, colour):
    ax.add_patch(Rectangle((x - 0.7, -0.32), 1.4, 0.64, facecolor=colour, edgecolor=plots.INK))
    ax.text(x, 0, title.replace(", ", ",\n"), fontsize=8.5, ha="center", va="center", color=plots.INK)


def _arrow(ax, start, end, colour):
    style = {"arrowstyle": "-|>", "mutation_scale": 9, "linewidth": 1.3, "shrinkA": 0, "shrinkB": 0}
    ax.add_patch(FancyArrowPatch(start, end, color=colour, **style))


def _kernel(ax, x, y, part, right, what=""):
    """Draw the number of a kernel in a disc, ticked if it's right, and the parameter of its gradient."""
    number, name = part
    done = name in right
    ax.plot(x, y, "o", markersize=17, color=_DONE if done else plots.PAPER, markeredgecolor=plots.RED)
    ax.text(x, y, number, fontsize=10, ha="center", va="center", color=plots.INK)
    note = " ".join(filter(None, (what, "\N{CHECK MARK}" if done else "")))
    ax.text(x + 0.32, y, note, fontsize=8.5, ha="left", va="center", color=plots.INK)


def pixel_picture(
    images: np.ndarray, gradient: np.ndarray, changed: np.ndarray, read: Iterable[int], after: Iterable[int]
) -> plots.Picture:
    """Draw digits, the gradients of their pixels, and the digits after some steps against the gradient.

    Parameters
    ----------
    images, gradient, changed : ndarray, shape (N, 1, H, W)
    read, after : iterable of int
        The network's answers, before and after.

    Examples
    --------
    >>> image = np.eye(4)[None, None]
    >>> pixel_picture(image, image - 0.5, image, [7], [9]).caption[:26]
    "Above, the network's input"
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
        "Above, the network's input. Then the changes that reduce the loss: the blacker, the larger. Below, "
        "the digits after some small steps in that direction."
    )
    alt = (
        f"{len(images)} digits, read as {', '.join(map(str, read))}. Below each, two maps of its gradient: "
        "dots on the stroke and beside it. Last the digit with a faint pattern over it, now read as "
        f"{', '.join(map(str, after))}."
    )
    return plots.picture(fig, caption, alt)
