"""The wrong answers that stand beside no mistake of the exercises, and unusual right ones."""

from numba import cuda, float32
from wrong_answers import wrong


def in_one_pass(variance):
    """Return the change to a variance that is made of the sum of the squares."""
    return [
        ("squares += (x[row, k] - mean) * (x[row, k] - mean)", "squares += x[row, k] * x[row, k]"),
        ("squares / n", variance),
    ]


WRONG = {
    "standardise_kernel": {
        "writes past the edge": [("if row < x.shape[0]:", "if True:")],
        "NaN produced": [in_one_pass("squares / n - mean * mean")],
        "few digits": [
            in_one_pass("max(squares / n - mean * mean, float32(0))"),
            in_one_pass("abs(squares / n - mean * mean)"),
            [
                *in_one_pass("variance"),
                (
                    "for k in range(x.shape[1]):\n    out",
                    "variance = squares / n - mean * mean\nif variance < 0:\n    variance = float32(0)\n"
                    "for k in range(x.shape[1]):\n    out",
                ),
            ],
            [
                ("total = squares = float32(0)", "total = squares = 0.0"),
                *in_one_pass("squares / n - mean * mean"),
            ],
        ],
        "numbers": [("float32(1e-5)", "float32(1e-3)")],
        "float64": [("float32(1e-5)", "1e-5")],
    },
    "edges_kernel": {
        "writes past the edge": [
            ("row < height and column < width", "row <= height and column <= width"),
            ("row < height", "row <= height"),
        ],
        "reads past the edge": [
            ("min(column + 1, width - 1), max(column - 1, 0)", "column + 1, column - 1"),
            ("min(column + 1, width - 1)", "column + 1"),
            ("min(column + 1, width - 1)", "min(column + 1, width)"),
        ],
        "negative index": [("max(column - 1, 0)", "column - 1")],
        "never written": [("column < width:", "0 < column < width - 1:")],
        "one too few": [("row < height and column < width", "row < height - 1 and column < width - 1")],
        "x and y exchanged": [("column, row = cuda.grid(2)", "row, column = cuda.grid(2)")],
        "float64": [
            [
                ("difference = image[row, right]", "difference = 0.5 * image[row, right]"),
                ("- image[row, left]", "- 0.5 * image[row, left]"),
                (" * float32(0.5)", ""),
            ]
        ],
    },
}

RIGHT = {
    "standardise_kernel": {
        "numbers shifted by the first": [
            ("total += x[row, k]", "total += x[row, k] - x[row, 0]"),
            ("mean = total / n", "mean = x[row, 0] + total / n"),
        ],
    },
    "edges_kernel": {"halved by a literal": [("float32(0.5)", "0.5")]},
}


@wrong("edges_kernel", "raises")
@cuda.jit
def edges_that_catch_the_exception(image, out):
    column, row = cuda.grid(2)
    try:
        out[row, column] = abs(image[row, column + 1] - image[row, column - 1]) * float32(0.5)
    except IndexError:
        pass
