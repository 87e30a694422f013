"""The wrong answers that stand beside no mistake of the exercises, and unusual right ones."""

import numpy as np
from numba import cuda, float32
from wrong_answers import wrong

from cnn_numba.ops.shared.warps import load4, store4  # noqa: F401  (for the answers)

TILE = 8
_ROWS_IN_A_LOOP = """
x, y = cuda.grid(2)
column = 4 * x
if {}column < n:
    for row in range(a.shape[0]):
        t0, t1, t2, t3 = float32(0), float32(0), float32(0), float32(0)
        for k in range(a.shape[1]):
            left = a[row, k]
            b0, b1, b2, b3 = load4(b, k * n + column)
            t0, t1, t2, t3 = t0 + left * b0, t1 + left * b1, t2 + left * b2, t3 + left * b3
        store4(out, row * n + column, t0, t1, t2, t3)
"""
_PIXEL = (
    "image[(start + k) // kernel_size**2, "
    "position // out_width + (start + k) % kernel_size**2 // kernel_size, "
    "position % out_width + (start + k) % kernel_size]"
)
WRONG = {
    "matmul_1x4_kernel": {
        "writes past the edge": [
            ("row < a.shape[0] and ", ""),
            ("if row < a.shape[0] and column < n:", "if row < a.shape[0]:"),
            ("column = 4 * x", "column = x"),
        ],
        "never written": [("x, row = cuda.grid(2)", "row, x = cuda.grid(2)")],
        "raises": [("float32(0)", "0.0", 4), ("float32(0)", "0", 4)],
        "loaded again": [
            (
                "b0, b1, b2, b3 = load4(b, k * n + column)",
                "b0, b1, _, _ = load4(b, k * n + column)\n_, _, b2, b3 = load4(b, k * n + column)",
            )
        ],
        "too much for a thread": [_ROWS_IN_A_LOOP.format("y == 0 and ")],
        "done more than once": [_ROWS_IN_A_LOOP.format("")],
        "without": [
            (
                "b0, b1, b2, b3 = load4(b, k * n + column)",
                "i = k * n + column\nb0, b1, b2, b3 = b[i], b[i + 1], b[i + 2], b[i + 3]",
            ),
            (
                "store4(out, row * n + column, t0, t1, t2, t3)",
                "i = row * n + column\nout[i], out[i + 1], out[i + 2], out[i + 3] = t0, t1, t2, t3",
            ),
        ],
    },
    "split_kernel": {
        "reads past the edge": [("min(first + depth, a.shape[1])", "first + depth")],
        "writes past the edge": [(" and column < parts.shape[2]", ""), ("part < parts.shape[0] and ", "")],
        "x and z exchanged": [("column, row, part = cuda.grid(3)", "part, row, column = cuda.grid(3)")],
        "float64": [("float32(0)", "0.0")],
        "numbers": [
            ("first = part * depth", "depth = -(-a.shape[1] // parts.shape[0])\nfirst = part * depth")
        ],
        "too much for a thread": [
            """
            column, row, part = cuda.grid(3)
            if part == 0 and row < parts.shape[1] and column < parts.shape[2]:
                for i in range(parts.shape[0]):
                    total = float32(0)
                    for k in range(i * depth, min((i + 1) * depth, a.shape[1])):
                        total += a[row, k] * b[k, column]
                    parts[i, row, column] = total
            """
        ],
        "z not used": [
            ("column, row, part = cuda.grid(3)", "column, row = cuda.grid(2)\npart = cuda.blockIdx.z")
        ],
    },
    "im2col_kernel": {
        "x and y exchanged": [
            ("columns[row, column]", "columns[column, row]"),
            ("column, row = cuda.grid(2)", "row, column = cuda.grid(2)"),
        ],
        "writes past the edge": [("if row < columns.shape[0] and column < columns.shape[1]:", "if True:")],
        "^ for **": [("kernel_size**2", "kernel_size^2", 2)],
        "too much for a thread": [
            """
            p, row = cuda.grid(2)
            width, k = image.shape[2] - kernel_size + 1, 0
            if p < columns.shape[1] and row == 0:
                for channel in range(image.shape[0]):
                    for i in range(kernel_size):
                        for j in range(kernel_size):
                            columns[k, p] = image[channel, p // width + i, p % width + j]
                            k += 1
            """
        ],
    },
    "conv_implicit_kernel": {
        "reads past the edge": [("start + y < weight.shape[1] and ", "")],
        "missing barrier": [("cuda.syncthreads()\nfor k in range(TILE):", "for k in range(TILE):")],
        "not from the tile": [
            (
                "total += w_tile[y, k] * c_tile[k, x]",
                "if start + k < weight.shape[1] and position < out.shape[1]:\n"
                f"    total += w_tile[y, k] * {_PIXEL}",
            ),
            ("w_tile[y, k]", "weight[min(oc, weight.shape[0] - 1), min(start + k, weight.shape[1] - 1)]"),
        ],
    },
}

RIGHT = {
    "matmul_1x4_kernel": {
        "along a column of positions": """
            x, row = cuda.grid(2)
            if row < out.size // n and 4 * x < n:
                sums = cuda.local.array(4, float32)
                sums[:] = 0
                for k in range(a.shape[1]):
                    four = load4(b, 4 * (k * (n // 4) + x))
                    for i in range(4):
                        sums[i] += a[row, k] * four[i]
                store4(out, 4 * (row * (n // 4) + x), sums[0], sums[1], sums[2], sums[3])
        """
    },
    "split_kernel": {
        "as many steps as a part has": [
            (
                "for k in range(first, last):",
                "for k in range(first, first + depth):\n    if k >= last:\n        break",
            )
        ]
    },
    "conv_implicit_kernel": {
        "a guard of the pixel's own": [
            (
                "if start + y < weight.shape[1] and position < out.shape[1]:\n"
                "    channel, tap = (start + y) // kernel_size**2, (start + y) % kernel_size**2\n"
                "    h = position // out_width + tap // kernel_size\n"
                "    w = position % out_width + tap % kernel_size\n"
                "    c_tile",
                "channel, tap = (start + y) // kernel_size**2, (start + y) % kernel_size**2\n"
                "h = position // out_width + tap // kernel_size\n"
                "w = position % out_width + tap % kernel_size\n"
                "if channel < image.shape[0] and h < image.shape[1]:\n"
                "    c_tile",
            )
        ]
    },
    "im2col_kernel": {
        "by divmod": """
            column, row = cuda.grid(2)
            if row < columns.shape[0] and column < columns.shape[1]:
                channel, tap = divmod(row, kernel_size * kernel_size)
                kh, kw = divmod(tap, kernel_size)
                oh, ow = divmod(column, image.shape[2] - kernel_size + 1)
                columns[row, column] = image[channel, oh + kh, ow + kw]
        """
    },
}


@wrong("split_kernel", "done more than once")
@cuda.jit
def split_by_every_thread(a, b, depth, parts):
    column, row = cuda.grid(2)
    if row < parts.shape[1] and column < parts.shape[2]:
        for part in range(parts.shape[0]):
            total = float32(0)
            for k in range(part * depth, min((part + 1) * depth, a.shape[1])):
                total += a[row, k] * b[k, column]
            parts[part, row, column] = total


@wrong("im2col_kernel", "not a kernel")
def im2col_in_numpy(image, kernel_size, columns):
    windows = np.lib.stride_tricks.sliding_window_view(image, (kernel_size, kernel_size), axis=(1, 2))
    columns[:] = windows.transpose(0, 3, 4, 1, 2).reshape(columns.shape)


@wrong("conv_implicit_kernel", "without")
@cuda.jit
def implicit_without_tiles(weight, image, kernel_size, out):
    position, oc = cuda.grid(2)
    out_width = image.shape[2] - kernel_size + 1
    if oc < out.shape[0] and position < out.shape[1]:
        total = float32(0)
        for k in range(weight.shape[1]):
            tap = k % kernel_size**2
            h = position // out_width + tap // kernel_size
            w = position % out_width + tap % kernel_size
            total += weight[oc, k] * image[k // kernel_size**2, h, w]
        out[oc, position] = total
