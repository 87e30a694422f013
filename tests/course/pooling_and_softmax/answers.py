"""The wrong answers that stand beside no mistake of the exercises, and unusual right ones."""

import numpy as np
from numba import cuda
from wrong_answers import wrong

WRONG = {
    "max_pool_kernel": {
        "reads past the edge": [
            [("top + kernel", "top + kernel + 1"), ("left + kernel", "left + kernel + 1")],
            ("oh * stride, ow * stride", "oh * kernel, ow * kernel"),
        ],
        "writes past the edge": [("if i < out.size:", "if True:"), ("i // out_w % out_h", "i // out_w")],
        "never written": [
            ("argmax[plane, oh, ow] = where", ""),
            [
                (
                    "i = cuda.grid(1)\nif i < out.size:\n",
                    "ow, oh = cuda.grid(2)\nif oh < out.shape[1] and ow < out.shape[2]:",
                ),
                (
                    "plane, oh, ow = i // (out_h * out_w), i // out_w % out_h, i % out_w",
                    "plane = cuda.blockIdx.z",
                ),
            ],
        ],
        "uninitialised read": [
            [
                ("out[plane, oh, ow] = best", ""),
                (
                    "if x[plane, h, w] > best:",
                    "if x[plane, h, w] > out[plane, oh, ow]:\n    out[plane, oh, ow] = x[plane, h, w]\n"
                    "if x[plane, h, w] == out[plane, oh, ow]:",
                ),
            ]
        ],
        "numbers": [("x[plane, top, left], top * x.shape[2] + left", "float32(-999), 0")],
        "race between blocks": [("[plane, oh, ow] =", "[0, oh, ow] =", 2)],
        "not small enough": [
            ("best, where = x[plane, top, left]", "best, where = float32(-1e9)"),
            ("best, where = x[plane, top, left]", "best, where = float32(-3e38)"),
        ],
        "place of minus infinity": [
            ("x[plane, top, left], top * x.shape[2] + left", "float32(-math.inf), 0"),
            ("x[plane, top, left], top * x.shape[2] + left", "float32(-math.inf), -1"),
        ],
    },
    "softmax_kernel": {
        "fixed loop": [
            [("1, logits.shape[1]", "1, 10"), ("range(logits.shape[1])", "range(10)", 2)],
            [("range(1, logits.shape[1])", "range(10)"), ("range(logits.shape[1])", "range(10)", 2)],
        ],
        "raises": [("logits[row, 0], float32(0)", "logits[row].max(), float32(0)")],
        "writes past the edge": [("if row < logits.shape[0]:", "if True:")],
        "float64": [
            ("float32(0)", "0.0"),
            [("logits[row, 0]", "-math.inf"), ("range(1, logits.shape[1])", "range(logits.shape[1])")],
            ("math.exp(logits[row, k] - largest)", "math.e ** (logits[row, k] - largest)", 2),
        ],
        "not small enough": [
            [("logits[row, 0]", "float32(-1e9)"), ("range(1, logits.shape[1])", "range(logits.shape[1])")]
        ],
    },
}

RIGHT = {
    "max_pool_kernel": {
        "from minus infinity": [("best, where = x[plane, top, left]", "best, where = float32(-math.inf)")],
        "backwards, with >=": """
            i = cuda.grid(1)
            if i < out.size:
                rows, ow = divmod(i, out.shape[2])
                plane, oh = divmod(rows, out.shape[1])
                best, where = float32(-math.inf), -1
                for k in range(kernel * kernel - 1, -1, -1):
                    h, w = oh * stride + k // kernel, ow * stride + k % kernel
                    if x[plane, h, w] >= best:
                        best, where = x[plane, h, w], h * x.shape[2] + w
                out[plane, oh, ow], argmax[plane, oh, ow] = best, where
        """,
    },
    "softmax_kernel": {
        "by the logarithm of the sum": [
            (
                "math.exp(logits[row, k] - largest) / total",
                "math.exp(logits[row, k] - largest - math.log(total))",
            ),
        ],
        "the exponentials kept in out": """
            row = cuda.grid(1)
            if row < logits.shape[0]:
                largest, total = float32(-math.inf), float32(0)
                for k in range(logits.shape[1]):
                    largest = max(largest, logits[row, k])
                for k in range(logits.shape[1]):
                    out[row, k] = math.exp(logits[row, k] - largest)
                    total += out[row, k]
                for k in range(logits.shape[1]):
                    out[row, k] /= total
        """,
    },
}


@wrong("max_pool_kernel", "raises")
@cuda.jit
def pool_by_numpy(x, kernel, stride, out, argmax):
    i = cuda.grid(1)
    if i < out.size:
        out_h, out_w = out.shape[1], out.shape[2]
        plane, oh, ow = i // (out_h * out_w), i // out_w % out_h, i % out_w
        window = x[plane, oh * stride : oh * stride + kernel, ow * stride : ow * stride + kernel]
        out[plane, oh, ow] = np.max(window)
        argmax[plane, oh, ow] = np.argmax(window)


@wrong("softmax_kernel", "raises")
@cuda.jit
def softmax_by_numpy(logits, out):
    row = cuda.grid(1)
    if row < logits.shape[0]:
        exponentials = np.exp(logits[row] - np.max(logits[row]))
        out[row] = exponentials / np.sum(exponentials)
