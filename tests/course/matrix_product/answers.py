"""The wrong answers that stand beside no mistake of the exercises, and unusual right ones."""

from numba import cuda, float32
from wrong_answers import wrong

from cnn_course.chapters.matrix_product.exercises import TILE, WIDE

WRONG = {
    "matmul_tiled_kernel": {
        "not from the tile": [
            ("a_tile[y, k] *", "a[min(row, a.shape[0] - 1), min(start + k, a.shape[1] - 1)] *")
        ],
        "missing barrier": [
            (
                "    total += a_tile[y, k] * b_tile[k, x]\ncuda.syncthreads()",
                "    total += a_tile[y, k] * b_tile[k, x]",
            ),
            ("cuda.syncthreads()\nfor k in range(TILE):", "for k in range(TILE):"),
        ],
        "divergent barrier": [
            ("= float32(0)", "= float32(0)\nif row >= out.shape[0] or column >= out.shape[1]:\n    return")
        ],
        "reads past the edge": [
            [("row < a.shape[0] and start +", "start +"), ("[0] and column < b.shape[1]", "[0]")]
        ],
        "writes past the edge": [("if row < out.shape[0] and column < out.shape[1]:", "if True:")],
    },
    "matmul_2x2_kernel": {
        "read for each product": [
            [
                (
                    "a0, a1 = a_tile[y, k], a_tile[y + TILE, k]\nb0, b1 = b_tile[k, x], b_tile[k, x + TILE]",
                    "",
                ),
                ("a0", "a_tile[y, k]", 2),
                ("a1", "a_tile[y + TILE, k]", 2),
                ("b0", "b_tile[k, x]", 2),
                ("b1", "b_tile[k, x + TILE]", 2),
            ]
        ],
        "results not apart": [
            [
                ("a_tile[y, k], a_tile[y + TILE, k]", "a_tile[2 * y, k], a_tile[2 * y + 1, k]"),
                ("b_tile[k, x], b_tile[k, x + TILE]", "b_tile[k, 2 * x], b_tile[k, 2 * x + 1]"),
                ("row + y + TILE, column + x + TILE,", "row + 2 * y + 1, column + 2 * x + 1,"),
                ("row + y + TILE, column + x,", "row + 2 * y + 1, column + 2 * x,"),
                ("row + y, column + x + TILE,", "row + 2 * y, column + 2 * x + 1,"),
                ("row + y, column + x,", "row + 2 * y, column + 2 * x,"),
            ],
            [
                ("b_tile[k, x], b_tile[k, x + TILE]", "b_tile[k, 2 * x], b_tile[k, 2 * x + 1]"),
                ("column + x + TILE,", "column + 2 * x + 1,", 2),
                ("column + x,", "column + 2 * x,", 2),
            ],
        ],
        "missing barrier": [
            (
                "    t10, t11 = t10 + a1 * b0, t11 + a1 * b1\ncuda.syncthreads()",
                "    t10, t11 = t10 + a1 * b0, t11 + a1 * b1",
            )
        ],
        "float64": [
            (
                "t00, t01, t10, t11 = float32(0), float32(0), float32(0), float32(0)",
                "t00, t01, t10, t11 = 0, 0, 0, 0",
            )
        ],
        "never written": [
            [
                ("put(out, row + y, column + x + TILE, t01)", ""),
                ("put(out, row + y + TILE, column + x, t10)", ""),
            ]
        ],
        "writes past the edge": [
            [
                ("put(out, row + y, column + x, t00)", "out[row + y, column + x] = t00"),
                ("put(out, row + y, column + x + TILE, t01)", "out[row + y, column + x + TILE] = t01"),
                ("put(out, row + y + TILE, column + x, t10)", "out[row + y + TILE, column + x] = t10"),
                (
                    "put(out, row + y + TILE, column + x + TILE, t11)",
                    "out[row + y + TILE, column + x + TILE] = t11",
                ),
            ]
        ],
    },
}

RIGHT = {
    "matmul_tiled_kernel": {
        "stale numbers are not summed": """
            a_tile = cuda.shared.array((TILE, TILE), float32)
            b_tile = cuda.shared.array((TILE, TILE), float32)
            x, y = cuda.threadIdx.x, cuda.threadIdx.y
            column, row = cuda.grid(2)
            total = float32(0)
            for start in range(0, a.shape[1], TILE):
                if row < a.shape[0] and start + x < a.shape[1]:
                    a_tile[y, x] = a[row, start + x]
                if start + y < b.shape[0] and column < b.shape[1]:
                    b_tile[y, x] = b[start + y, column]
                cuda.syncthreads()
                if row < out.shape[0] and column < out.shape[1]:
                    for k in range(min(TILE, a.shape[1] - start)):
                        total += a_tile[y, k] * b_tile[k, x]
                cuda.syncthreads()
            if row < out.shape[0] and column < out.shape[1]:
                out[row, column] = total
        """,
        "two pairs of tiles and one barrier": """
            a_tile = cuda.shared.array((2, TILE, TILE), float32)
            b_tile = cuda.shared.array((2, TILE, TILE), float32)
            x, y = cuda.threadIdx.x, cuda.threadIdx.y
            column, row = cuda.grid(2)
            total, now = float32(0), 0
            for start in range(0, a.shape[1], TILE):
                in_a = row < a.shape[0] and start + x < a.shape[1]
                in_b = start + y < b.shape[0] and column < b.shape[1]
                a_tile[now, y, x] = a[row, start + x] if in_a else float32(0)
                b_tile[now, x, y] = b[start + y, column] if in_b else float32(0)
                cuda.syncthreads()
                for k in range(TILE):
                    total += a_tile[now, y, k] * b_tile[now, x, k]
                now = 1 - now
            if row < out.shape[0] and column < out.shape[1]:
                out[row, column] = total
        """,
    },
    "matmul_2x2_kernel": {
        "sums in a local array": """
            a_tile = cuda.shared.array((WIDE, TILE), float32)
            b_tile = cuda.shared.array((TILE, WIDE), float32)
            x, y = cuda.threadIdx.x, cuda.threadIdx.y
            row, column = cuda.blockIdx.y * WIDE, cuda.blockIdx.x * WIDE
            sums = cuda.local.array((2, 2), float32)
            sums[:] = 0
            for start in range(0, a.shape[1], TILE):
                fill_tile(a, row, start, a_tile)
                fill_tile(b, start, column, b_tile)
                cuda.syncthreads()
                for k in range(TILE):
                    b0, b1 = b_tile[k, x], b_tile[k, x + TILE]
                    for i in range(2):
                        left = a_tile[y + i * TILE, k]
                        sums[i, 0] += left * b0
                        sums[i, 1] += left * b1
                cuda.syncthreads()
            for i in range(2):
                for j in range(2):
                    put(out, row + y + i * TILE, column + x + j * TILE, sums[i, j])
        """,
    },
}


@wrong("matmul_tiled_kernel", "without")
@cuda.jit
def tiled_without_tiles(a, b, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for k in range(a.shape[1]):
            total += a[row, k] * b[k, column]
        out[row, column] = total


@wrong("matmul_2x2_kernel", "without")
@cuda.jit
def four_from_global_memory(a, b, out):
    row = cuda.blockIdx.y * WIDE + cuda.threadIdx.y
    column = cuda.blockIdx.x * WIDE + cuda.threadIdx.x
    for i in range(row, min(row + WIDE, out.shape[0]), TILE):
        for j in range(column, min(column + WIDE, out.shape[1]), TILE):
            if i < row + WIDE and j < column + WIDE:
                total = float32(0)
                for k in range(a.shape[1]):
                    total += a[i, k] * b[k, j]
                out[i, j] = total
