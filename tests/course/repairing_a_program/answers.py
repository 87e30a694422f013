"""The wrong answers that stand beside no mistake of the exercises, and unusual right ones."""

import numpy as np
from numba import cuda
from wrong_answers import wrong

WRONG = {
    "pool_maps_kernel": {
        "writes past the edge": [
            ("if row < height and column < width:", "if True:"),
            ("height, width = out.shape", "height, width = maps.shape"),
        ],
        "x and y exchanged": [("column, row = cuda.grid(2)", "row, column = cuda.grid(2)")],
        "not small enough": [("max(above, below)", "max(max(above, below), np.float32(-1e9))")],
    },
    "softmax_kernel": {
        "writes past the edge": [
            ("if row < height and column < width:", "if True:"),
            [
                ("= maps[0, row, column]", "= maps[0, row, column]\npowers = cuda.local.array(16, float32)"),
                (
                    "total += math.exp(maps[c, row, column] - largest)",
                    "powers[c] = math.exp(maps[c, row, column] - largest)\ntotal += powers[c]",
                ),
                ("math.exp(maps[c, row, column] - largest) / total", "powers[c] / total"),
            ],
        ],
        "x and y exchanged": [("column, row = cuda.grid(2)", "row, column = cuda.grid(2)")],
        "float64": [("float32(0)", "0.0")],
        "not small enough": [
            [("largest = maps[0, row, column]", "largest = float32(-1e4)"), ("(1, channels)", "(channels)")]
        ],
    },
    "edge_maps": {
        "still on the device": [("d_maps.copy_to_host()", "d_maps")],
        "raises": [("(16, 16)]", "BLOCK]")],
        "returns None": [("return d_maps.copy_to_host()", "d_maps.copy_to_host()")],
    },
}

RIGHT = {
    "softmax_kernel": {
        "shifted by the logarithm of the sum": [("- largest) / total", "- (largest + math.log(total)))")]
    }
}


@wrong("pool_maps_kernel", "writes past the edge")
@cuda.jit
def pooling_where_the_threads_are_the_inputs(maps, out):
    column, row = cuda.grid(2)
    channels, height, width = maps.shape
    if row < height and column < width:
        for c in range(channels):
            out[c, row, column] = maps[c, row, column]


@wrong("softmax_kernel", "raises")
@cuda.jit
def softmax_in_numpy(maps, out):
    column, row = cuda.grid(2)
    if row < maps.shape[1] and column < maps.shape[2]:
        powers = np.exp(maps[:, row, column])
        out[:, row, column] = powers / powers.sum()
