"""The wrong answers that stand beside no mistake of the exercises."""

from numba import cuda
from wrong_answers import wrong

_ADDS = "cuda.atomic.add(counts, level, 1)"
WRONG = {
    "brighten_kernel": {
        "& for and": [
            ("< digit.shape[0] and column < digit.shape[1]", "< digit.shape[0] & column < digit.shape[1]")
        ],
        "never written": [
            (
                "out[row, column] = min(2 * digit[row, column], 255)",
                "if 2 * digit[row, column] > 255:\n    out[row, column] = 255",
            )
        ],
        "writes past the edge": [("if row < digit.shape[0] and column < digit.shape[1]:", "if True:")],
        "changes input": [("out[row, column] =", "digit[row, column] =")],
        "nothing written": [("out[row, column] =", "bright =")],
        "first block only": [
            ("column, row = cuda.grid(2)", "column, row = cuda.threadIdx.x, cuda.threadIdx.y")
        ],
    },
    "count_kernel": {
        "lost update": [
            (_ADDS, "counts[level] = counts[level] + 1"),
            (_ADDS, "old = counts[level]\ncounts[level] = old + 1"),
        ],
        "atomic assigned": [(_ADDS, f"counts[level] += {_ADDS}")],
        "raises": [(_ADDS, "cuda.atomic.add(level, counts, 1)")],
        "divergent barrier": [(_ADDS, "cuda.syncthreads()\ncounts[level] += 1")],
        "writes past the edge": [("level, 1)", "digits[n, row, column], 1)")],
        "reads past the edge": [("if row < digits.shape[1] and column < digits.shape[2]:", "if True:")],
    },
}


@wrong("brighten_kernel", "not a kernel")
def brightens_in_numpy(digit, out):
    out[:] = 2 * digit


@wrong("count_kernel", "without")
@cuda.jit
def one_thread_counts(digits, counts):
    column, row, n = cuda.grid(3)
    if column == 0 and row == 0 and n == 0:
        for k in range(digits.shape[0]):
            for i in range(digits.shape[1]):
                for j in range(digits.shape[2]):
                    counts[digits[k, i, j] // 16] += 1
