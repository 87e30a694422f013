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
        "returns None": [("return d_maps.copy_to_host()", "d_maps.copy_to_host()")],
        "shortcut": ["return np.array([conv_cpu(image, w) for w in weight])"],
        "grid and block exchanged": [("[blocks, (16, 16)]", "[(16, 16), blocks]")],
        "raises": [
            ("(16, 16)]", "BLOCK]"),
            ("(len(weight), height, width)", "(height, width)"),
            ("(d_image, d_weight, d_maps)", "(d_weight, d_image, d_maps)"),
        ],
    },
}

RIGHT = {
    "edge_maps": {
        "one filter at a time, in other blocks": """
            height, width = image.shape[0] - 2, image.shape[1] - 2
            result = np.empty((len(weight), height, width), np.float32)
            for f in range(len(weight)):
                d_map = cuda.device_array((1, height, width), np.float32)
                blocks = (width + 31) // 32, (height + 7) // 8
                conv_kernel[blocks, (32, 8)](cuda.to_device(image), cuda.to_device(weight[f : f + 1]), d_map)
                d_map[0].copy_to_host(result[f])
            return result
        """
    },
    "is_softmax": {
        "early returns": """
            out = softmax(maps)
            if not (out >= 0).all() or not np.allclose(out.sum(axis=0), 1):
                return False
            if not np.allclose(out, softmax(maps + 1), rtol=1e-4, atol=1e-6):
                return False
            return (np.argsort(maps, axis=0)[-1] == out.argmax(0)).all()
        """,
        "assertions": """
            try:
                out = softmax(maps)
                assert (out >= 0).all()
                np.testing.assert_allclose(out.sum(axis=0), 1, rtol=1e-5)
                np.testing.assert_allclose(softmax(maps + 1), out, rtol=1e-3, atol=1e-6)
                assert (out.argmax(axis=0) == maps.argmax(axis=0)).all()
            except AssertionError:
                return False
            return True
        """,
    },
    "softmax_kernel": {
        "the sum corrected for each new largest number": """
            column, row = cuda.grid(2)
            if row >= maps.shape[1] or column >= maps.shape[2]:
                return
            largest, total = maps[0, row, column], float32(1)
            for c in range(1, maps.shape[0]):
                before = largest
                largest = max(largest, maps[c, row, column])
                total = total * math.exp(before - largest) + math.exp(maps[c, row, column] - largest)
            for c in range(maps.shape[0]):
                out[c, row, column] = math.exp(maps[c, row, column] - largest) / total
        """,
        "shifted by the logarithm of the sum": [("- largest) / total", "- (largest + math.log(total)))")],
    },
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
