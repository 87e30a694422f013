"""Pictures of other parts of a network: activations, losses, what each does to gradients and outputs."""

import numpy as np

from cnn_course.chapters.mnist_cnn.pictures import smoothed
from cnn_course.engine import plots

_DASHES = "-", "--", ":", "-."


def activation_picture() -> plots.Picture:
    """Draw ReLU, sigmoid and tanh, and beside them their slopes."""
    x = np.linspace(-6, 6, 241)
    sigmoid, tanh = 1 / (1 + np.exp(-x)), np.tanh(x)
    curves = {
        "ReLU": (np.maximum(x, 0), (x > 0).astype(float)),
        "sigmoid": (sigmoid, sigmoid * (1 - sigmoid)),
        "tanh": (tanh, 1 - tanh**2),
    }
    fig, axes = plots.figure(1, 2, size=(7.2, 2.6))
    for dash, (name, (values, slopes)) in zip(_DASHES, curves.items(), strict=False):
        axes[0].plot(x, values, dash, label=name)
        axes[1].plot(x, slopes, dash, label=name)
    axes[0].set(xlabel="input", ylabel="output", ylim=(-1.2, 2.2))
    axes[1].set(xlabel="input", ylabel="slope", ylim=(-0.05, 1.1))
    plots.legend(axes[0], loc="upper left")
    return plots.picture(
        fig,
        "Three activations, and their slopes. The backward pass multiplies gradients by the slope.",
        "Left: ReLU, a dashed S-shaped sigmoid between 0 and 1, a dotted S-shaped tanh between -1 and 1. "
        "Right: the slope of ReLU jumps from 0 to 1. Those of sigmoid and tanh are bells, a quarter and 1 "
        "high, and nearly 0 beyond inputs of 5 and 3.",
    )


def layer_gradients_picture(sizes) -> plots.Picture:
    """Draw the mean size of the gradients of each layer, on a logarithmic axis.

    Parameters
    ----------
    sizes : dict of str to list of float
        By the network's name, from the first layer to the last.
    """
    fig, ax = plots.figure(size=(7.2, 2.8))
    for dash, marker, (name, values) in zip(_DASHES, "os^", sizes.items(), strict=False):
        ax.plot(np.arange(1, len(values) + 1), values, dash, marker=marker, markersize=5, label=name)
    ax.set(yscale="log", xlabel="dense layer, from the images to the loss", ylabel="mean size of a gradient")
    ax.set_xticks(np.arange(1, 1 + max(map(len, sizes.values()))))
    plots.legend(ax, loc="lower right")
    falls = "; ".join(f"with {name} {values[-1] / values[0]:.0f} times" for name, values in sizes.items())
    return plots.picture(
        fig,
        "How large the gradients of each layer's weights are before any training. They enter at the right.",
        "A line for each activation over the layers. The last layer's gradients are larger than the "
        f"first's: {falls}.",
    )


def loss_slopes_picture() -> plots.Picture:
    """Draw the gradient of cross-entropy and of squared error, over the score of the right class."""
    z = np.linspace(-8, 8, 241)
    y = 1 / (1 + np.exp(-z))
    fig, ax = plots.figure(size=(7.2, 2.6))
    ax.plot(z, 1 - y, "-", label="cross-entropy: 1 - y")
    ax.plot(z, 2 * (1 - y) * y * (1 - y), "--", label="squared error: 2 (1 - y) y (1 - y)")
    ax.set(xlabel="score of the right answer, before the sigmoid", ylabel="pull upwards", ylim=(-0.05, 1.1))
    ax.text(-7.8, 0.12, "sure and wrong", fontsize=9, color=plots.INK)
    ax.text(7.8, 0.12, "sure and right", fontsize=9, color=plots.INK, ha="right")
    plots.legend(ax, loc="upper right")
    return plots.picture(
        fig,
        "How hard each loss pulls at a score that should be high.",
        "Two curves over a score from -8 to 8. Cross-entropy pulls with 1 at the left, where the answer is "
        "sure and wrong, and ever less towards the right. Squared error has a bell around -0.7, 0.3 high, "
        "and is nearly 0 at both ends.",
    )


def curves_picture(runs, caption, ylabel="training loss, mean of 10", ylim=(0, 3)) -> plots.Picture:
    """Draw the losses of several short training runs.

    Parameters
    ----------
    runs : dict of str to array_like, shape (steps,)
    caption, ylabel : str
    ylim : tuple of float
    """
    fig, ax = plots.figure(size=(7.2, 2.6))
    for dash, (name, losses) in zip(_DASHES, runs.items(), strict=False):
        ax.plot(np.arange(1, len(losses) + 1), smoothed(losses, 10), dash, label=name)
    ax.set(xlabel="step", ylabel=ylabel, ylim=ylim)
    plots.legend(ax, loc="upper right")
    ways = "; ".join(
        f"{name} from {losses[0]:.2f} to {np.mean(losses[-10:]):.2f}" for name, losses in runs.items()
    )
    return plots.picture(fig, caption, f"The loss over the steps of each training run: {ways}.")


def epochs_picture(accuracies) -> plots.Picture:
    """Draw the accuracy on the test images after each epoch, for our training runs and for PyTorch's.

    Parameters
    ----------
    accuracies : dict
        For "ours" and "pytorch" a list for each training run.
    """
    panels = {"ours": "this package", "pytorch": "PyTorch"}
    fig, axes = plots.figure(1, 2, size=(7.2, 2.6), sharey=True)
    for ax, (who, title) in zip(axes, panels.items(), strict=True):
        for dash, marker, (seed, values) in zip(_DASHES, "os^", enumerate(accuracies[who]), strict=False):
            epochs = np.arange(1, len(values) + 1)
            ax.plot(epochs, 100 * np.array(values), dash, marker=marker, markersize=5, label=f"seed {seed}")
        ax.set(xlabel="epoch", xticks=epochs)
        ax.set_title(title, fontsize=10, color=plots.INK)
    axes[0].set_ylabel("test images read, %")
    plots.legend(axes[1], loc="lower right")
    ends = "; ".join(
        f"{title} {', '.join(f'{values[-1]:.2%}' for values in accuracies[who])}"
        for who, title in panels.items()
    )
    return plots.picture(
        fig,
        "Test images that mnist_cnn_deep reads after each epoch of the article's recipe, from three seeds.",
        f"Two panels with three lines each, which rise and then go up and down. They end at: {ends}.",
    )


def outputs_picture(outputs) -> plots.Picture:
    """Draw the distribution of each layer's outputs for a batch.

    Parameters
    ----------
    outputs : dict of str to ndarray
        By the layer's name, from the images on.
    """
    # A layer's output already includes its ReLU: they are one pass.
    shown = {name: v for name, v in outputs.items() if not name.startswith(("flatten", "relu"))}
    fig, axes = plots.figure(1, len(shown), size=(7.2, 2.0), sharey=True)
    for ax, (name, values) in zip(axes, shown.items(), strict=True):
        flat = np.ravel(values)
        ax.hist(flat, bins=30, weights=np.full(flat.size, 1 / flat.size), color=plots.BLUE)
        ax.set_title(name, fontsize=10, color=plots.INK)
        ax.locator_params(axis="x", nbins=3)
    axes[0].set_ylabel("share")
    spreads = ", ".join(f"{name} {np.min(v):.3g} to {np.max(v):.3g}" for name, v in shown.items())
    return plots.picture(
        fig,
        "The inputs of a new network and the outputs of its layers, after ReLU where there is one. Each "
        "panel has its own axis.",
        f"A histogram for each layer. The numbers are in these ranges: {spreads}.",
    )
