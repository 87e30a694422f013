"""How many published times each GPU was held against, and the mean error there."""

# Written by `cnn-numba bench modelled`, from its record.
HELD_AGAINST = {
    "A6000": (5, 0.09),
    "GTX 1650": (31, 0.13),
    "RTX 3060": (31, 0.09),
    "RTX 3080": (80, 0.16),
    "T4": (6, 0.23),
}
