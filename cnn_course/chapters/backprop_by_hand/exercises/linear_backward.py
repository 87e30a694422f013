"""The gradients of a dense layer, in NumPy."""

import numpy as np

from cnn_course.engine.checks.exercise import Exercise, avoids


def _dense_layers(rng):
    sizes = [(1, 2, 3), (3, 2, 5), (4, 4, 4), (5, 3, 3), (2, 6, 1), (7, 4, 2)]
    return [
        (rng.normal(size=(n, outputs)), rng.normal(size=(n, inputs)), rng.normal(size=(outputs, inputs)))
        for n, outputs, inputs in sizes
    ]


def _linear_backward(grad_output, x, weight):
    return grad_output @ weight, grad_output.T @ x, grad_output.sum(axis=0)


def _with(change):
    """Return a wrong answer: `change` turns the inputs and the right gradients into wrong ones."""
    return lambda grad_output, x, weight: change(
        grad_output, x, weight, *_linear_backward(grad_output, x, weight)
    )


_OTHER_ORDERS = (
    lambda g, x, w, gi, gw, gb: (gw, gb, gi),
    lambda g, x, w, gi, gw, gb: (gw, gi, gb),
    lambda g, x, w, gi, gw, gb: (gb, gw, gi),
    lambda g, x, w, gi, gw, gb: (gb, gi, gw),
    lambda g, x, w, gi, gw, gb: (gi, gb, gw),
)

linear_backward = Exercise(
    "linear_backward",
    reference=_linear_backward,
    cases=_dense_layers,
    properties=(avoids("linear_backward_input", "linear_backward_weight", "linear_backward_bias", "torch"),),
    mistakes={
        "mean over the batch": (
            "You divide by the number of samples. The loss has done that already, so the division is already "
            "in `{grad_output}`. Just add up the samples.",
            _with(lambda g, x, w, gi, gw, gb: (gi, gw / len(x), gb / len(x))),
            _with(lambda g, x, w, gi, gw, gb: (gi, gw / len(x), gb)),
            [(".T @ x", ".T @ x / len(x)"), (".sum(axis=0)", ".sum(axis=0) / len(x)")],
            (".T @ x", ".T @ x / len(x)"),
        ),
        "bias mean": (
            "`grad_bias` is the mean over the samples. Return their sum.",
            _with(lambda g, x, w, gi, gw, gb: (gi, gw, gb / len(x))),
            ("grad_output.sum(axis=0)", "grad_output.mean(axis=0)"),
        ),
        "bias not summed": (
            "`grad_bias` has a row for each sample. Every sample uses the bias: sum over the batch.",
            _with(lambda g, x, w, gi, gw, gb: (gi, gw, g)),
            ("grad_output.sum(axis=0)", "grad_output"),
        ),
        "bias over the outputs": (
            "`grad_bias` has an entry for each sample: you sum over the outputs. Sum over the samples.",
            _with(lambda g, x, w, gi, gw, gb: (gi, gw, g.sum(axis=1))),
            ("grad_output.sum(axis=0)", "grad_output.sum(axis=1)"),
        ),
        "last sample only": (
            "`grad_weight` has only the last sample: `=` overwrites the sum where `+=` adds to it.",
            _with(lambda g, x, w, gi, gw, gb: (gi, np.outer(g[-1], x[-1]), gb)),
            (
                "return grad_output @ weight, grad_output.T @ x",
                "for n in range(len(x)):\n    grad_weight = np.outer(grad_output[n], x[n])\n"
                "return grad_output @ weight, grad_weight",
            ),
        ),
        "weight gradient transposed": (
            "`grad_weight` is transposed: it has the shape of `{weight}`, the outputs first.",
            _with(lambda g, x, w, gi, gw, gb: (gi, gw.T, gb)),
            ("grad_output.T @ x", "x.T @ grad_output"),
        ),
        "weight transposed": (
            "`{weight}.T` belongs to the forward pass. Sum over the outputs here: `{grad_output} @ "
            "{weight}`.",
            _with(lambda g, x, w, gi, gw, gb: (g @ w.T, gw, gb)),
            ("grad_output @ weight", "grad_output @ weight.T"),
        ),
        "other order": (
            "Return the three in this order: `grad_input`, `grad_weight`, `grad_bias`.",
            *map(_with, _OTHER_ORDERS),
            ("grad_output @ weight, grad_output.T @ x", "grad_output.T @ x, grad_output @ weight"),
            (
                "grad_output @ weight, grad_output.T @ x, grad_output.sum(axis=0)",
                "grad_output.T @ x, grad_output.sum(axis=0), grad_output @ weight",
            ),
        ),
        "ones sent back": (
            "Your `grad_weight` and `grad_bias` treat `{grad_output}` as ones: multiply by it.",
            _with(
                lambda g, x, w, gi, gw, gb: (gi, np.ones_like(g).T @ x, np.full(g.shape[1], float(len(g))))
            ),
            [
                ("return", "ones = np.ones_like(grad_output)\nreturn"),
                ("grad_output.T @ x, grad_output.sum(axis=0)", "ones.T @ x, ones.sum(axis=0)"),
            ],
        ),
    },
)
