"""Messages and a helper that several exercises of notebook 03 share."""

FLIPPED = (
    "Your filter runs backwards: an output adds up `{weight}[i, j]` times the pixel `i` rows below and `j` "
    "columns right of the window's first. As in notebook 01's first exercise, don't flip it."
)
BIAS_IN_PRODUCTS = "You add the bias once per product. Each output needs it once: add it outside the loops."


def cover(sizes, block):
    """Return a grid of blocks over `sizes`; they are in NumPy's order, the grid in CUDA's, x first."""
    return tuple(-(-size // threads) for size, threads in zip(sizes[::-1], block, strict=True))
