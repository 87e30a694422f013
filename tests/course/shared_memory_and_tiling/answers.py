"""The wrong answers that stand beside no mistake of the exercises, and unusual right ones."""

import numpy as np
from numba import cuda, float32
from wrong_answers import wrong

from cnn_course.chapters.shared_memory_and_tiling.exercises.common import (
    BLOCK,
    RADIUS,
    ROWS,
    SIDE,
    STRIDE,
    STRIDED_H,
    STRIDED_W,
    TAPS,
    TILE_H,
    TILE_W,
)
from cnn_course.chapters.shared_memory_and_tiling.exercises.signals import LOAD

SPAN = BLOCK + 2 * RADIUS

WRONG = {
    "smooth_kernel": {
        "missing barrier": [
            ("cuda.syncthreads()", ""),
            [
                ("cuda.syncthreads()", ""),
                ("for k in range(t, SPAN, BLOCK):", "cuda.syncthreads()\nfor k in range(t, SPAN, BLOCK):"),
            ],
            [("cuda.syncthreads()", ""), ("    out[i] = total", "    out[i] = total\ncuda.syncthreads()")],
        ],
        "divergent barrier": [
            ("cuda.syncthreads()\nif i < out.size:", "if i < out.size:\n    cuda.syncthreads()"),
            [("x, cuda.grid(1)", "x, cuda.grid(1)\nif i >= out.size:\n    return"), ("i < out.size", "True")],
            [("cuda.syncthreads()", ""), ("else float32(0)", "else float32(0)\ncuda.syncthreads()")],
        ],
        "outside the tile": [("cuda.shared.array(SPAN, float32)", "cuda.shared.array(18, float32)")],
        "negative index": [("0 <= start + k < signal.size", "start + k < signal.size")],
        "reads past the edge": [
            ("0 <= start + k < signal.size", "0 <= start + k"),
            (  # a block to spare
                LOAD,
                "tile[t + RADIUS] = signal[i] if i < signal.size else float32(0)\n"
                "if t < RADIUS:\n"
                "    tile[t] = signal[i - RADIUS] if i >= RADIUS else float32(0)\n"
                "    after = i + BLOCK\n"
                "    tile[t + RADIUS + BLOCK] = signal[after] if after < signal.size else float32(0)",
            ),
        ],
        "writes past the edge": [("if i < out.size:", "if True:")],
        "not from the tile": [
            ("total += tile[t + k]", "j = i + k - RADIUS\nif 0 <= j < signal.size:\n    total += signal[j]")
        ],
        "one thread loads": [
            (
                LOAD,
                "if t == 0:\n"
                "    for k in range(SPAN):\n"
                "        inside = 0 <= start + k < signal.size\n"
                "        tile[k] = signal[start + k] if inside else float32(0)",
            )
        ],
        "float64": [("total = float32(0)", "total = 0.0")],
    },
    "conv_channels_kernel": {
        "missing barrier": [("cuda.syncthreads()", "", 2)],
        "read too early": [
            [
                ("    cuda.syncthreads()\nif row", "cuda.syncthreads()\nif row"),
                (
                    "cuda.syncthreads()\nif row < out.shape[0] and column < out.shape[1]:\n    for",
                    "if row < out.shape[0] and column < out.shape[1]:\n    for",
                ),
            ],
            ("cuda.syncthreads()\nif row", "if row"),
            [("cuda.syncthreads()", "", 2), ("(x.shape[0]):", "(x.shape[0]):\n    cuda.syncthreads()")],
        ],
        "overwritten too early": [
            (
                "            total += patch[ty + i, tx + j] * weight[c, i, j]\ncuda.syncthreads()",
                "            total += patch[ty + i, tx + j] * weight[c, i, j]",
            ),
            ("    cuda.syncthreads()\nif row", "cuda.syncthreads()\nif row"),
        ],
        "divergent barrier": [
            [
                ("cuda.syncthreads()\nif row", "if row"),
                (
                    "    patch[h, w] = x[c, top + h, left + w]",
                    "    patch[h, w] = x[c, top + h, left + w]\ncuda.syncthreads()",
                ),
            ],
            (
                "cuda.syncthreads()\nif row < out.shape[0] and column < out.shape[1]:",
                "if row < out.shape[0] and column < out.shape[1]:\n    cuda.syncthreads()",
            ),
            (
                "            total += patch[ty + i, tx + j] * weight[c, i, j]\ncuda.syncthreads()",
                "            total += patch[ty + i, tx + j] * weight[c, i, j]\n    cuda.syncthreads()",
            ),
            ("= float32(0)", "= float32(0)\nif row >= out.shape[0] or column >= out.shape[1]:\n    return"),
        ],
        "needless barrier": [
            (
                "if row < out.shape[0] and column < out.shape[1]:\n    for i in range(TAPS):",
                "for i in range(TAPS):\n"
                "    cuda.syncthreads()\n"
                "    if row < out.shape[0] and column < out.shape[1]:",
            ),
            ("for c in range(x.shape[0]):", "for c in range(x.shape[0]):\n    cuda.syncthreads()"),
        ],
        "not from the tile": [("patch[ty + i, tx + j] *", "x[c, row + i, column + j] *")],
        "not called": [("cuda.syncthreads()", "cuda.syncthreads", 2)],
        "warp only": [("syncthreads", "syncwarp", 2)],
    },
    "conv_strided_kernel": {
        "outside the tile": [
            [("k // STRIDED_W", "k // TILE_W", 2), ("k % STRIDED_W", "k % TILE_W", 2)],
            [("k // STRIDED_W", "k // STRIDED_H", 2), ("k % STRIDED_W", "k % STRIDED_H", 2)],
        ],
        "negative index": [
            ("0 <= h < image.shape[0] and 0 <= w < image.shape", "h < image.shape[0] and w < image.shape")
        ],
        "reads past the edge": [("0 <= h < image.shape[0] and 0 <= w < image.shape[1]", "h >= 0 and w >= 0")],
        "loaded more than once": [("TILE_H * TILE_W)", "TILE_W)")],
        "one pixel per thread": [
            (
                "for k in range(ty * TILE_W + tx, STRIDED_H * STRIDED_W, TILE_H * TILE_W):",
                "k = ty * STRIDED_W + tx\nif k < STRIDED_H * STRIDED_W:",
            ),
            (
                "for k in range(ty * TILE_W + tx, STRIDED_H * STRIDED_W, TILE_H * TILE_W):",
                "k = ty * TILE_W + tx\nif k < STRIDED_H * STRIDED_W:",
            ),
        ],
        "uninitialised read": [
            ("ty * TILE_W + tx", "tx * TILE_W + ty"),
            ("STRIDED_H * STRIDED_W, TILE_H", "PATCH_H * PATCH_W, TILE_H"),
        ],
        "divergent barrier": [
            (
                "patch[k // STRIDED_W, k % STRIDED_W] =",
                "cuda.syncthreads()\npatch[k // STRIDED_W, k % STRIDED_W] =",
            ),
            [
                ("column, row = cuda.grid(2)", ""),
                (
                    "tx, ty = cuda.threadIdx.x, cuda.threadIdx.y",
                    "tx, ty = cuda.threadIdx.x, cuda.threadIdx.y\n"
                    "column, row = cuda.grid(2)\n"
                    "if row >= out.shape[0] or column >= out.shape[1]:\n"
                    "    return",
                ),
            ],
        ],
        "missing barrier": [("cuda.syncthreads()", "")],
    },
    "smooth_any_kernel": {
        "missing barrier": [("cuda.syncthreads()", "")],
        "divergent barrier": [
            ("cuda.syncthreads()\nif i < out.size:", "if i < out.size:\n    cuda.syncthreads()")
        ],
        "fixed size": [("cuda.shared.array(0, float32)", "cuda.shared.array(64, float32)")],
        "outside the tile": [
            ("cuda.shared.array(0, float32)", "cuda.shared.array(SPAN, float32)"),
            ("threads + 2 * radius, threads", "threads + 2 * radius + 1, threads"),
        ],
        "fixed block": [("cuda.blockDim.x", "BLOCK")],
        "negative index": [("0 <= start + k < signal.size", "start + k < signal.size")],
        "writes past the edge": [("if i < out.size:", "if True:")],
        "float64": [("total = float32(0)", "total = 0.0")],
    },
    "conv_spread_kernel": {
        "bank conflicts": [
            [
                ("c % 2 * (WIDE // 2) + c // 2", "c + r % 2"),
                ("j % 2 * (WIDE // 2) + tx + j // 2", "tx * STRIDE + j + i % 2"),
            ]
        ],
        "outside the tile": [("WIDE // 2", "25", 2)],
        "other rows": [[("(STRIDED_H, WIDE)", "(STRIDED_H, 56)"), ("WIDE // 2", "28", 2)]],
        "write-write race": [("WIDE // 2", "16", 2)],
        "missing barrier": [("cuda.syncthreads()", "")],
        "patch not read": [
            [
                (
                    "total += patch[ty * STRIDE + i, j % 2 * (WIDE // 2) + tx + j // 2] * weight[i, j]",
                    "h, w = row * STRIDE + i - 1, column * STRIDE + j - 1\n"
                    "if 0 <= h < image.shape[0] and 0 <= w < image.shape[1]:\n"
                    "    total += image[h, w] * weight[i, j]",
                )
            ]
        ],
    },
    "turn_kernel": {
        "missing barrier": [("cuda.syncthreads()", "")],
        "bank conflicts": [("(SIDE, PITCH)", "(SIDE, SIDE)"), ("(SIDE, PITCH)", "(PITCH, SIDE)")],
        "scattered": [
            [
                ("left + r < width and top + tx < height", "top + r < height and left + tx < width"),
                ("- 1 - left - r, top + tx] = tile[tx, r", "- 1 - left - tx, top + r] = tile[r, tx"),
            ],
            [
                ("top + r < height and left + tx < width", "left + r < width and top + tx < height"),
                ("image[top + r, left + tx]", "image[top + tx, left + r]"),
                ("tile[tx, r]", "tile[r, tx]"),
            ],
        ],
        "writes past the edge": [
            ("left + r < width and top + tx < height", "top + r < height and left + tx < width")
        ],
        "divergent barrier": [
            (
                "        tile[r, tx] = image[top + r, left + tx]\ncuda.syncthreads()",
                "        tile[r, tx] = image[top + r, left + tx]\n        cuda.syncthreads()",
            )
        ],
        "outside the tile": [("(SIDE, PITCH)", "(ROWS, PITCH)")],
        "reads past the edge": [("if top + r < height and left + tx < width:", "if True:")],
        "done more than once": [
            [
                ("tx, ty = cuda.threadIdx.x, cuda.threadIdx.y", "tx = cuda.threadIdx.x"),
                ("range(ty, SIDE, ROWS)", "range(SIDE)", 2),
            ]
        ],
    },
}

RIGHT = {
    "smooth_kernel": {
        "a stored 0.0": """
            tile = cuda.shared.array(SPAN, float32)
            t, i = cuda.threadIdx.x, cuda.grid(1)
            for k in range(t, SPAN, BLOCK):
                j = cuda.blockIdx.x * BLOCK - RADIUS + k
                if 0 <= j < signal.size:
                    tile[k] = signal[j]
                else:
                    tile[k] = 0.0
            cuda.syncthreads()
            if i < out.size:
                total = float32(0)
                for k in range(weights.size):
                    total += tile[t + k] * weights[k]
                out[i] = total
        """
    },
    "smooth_any_kernel": {
        "as many as the tile has": [
            ("range(t, threads + 2 * radius, threads)", "range(t, tile.size, threads)")
        ],
        "counted on by while": """
            tile = cuda.shared.array(0, float32)
            t, i = cuda.threadIdx.x, cuda.grid(1)
            k, j = t, i - weights.size // 2
            while k < cuda.blockDim.x + weights.size - 1:
                tile[k] = 0
                if j >= 0 and j < signal.size:
                    tile[k] = signal[j]
                k, j = k + cuda.blockDim.x, j + cuda.blockDim.x
            cuda.syncthreads()
            if i >= out.size:
                return
            total = float32(0)
            for k in range(weights.size):
                total += tile[t + k] * weights[k]
            out[i] = total
        """,
    },
    "conv_strided_kernel": {
        "by rows and columns": """
            patch = cuda.shared.array((STRIDED_H, STRIDED_W), float32)
            tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
            column, row = cuda.grid(2)
            for r in range(ty, STRIDED_H, TILE_H):
                for c in range(tx, STRIDED_W, TILE_W):
                    h, w = 2 * (row - ty) - 1 + r, 2 * (column - tx) - 1 + c
                    if 0 <= h < image.shape[0] and 0 <= w < image.shape[1]:
                        patch[r, c] = image[h, w]
                    else:
                        patch[r, c] = 0
            cuda.syncthreads()
            if row < out.shape[0] and column < out.shape[1]:
                total = float32(0)
                for i in range(TAPS):
                    for j in range(TAPS):
                        total += patch[ty * STRIDE + i, tx * STRIDE + j] * weight[i, j]
                out[row, column] = total
        """
    },
    "conv_channels_kernel": {
        "no barrier before the first channel": """
            patch = cuda.shared.array((PATCH_H, PATCH_W), float32)
            tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
            top, left = cuda.blockIdx.y * TILE_H, cuda.blockIdx.x * TILE_W
            row, column = top + ty, left + tx
            total = float32(0)
            for c in range(x.shape[0]):
                if c > 0:
                    cuda.syncthreads()
                for k in range(ty * TILE_W + tx, PATCH_H * PATCH_W, TILE_H * TILE_W):
                    h, w = k // PATCH_W, k % PATCH_W
                    if top + h < x.shape[1] and left + w < x.shape[2]:
                        patch[h, w] = x[c, top + h, left + w]
                cuda.syncthreads()
                if row < out.shape[0] and column < out.shape[1]:
                    for i in range(TAPS):
                        for j in range(TAPS):
                            total += patch[ty + i, tx + j] * weight[c, i, j]
            if row < out.shape[0] and column < out.shape[1]:
                out[row, column] = total
        """,
        "two tiles and one barrier": """
            patch = cuda.shared.array((2, PATCH_H, PATCH_W), float32)
            tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
            top, left = cuda.blockIdx.y * TILE_H, cuda.blockIdx.x * TILE_W
            row, column = top + ty, left + tx
            total = float32(0)
            for c in range(x.shape[0]):
                for k in range(ty * TILE_W + tx, PATCH_H * PATCH_W, TILE_H * TILE_W):
                    h, w = k // PATCH_W, k % PATCH_W
                    if top + h < x.shape[1] and left + w < x.shape[2]:
                        patch[c % 2, h, w] = x[c, top + h, left + w]
                cuda.syncthreads()
                if row < out.shape[0] and column < out.shape[1]:
                    for i in range(TAPS):
                        for j in range(TAPS):
                            total += patch[c % 2, ty + i, tx + j] * weight[c, i, j]
            if row < out.shape[0] and column < out.shape[1]:
                out[row, column] = total
        """,
    },
    "conv_spread_kernel": {
        "every other pair of rows moved by one": [
            ("c % 2 * (WIDE // 2) + c // 2", "c + r // 2 % 2"),
            ("j % 2 * (WIDE // 2) + tx + j // 2", "tx * STRIDE + j + (ty + i // 2) % 2"),
        ],
        "odd columns right behind the even ones": [("WIDE // 2", "17", 2)],
    },
    "turn_kernel": {
        "counted from the end": [("out[width - 1 - left - r, top + tx]", "out[-1 - left - r, top + tx]")],
        "transposed while loading": [("tile[r, tx]", "tile[tx, r]"), ("= tile[tx, r]", "= tile[r, tx]")],
        "rows turned round instead of padded": [
            ("(SIDE, PITCH)", "(SIDE, SIDE)"),
            ("tile[r, tx]", "tile[r, (tx + r) % SIDE]"),
            ("= tile[tx, r]", "= tile[tx, (tx + r) % SIDE]"),
        ],
    },
}


@wrong("smooth_kernel", "without")
@cuda.jit
def smooth_without_a_tile(signal, weights, out):
    i = cuda.grid(1)
    if i < out.size:
        total = float32(0)
        for k in range(weights.size):
            j = i + k - RADIUS
            if 0 <= j < signal.size:
                total += signal[j] * weights[k]
        out[i] = total


@wrong("smooth_kernel", "not from the tile")
@cuda.jit
def smooth_loaded_by_every_thread(signal, weights, out):
    tile = cuda.shared.array(SPAN, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    start = cuda.blockIdx.x * BLOCK - RADIUS
    for k in range(SPAN):
        if t == k % BLOCK or t == 0:
            inside = 0 <= start + k < signal.size
            value = signal[start + k] if inside else float32(0)
            if t == k % BLOCK:
                tile[k] = value
    cuda.syncthreads()
    if i < out.size:
        total = float32(0)
        for k in range(weights.size):
            total += tile[t + k] * weights[k]
        out[i] = total


@wrong("smooth_kernel", "not a kernel")
def smooth_in_numpy(signal, weights, out):
    out[:] = np.correlate(np.pad(signal, RADIUS), weights, "valid")


@wrong("conv_strided_kernel", "loaded more than once")
@cuda.jit
def strided_loads_for_the_neighbour(image, weight, out):
    patch = cuda.shared.array((STRIDED_H, STRIDED_W), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * TILE_H * STRIDE - 1, cuda.blockIdx.x * TILE_W * STRIDE - 1
    for k in range(ty * TILE_W, STRIDED_H * STRIDED_W, TILE_H * TILE_W):
        for n in range(TILE_W):
            h, w = (k + n) // STRIDED_W, (k + n) % STRIDED_W
            inside = 0 <= top + h < image.shape[0] and 0 <= left + w < image.shape[1]
            if h < STRIDED_H:
                value = image[top + h, left + w] if inside else float32(0)
                if n == tx:
                    patch[h, w] = value
    cuda.syncthreads()
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for i in range(TAPS):
            for j in range(TAPS):
                total += patch[ty * STRIDE + i, tx * STRIDE + j] * weight[i, j]
        out[row, column] = total


@wrong("turn_kernel", "without")
@cuda.jit
def turn_without_a_tile(image, out):
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * SIDE, cuda.blockIdx.x * SIDE
    height, width = image.shape
    for r in range(ty, SIDE, ROWS):
        if top + r < height and left + tx < width:
            out[width - 1 - left - tx, top + r] = image[top + r, left + tx]


@wrong("turn_kernel", "not a kernel")
def turn_in_numpy(image, out):
    out[...] = np.rot90(image)
