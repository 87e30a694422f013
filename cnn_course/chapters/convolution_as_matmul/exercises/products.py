"""Products with wide loads, and with split sums: exercises of notebook 14."""

from itertools import permutations

import numpy as np

from cnn_course.chapters.dense_layers.exercises import product
from cnn_course.engine.checks.exercise import Wrong
from cnn_course.engine.checks.kernels import KernelExercise, examine, launch, normal, output, uses
from cnn_course.engine.checks.writes import at_most
from cnn_numba import device
from gpuless.access import READ

# --- Four results, four numbers per load -------------------------------------------------------------------


def _flat(multiply):
    """Return `multiply` as a function of `a`, a flat `b` and its width, with a flat result."""
    return lambda a, b, n: multiply(
        np.asarray(a, np.float64), np.asarray(b, np.float64).reshape(-1, n)
    ).ravel()


def _regrouped(order):
    """Return a mistake's function: the four results of each group are in another order."""
    return lambda a, b: (a @ b).reshape(len(a), -1, 4)[:, :, order]


def _of_the_first_row(a, b):
    return a.sum(axis=1, keepdims=True) * b[0]


def _of_the_first_group(a, b):
    return np.tile(a @ b[:, :4], b.shape[1] // 4)


def _flat_products(rng):
    for block, (m, k, n) in [
        ((2, 4), (3, 2, 4)),
        ((2, 4), (5, 3, 12)),
        ((4, 2), (1, 7, 8)),
        ((1, 4), (6, 5, 20)),
        ((4, 2), (9, 1, 16)),
        ((2, 2), (7, 9, 28)),
    ]:
        grid = device.blocks(n // 4, block[0]), device.blocks(m, block[1])
        yield launch(grid, block, normal(rng, (m, k)), normal(rng, k * n), n, output(m * n))


def _large_flat_products(rng):
    m, k, n = 67, 300, 92
    grid = device.blocks(n // 4, 4), device.blocks(m, 2)
    yield launch(grid, (4, 2), normal(rng, (m, k)), normal(rng, k * n), n, output(m * n))


def _loads_four_numbers(attempt):
    """Demand that a thread reads four numbers of `b` per step of its sums."""
    case = next(_flat_products(np.random.default_rng(0)))
    trace = examine(attempt, case).report.trace
    k = case.args[0].shape[1]
    in_b = (trace.kind == READ) & (trace.array == 1)
    most = int(np.bincount(trace.thread[in_b]).max())
    if most > 4 * k:
        raise Wrong(
            "loaded again",
            f"The numbers are right, but a thread reads {most / k:.3g} numbers of `b` per step of its sums. "
            "It needs only four: call `load4` once, and name its four numbers.",
        )


matmul_1x4_kernel = KernelExercise(
    "matmul_1x4_kernel",
    reference=_flat(product),
    cases=_flat_products,
    large=_large_flat_products,
    float32=True,
    once=True,
    properties=(
        uses("load4", "store4"),
        at_most(4, lambda rng: next(_flat_products(rng))),
        _loads_four_numbers,
    ),
    mistakes={
        "first row only": (
            "Every step loads from row 0 of `{b}`. In a flat matrix, row `k` begins at `k * {n}`.",
            _flat(_of_the_first_row),
            ("k * n + column", "column"),
        ),
        "first group only": (
            "Every thread of a row loads the same four columns. Add the thread's own `column`.",
            _flat(_of_the_first_group),
            ("k * n + column", "k * n"),
        ),
        "results repeated": (
            "Results of a thread are the same. Each of the four needs its own number of `{b}`.",
            _flat(_regrouped([0, 0, 0, 0])),
            *(
                _flat(_regrouped([other if k == one else k for k in range(4)]))
                for one, other in permutations(range(4), 2)
            ),
            [("left * b1", "left * b0"), ("left * b2", "left * b0"), ("left * b3", "left * b0")],
            ("left * b3", "left * b2"),
        ),
        "results reversed": (
            "The four results of a thread are stored in reverse order.",
            _flat(_regrouped([3, 2, 1, 0])),
            ("t0, t1, t2, t3)", "t3, t2, t1, t0)"),
        ),
        "last step only": (
            "Each sum has only its last product: start the four sums at zero, and add to them.",
            _flat(lambda a, b: a[:, -1:] * b[-1:]),
            [
                (
                    "t0, t1, t2, t3 = t0 + left * b0, t1 + left * b1, t2 + left * b2, t3 + left * b3",
                    "t0, t1, t2, t3 = left * b0, left * b1, left * b2, left * b3",
                )
            ],
        ),
    },
)


# --- A part of each sum ------------------------------------------------------------------------------------


def _in_parts(bounds):
    """Return a function that adds up the products in `bounds(part, depth, length)`, in float64."""

    def function(a, b, depth):
        length = a.shape[1]
        parts = range(-(-length // depth))
        return np.stack(
            [product(a[:, ks], b[ks]) for ks in (slice(*bounds(i, depth, length)) for i in parts)]
        )

    return function


_right_parts = _in_parts(lambda part, depth, length: (part * depth, (part + 1) * depth))


def _split_products(rng):
    for block, (m, k, n, depth) in [
        ((4, 2, 1), (2, 3, 4, 2)),
        ((4, 2, 1), (3, 1, 5, 3)),
        ((4, 2, 1), (1, 7, 2, 2)),
        ((2, 2, 3), (4, 6, 3, 3)),
        ((4, 1, 2), (5, 9, 6, 4)),  # equal parts would have a depth of 3
        ((8, 2, 4), (3, 9, 7, 2)),
    ]:
        parts = -(-k // depth)
        grid = tuple(map(device.blocks, (n, m, parts), block))
        yield launch(grid, block, normal(rng, (m, k)), normal(rng, (k, n)), depth, output((parts, m, n)))


split_kernel = KernelExercise(
    "split_kernel",
    reference=_right_parts,
    cases=_split_products,
    float32=True,
    once=True,
    properties=(at_most(1, lambda rng: next(_split_products(rng))),),
    mistakes={
        "whole sum in each part": (
            "Every part sums all products. Part `part` sums `{depth}` of them, from `part * {depth}` on.",
            _in_parts(lambda part, depth, length: (0, length)),
            ("range(first, last)", "range(a.shape[1])"),
        ),
        "first part everywhere": (
            "All parts sum the first `{depth}` products. Where does part `part` begin?",
            _in_parts(lambda part, depth, length: (0, depth)),
            ("first = part * depth", "first = 0"),
        ),
        "from the beginning": (
            "Each part begins with the first product. Begin where the previous part ends.",
            _in_parts(lambda part, depth, length: (0, (part + 1) * depth)),
            ("range(first, last)", "range(last)"),
        ),
        "one product apart": (
            "Your parts begin one product apart, and overlap. Part `part` begins at `part * {depth}`.",
            _in_parts(lambda part, depth, length: (part, part + depth)),
            ("part * depth", "part"),
        ),
        "to the end": (
            "Each part runs to the end of the sum. End it where the next part begins.",
            _in_parts(lambda part, depth, length: (part * depth, length)),
            ("range(first, last)", "range(first, a.shape[1])"),
        ),
        "one short": (
            "The last product of each part is missing: `range(first, last)` already ends at `last - 1`.",
            _in_parts(lambda part, depth, length: (part * depth, min((part + 1) * depth, length) - 1)),
            ("range(first, last)", "range(first, last - 1)"),
        ),
        "every so many": (
            "Your parts alternate: part `i` has products `i`, `i + parts`, and so on. Their sum is right, "
            "but a tile holds neighbours. Give each part `{depth}` neighbouring products.",
            _in_parts(lambda part, depth, length: (part, length, -(-length // depth))),
            ("range(first, last)", "range(part, a.shape[1], parts.shape[0])"),
        ),
        "parts in reverse": (
            "The parts are in reverse order. The first products belong to part 0.",
            lambda a, b, depth: _right_parts(a, b, depth)[::-1],
            ("parts[part, row, column]", "parts[parts.shape[0] - 1 - part, row, column]"),
        ),
    },
)
