"""The checks of notebook 06, ``06_dense_layers``."""

import numpy as np

from cnn_course.engine.checks.kernels import KernelExercise, launch, normal, output
from cnn_course.engine.checks.mimics import turned, within
from cnn_numba import device


def product(a, b):
    """Return ``a @ b``, computed in float64."""
    return np.asarray(a, np.float64) @ b


def multiplications(rng, block, covered, shapes):
    """Draw matrices for each (M, K, N) in `shapes`; a block covers ``covered`` results, x first."""
    return [
        launch(
            (device.blocks(n, covered[0]), device.blocks(m, covered[1])),
            block,
            normal(rng, (m, k)),
            normal(rng, (k, n)),
            output((m, n)),
        )
        for m, k, n in shapes
    ]


# --- One thread for each result ----------------------------------------------------------------------------

matmul_kernel = KernelExercise(
    "matmul_kernel",
    reference=product,
    cases=lambda rng: multiplications(
        rng, (4, 2), (4, 2), [(2, 3, 4), (3, 1, 5), (1, 6, 2), (5, 4, 7), (9, 5, 6), (7, 11, 3)]
    ),
    large=lambda rng: multiplications(rng, (4, 2), (4, 2), [(67, 300, 91)]),
    float32=True,
    once=True,
    mistakes={
        "b transposed": (
            "You go along a row of `{b}`, as if it were transposed: use `{b}[k, column]`.",
            lambda a, b: a @ turned(b),
            ("b[k, column]", "b[column, k]"),
        ),
        "a transposed": (
            "You go down a column of `{a}`, as if it were transposed: use `{a}[row, k]`.",
            lambda a, b: turned(a) @ b,
            ("a[row, k]", "a[k, row]"),
        ),
        "wrong length": (
            "Your sum runs over the number of rows of `{a}`. Let it run along a row, over `{a}.shape[1]`.",
            lambda a, b: (
                within(a, len(a), max(a.shape))[:, : len(a)]
                @ within(b, max(len(a), len(b)), b.shape[1])[: len(a)]
            ),
            ("range(a.shape[1])", "range(a.shape[0])"),
        ),
        "one short": (
            "The last product of each sum is missing: `range(n)` ends at `n - 1` by itself.",
            lambda a, b: product(a[:, :-1], b[:-1]),
            ("range(a.shape[1])", "range(a.shape[1] - 1)"),
        ),
        "last product only": (
            "Each result is its last product: do you use `=` instead of `+=`, or reset the sum to zero?",
            lambda a, b: product(a[:, -1:], b[-1:]),
            [("out[row, column] = total", ""), ("total +=", "out[row, column] =")],
        ),
        "added, not multiplied": (
            "You add the two numbers of each pair. Multiply them, and add up the products.",
            lambda a, b: a.sum(axis=1, keepdims=True) + b.sum(axis=0),
            ("a[row, k] * b[k, column]", "a[row, k] + b[k, column]"),
        ),
    },
)


# --- The layer ---------------------------------------------------------------------------------------------


def _rectified(total, relu):
    return np.maximum(total, 0) if relu else total


def _unturned(x, weight, bias):
    side = max(weight.shape)
    return x @ within(weight, side, side)[: weight.shape[1], : weight.shape[0]] + bias


def _layers(rng):
    # Never more images than features, so indexing the bias by the image stays within bounds.
    shapes = [(2, 3, 4), (1, 5, 3), (3, 4, 7), (5, 7, 6), (4, 9, 10), (6, 2, 13)]
    return [
        launch(
            (device.blocks(o, 4), device.blocks(n, 2)),
            (4, 2),
            normal(rng, (n, i)),
            normal(rng, (o, i)),
            normal(rng, o),
            number % 2 == 0,
            output((n, o)),
        )
        for number, (n, i, o) in enumerate(shapes)
    ]


dense_kernel = KernelExercise(
    "dense_kernel",
    reference=lambda x, weight, bias, relu: _rectified(product(x, weight.T) + bias, relu),
    cases=_layers,
    float32=True,
    once=True,
    mistakes={
        "bias per row": (
            "Your bias belongs to rows, which are images. It belongs to output features: `{bias}[column]`.",
            lambda x, weight, bias, relu: _rectified(product(x, weight.T) + bias[: len(x), None], relu),
            ("bias[column]", "bias[row]"),
        ),
        "bias left out": (
            "The bias is missing: add `{bias}[column]` once, to the complete sum.",
            lambda x, weight, bias, relu: _rectified(product(x, weight.T), relu),
            ("bias[column]", "float32(0)"),
        ),
        "bias for each product": (
            "You add the bias once per product. Add it once, before or after the loop.",
            lambda x, weight, bias, relu: _rectified(product(x, weight.T) + weight.shape[1] * bias, relu),
            [("bias[column]", "float32(0)"), ("weight[column, k]", "weight[column, k] + bias[column]")],
        ),
        "bias after ReLU": (
            "You add the bias after ReLU, so some results are negative: first the bias, then ReLU.",
            lambda x, weight, bias, relu: _rectified(product(x, weight.T), relu) + bias,
            [("bias[column]", "float32(0)"), ("= total", "= total + bias[column]")],
        ),
        "ReLU left out": (
            "Some results are negative with `{relu}=True`: store 0 instead.",
            lambda x, weight, bias, relu: product(x, weight.T) + bias,
            ("total = float32(0) if total <= float32(0) else total", "pass"),
        ),
        "ReLU always": (
            "You apply ReLU even with `{relu}=False`. The last layer needs its sums without ReLU.",
            lambda x, weight, bias, relu: np.maximum(product(x, weight.T) + bias, 0),
            ("if relu:", "if True:"),
        ),
        "ReLU the wrong way round": (
            "You apply ReLU where `{relu}` is false, and leave it out where it is true.",
            lambda x, weight, bias, relu: _rectified(product(x, weight.T) + bias, not relu),
            ("if relu:", "if not relu:"),
        ),
        "ReLU of each product": (
            "You replace negative *products* by 0. Apply ReLU to the complete sum, with the bias.",
            lambda x, weight, bias, relu: _rectified(
                _rectified(np.asarray(x, np.float64)[:, None] * weight, relu).sum(axis=2) + bias, relu
            ),
            lambda x, weight, bias, relu: _rectified(
                np.maximum(np.asarray(x, np.float64)[:, None] * weight, 0).sum(axis=2) + bias, relu
            ),
            ("x[row, k] * weight[column, k]", "max(x[row, k] * weight[column, k], float32(0))"),
            (
                "total += x[row, k] * weight[column, k]",
                "product = x[row, k] * weight[column, k]\n"
                "total += max(product, float32(0)) if relu else product",
            ),
        ),
        "absolute value": (
            "You store the absolute value. Negative numbers must become 0.",
            lambda x, weight, bias, relu: (np.abs if relu else np.asarray)(product(x, weight.T) + bias),
            ("float32(0) if total <= float32(0) else total", "abs(total)"),
        ),
        "weight not transposed": (
            "The rows of the weight are the outputs: `{weight}[column, k]`, not `{weight}[k, column]`.",
            lambda x, weight, bias, relu: _rectified(_unturned(x, weight, bias), relu),
            # `total if total > 0 else 0`, for uninitialised memory.
            lambda x, weight, bias, relu: (np.fmax if relu else np.add)(_unturned(x, weight, bias), 0),
            ("weight[column, k]", "weight[k, column]"),
            [
                ("weight[column, k]", "weight[k, column]"),
                ("float32(0) if total <= float32(0) else total", "total if total > 0 else float32(0)"),
            ],
        ),
    },
)
