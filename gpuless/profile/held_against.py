"""How many published times each GPU was held against, and the mean error there."""

# Written by `cnn-numba bench modelled`, from its record.
HELD_AGAINST = {
    "A100 PCIe": (23, 0.18),
    "A6000": (11, 0.12),
    "GTX 1650": (34, 0.09),
    "H100 SXM": (18, 0.28),
    "RTX 3060": (34, 0.07),
    "RTX 3080": (83, 0.10),
    "RTX 4090": (10, 0.17),
    "T4": (20, 0.21),
    "V100": (6, 0.12),
}
