"""Messages of the checks for learners' slips: wrong answers, and the sentences they get."""

import ast

import pytest
from advice import advice_of, obeyed
from test_exercises import FOUND
from wrong_answers import changed

pytestmark = pytest.mark.usefixtures("quickly_compiled")

GUARD = "row < out.shape[0] and column < out.shape[1]"
CHANNELS = "oc < out.shape[0] and oh < out.shape[1] and ow < out.shape[2]"
TWICE, COUNT = "min(2 * digit[row, column], 255)", "cuda.atomic.add(counts, level, 1)"


def verdict_on(notebook, exercise, change):
    """Return the verdict of a notebook's check on a changed solution, and the changed source."""
    (found,) = (
        each for each in FOUND if (each.cells.name, each.path.stem.partition("_")[2]) == (exercise, notebook)
    )
    source = changed(found.cells.solution, change)
    return found, found.check(found.run(source)), source


def loops(*sizes):
    """Return a line of three rounds for each loop over one of these sizes."""
    return [(f"range({size})", "range(3)") for size in sizes]


CONV, FIRST, DENSE = "convolution_on_the_gpu", "first_cuda_kernels", "dense_layers"
TILING, PRODUCT, WIDE_LOADS = "shared_memory_and_tiling", "matrix_product", "convolution_as_matmul"
ZEROS = ", ".join(["float32(0)"] * 4)
BACK, MACHINE = "backward_kernels", "the_machine"
POOL_BACK = "max_pool_backward_kernel"
SUM = "total += weight[oc, ic, kh, kw] * x[ic, oh + kh, ow + kw]"
AGAIN = pytest.mark.exhaustive("the same slip in another exercise, reported by the same functions")
# The simulator names the line, but only compiled code has the types that lead to this sentence.
COMPILED = pytest.mark.gpu
HELPS = [  # if the advice is a line to change, and solves the exercise
    # Loops that count to a number.
    (CONV, "conv_channels_kernel", loops("weight.shape[2]", "weight.shape[3]"), "Your loops have 3 rounds,"),
    (
        CONV,
        "conv_channels_kernel",
        [
            *loops("weight.shape[2]", "weight.shape[3]"),
            (SUM, f"if kh < weight.shape[2] and kw < weight.shape[3]:\n    {SUM}"),
        ],
        "Your loops have 3 rounds, whatever the size of `weight`.\n"
        "Line 8 of your kernel: `range(3)`. Write `range(weight.shape[2])` instead.\n"
        "Line 9 of your kernel: `range(3)`. Write `range(weight.shape[3])` instead.",
    ),
    (CONV, "conv_valid_kernel", loops("weight.shape[1]"), "Your loop has 3 rounds, whatever the size of"),
    (CONV, "conv2d_kernel", loops("weight.shape[2]", "weight.shape[3]"), "Your loops have 3 rounds,", AGAIN),
    (DENSE, "matmul_kernel", [("range(a.shape[1])", "range(0, 1)")], "Your loop has 1 round, whatever the"),
    (
        "pooling_and_softmax",
        "softmax_kernel",
        [("1, logits.shape[1]", "1, 10"), ("range(logits.shape[1])", "range(10)", 2)],
        "Your loops have 9 rounds and 10 rounds, whatever the size of `logits` and `out`.",
    ),
    # Loops that break off.
    (
        BACK,
        "conv2d_backward_input_kernel",
        ("continue", "break", 2),
        "`break` ends the loop. To skip only this round, write `continue`.\n",
    ),
    # Several comparisons that let one too many pass.
    *(
        (
            notebook,
            exercise,
            (guard, guard.replace("<", "<=")),
            f"past its edge: comparisons let one number too many pass.\n*`{guard.replace('<', '<=')}`. "
            f"Write `{guard}` instead.",
            *again,
        )
        for notebook, exercise, guard, *again in [
            (FIRST, "mirror_kernel", "row < height and column < width"),
            ("debugging", "edges_kernel", "row < height and column < width", AGAIN),
            (CONV, "conv_valid_kernel", GUARD),
            (DENSE, "matmul_kernel", GUARD, AGAIN),
            (DENSE, "dense_kernel", GUARD, AGAIN),
            (CONV, "conv_channels_kernel", CHANNELS),
        ]
    ),
    (
        CONV,
        "conv2d_kernel",
        [("< x.shape[2] and 0 <= w <", "<= x.shape[2] and 0 <= w <="), ("i >= out.size", "i > out.size")],
        "Line 5 of your kernel: `i > out.size`. Write `i >= out.size` instead.\n"
        "Line 14 of your kernel: `h <= x.shape[2] and 0 <= w <= x.shape[3]`. "
        "Write `h < x.shape[2] and 0 <= w < x.shape[3]` instead.",
    ),
    (FIRST, "mirror_kernel", ("column < width", "column <= width"), "a comparison lets one number too many"),
    # Comparisons and loops that leave out the last one.
    *(
        (notebook, exercise, (old, f"{old} - 1"), f"`{old} - 1` leaves one out: it is right without")
        for notebook, exercise, old in [
            (FIRST, "axpy_kernel", "i < out.size"),
            (CONV, "conv2d_kernel", "i >= out.size"),
        ]
    ),
    # Guards by another size.
    *(
        (
            notebook,
            exercise,
            (old, new),
            f"has the size of another axis or array.\n*Line 5 of your kernel: `{new}`. ",
        )
        for notebook, exercise, old, new in [
            (CONV, "conv_valid_kernel", "row < out.shape[0]", "row < image.shape[0]"),
            ("pooling_and_softmax", "softmax_kernel", "row < logits.shape[0]", "row < logits.size"),
            ("pooling_and_softmax", "max_pool_kernel", "i < out.size", "i < x.size"),
            (FIRST, "autocorrelation_kernel", "i < out.size", "i < signal.size"),
        ]
    ),
    # Loops that go one too far.
    *(
        (
            notebook,
            exercise,
            (f"range({old})", f"range({new})"),
            f"Your loop goes one too far, past the edge of `{array}`.\n*"
            f"`range({new})`. Write `range({old})` instead.",
        )
        for notebook, exercise, array, old, new in [
            (DENSE, "matmul_kernel", "a", "a.shape[1]", "a.shape[1] + 1"),
            (DENSE, "dense_kernel", "x", "x.shape[1]", "1 + x.shape[1]"),
            (FIRST, "autocorrelation_kernel", "signal", "signal.size - lag", "signal.size - lag + 1"),
            (FIRST, "autocorrelation_kernel", "signal", "signal.size - lag", "signal.size + 1 - lag"),
            (
                FIRST,
                "relu_stride_kernel",
                "out",
                "cuda.grid(1), x.size, cuda.gridsize(1)",
                "cuda.grid(1), x.size + 1, cuda.gridsize(1)",
            ),
        ]
    ),
    (
        CONV,
        "conv_valid_kernel",
        [(f"range(weight.shape[{k}])", f"range(weight.shape[{k}] + 1)") for k in (0, 1)],
        "Your loops go one too far, past the edge of `weight`.",
    ),
    # Types.
    (PRODUCT, "matmul_2x2_kernel", (ZEROS, "0, 0, 0, 0"), f"Write `t00, t01, t10, t11 = {ZEROS}`.", COMPILED),
    (
        TILING,
        "smooth_any_kernel",
        ("weights.size // 2", "int(weights.size / 2)"),
        "`int(weights.size / 2)`. Write `weights.size // 2`.",
        COMPILED,
    ),
    # Loops that count along another axis than they index.
    *(
        (
            notebook,
            exercise,
            (f"range({old})", f"range({new})"),
            "Your loop counts along another axis than the one that it indexes.\n*"
            f"`range({new})`. Write `range({advised})` instead.",
            *again,
        )
        for notebook, exercise, old, new, advised, *again in [
            (BACK, "dense_backward_weight_kernel", "x.shape[0]", "x.shape[1]", "grad_output.shape[0]"),
            (
                BACK,
                "dense_backward_weight_kernel",
                "x.shape[0]",
                "grad_output.shape[1]",
                "grad_output.shape[0]",
                AGAIN,
            ),
            (
                BACK,
                "dense_backward_input_kernel",
                "weight.shape[0]",
                "grad_output.shape[0]",
                "grad_output.shape[1]",
                AGAIN,
            ),
            (MACHINE, "conv_nhwc_kernel", "weight.shape[2]", "x.shape[1]", "x.shape[3]"),
        ]
    ),
    (
        BACK,
        "conv2d_backward_weight_kernel",
        [(f"range(grad_output.shape[{axis}])", f"range(x.shape[{axis}])") for axis in (2, 3)],
        "Your loops count along another axis than the one that they index.\n"
        "Line 9 of your kernel: `range(x.shape[2])`. Write `range(grad_output.shape[2])` instead.\n"
        "Line 11 of your kernel: `range(x.shape[3])`. Write `range(grad_output.shape[3])` instead.",
    ),
    # Sums that are overwritten.
    *(
        (
            notebook,
            exercise,
            ("total +=", "total ="),
            "`total =` overwrites the sum in each round of the loop",
            *again,
        )
        for notebook, exercise, *again in [
            (CONV, "conv2d_kernel"),
            (BACK, "conv2d_backward_weight_kernel", AGAIN),
            (BACK, "conv2d_backward_input_kernel", AGAIN),
            (MACHINE, "conv_nhwc_kernel"),
        ]
    ),
]


def exchanged(*order):
    """Return the change of a guard: it compares its indices with the axes in this order."""
    text = CHANNELS if len(order) == 3 else GUARD
    indices = [part.partition(" <")[0] for part in text.split(" and ")]
    pairs = zip(indices, order, strict=True)
    return text, " and ".join(f"{index} < out.shape[{axis}]" for index, axis in pairs)


ROWS_FIRST = (
    "The guard stops threads that have an element. `out.shape` has the rows first: compare `row` with "
    "`out.shape[0]`, and `column` with `out.shape[1]`.\n"
)
AXES = (
    "Your index is `out[oc, oh, ow]`: compare `oc` with `out.shape[0]`, `oh` with `out.shape[1]`, `ow` with "
    "`out.shape[2]`.\n"
)
ATOMIC_ARRAY = f"The first argument of `cuda.atomic.add` is the array itself: write `{COUNT}`."
ALONE = "`cuda.atomic.add(...)` adds by itself. Let it stand alone on its line, without "
NONE = "A launch returns None: leave out `d_out =`. The result is in the array that you passed."
SAYS = [
    (CONV, "conv_valid_kernel", exchanged(1, 0), ROWS_FIRST),
    *((DENSE, name, exchanged(1, 0), ROWS_FIRST) for name in ("matmul_kernel", "dense_kernel")),
    (
        FIRST,
        "mirror_kernel",
        ("row < height and column < width", "row < width and column < height"),
        "`image.shape` has the rows first: compare `row` with `height`, and `column` with `width`.\n",
    ),
    *(
        (CONV, "conv_channels_kernel", exchanged(*order), f"Your guard exchanges two axes. {AXES}")
        for order in [(0, 2, 1), (1, 0, 2), (2, 1, 0)]
    ),
    (CONV, "conv_channels_kernel", exchanged(1, 2, 0), f"Your guard exchanges the axes. {AXES}"),
    (
        CONV,
        "conv2d_kernel",
        ("0 <= h < x.shape[2] and 0 <= w < x.shape[3]", "0 <= h < x.shape[3] and 0 <= w < x.shape[2]"),
        "Your guard exchanges two axes. Your index is `x[n, ic, h, w]`: compare `h` with `x.shape[2]`, and",
    ),
    (
        BACK,
        "conv2d_backward_input_kernel",
        ("for kw in range(weight.shape[3]):", "for kw in range(weight.shape[3]):\n    total = float32(0)"),
        "The loop sets `total` back to zero in each round, so only the last one counts: move that line out "
        "of the loop.\nLine 13 of your kernel: `total = float32(0)`\nLine 8 of your kernel: "
        "`for kh in range(weight.shape[2]):`. Write `total = float32(0)` before it.\n",
    ),
    (
        FIRST,
        "axpy_kernel",
        ("i = cuda.grid(1)\nif i < out.size:", "for i in range(out.size):"),
        "One is enough: let each thread compute its own element, and no other.\n",
    ),
    (
        CONV,
        "conv2d_kernel",
        ("kh - padding_h", "kh + padding_h"),
        "`oh * stride_h + kh + padding_h`. Write `oh * stride_h + kh - padding_h` instead.\n",
    ),
    (
        CONV,
        "conv2d_kernel",
        ("x[n, ic, h, w]", "x[n, oc, h, w]"),
        "past the edge of `x`: `oc` is 1, and axis 1 has the size 1. Is `oc` the index that you mean there, ",
    ),
    # Exceptions.
    (FIRST, "axpy_kernel", ("x[i] + y[i]", "x + y"), "with single elements: write `x[i]` and `y[i]`."),
    (FIRST, "axpy_kernel", ("x[i] + y[i]", "x + y[i]"), "computes with single elements: write `x[i]`."),
    (DENSE, "matmul_kernel", ("a[row, k] * b[k, column]", "a * b"), "with single elements, such as x[i]."),
    (
        BACK,
        "max_pool_backward_kernel",
        ("pixel, grad_output[plane, oh, ow]", "grad_output[plane, oh, ow], pixel"),
        "The index comes before the value: write `cuda.atomic.add(grad_input, pixel, grad_output[plane, oh, ",
    ),
    (
        BACK,
        "max_pool_backward_kernel",
        ("argmax[plane, oh, ow]", "argmax[i]"),
        "`argmax` has 3 axes, and you give 1 index.\n",
    ),
    (BACK, POOL_BACK, ("grad_input, pixel", "grad_input, where"), "`grad_input` has 3 axes, and you give 1 "),
    *(
        (BACK, POOL_BACK, change, "`grad_input` has 3 axes, and you give 2 indices.\n")
        for change in [
            ("grad_input, pixel", "grad_input, (plane, where)"),
            (
                "cuda.atomic.add(grad_input, pixel, grad_output[plane, oh, ow])",
                "grad_input[plane, where] += grad_output[plane, oh, ow]",
            ),
        ]
    ),
    (BACK, POOL_BACK, ("cuda.atomic.add", "np.add.at"), "`np.add.at` is not available.\n"),
    (
        BACK,
        POOL_BACK,
        (
            "cuda.atomic.add(grad_input, pixel, grad_output[plane, oh, ow])",
            "grad_input[plane, where // width, where % width] += grad_output[plane, oh, ow]",
        ),
        "Write `cuda.atomic.add(grad_input, (plane, where // width, where % width), grad_output[plane, oh, ",
    ),
    (
        BACK,
        "bias_gradient_kernel",
        ("total = block_sum(total)", "    total = block_sum(total)"),
        "of any loop that only some enter or leave early, and let no thread ",
    ),
    (
        "pooling_and_softmax",
        "softmax_kernel",
        ("logits[row, 0], float32(0)", "logits[row].max(), float32(0)"),
        "Arrays have no max in a kernel: write a loop over their elements.\n",
    ),
    (
        FIRST,
        "relu_on_gpu",
        ("def relu_on_gpu", "@cuda.jit\ndef relu_on_gpu"),
        "`relu_on_gpu` is an ordinary function: remove the `@cuda.jit` above it.\n",
    ),
    (
        FIRST,
        "axpy_kernel",
        ("cuda.grid(1)", "cuda.grid(2)"),
        "`cuda.grid(2)` gives two numbers. This grid has one axis: `i = cuda.grid(1)`.\n",
    ),
    (
        FIRST,
        "relu_stride_kernel",
        ("cuda.grid(1)", "cuda.grid(2)"),
        "`cuda.grid(2)` gives two numbers. This grid has one axis: write `cuda.grid(1)`.\n",
    ),
    (
        FIRST,
        "mirror_kernel",
        ("cuda.grid(2)", "cuda.grid(1)"),
        "`cuda.grid(1)` gives one number, and you give 2 names: write `column, row = cuda.grid(2)`.\n",
    ),
    (
        FIRST,
        "mirror_kernel",
        [("column, row =", "row ="), ("row < height and column < width", "row < height")],
        "`cuda.grid(2)` gives two numbers. Give each its own name, as in `x, y = cuda.grid(2)`.\n",
    ),
    (FIRST, "relu_on_gpu", ("relu_forward_naive_kernel[", "d_out = relu_forward_naive_kernel["), NONE),
    (CONV, "shrink", ("shrink_kernel[device", "d_out = shrink_kernel[device"), NONE),
    *(
        ("start_here", "count_kernel", (COUNT, f"cuda.atomic.add({arguments})"), ATOMIC_ARRAY)
        for arguments in ("level, counts, 1", "counts[level], level, 1", "1, counts, level")
    ),
    *(
        ("start_here", "count_kernel", (COUNT, f"{before} {COUNT}"), f"{ALONE}`{before}`.\n")
        for before in ("counts[level] +=", "counts[level] = counts[level] +")
    ),
    (
        WIDE_LOADS,
        "matmul_1x4_kernel",
        (ZEROS, "0, 0, 0, 0"),
        "takes an array, an index and four float32 ",
        COMPILED,
    ),
    # In functions that a kernel calls.
    (
        WIDE_LOADS,
        "matmul_1x4_kernel",
        ("row * n + column", "row * n + x"),
        "In `store4`, called in line 12 of",
    ),
    (
        PRODUCT,
        "matmul_2x2_kernel",
        ("row, column = cuda.blockIdx.y * WIDE", "row, column = cuda.blockIdx.y * TILE"),
        "In `put`, called in lines 19, 20, 21 and 22 of your kernel: ",
    ),
    (
        "reductions",
        "row_max_kernel",
        ("0xFFFFFFFF", "0xFFFF"),
        "mask of a warp operation are not the lanes that reach it",
    ),
    # Numbers.
    ("start_here", "brighten_kernel", (TWICE, TWICE[4:-6]), "- 256 = 44, and light greys turn dark."),
    ("start_here", "brighten_kernel", (TWICE, TWICE.replace("255", "254")), "are 254, and the limit is 255."),
    (
        "start_here",
        "brighten_kernel",
        (TWICE, TWICE.replace("255", "256")),
        "256 becomes 0. The limit is 255",
    ),
]


def each_of(cases):
    """Return the parameters of a test of these slips."""
    given = [
        pytest.param(*case, id=f"{case[1]}-{number}", marks=marks)
        for number, (*case, marks) in enumerate([*each, ()][:5] for each in cases)
    ]
    return pytest.mark.parametrize(("notebook", "exercise", "change", "words"), given)


@each_of(HELPS)
def test_the_advice_undoes_the_slip(notebook, exercise, change, words):
    found, verdict, source = verdict_on(notebook, exercise, change)
    text = "\n".join([verdict.message, *verdict.details])
    assert verdict.status == "wrong"
    assert all(part in text for part in words.split("\n*")), text
    assert advice_of(verdict), text
    mended = obeyed(verdict, source)
    # test_exercises.py checks that a solution solves its exercise.
    is_solution = ast.dump(ast.parse(mended)) == ast.dump(ast.parse(found.cells.solution))
    assert is_solution or found.check(found.run(mended)).status == "solved"


@each_of(SAYS)
def test_a_slip_is_named(notebook, exercise, change, words):
    _, verdict, _ = verdict_on(notebook, exercise, change)
    text = "\n".join([verdict.message, *verdict.details, ""])
    assert (verdict.status, words in text) == ("wrong", True), text
