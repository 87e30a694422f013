"""A quarter turn through a tile without bank conflicts: an exercise of notebook 11."""

from functools import partial

import numpy as np

from cnn_course.chapters.shared_memory_and_tiling.exercises.common import ROWS, SIDE, TileExercise
from cnn_course.engine.checks.exercise import Wrong
from cnn_course.engine.checks.kernels import examine, launch, normal, output, uses
from cnn_numba.device import blocks
from gpuless import access_map


def _memory_is_used_well(attempt):
    """Demand whole sectors of global memory, and no conflicts of banks."""
    case = _turn_case(np.random.default_rng(0), 2 * SIDE, 3 * SIDE)
    access = access_map(examine(attempt, case).report.trace)
    for traffic in access.arrays:
        if traffic.space == "global" and traffic.efficiency < 0.9:
            what = "reads of" if traffic.access == "read" else "writes to"
            raise Wrong(
                "scattered",
                f"The numbers are right, but a warp's {what} `{traffic.array}` are scattered: "
                f"{traffic.sectors_per_request:.3g} sectors per request, where 4 are enough. Let `tx` run "
                "along the rows of both images. Only the tile is read down a column.",
            )
    if access.degree > 1:
        raise Wrong(
            "bank conflicts",
            f"The numbers are right, but a warp's accesses to the tile have {access.degree}-way bank "
            "conflicts. Change the width of the tile's rows.",
        )


def _turn_case(rng, height, width):
    grid = blocks(width, SIDE), blocks(height, SIDE)
    return launch(grid, (SIDE, ROWS), normal(rng, (height, width)), output((width, height)))


def _turned_tile_by_tile(image):
    """Return the transpose, with each tile upside down."""
    out = np.full(image.shape[::-1], np.nan, image.dtype)
    for row in range(0, out.shape[0], SIDE):
        out[row : row + SIDE] = image.T[row : row + SIDE][::-1]
    return out


def _turned_in_part(image, rows, columns):
    """Turn only the first rows and columns of each tile; the others are not written."""
    row, column = np.indices(image.shape) % SIDE
    return np.rot90(np.where((row < rows) & (column < columns), image, np.nan))


def _turned_as_far_as_tiles_reach(image, step):
    """Turn what lies in tiles that begin `step` rows after each other; the rows below are not written."""
    rows = (blocks(image.shape[0], SIDE) - 1) * step + SIDE
    return np.rot90(np.where(np.arange(image.shape[0])[:, None] < rows, image, np.nan))


def _turned_by_threads(image):
    """Turn the pixels that have a thread, at `cuda.grid(2)`; the others are not written."""
    rows = blocks(image.shape[0], SIDE) * ROWS
    return np.rot90(np.where(np.arange(image.shape[0])[:, None] < rows, image, np.nan))


turn_kernel = TileExercise(
    "turn_kernel",
    reference=lambda image: np.rot90(image),
    cases=lambda rng: [_turn_case(rng, *sizes) for sizes in [(2, 3), (9, 33), (75, 7), (32, 32), (35, 50)]],
    other_blocks=False,
    once=True,
    from_the_end=True,
    properties=(uses("shared"), _memory_is_used_well),
    mistakes={
        "clockwise": (
            "You turn the image clockwise. `np.rot90` turns it counter-clockwise.",
            lambda image: np.rot90(image, -1),
            ("out[width - 1 - left - r, top + tx]", "out[left + r, height - 1 - top - tx]"),
        ),
        "only transposed": (
            "You transpose the image. In a quarter turn the rows of the result are also in reverse order.",
            np.transpose,
            ("width - 1 - left - r", "left + r"),
        ),
        "one row off": (
            "You are one row off. The last column of the image, `width - 1`, becomes row 0.",
            lambda image: np.vstack([np.full(image.shape[:1], np.nan), np.rot90(image)[:-1]]),
            ("width - 1 - left", "width - left"),
        ),
        "one row per thread": (
            f"A tile has {SIDE} rows and a block only {ROWS}. Each thread handles {SIDE // ROWS} rows, "
            "both when it loads and when it stores.",
            *(
                partial(_turned_in_part, rows=rows, columns=columns)
                for rows, columns in ((ROWS, ROWS), (ROWS, SIDE), (SIDE, ROWS))
            ),
            ("for r in range(ty, SIDE, ROWS):", "r = ty\nif r < SIDE:", 2),
            ("for r in range(ty, SIDE, ROWS):\n    if top", "r = ty\nif r < SIDE:\n    if top"),
        ),
        "tiles overlap": (
            f"Your tiles overlap, and the last rows are in none. The next tile begins `SIDE` = {SIDE} rows "
            "further, however many rows of threads a block has.",
            partial(_turned_as_far_as_tiles_reach, step=ROWS),
            ("cuda.blockIdx.y * SIDE", "cuda.blockIdx.y * ROWS"),
        ),
        "tile by the grid": (
            f"A block has {ROWS} rows of threads for {SIDE} rows of the image, so {SIDE // ROWS} rows "
            "belong to each thread. You handle one.",
            _turned_by_threads,
            """
            column, row = cuda.grid(2)
            height, width = image.shape
            if row < height and column < width:
                out[width - 1 - column, row] = image[row, column]
            """,
        ),
        "turned within tiles": (
            "You turn each tile in its own place. The order of the tiles must be reversed as well.",
            _turned_tile_by_tile,
            ("width - 1 - left", "left + min(SIDE, width - left) - 1"),
        ),
    },
)
