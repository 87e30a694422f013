"""The checks of kernel exercises: each diagnosis, and what must not be diagnosed."""

import linecache
import math
import re
import zlib
from dataclasses import replace

import numpy as np
import pytest
from advice import obeyed
from numba import cuda, float32, int32

from cnn_course.engine.checks import float64, kernel_judges
from cnn_course.engine.checks.exercise import CheckFailed, Exercise, StandIn, avoids
from cnn_course.engine.checks.kernels import KernelExercise, examine, inout, launch, normal, output, uses
from cnn_course.engine.checks.source import has_dots_left
from gpuless.inspector import NoCompiler

pytestmark = pytest.mark.usefixtures("quickly_compiled")

TILE = 8

# After `t = 0` or the like: a loop whose single round the compiler cannot know.
PRODUCT = "out[i] = x[i] * a"
SUM = ("for _ in range(cuda.gridDim.y):", "    t += x[i] * a", "out[i] = t")


def vectors(rng):
    """Draw vectors for one block, then for several, always with spare threads."""
    return [
        launch(grid, block, normal(rng, size), np.float32(scale), output(size))
        for grid, block, size, scale in [(1, 8, 5, 2), (3, 8, 19, -0.5), (2, 32, 41, 3)]
    ]


scale = KernelExercise(
    "scale",
    reference=lambda x, a: a * x,
    cases=vectors,
    mistakes={"added": ("You add where `*` is meant.", lambda x, a: a + x)},
    float32=True,
)

image = KernelExercise(
    "image",
    reference=lambda x: x + 1,
    cases=lambda rng: [
        launch((-(-w // 4), -(-h // 2)), (4, 2), normal(rng, (h, w)), output((h, w)))
        for h, w in [(1, 3), (3, 7), (7, 5)]
    ],
)

# Each block reverses its part of x in shared memory.
reverse = KernelExercise(
    "reverse",
    reference=lambda x: x.reshape(-1, TILE)[:, ::-1].ravel(),
    cases=lambda rng: [launch(n, TILE, normal(rng, n * TILE), output(n * TILE)) for n in (1, 3)],
    other_blocks=False,
)

total = KernelExercise(
    "total",
    reference=lambda x, start: start + x.sum(keepdims=True),
    cases=lambda rng: [launch(2, 8, normal(rng, 13), inout(normal(rng, 1)))],
)


@cuda.jit
def scale_right(x, a, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = a * x[i]


@cuda.jit
def image_right(x, out):
    column, row = cuda.grid(2)
    if row < x.shape[0] and column < x.shape[1]:
        out[row, column] = x[row, column] + float32(1)


@cuda.jit
def reverse_right(x, out):
    tile = cuda.shared.array(TILE, float32)
    t = cuda.threadIdx.x
    tile[t] = x[cuda.grid(1)]
    cuda.syncthreads()
    out[cuda.grid(1)] = tile[TILE - 1 - t]


@cuda.jit
def total_right(x, out):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(out, 0, x[i])


RIGHT = [(scale, scale_right), (image, image_right), (reverse, reverse_right), (total, total_right)]


@pytest.mark.parametrize(("exercise", "kernel"), RIGHT, ids=lambda value: getattr(value, "name", ""))
def test_right_kernels_are_solved(exercise, kernel):
    verdict = exercise(kernel)
    assert verdict.status == "solved", verdict
    assert "the sanitizer found nothing" in verdict.message


# --- one kernel for each diagnosis -------------------------------------------------------------------------

CASES = []


def diagnosed(exercise, mistake, *words):
    """Mark a kernel that an exercise must reject with this mistake and these words."""

    def mark(kernel):
        CASES.append(pytest.param(exercise, kernel, mistake, words, id=f"{mistake}-{kernel.__name__}"))
        return kernel

    return mark


@diagnosed(scale, "not a kernel", "`@cuda.jit`")
def scale_in_python(x, a, out):
    out[:] = a * x


@diagnosed(scale, "not a kernel", "device=True")
@cuda.jit(device=True)
def scale_on_device(x, a, out):
    out[0] = a * x[0]


@diagnosed(
    scale,
    "writes past the edge",
    "thread 5 of block 0 writes out[5]",
    "of your kernel: `out[i] = a * x[i]`",
    "[1, 8]",
)
@cuda.jit
def scale_without_guard(x, a, out):
    i = cuda.grid(1)
    out[i] = a * x[i]


@diagnosed(image, "writes past the edge", "`out` has 2 axes, and you give 1 index.")
@cuda.jit
def image_with_one_index(x, out):
    column = cuda.grid(1)
    out[column] = 6


@diagnosed(image, "raises", "`x` has 2 axes, and you give 1 index.")
@cuda.jit
def image_of_whole_rows(x, out):
    column, row = cuda.grid(2)
    if row < x.shape[0] and column < x.shape[1]:
        out[row, column] = x[row]


@diagnosed(image, "& for and", "Write `and`", "`x.shape[0] & column`", "Line 5 of your kernel")
@cuda.jit
def image_with_an_and_sign(x, out):
    column, row = cuda.grid(2)
    if row < x.shape[0] & column < x.shape[1]:
        out[row, column] = x[row, column] + float32(1)


@diagnosed(scale, "does not end", "A loop in your kernel does not end", "of your kernel: `", "[1, 8]")
@cuda.jit
def scale_standing_still(x, a, out):
    i = cuda.grid(1)
    while i < x.size:
        out[i] = a * x[i]


@diagnosed(scale, "does not end", "Line 5 of your kernel: `while x[i + 50]", "in thread 0 of block 0")
@cuda.jit
def scale_past_the_end_for_ever(x, a, out):
    i = cuda.grid(1)
    while x[i + 50] < a or x[i + 50] != a:
        out[i] = a


@diagnosed(scale, "never written", "or does an `if` skip the store?")
@cuda.jit
def scale_the_positive(x, a, out):
    i = cuda.grid(1)
    if i < x.size:
        if x[i] > 0:
            out[i] = a * x[i]


@diagnosed(scale, "never written", "and others by several threads", "Thread 3 of block 0 and thread 0 of")
@cuda.jit
def scale_by_the_size_of_the_grid(x, a, out):
    i = cuda.blockIdx.x * cuda.gridDim.x + cuda.threadIdx.x
    if i < x.size:
        out[i] = a * x[i]


@diagnosed(image, "never written", "Thread (0, 0) of block 0 and thread (1, 0) of block 0 write out[0, 0].")
@cuda.jit
def image_of_two_threads_each(x, out):
    column, row = cuda.grid(2)
    if row < x.shape[0] and column // 2 < x.shape[1]:
        out[row, column // 2] = x[row, column // 2] + float32(1)


@diagnosed(
    scale, "never written", "Thread 1 of block 0 and thread 0 of block 1 write out[1].", "13 of the 19"
)
@cuda.jit
def scale_with_gaps(x, a, out):
    i = cuda.blockIdx.x + cuda.threadIdx.x
    if i < x.size and (i % 3 > 0 or x.size == 5):
        out[i] = a * x[i]


@diagnosed(image, "reads past the edge", "not in the order of its axes", "Write `x[row, column]` instead.")
@cuda.jit
def image_read_by_x_and_y(x, out):
    column, row = cuda.grid(2)
    if row < x.shape[0] and column < x.shape[1]:
        out[row, column] = x[column, row] + float32(1)


@diagnosed(scale, "reads past the edge", "x[5]")
@cuda.jit
def scale_of_the_next(x, a, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = a * x[i + 1]


@diagnosed(scale, "negative index", "Line 6 of your kernel")
@cuda.jit
def scale_of_the_last(x, a, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = a * x[i - 1]


@diagnosed(scale, "nothing written", "`out[...] = ...`")
@cuda.jit
def scale_into_a_name(x, a, out):
    i = cuda.grid(1)
    if i < x.size:
        out = a * x[i]  # noqa: F841


@diagnosed(scale, "nothing written")
@cuda.jit
def scale_guards_all_away(x, a, out):
    i = cuda.grid(1)
    if i < 0:
        out[i] = a * x[i]


@diagnosed(scale, "first block only", "blockDim")
@cuda.jit
def scale_first_block(x, a, out):
    i = cuda.threadIdx.x
    if i < x.size:
        out[i] = a * x[i]


@diagnosed(scale, "never written", "18 of the 19 elements")
@cuda.jit
def scale_first_element(x, a, out):
    i = cuda.grid(1)
    if i == 0 or x.size < 19:
        if i < x.size:
            out[i] = a * x[i]


@diagnosed(scale, "added", "`*`")
@cuda.jit
def scale_adds(x, a, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = a + x[i]


@diagnosed(scale, "constant")
@cuda.jit
def scale_ignores(x, a, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = a * a


@diagnosed(scale, "changes input", "Your kernel changes `x`, which is an input. Write into `out`.")
@cuda.jit
def scale_in_place(x, a, out):
    i = cuda.grid(1)
    if i < x.size:
        x[i] *= a
        out[i] = x[i]


@diagnosed(scale, "factor", "2")
@cuda.jit
def scale_twice(x, a, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = a * x[i] * 2


@diagnosed(scale, "numbers", "Entry 0", "launched as")
@cuda.jit
def scale_off(x, a, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = a * x[i] + i + 1


@diagnosed(scale, "raises", "NameError: name 'b' is not defined.", "out[i] = b * x[i]", "thread 0")
@cuda.jit
def scale_misspelt(x, a, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = b * x[i]  # noqa: F821


@diagnosed(scale, "raises", "a whole array", "`out[:] = a * x`")
@cuda.jit
def scale_of_arrays(x, a, out):
    out[:] = a * x


@diagnosed(image, "raises", "`x` has 2 axes, and you give 1 index.")
@cuda.jit
def image_of_rows(x, out):
    column, row = cuda.grid(2)
    if row < x.shape[0] and column < x.shape[1]:
        out[row] = x[row] + float32(1)


@diagnosed(scale, "raises", "a kernel returns nothing")
@cuda.jit
def scale_returns(x, a, out):
    return a * x[cuda.grid(1)]


@diagnosed(scale, "raises", "2 arguments")
@cuda.jit
def scale_of_two(x, out):
    out[0] = x[0]


@diagnosed(scale, "uninitialised read", "`out`")
@cuda.jit
def scale_adds_to_garbage(x, a, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] += a * x[i]


@diagnosed(scale, "division by zero")
@cuda.jit
def scale_divides(x, a, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = a * x[i] * (i // i)


@diagnosed(image, "guard exchanges axes", "compare `y` with `height`, and `x` with `width`")
@cuda.jit
def image_stops_by_the_other_size(image, out):
    x, y = cuda.grid(2)
    height = image.shape[0]
    width = image.shape[1]
    if y >= width or x >= height:
        return
    out[y, x] = image[y, x] + float32(1)


@diagnosed(scale, "fixed loop", "Your loop has 5 rounds, whatever the size of `x`.", "Write `range(x.size)`")
@cuda.jit
def scale_of_five(x, a, out):
    i = cuda.grid(1)
    for k in range(5):
        if x[k] > 100:
            return
        if k == i:
            out[i] = a * x[i]


@diagnosed(scale, "numbers", "1 of 3 test cases is right.")
@cuda.jit
def scale_short_ones(x, a, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = a * x[i] + i * (x.size // 7)


@diagnosed(image, "x and y exchanged", "row first", "launched as")
@cuda.jit
def image_exchanged(x, out):
    row, column = cuda.grid(2)
    if row < x.shape[0] and column < x.shape[1]:
        out[row, column] = x[row, column] + float32(1)


@diagnosed(image, "x and y exchanged")
@cuda.jit
def image_exchanged_indices(image, result):
    x, y = cuda.grid(2)
    if x < image.shape[1] and y < image.shape[0]:
        result[x, y] = image[x, y] + float32(1)


@diagnosed(image, "first block only")
@cuda.jit
def image_first_block(x, out):
    row, column = cuda.threadIdx.y, cuda.threadIdx.x
    if row < x.shape[0] and column < x.shape[1]:
        out[row, column] = x[row, column] + float32(1)


@diagnosed(
    image,
    "guard exchanges axes",
    "`x.shape` has the rows first: compare `row` with `x.shape[0]`, and `column` with `x.shape[1]`.",
    "of your kernel: `if column < x.shape[0] and row < x.shape[1]:`",
)
@cuda.jit
def image_guards_by_the_other_size(x, out):
    column, row = cuda.grid(2)
    if column < x.shape[0] and row < x.shape[1]:
        out[row, column] = x[row, column] + float32(1)


@diagnosed(
    image, "writes past the edge", "a guard is missing", "`if row < out.shape[0] and column < out.shape[1]:`"
)
@cuda.jit
def image_without_guard(x, out):
    column, row = cuda.grid(2)
    out[row, column] = x[row, column] + float32(1)


@diagnosed(
    image, "writes past the edge", "Line 8 of your kernel", "Write `if column < out.shape[1]:` around it."
)
@cuda.jit
def image_guards_rows_only(x, out):
    column, row = cuda.grid(2)
    if row < x.shape[0]:
        out[row, column] = x[row, column] + float32(1)


@diagnosed(reverse, "missing barrier", "A barrier is missing", "`tile`", "Line 6", "Line 7", "before it")
@cuda.jit
def reverse_without_barrier(x, out):
    tile = cuda.shared.array(TILE, float32)
    t = cuda.threadIdx.x
    tile[t] = x[cuda.grid(1)]
    out[cuda.grid(1)] = tile[TILE - 1 - t]


@diagnosed(reverse, "divergent barrier", "out of the branch")
@cuda.jit
def reverse_with_a_barrier_for_some(x, out):
    tile = cuda.shared.array(TILE, float32)
    t = cuda.threadIdx.x
    tile[t] = x[cuda.grid(1)]
    if t < TILE // 2:
        cuda.syncthreads()
    out[cuda.grid(1)] = tile[TILE - 1 - t]


@diagnosed(reverse, "reads past the edge", "`tile`")
@cuda.jit
def reverse_off_by_one(x, out):
    tile = cuda.shared.array(TILE, float32)
    t = cuda.threadIdx.x
    tile[t] = x[cuda.grid(1)]
    cuda.syncthreads()
    out[cuda.grid(1)] = tile[TILE - t]


@diagnosed(reverse, "uninitialised read", "`tile`")
@cuda.jit
def reverse_half_filled(x, out):
    tile = cuda.shared.array(TILE, float32)
    t = cuda.threadIdx.x
    if t > 0:
        tile[t] = x[cuda.grid(1)]
    cuda.syncthreads()
    out[cuda.grid(1)] = tile[TILE - 1 - t]


@diagnosed(reverse, "write-write race")
@cuda.jit
def reverse_into_one(x, out):
    tile = cuda.shared.array(TILE, float32)
    t = cuda.threadIdx.x
    tile[t // 2] = x[cuda.grid(1)]
    cuda.syncthreads()
    out[cuda.grid(1)] = tile[(TILE - 1 - t) // 2]


@diagnosed(reverse, "race between blocks")
@cuda.jit
def reverse_by_way_of_the_output(x, out):
    i = cuda.grid(1)
    out[i] = x[i]
    cuda.syncthreads()
    out[i] = out[(i + TILE) % x.size]


@diagnosed(total, "race between blocks", "meant to add to one, use `cuda.atomic`", "`out[0] = x[i]`")
@cuda.jit
def total_of_the_last_block(x, out):
    i = cuda.grid(1)
    if cuda.threadIdx.x == 0:
        out[0] = x[i]


@cuda.jit(device=True)
def from_the_other_lanes(value):
    for lanes in (4, 2, 1):
        value = max(value, cuda.shfl_xor_sync(0xFF, value, lanes))
    return value


@diagnosed(scale, "divergent warp", "In `from_the_other_lanes`, called in line 6 of your kernel: ")
@cuda.jit
def scale_by_a_shuffle_behind_a_guard(x, a, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = a * x[i] + float32(0) * from_the_other_lanes(x[i])


@diagnosed(scale, "raises", "write `cuda.shfl_xor_sync(mask, value, lane_mask)`.")
@cuda.jit
def scale_by_a_shuffle_without_a_mask(x, a, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = a * cuda.shfl_xor_sync(x[i], 0)


@diagnosed(total, "raises", "write `cuda.atomic.add(array, index, value)`.")
@cuda.jit
def total_by_an_atomic_of_a_number(x, out):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(out[0], x[i])


@diagnosed(total, "raises", "The first argument of `cuda.atomic.add` is the array itself: write `cuda.atomic")
@cuda.jit
def total_by_an_atomic_of_an_element(x, out):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(out[0], 0, x[i])


@diagnosed(reverse, "raises", "`cuda.atomic.xor` takes ")
@cuda.jit
def reverse_by_an_atomic_for_integers(x, out):
    tile = cuda.shared.array(TILE, float32)
    cuda.atomic.xor(tile, 0, 1)


@diagnosed(reverse, "raises", "write `cuda.syncthreads()`.")
@cuda.jit
def reverse_with_an_argument_for_the_barrier(x, out):
    cuda.syncthreads(TILE)
    out[cuda.grid(1)] = x[cuda.grid(1)]


@diagnosed(reverse, "raises", "`float` is not a type of elements in a kernel: write one such as float32")
@cuda.jit
def reverse_by_way_of_python_floats(x, out):
    tile = cuda.shared.array(TILE, float)
    t = cuda.threadIdx.x
    tile[t] = x[cuda.grid(1)]
    cuda.syncthreads()
    out[cuda.grid(1)] = tile[TILE - 1 - t]


@diagnosed(reverse, "raises", "48 KB")
@cuda.jit
def reverse_with_too_much(x, out):
    tile = cuda.shared.array(16384, float32)
    tile[0] = x[0]
    out[0] = tile[0]


@diagnosed(total, "lost update", "Write `cuda.atomic.add(out, 0, x[i])` instead.")
@cuda.jit
def total_not_atomic(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[0] += x[i]


@pytest.mark.parametrize(("exercise", "kernel", "mistake", "words"), CASES)
def test_wrong_kernels_are_diagnosed(exercise, kernel, mistake, words):
    verdict = exercise(kernel)
    assert (verdict.status, verdict.mistake) == ("wrong", mistake), verdict
    text = str(verdict)
    assert all(word.lower() in text.lower() for word in words), text


def test_one_element_per_thread_is_named_if_the_grid_is_smaller_than_the_array():
    stride = KernelExercise(
        "stride",
        reference=lambda x, a: a * x,
        cases=lambda rng: [launch(2, 8, normal(rng, n), np.float32(3), output(n)) for n in (9, 41)],
    )
    verdict = stride(scale_right)
    assert verdict.mistake == "one element per thread"
    assert "16 threads for 41 elements" in verdict.message

    @cuda.jit
    def striding(x, a, out):
        for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
            out[i] = a * x[i]

    assert stride(striding).status == "solved"

    @cuda.jit
    def striding_over_the_negative(x, a, out):
        for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
            if x[i] > 0:
                out[i] = a * x[i]

    # This guard depends on the data: the sanitizer accepts that, the check does not.
    verdict = stride(striding_over_the_negative)
    assert (verdict.mistake, "Does an `if` skip the store?" in str(verdict)) == ("never written", True)


def test_one_element_per_thread_is_named_beside_an_output_of_another_shape():
    centred = KernelExercise(
        "centred",
        reference=lambda x, total: (x - 1, total + x.sum()),
        cases=lambda rng: [
            launch(1, 4, inout(normal(rng, n)), inout(np.zeros(1, np.float32))) for n in (3, 4, 5, 9, 14)
        ],
    )

    @cuda.jit
    def of_each_thread(x, total):
        for k in range(cuda.grid(1), x.size, cuda.gridsize(1)):
            cuda.atomic.add(total, 0, x[k])
        cuda.syncthreads()
        i = cuda.grid(1)
        if i < x.size:
            x[i] -= 1

    verdict = centred(of_each_thread)
    assert verdict.mistake == "one element per thread"
    assert "fewer threads than `x` has elements: 4 threads for 5 elements" in verdict.message


# --- what is said only if it helps -------------------------------------------------------------------------


@cuda.jit
def reverse_by_halves(x, out):
    """Exchange pairs with all threads instead of half of them: no barrier helps."""
    tile = cuda.shared.array(TILE, float32)
    t = cuda.threadIdx.x
    tile[t] = x[cuda.grid(1)]
    cuda.syncthreads()
    tile[t], tile[TILE - 1 - t] = tile[TILE - 1 - t], tile[t]
    cuda.syncthreads()
    out[cuda.grid(1)] = tile[t]


@cuda.jit
def reverse_without_two_barriers(x, out):
    tile = cuda.shared.array(TILE, float32)
    t = cuda.threadIdx.x
    tile[t] = x[cuda.grid(1)]
    value = tile[TILE - 1 - t]
    tile[t] = value
    out[cuda.grid(1)] = tile[t]


@cuda.jit
def total_in_steps(x, out):
    i = cuda.grid(1)
    if i < x.size:
        value = out[0]
        value += x[i]
        out[0] = value


@cuda.jit
def scale_into_the_first(x, a, out):
    """Add although each thread has its own element: an atomic addition would be wrong too."""
    i = cuda.grid(1)
    if i < x.size:
        out[i] = 0
        out[0] += a * x[i]


@cuda.jit
def image_guards_with_the_axes_exchanged_and_adds_two(x, out):
    column, row = cuda.grid(2)
    if row < x.shape[1] and column < x.shape[0]:
        out[row, column] = x[row, column] + float32(2)


@cuda.jit
def scale_by_way_of_too_small_an_array(x, a, out):
    few = cuda.local.array(2, float32)
    i = cuda.grid(1)
    if i < x.size:
        for k in range(3):
            few[k] = a * x[i]
        out[i] = few[2]


@pytest.mark.parametrize(
    ("exercise", "kernel", "mistake", "words", "wrong_words"),
    [
        (reverse, reverse_by_halves, "missing barrier", "does a thread write that should not", "is missing:"),
        (reverse, reverse_without_two_barriers, "missing barrier", "A barrier is missing", "syncwarp"),
        (total, total_in_steps, "write-write race", "to one element, use `cuda.atomic`", "Write `"),
        (scale, scale_into_the_first, "lost update", "Is the index wrong", "Write `"),
        (
            image,
            image_guards_with_the_axes_exchanged_and_adds_two,
            "writes past the edge",
            "compare the row with the first number",
            "is missing",
        ),
        (
            scale,
            scale_by_way_of_too_small_an_array,
            "writes past the edge",
            "its local array of shape (2,)",
            "Threads",
        ),
    ],
)
def test_no_missing_code_is_named_that_does_not_help(exercise, kernel, mistake, words, wrong_words):
    verdict = exercise(kernel)
    assert verdict.mistake == mistake, verdict
    assert words in str(verdict)
    assert wrong_words not in str(verdict)


# --- in the learner's words --------------------------------------------------------------------------------


def test_a_verdict_has_the_names_of_the_kernels_own_arguments():
    exercise = KernelExercise(
        "s",
        lambda x, a: a * x,
        vectors,
        mistakes={"added": ("You have `{x}[i] + {a}`; write `{a} * {x}[i]`, by x.", lambda x, a: a + x)},
    )

    @cuda.jit
    def adds(values, factor, result):
        i = cuda.grid(1)
        if i < values.size:
            result[i] = factor + values[i]

    @cuda.jit
    def forgets(values, factor, result):
        i = cuda.grid(1)
        if i < values.size:
            result[i] = values[i]

    @cuda.jit
    def of_others_names(a, x, out):
        i = cuda.grid(1)
        if i < a.size:
            out[i] = a[i] + x

    assert exercise(adds).message == "You have `values[i] + factor`; write `factor * values[i]`, by x."
    assert "`values` of shape (5,), `factor` = 2.0" in str(exercise(forgets))
    assert exercise(of_others_names).message == "You have `a[i] + x`; write `x * a[i]`, by x."


def test_a_verdict_has_the_names_of_the_functions_own_arguments():
    exercise = Exercise("double", lambda x: 2 * x, lambda rng: [(rng.normal(size=n),) for n in (2, 3)])
    assert "`values` of shape (2,)" in str(exercise(lambda values: values + 1))
    assert "`x` of shape (2,)" in str(exercise(lambda *values: values[0] + 1))


# --- not solved yet, strict mode, properties ---------------------------------------------------------------


def test_stubs_are_unsolved():
    @cuda.jit
    def blank(x, a, out):
        """Scale."""
        ...

    @cuda.jit
    def begun(x, a, out):
        i = cuda.grid(1)
        if i < x.size:
            ...

    @cuda.jit
    def with_a_gap(x, a, out):
        i = ...
        out[i] = a * x[i]

    assert [scale(stub).status for stub in (..., blank, begun, with_a_gap)] == ["unsolved"] * 4


def test_an_ellipsis_in_an_index_is_no_gap():
    assert not has_dots_left(lambda x: x[...])


def test_a_broken_kernel_is_unsolved_until_its_code_is_another():
    repair = KernelExercise("s", scale.reference, vectors, broken=scale_without_guard)

    @cuda.jit
    def as_given(x, a, out):
        """Scale."""
        i = cuda.grid(1)  # a comment changes nothing
        out[i] = (a) * x[i]

    @cuda.jit
    def half_mended(x, a, out):
        i = cuda.grid(1)
        if i <= x.size:
            out[i] = a * x[i]

    assert [repair(kernel).status for kernel in (scale_without_guard, as_given)] == ["unsolved"] * 2
    assert repair(half_mended).mistake == "writes past the edge"
    assert repair(scale_right).status == "solved"
    assert repair(StandIn(scale.reference)).status == "solved"


def test_strict_mode_raises(monkeypatch):
    monkeypatch.setenv("CNN_NUMBA_STRICT", "1")
    with pytest.raises(CheckFailed, match="a guard is missing"):
        scale(scale_without_guard)


def test_a_value_instead_of_the_kernel_is_recognised():
    assert scale(np.ones(3)).mistake == "not a kernel"


@cuda.jit(device=True)
def elsewhere(x, out):
    reverse_right(x, out)


@cuda.jit
def reverse_elsewhere(x, out):
    elsewhere(x, out)


def test_properties_are_asked_of_right_kernels_only():
    strict = KernelExercise("s", scale.reference, vectors, properties=(avoids("grid"), uses("shared")))
    assert strict(scale_adds).mistake == "numbers"
    assert strict(scale_right).mistake == "shortcut"
    asking = KernelExercise("s", scale.reference, vectors, properties=(uses("shared"),))
    assert asking(scale_right).mistake == "without"
    assert "`cuda.shared`" in asking(scale_right).message
    uses("syncthreads", "shared")(reverse_right)
    uses("syncthreads", "shared")(reverse_elsewhere)


@cuda.jit(device=True)
def half_of(value):
    """Compute in float64."""
    return value * 0.3


@cuda.jit(device=True)
def together(value, other):
    """Compute in the type of its arguments."""
    return value + other


@pytest.mark.gpu
class TestFloat64:
    """The compiled code shows what is float64; the source shows where it comes from."""

    @staticmethod
    def kernel(*lines):
        """Return a kernel with these lines after its guard, from the fourth on."""
        source = ["@cuda.jit", "def scaled(x, a, out):", "    i, n = cuda.grid(1), x.size", "    if i < n:"]
        source += [f"        {line}" for line in lines]
        name = f"<scaled-{zlib.crc32(repr(lines).encode())}>"
        linecache.cache[name] = 0, None, [f"{line}\n" for line in source], name
        namespace = {"cuda": cuda, "math": math, "np": np, "float32": float32, "EPS": 1e-5, "TWO": 2}
        namespace |= {"half_of": half_of, "together": together}
        exec(compile("\n".join(source), name, "exec"), namespace)
        return namespace["scaled"]

    @pytest.mark.parametrize(
        ("lines", "words"),
        [
            (
                ["t = 0.0", *SUM],
                ("A Python float", "Line 5 of your kernel: `t = 0.0`. Write `t = float32(0)`"),
            ),
            (["t = 0", *SUM], ("A variable that", "Line 5 of your kernel: `t = 0`. Write `t = float32(0)`")),
            (
                ["out[i] = x[i] * a * (n / n)"],
                ("`/` gives float64", "`n / n`. Write `float32(n) / float32(n)`"),
            ),
            (
                ["m = x.shape[0]", "t = x[i] * a", "t /= m", "out[i] = t * float32(m)"],
                ("`/` gives float64", "`t /= m`. Write `t /= float32(m)`"),
            ),
            (["out[i] = x[i] * a * math.exp(i - i)"], ("A function", "Write `math.exp(float32(i - i))`")),
            (["z = 0 * n", "out[i] = x[i] * a * math.exp(z)"], ("Line 6", "`math.exp(float32(z))`")),
            (["for k in range(1):", "    out[i] = x[i] * a * math.exp(k)"], ("`math.exp(float32(k))`",)),
            (
                ["out[i] = x[i] * a * 0.1", "out[i] = out[i] * 10.0"],
                ("A Python float", "`x[i] * a * float32(0.1)`"),
            ),
            (["out[i] = x[i] * a", "out[i] *= n // n"], ("Line 6", "Write `out[i] *= float32(n // n)`")),
            (
                ["out[i] = x[i] * a * n", "out[i] = out[i] / n"],
                ("An integer and a float32", "`x[i] * a * float32(n)`", "`out[i] / float32(n)`"),
            ),
            # The float64 comes from elsewhere: a global, a conversion, a branch, another function.
            (
                ["out[i] = x[i] * a + EPS - float32(EPS)"],
                ("defined outside of the kernel", "Write `x[i] * a + float32(EPS)`"),
            ),
            (["out[i] = a * x[i] * TWO / TWO"], ("`a * x[i] * float32(TWO) / float32(TWO)`",)),
            (
                ["t = float(0)", *SUM],
                ("names of float64", "Line 5 of your kernel: `float(0)`. Write `float32(0)`"),
            ),
            (
                ["if x[i] > 0:", "    t = x[i] * a", "else:", "    t = 0", "out[i] = t + x[i] * a - t"],
                ("A variable that", "Line 8 of your kernel: `t = 0`. Write `t = float32(0)`"),
            ),
            (
                ["t = 0 if x[i] > 2 else x[i] * a", "out[i] = t if x[i] <= 2 else x[i] * a"],
                ("Line 5", "Write `float32(0) if x[i] > 2 else x[i] * a`"),
            ),
            (
                ["t, u = 0.0, a", "for _ in range(cuda.gridDim.y):", "    t += x[i] * u", "out[i] = t"],
                ("Write `t, u = float32(0), a`",),
            ),
            (
                [
                    "t = -math.inf",
                    "for k in range(n):",
                    "    t = max(t, x[k])",
                    "out[i] = x[i] * a + (t - t)",
                ],
                ("Write `t = float32(-math.inf)`",),
            ),
            (
                ["s = 1.0 if x[i] > 0 else 0.5", "out[i] = s * x[i] * a", "out[i] = a * x[i]"],
                ("Line 5", "Write `float32(1) if x[i] > 0 else float32(0.5)`"),
            ),
            (["out[i] = together(x[i] * a, 0.1) - float32(0.1)"], ("`together(x[i] * a, float32(0.1))`",)),
            (
                ["out[i] = np.float64(x[i]) * a * float32(0.1) * 10"],
                ("Write `float32(x[i]) * a * float32(0.1) * float32(10)`",),
            ),
            (
                [
                    "few = cuda.local.array(4, np.float64)",
                    "for k in range(4):",
                    "    few[k] = x[(i + k) % n] * a",
                    "out[i] = few[n // (n + 1)]",
                ],
                ("names of float64", "Write `cuda.local.array(4, float32)`"),
            ),
            (["out[i] = x[i] * (1 / 3) * a * 3"], ("`/` gives float64", "float32(1 / 3)")),
        ],
    )
    def test_the_cause_is_named_and_the_advice_helps(self, lines, words):
        # Types are the same for any size, and for each block a kernel is compiled.
        once = replace(scale, cases=lambda rng: vectors(rng)[1:2], other_blocks=False)
        verdict = once(self.kernel(*lines))
        assert verdict.mistake == "float64", verdict
        assert "most GPUs do far more slowly" in verdict.message
        assert all(word in str(verdict) for word in words), verdict
        source = "\n".join(["", "", "", "", *lines])
        verdict = once(self.kernel(*obeyed(verdict, source).splitlines()[4:]))
        assert verdict.status == "solved", verdict

    def test_a_cause_in_another_function_is_named_with_the_function(self):
        verdict = scale(self.kernel("out[i] = half_of(x[i]) * a / float32(0.3)"))
        assert "In `half_of`: `value * 0.3`. Write `value * float32(0.3)`." in verdict.details

    def test_an_argument_that_the_signature_makes_float64_is_named(self):
        name = f"<signed-{zlib.crc32(b'signed')}>"
        source = '@cuda.jit("void(float32[::1], float64, float32[::1])")\n' + "\n".join(
            [
                "def scaled(x, a, out):",
                "    i = cuda.grid(1)",
                "    if i < x.size:",
                "        out[i] = a * x[i]",
            ]
        )
        linecache.cache[name] = 0, None, source.splitlines(keepends=True), name
        namespace = {"cuda": cuda}
        exec(compile(source, name, "exec"), namespace)
        verdict = scale(namespace["scaled"])
        assert "The argument is `a`." in verdict.details, verdict

    def test_float64_of_a_print_or_a_reshape_is_not_the_learners(self, capsys):
        assert scale(self.kernel("print(x[i])", "out[i] = x[i] * a")).status == "solved"
        assert scale(self.kernel("flat = x.reshape(n)", "out[i] = flat[i] * a")).status == "solved"

    @pytest.mark.parametrize(
        "lines",
        [
            ["out[i] = 0.0", "out[i] = x[i] * a"],
            ["out[i] = x[i] * a if x[i] * a > 0 else 0.0", "if x[i] * a < 0:", "    out[i] = x[i] * a"],
            ["t = 0.0", "t += x[i] * a", "out[i] = t"],
            ["k = (i + 1) ** 2 // (i + 1) - 1", "out[k] = x[k] * a"],
            ["print(i, x[i])", "out[i] = x[i] * a"],
            ["flat = x.reshape(x.size)", "out[i] = flat[i] * a"],
        ],
    )
    def test_code_without_compiled_float64_is_right(self, lines):
        assert scale(self.kernel(*lines)).status == "solved"

    def test_a_signature_of_float32_is_right(self):
        signatures = ["void(float64[:], float64, float64[:])", "void(float32[:], float32, float32[:])"]
        assert scale(cuda.jit(signatures)(self.kernel(PRODUCT).py_func)).status == "solved"

    def test_the_sines_detour_is_not_the_learners(self):
        sine = KernelExercise("s", lambda x, a: np.sin(x), vectors, float32=True)
        assert sine(self.kernel("out[i] = math.sin(x[i])")).status == "solved"

    def test_the_inspector_compiles_in_the_simulator_too(self, monkeypatch):
        monkeypatch.setattr(float64.device, "simulated", lambda: True)
        monkeypatch.setattr(kernel_judges.device, "simulated", lambda: True)
        assert "`t = 0`" in str(scale(self.kernel("t = 0", *SUM)))

    def test_without_a_compiler_stored_values_decide(self, monkeypatch):
        asked = []

        def refuse(*arguments, **options):
            asked.append(arguments)
            raise NoCompiler("there is no CUDA compiler here")

        monkeypatch.setattr(float64.device, "simulated", lambda: True)
        monkeypatch.setattr(kernel_judges.device, "simulated", lambda: True)
        monkeypatch.setattr(float64, "inspect_kernel", refuse)
        monkeypatch.setattr(float64, "_missing", [])
        # An integer and a float32 make a float64, as in compiled code.
        for wide in ("t = 0.0", "t = 0"):
            assert "Line 8 of your kernel: `out[i] = t`" in str(scale(self.kernel(wide, *SUM)))
        assert scale(self.kernel("t = float32(0)", *SUM)).status == "solved"
        assert len(asked) == 1


class TestErrors:
    kernel = staticmethod(TestFloat64.kernel)

    @pytest.mark.parametrize(
        ("line", "words"),
        [
            ("out[i] = x.average * a", "Arrays have no `average` in a kernel."),
            ("x.sort()", "Arrays have no sort in a kernel: write a loop over their elements."),
            ("out[i] = math.exp(x)", "A whole array stands where a number is needed"),
            ("out[i] = a * sorted(x)[0]", "`sorted()` is not supported."),
            ("assert i < 3", "Your kernel raised AssertionError."),
        ],
    )
    def test_of_the_simulator(self, line, words):
        verdict = scale(self.kernel(line, "out[i] = x[i] * a"))
        assert verdict.mistake == "raises"
        assert words in str(verdict)
        assert "Line 5 of your kernel: `" in str(verdict)
        assert not re.search(r"KernelArray|TracedArray|In kernel", str(verdict))

    @pytest.mark.gpu
    @pytest.mark.parametrize(
        ("lines", "words"),
        [
            (
                ["t = 1 if i > 0 else x", "out[i] = x[i] * a"],
                "This does not compile. A value would be an array in one place and an integer in another.",
            ),
            (
                ["t = 1", "if a > 90:", "    t = x", "out[i] = a * x[i]", "k = t"],
                "This does not compile. `t` would be an ",
            ),
            (["t = (1, 2.0)", "out[i] = x[i] * a * t[i - i]"], "Numba cannot index a tuple by an integer."),
            (["cuda.syncthread()", "out[i] = x[i] * a"], "Do you mean `cuda.syncthreads`?"),
            (["out[i] = x[i].mean() * a"], "Numba does not know `mean` of a float32."),
        ],
    )
    def test_of_the_compiler(self, lines, words):
        verdict = scale(self.kernel(*lines))
        assert verdict.mistake == "raises", verdict
        assert words in str(verdict)
        assert not re.search(r"TypingError|\$\w+|Resolution|phi", str(verdict))


def test_a_tolerance_follows_the_rounding_of_the_inputs():
    """Around 1000 float32 has four digits after the point: no kernel can have more."""

    def off_by(error, offset):
        exercise = KernelExercise(
            "spread",
            reference=lambda x: np.float64(x) - np.float64(x).mean(),
            cases=lambda rng: [launch(2, 8, normal(rng, 11) + np.float32(offset), output(11))],
        )

        @cuda.jit
        def kernel(x, out):
            i = cuda.grid(1)
            if i < x.size:
                mean = 0.0
                for k in range(x.size):
                    mean += x[k]
                out[i] = x[i] - mean / x.size + error

        return exercise(kernel).status

    assert [off_by(error, 1000) for error in (0, 5e-5, 3e-3)] == ["solved", "solved", "wrong"]
    assert [off_by(error, 0) for error in (0, 5e-5)] == ["solved", "wrong"]


def test_another_block_is_tried():
    @cuda.jit
    def of_blocks_of_8(x, a, out):
        i = cuda.blockIdx.x * 8 + cuda.threadIdx.x
        if i < x.size:
            out[i] = a * x[i]

    exercise = KernelExercise("s", scale.reference, lambda rng: vectors(rng)[:2])
    assert exercise(of_blocks_of_8).mistake == "fixed block"
    assert replace(exercise, other_blocks=False)(of_blocks_of_8).status == "solved"


def test_float64_is_allowed_unless_forbidden():
    @cuda.jit
    def in_float64(x, a, out):
        i = cuda.grid(1)
        if i < x.size:
            out[i] = a * x[i] * 0.1 * 10

    assert KernelExercise("s", scale.reference, vectors)(in_float64).status == "solved"
    verdict = scale(in_float64)
    assert verdict.mistake == "float64"
    assert "Line 5 of your kernel: `" in str(verdict)


def test_negative_indices_are_right_if_allowed():
    def mirror(**options):
        return KernelExercise(
            "mirror",
            reference=lambda x, a: a * x[::-1],
            cases=vectors,
            mistakes={"same way": ("It is not turned.", lambda x, a: a * x)},
            **options,
        )

    @cuda.jit
    def from_the_end(x, a, out):
        i = cuda.grid(1)
        if i < x.size:
            out[i] = a * x[-1 - i]

    @cuda.jit
    def one_off(x, a, out):
        i = cuda.grid(1)
        if i < x.size:
            out[i] = a * x[-i]

    @cuda.jit
    def past_the_beginning(x, a, out):
        i = cuda.grid(1)
        if i < x.size:
            out[i] = a * x[-1 - i] + (x[-2 - i] - x[-2 - i])

    assert mirror(from_the_end=True)(from_the_end).status == "solved"
    assert mirror()(from_the_end).mistake == "negative index"
    assert mirror(from_the_end=True)(one_off).mistake == "negative index"
    assert mirror(from_the_end=True)(past_the_beginning).mistake == "reads past the edge"


@pytest.mark.gpu
def test_mistakes_in_large_launches_only_are_found_if_kernels_are_compiled():
    def large(rng):
        return [launch(700, 100, normal(rng, 70_000), np.float32(2), output(70_000))]

    @cuda.jit
    def in_16_bits(x, a, out):
        i = np.uint16(cuda.grid(1))
        if i < x.size:
            out[i] = a * x[i]

    exercise = KernelExercise("s", scale.reference, vectors, large=large)
    assert exercise(scale_right).status == "solved"
    assert scale(in_16_bits).status == "solved"
    verdict = exercise(in_16_bits)
    assert verdict.mistake == "wrong when large"
    assert "Seen with `x` of shape (70000,)" in str(verdict)


def test_work_may_be_repeated_unless_forbidden():
    @cuda.jit
    def by_every_thread(x, a, out):
        for i in range(x.size):
            out[i] = a * x[i]

    lenient = KernelExercise("s", scale.reference, vectors)
    assert lenient(by_every_thread).status == "solved"
    strict = KernelExercise("s", scale.reference, vectors, once=True)
    verdict = strict(by_every_thread)
    assert verdict.mistake == "done more than once"
    assert "64 threads compute the same element" in verdict.message
    assert "Line 4 of your kernel: `out[i] = a * x[i]`" in verdict.details
    assert strict(scale_right).status == "solved"


def test_one_thread_does_not_do_the_work_of_all():
    @cuda.jit
    def by_one(x, a, out):
        if cuda.grid(1) == 0:
            for i in range(x.size):
                out[i] = a * x[i]

    @cuda.jit
    def by_two(x, a, out):
        first = cuda.grid(1)
        if first < 2:
            for i in range(first, x.size, 2):
                out[i] = a * x[i]

    assert KernelExercise("s", scale.reference, vectors)(by_one).status == "solved"
    strict = KernelExercise("s", scale.reference, vectors, once=True)
    assert strict(by_one).mistake == "one thread for all"
    assert "Line 5 of your kernel: `out[i] = a * x[i]`" in strict(by_one).details
    assert strict(by_two).status == "solved"


def test_an_index_from_data_is_no_missing_guard():
    @cuda.jit
    def counted(x, out):
        i = cuda.grid(1)
        if i < x.size:
            out[x[i]] = 1

    def cases(rng):
        return [launch(2, 8, np.array([3, 40, 2]), output(9)) for _ in range(5)]

    verdict = KernelExercise("counted", lambda x: np.ones(9), cases)(counted)
    assert verdict.mistake == "writes past the edge"
    assert "in a thread whose number lies inside" in verdict.message
    assert "order of its axes" not in verdict.message
    assert "out[40]" in str(verdict)


def test_a_missing_guard_is_not_said_to_exist():
    """A thread with an element may write others, which need their own guards."""

    @cuda.jit
    def guarded_outside_of_the_loop(x, a, out):
        i = cuda.grid(1)
        step = cuda.gridsize(1)
        if i < x.size:
            for k in range(x.size // step + 1):
                out[i + k * step] = a

    @cuda.jit
    def loop_one_too_long(x, a, out):
        for i in range(cuda.grid(1), x.size + 1, cuda.gridsize(1)):
            out[i] = a

    @cuda.jit
    def four_elements_per_thread(x, a, out):
        for k in range(4):
            out[4 * cuda.grid(1) + k] = a

    def verdict(kernel, *sizes):
        cases = [launch(1, 8, normal(np.random.default_rng(n), n), np.float32(2), output(n)) for n in sizes]
        return KernelExercise("s", scale.reference, lambda rng: cases)(kernel)

    for kernel in (guarded_outside_of_the_loop, loop_one_too_long, four_elements_per_thread):
        found = verdict(kernel, 11, 16)
        assert found.mistake == "writes past the edge", kernel
        assert "The same thread writes into `out` and past its edge" in found.message
    assert "Does a guard let too many threads pass" in verdict(four_elements_per_thread, 16).message


@pytest.mark.parametrize(
    ("guard", "old", "new"),
    [
        (("if i <= x.size:", "    out[i] = x[i] * a"), "i <= x.size", "i < x.size"),
        (("if i>x.size:", "    return", "out[i] = x[i] * a"), "i>x.size", "i>=x.size"),
        (("if 0 <= i <= x.size:", "    out[i] = x[i] * a"), "i <= x.size", "i < x.size"),
        (
            ("while i <= x.size:", "    out[i] = x[i] * a", "    i += cuda.gridsize(1)"),
            "i <= x.size",
            "i < x.size",
        ),
    ],
    ids=["if", "return", "chain", "while"],
)
def test_an_off_by_one_guard_is_corrected_and_no_second_one_advised(guard, old, new):
    def verdict_on(source):
        name = f"<one too many {zlib.crc32(source.encode())}>"
        linecache.cache[name] = 0, None, source.splitlines(keepends=True), name
        namespace = {"cuda": cuda}
        exec(compile(source, name, "exec"), namespace)
        return scale(namespace["scaled"])

    source = "\n    ".join(("@cuda.jit\ndef scaled(x, a, out):", "i = cuda.grid(1)", *guard)) + "\n"
    verdict = verdict_on(source)
    assert "past its edge: a comparison lets one number too many pass." in verdict.message
    assert any(f"Line 4 of your kernel: `{old}`. Write `{new}` instead." in each for each in verdict.details)
    assert verdict_on(obeyed(verdict, source)).status == "solved"


def test_the_message_asks_for_the_order_of_several_axes():
    @cuda.jit
    def one_down(x, out):
        row, column = cuda.grid(2)[1], cuda.grid(2)[0]
        if row < x.shape[0] and column < x.shape[1]:
            out[row + x.shape[0], column] = x[row, column]

    verdict = image(one_down)
    assert verdict.mistake == "writes past the edge"
    assert "in a thread whose number lies inside" in verdict.message
    assert verdict.message.endswith("Are the indices in the order of its axes?")


def test_indices_from_the_shape_of_another_array_are_no_missing_guard():
    @cuda.jit
    def places_in_the_image(x, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i // x.shape[1], i % x.shape[1]] = x[i // x.shape[1], i % x.shape[1]]

    def cases(rng):
        return [launch(2, 8, normal(rng, (3, 5)), output((3, 3))) for _ in range(5)]

    verdict = KernelExercise("cut", lambda x: x[:, :3], cases)(places_in_the_image)
    assert verdict.mistake == "writes past the edge"
    assert "such as from the shape of another array?" in verdict.message
    assert "Thread 3 of block 0 writes out[0, 3]" in str(verdict)


def test_a_block_is_named_by_its_number():
    @cuda.jit
    def by_the_grid(x, out):
        if cuda.threadIdx.x == 0:
            out[cuda.grid(1)] = x[cuda.blockIdx.x]

    @cuda.jit
    def by_the_block(x, out):
        if cuda.threadIdx.x == 0:
            out[cuda.blockIdx.x] = x[cuda.blockIdx.x]

    def cases(rng):
        return [launch(3, 8, normal(rng, 3), output(3))]

    # In other blocks there would be more of them than elements.
    exercise = KernelExercise("each", lambda x: x, cases, other_blocks=False)
    assert exercise(by_the_block).status == "solved"
    verdict = exercise(by_the_grid)
    assert verdict.mistake == "writes past the edge"
    assert verdict.message.startswith("`out` has an element for each block")


def test_an_index_read_past_an_edge_is_explained_by_that_edge():
    @cuda.jit
    def unguarded(places, out):
        out[places[cuda.grid(1)]] = 1

    def cases(rng):
        return [launch(1, 8, np.array([2, 1, 0], np.int32), output(3))]

    verdict = KernelExercise("sent", lambda places: np.ones(3, np.float32), cases)(unguarded)
    assert verdict.mistake == "reads past the edge"
    assert verdict.message.startswith("The kernel uses `places` past its edge: a guard is missing")


@cuda.jit(device=True)
def meet():
    """Wait for the block, as `block_sum` of the notebooks does."""
    cuda.syncthreads()


def test_a_barrier_is_described_in_one_line():
    assert "In block 0, thread 0 waits at a barrier and thread 4 has finished." in str(
        reverse(reverse_with_a_barrier_for_some)
    )

    @cuda.jit
    def two_barriers(x, out):
        if cuda.threadIdx.x < TILE // 2:
            cuda.syncthreads()
        else:
            cuda.syncthreads()
        out[cuda.grid(1)] = x[cuda.grid(1)]

    verdict = reverse(two_barriers)
    assert "thread 0 waits at a barrier and thread 4 waits at another." in str(verdict)
    assert [line.partition(":")[0] for line in verdict.details if line.startswith("Line")] == [
        "Line 4 of your kernel",
        "Line 6 of your kernel",
    ]


def test_a_name_keeps_its_small_letter():
    @cuda.jit
    def of_arrays(x, a, out):
        out[:] = a * x

    @cuda.jit
    def of_truths(x, out):
        cuda.atomic.add(out, cuda.threadIdx.x, x[0])

    assert "`multiply` of a whole array is not available" in str(scale(of_arrays))
    truths = KernelExercise("t", lambda x: x, lambda rng: [launch(1, 2, np.ones(2, bool), output(2, bool))])
    assert "`cuda.atomic.add` takes " in str(truths(of_truths))


def test_a_barrier_in_a_function_is_described_by_its_name():
    @cuda.jit
    def some_call(x, out):
        i = cuda.grid(1)
        if i < x.size:
            meet()
            out[i] = x[i]

    exercise = KernelExercise("met", lambda x: x, lambda rng: [launch(1, 8, normal(rng, 5), output(5))])
    verdict = exercise(some_call)
    assert verdict.mistake == "divergent barrier"
    assert verdict.message.startswith("Every thread of a block has to reach the barrier in `meet`")


def test_output_of_kernels_is_cut_short(capsys):
    @cuda.jit
    def printing(x, a, out):
        i = cuda.grid(1)
        if i < x.size:
            print("thread", i)
            out[i] = a * x[i]

    assert scale(printing).status == "solved"
    *lines, last = capsys.readouterr().out.splitlines()
    assert len(lines) == 20
    assert lines[0].split() == ["thread", "0"]
    assert re.fullmatch(r"\.\.\. and \d+ more lines, of all cases of the check", last)


def test_output_of_a_function_is_cut_short(capsys):
    def printing(x):
        print(*x, sep="\n")
        return x

    exercise = Exercise("printing", reference=lambda x: x, cases=lambda rng: [(np.ones(30),), (np.ones(31),)])
    assert exercise(printing).status == "solved"
    *lines, last = capsys.readouterr().out.splitlines()
    assert (len(lines), last) == (20, "... and 41 more lines, of all cases of the check")


def test_a_barrier_that_is_not_called_is_named():
    @cuda.jit
    def meets(x, out):
        line = cuda.shared.array(8, float32)
        t = cuda.threadIdx.x
        line[t] = x[t]
        cuda.syncthreads  # noqa: B018 - what is to be told
        out[t] = line[7 - t]

    def cases(rng):
        return [launch(1, 8, normal(rng, 8), output(8)) for _ in range(5)]

    verdict = KernelExercise("meets", lambda x: x[::-1], cases)(meets)
    assert verdict.mistake == "not called"
    assert "write `cuda.syncthreads()`" in verdict.message


def test_only_callables_are_advised_to_be_called():
    @cuda.jit
    def names_places(x, a, out):
        cuda.blockIdx.x  # noqa: B018
        cuda.threadIdx  # noqa: B018
        i = cuda.threadIdx.x
        if i < x.size:
            out[i] = a * x[i]

    assert scale(names_places).mistake == "first block only"


def test_functions_stand_in_for_kernels():
    """The tests of all exercises check each mistake's own function this way."""
    assert scale(StandIn(scale.mistakes["added"][1])).mistake == "added"
    assert scale(StandIn(scale.reference)).status == "solved"


def test_a_launch_without_a_result_raises():
    with pytest.raises(ValueError, match="`output` or an `inout`"):
        launch(1, 8, np.ones(3))


def test_integer_outputs_and_several_of_them():
    both = KernelExercise(
        "both",
        reference=lambda x: (x.argmax(keepdims=True).astype(np.int32), x.max(keepdims=True)),
        cases=lambda rng: [launch(1, 2, normal(rng, n), output(1, np.int32), output(1)) for n in (3, 5)],
    )

    @cuda.jit
    def right(x, place, value):
        if cuda.grid(1) == 0:
            best = int32(0)
            for i in range(x.size):
                if x[i] > x[best]:
                    best = i
            place[0] = best
            value[0] = x[best]

    @cuda.jit
    def half(x, place, value):
        if cuda.grid(1) == 0:
            place[0] = 1

    assert both(right).status == "solved"
    assert both(half).mistake == "never written"


def test_examine_gives_outputs_and_accesses(rng):
    x = normal(rng, 5)
    found = examine(scale_right, launch(1, 8, x, np.float32(2), output(5)))
    np.testing.assert_array_equal(found.outcome.value, 2 * x)
    assert found.report.ok
    assert len(found.report.trace) == 10


def test_the_inputs_of_a_case_stay_as_they_are(rng):
    case = launch(1, 8, normal(rng, 5), np.float32(2), output(5))
    before = case.arguments[0].copy()
    examine(scale_in_place, case)
    np.testing.assert_array_equal(case.arguments[0], before)


# --- on a GPU ----------------------------------------------------------------------------------------------


def test_with_a_gpu_the_kernel_is_run_for_real_as_well(monkeypatch):
    monkeypatch.setattr(kernel_judges.device, "simulated", lambda: False)
    launches = []

    class Compiled:
        """A kernel that is right in the simulator and not on the GPU."""

        py_func, targetoptions = staticmethod(scale_right.py_func), {}

        def __call__(self):
            raise AssertionError("a kernel is launched, not called")

        def __getitem__(self, configuration):
            launches.append(configuration)
            return lambda *arguments: None

    assert scale(Compiled()).mistake == "numbers"
    assert launches == [(1, 8), (3, 8), (2, 32)]
    # Without the search for float64, which would need a compiled kernel.
    assert replace(scale, float32=False)(scale_right).status == "solved"


@cuda.jit
def exchange_in_step(x, out):
    line = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    line[t] = x[cuda.grid(1)]
    out[cuda.grid(1)] = line[t ^ 1]


@cuda.jit
def exchange_between_warps(x, out):
    line = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    line[t] = x[cuda.grid(1)]
    out[cuda.grid(1)] = line[cuda.blockDim.x - 1 - t] if t > 48 else line[t ^ 1]


def pairs_of(*blocks):
    """Return an exercise that exchanges neighbours, launched in these blocks."""
    return KernelExercise(
        "exchange",
        reference=lambda x: x.reshape(-1, 2)[:, ::-1].ravel(),
        cases=lambda rng: [launch(1, block, normal(rng, block), output(block)) for block in blocks],
        other_blocks=False,
    )


def test_the_barrier_of_a_warp_is_advised_within_one_warp():
    verdict = pairs_of(32, 64)(exchange_in_step)
    assert verdict.mistake == "missing barrier"
    assert "another thread of its warp writes it" in verdict.message
    assert "Line 6 of your kernel: `out[cuda.grid(1)] = line[t ^ 1]`. Write `cuda.syncwarp()` before it." in (
        verdict.details
    )


def test_the_barrier_of_the_block_is_advised_if_no_block_has_two_warps():
    assert "Write `cuda.syncthreads()` before it." in str(pairs_of(16, 32)(exchange_in_step))


def test_the_barrier_of_the_block_is_advised_if_warps_meet_elsewhere():
    def exchanged(x):
        return np.where(np.arange(len(x)) > 48, x[::-1], x.reshape(-1, 2)[:, ::-1].ravel())

    verdict = replace(pairs_of(32, 64), reference=exchanged)(exchange_between_warps)
    assert "another thread of its block writes it" in verdict.message
    assert "Write `cuda.syncthreads()` before it." in str(verdict)


@cuda.jit
def gather_with_one_barrier(x, out):
    """Fill a tile repeatedly: the next round may overwrite what others still read."""
    tile = cuda.shared.array(TILE, float32)
    t = cuda.threadIdx.x
    total = float32(0)
    rounds = x.size // TILE
    first = t + 1
    last = first + TILE
    for k in range(rounds):
        tile[t] = x[k * TILE + t]
        cuda.syncthreads()
        for j in range(first, last):
            total += float32(j - t) * tile[j % TILE]
    out[t] = total


gather = KernelExercise(
    "gather",
    reference=lambda x: sum(
        (j + 1) * np.roll(each, -1 - j) for each in x.reshape(-1, TILE) for j in range(TILE)
    ),
    cases=lambda rng: [launch(1, TILE, normal(rng, n * TILE), output(TILE)) for n in (1, 3)],
    other_blocks=False,
)


def test_a_barrier_is_first_tried_in_the_loop_with_both_accesses():
    verdict = gather(gather_with_one_barrier)
    assert verdict.mistake == "missing barrier"
    line = "Line 11 of your kernel: `tile[t] = x[k * TILE + t]`. Write `cuda.syncthreads()` before it."
    assert line in verdict.details
