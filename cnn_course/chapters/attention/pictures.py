"""Pictures of attention: weights, memory traffic of naive and tiled attention, a training run."""

import numpy as np

from cnn_course.engine import plots
from cnn_numba.beyond.attention.reference import attention_weights

_MARKS = "o-", "s--"


def weights_of(layer, sample=0):
    """Return the attention weights of a `MultiHeadAttention` in its last pass, shape (H, T, T)."""
    q, k = (np.asarray(array[sample : sample + 1], np.float64) for array in layer.queries_and_keys())
    return attention_weights(q, k, layer.causal)[0]


def _letter(character):
    return {" ": "\N{OPEN BOX}", "\n": "/"}.get(character, character)


def weights_picture(weights, text, caption) -> plots.Picture:
    """Draw attention weights: one panel per head, queries down, keys across.

    Parameters
    ----------
    weights : ndarray, shape (H, T, T)
    text : str
        The T characters.
    caption : str
    """
    heads = len(weights)
    fig, axes = plots.figure(1, heads, size=(7.2, 7.2 / heads + 0.4), sharey=True, squeeze=False)
    letters = [_letter(character) for character in text]
    for number, (ax, table) in enumerate(zip(axes[0], weights, strict=True)):
        ax.imshow(table, cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
        ax.set_xticks(range(len(text)), letters, fontsize=5, family="monospace")
        ax.set_yticks(range(len(text)), letters, fontsize=5, family="monospace")
        ax.tick_params(length=0, pad=1)
        ax.set_title(f"head {number}", fontsize=9, color=plots.INK)
    axes[0][0].set_ylabel("query")
    fig.supxlabel("key", fontsize=9, color=plots.INK)
    before = [float(np.mean(np.diagonal(table, -1))) for table in weights]
    shares = ", ".join(f"head {number} {share:.0%}" for number, share in enumerate(before))
    return plots.picture(
        fig,
        caption,
        f"{heads} square tables of weights over the {len(text)} characters {text!r}, dark where a weight is "
        f"near 1; above the diagonal all are 0. Average weight on the character just before: {shares}.",
    )


def growth_picture(lengths, counts) -> plots.Picture:
    """Draw the memory traffic and the operations of naive and tiled attention, over the length of the text.

    Parameters
    ----------
    lengths : list of int
    counts : dict of str to dict of str to list of float
        By method, then ``"least bytes"``, ``"bytes moved"`` and ``"operations"``, for each length.
    """
    titles = {
        "least bytes": "bytes memory has to move",
        "bytes moved": "bytes asked of L1",
        "operations": "float operations",
    }
    fig, axes = plots.figure(1, 3, size=(7.2, 2.6))
    for ax, (what, title) in zip(axes, titles.items(), strict=True):
        for mark, (name, values) in zip(_MARKS, counts.items(), strict=True):
            ax.plot(lengths, values[what], mark, markersize=4, label=name)
        ax.set(xscale="log", yscale="log", xlabel="positions")
        ax.set_xticks(lengths, [str(length) for length in lengths])
        ax.minorticks_off()
        ax.set_title(title, fontsize=9, color=plots.INK)
    axes[0].legend(frameon=False, fontsize=8, labelcolor=plots.INK)
    ways = "; ".join(
        f"{name} {title} from {values[what][0]:.3g} to {values[what][-1]:.3g}"
        for what, title in titles.items()
        for name, values in counts.items()
    )
    return plots.picture(
        fig,
        "What one head of 16 features asks for, as the text grows. Both axes are logarithmic.",
        f"Three panels, two lines each, from {lengths[0]} to {lengths[-1]} positions: {ways}.",
    )


def training_picture(record) -> plots.Picture:
    """Draw the recorded training run: the training loss, and the loss on held-out text after each epoch.

    Parameters
    ----------
    record : dict
        From `cnn_course.chapters.attention.text_training.recorded`.
    """
    losses, history = record["losses"], record["history"]
    steps = record["every"] * np.arange(1, len(losses) + 1)
    fig, ax = plots.figure(size=(7.2, 2.6))
    ax.plot(steps, losses, "-", linewidth=1, label=f"training, mean of {record['every']} steps")
    ends = np.linspace(0, steps[-1], len(history) + 1)[1:]
    ax.plot(ends, [entry["test_loss"] for entry in history], "s", markersize=5, label="text held out")
    ax.axhline(np.log(96), linestyle=":", linewidth=1, color=plots.INK)
    ax.text(steps[-1], np.log(96) - 0.1, "guessing", ha="right", va="top", fontsize=8, color=plots.INK)
    ax.set(xlabel="step", ylabel="loss of a character", ylim=(0.8, 5))
    plots.legend(ax)
    return plots.picture(
        fig,
        f"A recorded training run: {len(history)} epochs on a CPU, 64 windows per step.",
        f"The training loss falls from {losses[0]:.2f} to {losses[-1]:.2f}, steeply at first. The loss on "
        f"the text held out is {history[0]['test_loss']:.2f} after the first epoch and "
        f"{history[-1]['test_loss']:.2f} after the last. A dotted line at 4.56 shows the loss of guessing.",
    )
