from numba import cuda

from wrong_answers import derive, wrong

# --- brighten_kernel ---

_BRIGHTER = "min(2 * digit[row, column], 255)"

brighten_kernel = derive(
    "brighten_kernel",
    doubles_only=("wrapped around", (_BRIGHTER, "2 * digit[row, column]")),
    adds_itself=("wrapped around", (_BRIGHTER, "digit[row, column] + digit[row, column]")),
    takes_the_negative=("negative", (_BRIGHTER, "255 - digit[row, column]")),
    squares=("square", ("2 *", "digit[row, column] *")),
    takes_the_larger=("larger of the two", ("min(", "max(")),
    brightens_with_and_sign=(
        "& for and",
        (
            "row < digit.shape[0] and column < digit.shape[1]",
            "row < digit.shape[0] & column < digit.shape[1]",
        ),
    ),
    writes_the_capped_alone=(
        "never written",
        (
            "out[row, column] = min(2 * digit[row, column], 255)",
            "if 2 * digit[row, column] > 255:\n    out[row, column] = 255",
        ),
    ),
    cuts_before=("cut before", (_BRIGHTER, "2 * min(digit[row, column], 127)")),
    thresholds=("black or white", (_BRIGHTER, "255 if digit[row, column] > 127 else 0")),
    halves=("darker", (_BRIGHTER, "digit[row, column] // 2")),
    brightens_without_guard=(
        "writes past the edge",
        ("if row < digit.shape[0] and column < digit.shape[1]:", "if True:"),
    ),
    brightens_the_image_itself=("changes input", ("out[row, column] =", "digit[row, column] =")),
    brightens_a_name=("nothing written", ("out[row, column] =", "bright =")),
    brightens_the_first_block=(
        "first block only",
        ("column, row = cuda.grid(2)", "column, row = cuda.threadIdx.x, cuda.threadIdx.y"),
    ),
)


@wrong("brighten_kernel", "not a kernel")
def brightens_in_numpy(digit, out):
    out[:] = 2 * digit


# --- count_kernel ---

_ADDS = "cuda.atomic.add(counts, level, 1)"

count_kernel = derive(
    "count_kernel",
    counts_in_longhand=("lost update", (_ADDS, "counts[level] = counts[level] + 1")),
    counts_after_a_barrier=("divergent barrier", (_ADDS, "cuda.syncthreads()\ncounts[level] += 1")),
    counts_through_a_variable=("lost update", (_ADDS, "old = counts[level]\ncounts[level] = old + 1")),
    adds_the_level=("levels added", ("level, 1)", "level, level)")),
    adds_the_brightness=("brightness added", ("level, 1)", "level, digits[n, row, column])")),
    adds_the_old_count_too=("old count added", ("level, 1)", "level, counts[level] + 1)")),
    counts_all_in_one=("one counter", ("level, 1)", "0, 1)")),
    exchanges_place_and_value=("exchanged", ("level, 1)", "1, level)")),
    writes_the_old_value_back=("put back", (_ADDS, f"counts[level] = {_ADDS}")),
    keeps_the_largest=("largest", ("atomic.add", "atomic.max")),
    counts_twice=("counted twice", ("level, 1)", "level, 2)")),
    subtracts=("counted down", ("level, 1)", "level, -1)")),
    counts_the_brightness_itself=(
        "writes past the edge",
        ("level, 1)", "digits[n, row, column], 1)"),
    ),
    counts_without_guard=(
        "reads past the edge",
        ("if row < digits.shape[1] and column < digits.shape[2]:", "if True:"),
    ),
)


@wrong("count_kernel", "without")
@cuda.jit
def one_thread_counts(digits, counts):
    column, row, n = cuda.grid(3)
    if column == 0 and row == 0 and n == 0:
        for k in range(digits.shape[0]):
            for i in range(digits.shape[1]):
                for j in range(digits.shape[2]):
                    counts[digits[k, i, j] // 16] += 1
