"""Diagrams of attention: one head with its shapes, several heads, a Transformer."""

from cnn_course.engine import plots

_GREY = "#6b6e76"


def _canvas(width, height, size):
    fig, ax = plots.figure(size=size)
    ax.set(xlim=(0, width), ylim=(0, height), aspect="equal")
    ax.axis("off")
    return fig, ax


def _shape(ax, x, y, text):
    ax.text(x, y, text, ha="center", va="center", fontsize=9, color=plots.INK)


def head_picture() -> plots.Picture:
    """Draw how one head combines queries, keys and values, and what comes from target and source."""
    fig, ax = _canvas(12.2, 4.6, (7.2, 2.8))
    for y, row, source in ((3.9, "queries", "target"), (2.3, "keys", "source"), (0.7, "values", "source")):
        plots.box(ax, 0.9, y, source, _GREY, 1.3)
        plots.arrow(ax, (1.65, y), (2.25, y))
        plots.box(ax, 3.0, y, row, plots.BLUE, 1.4)
    _shape(ax, 3.0, 3.4, "m x d")
    _shape(ax, 3.0, 1.8, "n x d")
    _shape(ax, 3.0, 0.2, "n x d")
    plots.box(ax, 5.6, 3.1, "product", plots.ORANGE, 1.4)
    plots.arrow(ax, (3.8, 3.9), (4.8, 3.25))
    plots.arrow(ax, (3.8, 2.3), (4.8, 2.95))
    _shape(ax, 5.6, 2.6, "scores, m x n")
    plots.box(ax, 8.0, 3.1, "softmax\nof each row", plots.ORANGE, 1.7, 0.9)
    plots.arrow(ax, (6.4, 3.1), (7.05, 3.1))
    _shape(ax, 8.0, 2.35, "weights, m x n")
    plots.box(ax, 8.0, 0.7, "product", plots.ORANGE, 1.4)
    plots.arrow(ax, (8.0, 2.1), (8.0, 1.05))
    plots.arrow(ax, (3.8, 0.7), (7.2, 0.7))
    plots.box(ax, 10.8, 0.7, "out", plots.GREEN, 1.4)
    plots.arrow(ax, (8.8, 0.7), (10.0, 0.7))
    _shape(ax, 10.8, 0.2, "m x d")
    return plots.picture(
        fig,
        "One head. Queries come from m positions, keys and values from n. In a translation, the target is "
        "the text being written and the source is the text being read. In self-attention, both are the same "
        "text.",
        "Left to right. Queries (m x d) from the target and keys (n x d) from the source are multiplied: "
        "scores (m x n). A softmax of each row turns them into weights (m x n). The product of the weights "
        "and the values (n x d), which also come from the source, is the output (m x d).",
    )


def heads_picture() -> plots.Picture:
    """Draw how 64 features are cut into four heads and put together again."""
    fig, ax = _canvas(12.2, 3.9, (7.2, 2.4))
    plots.box(ax, 1.1, 1.9, "64 features", _GREY, 1.7)
    plots.box(ax, 3.7, 1.9, "dense", plots.BLUE, 1.2)
    plots.arrow(ax, (2.05, 1.9), (3.0, 1.9))
    _shape(ax, 3.7, 1.35, "3 · 64")
    plots.box(ax, 8.7, 1.9, "side by side", plots.BLUE, 1.8)
    for head, y in enumerate((3.4, 2.4, 1.4, 0.4)):
        plots.box(ax, 6.2, y, f"head {head}: 16", plots.ORANGE, 1.7)
        plots.arrow(ax, (4.4, 1.9), (5.25, y))
        plots.arrow(ax, (7.15, y), (7.7, 1.9))
    plots.box(ax, 11.1, 1.9, "dense", plots.BLUE, 1.2)
    plots.arrow(ax, (9.7, 1.9), (10.4, 1.9))
    _shape(ax, 11.1, 1.35, "64")
    return plots.picture(
        fig,
        "Four heads. Each has 16 of the 64 features, and its own queries, keys, values and weights.",
        "A dense layer turns 64 features into queries, keys and values, 3 times 64 numbers. They are cut "
        "into four heads of 16 features, which attend separately. The four results are put side by side, and "
        "a second dense layer mixes them.",
    )


def transformer_picture() -> plots.Picture:
    """Draw the course's text_transformer, with the parts of a block."""
    fig, ax = _canvas(13.4, 3.0, (7.2, 1.9))
    plots.box(ax, 1.0, 1.2, "embedding", _GREY, 1.7)
    parts = ((3.0, "norm"), (4.7, "attention"), (7.9, "norm"), (9.8, "64 → 256\nGELU → 64"))
    for x, text in parts:
        attends = text == "attention"
        colour = plots.ORANGE if attends else _GREY if text == "norm" else plots.BLUE
        plots.box(ax, x, 1.2, text, colour, 1.5 if attends else 1.0 if text == "norm" else 1.7, 0.8)
    for x in (6.2, 11.4):
        plots.box(ax, x, 1.2, "+", plots.GREEN, 0.4)
    ways = ((1.95, 2.4), (3.6, 3.85), (5.55, 5.9), (6.5, 7.3), (8.5, 8.85), (10.75, 11.1), (11.75, 12.1))
    for start, end in ways:
        plots.arrow(ax, (start, 1.2), (end, 1.2))
    for start, end in ((2.15, 6.2), (6.85, 11.4)):
        ax.plot((start, start, end), (1.2, 2.4, 2.4), color=plots.INK, linewidth=1)
        plots.arrow(ax, (end, 2.4), (end, 1.5))
    plots.box(ax, 12.75, 1.2, "logits", _GREY, 1.1)
    ax.plot((2.1, 2.1, 11.7, 11.7), (0.55, 0.35, 0.35, 0.55), color=plots.INK, linewidth=1)
    _shape(ax, 6.9, 0.1, "a block; the network has two of them")
    return plots.picture(
        fig,
        "The network: embedding, two blocks, and a dense layer for the logits, after one more normalisation. "
        "The arcs are the residual connections: what a part computes is added to its input.",
        "A row of boxes: embedding, then a block of normalisation, attention, plus, normalisation, two dense "
        "layers (64 to 256, GELU, back to 64), plus; then the logits. One arc leads around normalisation and "
        "attention to the first plus, another around normalisation and dense layers to the second. The "
        "network has two such blocks.",
    )
