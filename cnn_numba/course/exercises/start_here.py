"""The check of notebook 00, ``00_start_here``."""

from cnn_numba.course.checks.exercise import Exercise
from cnn_numba.ops.shapes import output_size

count_positions = Exercise(
    "count_positions",
    reference=lambda n, k: output_size(n, k),
    cases=lambda rng: [
        (5, 3),
        (28, 5),
        (7, 7),
        (4, 1),
        (26, 2),
        *rng.integers((9, 2), (99, 9), (4, 2)).tolist(),
    ],
    mistakes={
        "fence post": (
            "You give `n - k`, the place of the last position. Positions are counted from 0, so there is "
            "one more.",
            lambda n, k: n - k,
        ),
        "one per pixel": (
            "You count one position for each pixel. A window that starts on the last pixel hangs over the "
            "edge.",
            lambda n, k: n,
        ),
        "side by side": (
            "You count windows laid side by side, as tiles. This window moves on by one pixel at a time.",
            lambda n, k: n // k,
        ),
        "overhanging": (
            "You also count the positions where the window hangs over an edge; it must lie wholly on the "
            "row.",
            lambda n, k: n + k - 1,
        ),
        "exchanged": ("You have exchanged `n`, the row, and `k`, the window.", lambda n, k: k - n + 1),
        "one too many": (
            "You count one position too many. Try a window as long as the row, `n == k`: it fits once.",
            lambda n, k: n - k + 2,
        ),
    },
)
