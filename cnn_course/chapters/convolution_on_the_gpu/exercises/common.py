"""What several exercises of notebook 03 share."""

FLIPPED = (
    "Your filter runs backwards: an output adds up `{weight}[i, j]` times the pixel `i` rows below the "
    "window's first and `j` columns to its right. No flip, as in notebook 01."
)
BIAS_IN_PRODUCTS = (
    "The bias is added once for each product; each output gets it once: add it outside of the loops."
)


def cover(sizes, block):
    """Return a grid of blocks over sizes in the order of NumPy, last axis first, as CUDA has it."""
    return tuple(-(-size // threads) for size, threads in zip(sizes[::-1], block, strict=True))
