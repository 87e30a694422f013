"""The wrong answers that stand beside no mistake of the exercises, and unusual right ones."""

from numba import cuda, float32
from wrong_answers import wrong

WRONG = {
    "matmul_kernel": {
        "uninitialised read": [[("out[row, column] = total", ""), ("total +=", "out[row, column] +=")]],
        "writes past the edge": [("if row < out.shape[0] and column < out.shape[1]:", "if True:")],
        "x and y exchanged": [("column, row = cuda.grid(2)", "row, column = cuda.grid(2)")],
        "float64": [("float32(0)", "0.0")],
    },
    "dense_kernel": {
        "writes past the edge": [("row < out.shape[0] and column < out.shape[1]", "column < out.shape[1]")],
        "guard exchanges axes": [
            ("row < out.shape[0] and column < out.shape[1]", "row < out.shape[1] and column < out.shape[0]")
        ],
        "changes input": [
            [
                ("total = bias[column]", ""),
                ("total +=", "bias[column] +="),
                (
                    "total = float32(0) if total <= float32(0) else total",
                    "bias[column] = max(bias[column], float32(0))",
                ),
                ("out[row, column] = total", "out[row, column] = bias[column]"),
            ]
        ],
    },
}

RIGHT = {
    "dense_kernel": {
        "a product with a truth": [("float32(0) if total <= float32(0) else total", "total * (total > 0)")]
    },
}


@wrong("matmul_kernel", "raises")
@cuda.jit
def matmul_of_whole_rows(a, b, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = (a[row] * b[:, column]).sum()


@wrong("matmul_kernel", "done more than once")
@cuda.jit
def matmul_of_whole_columns(a, b, out):
    column, _ = cuda.grid(2)
    if column < out.shape[1]:
        for row in range(out.shape[0]):
            total = float32(0)
            for k in range(a.shape[1]):
                total += a[row, k] * b[k, column]
            out[row, column] = total
