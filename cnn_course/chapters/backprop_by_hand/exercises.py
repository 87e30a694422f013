"""The checks of notebook 07, ``07_backprop_by_hand``."""

import numpy as np

from cnn_course.chapters.backprop_by_hand.gradient_bugs import BUGS, PATIENTS
from cnn_course.engine.checks.exercise import Exercise, Wrong, avoids, case
from cnn_course.engine.checks.mimics import one_hot
from cnn_numba.ops.conv.reference import conv2d_backward_weight
from cnn_numba.ops.loss.reference import cross_entropy_forward_backward

# --- linear_backward ---------------------------------------------------------------------------------------


def _dense_layers(rng):
    sizes = [(1, 2, 3), (3, 2, 5), (4, 4, 4), (5, 3, 3), (2, 6, 1), (7, 4, 2)]
    return [
        (rng.normal(size=(n, outputs)), rng.normal(size=(n, inputs)), rng.normal(size=(outputs, inputs)))
        for n, outputs, inputs in sizes
    ]


def _linear_backward(grad_output, x, weight):
    return grad_output @ weight, grad_output.T @ x, grad_output.sum(axis=0)


def _with(change):
    """Return a wrong answer: the three right gradients, changed by a function of them and the inputs."""
    return lambda grad_output, x, weight: change(
        grad_output, x, weight, *_linear_backward(grad_output, x, weight)
    )


linear_backward = Exercise(
    "linear_backward",
    reference=_linear_backward,
    cases=_dense_layers,
    properties=(avoids("linear_backward_input", "linear_backward_weight", "linear_backward_bias"),),
    mistakes={
        "mean over the batch": (
            "You divide by the number of samples. The loss has done that already, so the division is in "
            "`{grad_output}`. Here add the samples up.",
            _with(lambda g, x, w, gi, gw, gb: (gi, gw / len(x), gb / len(x))),
            [(".T @ x", ".T @ x / len(x)"), (".sum(axis=0)", ".sum(axis=0) / len(x)")],
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
        "weight gradient transposed": (
            "`grad_weight` is transposed: it has the shape of `{weight}`, the outputs first.",
            _with(lambda g, x, w, gi, gw, gb: (gi, gw.T, gb)),
            ("grad_output.T @ x", "x.T @ grad_output"),
        ),
        "weight transposed": (
            "`{weight}.T` belongs to the forward pass. Here sum over the outputs: `{grad_output} @ "
            "{weight}`.",
            _with(lambda g, x, w, gi, gw, gb: (g @ w.T, gw, gb)),
            ("grad_output @ weight", "grad_output @ weight.T"),
        ),
        "other order": (
            "Return the three in this order: `grad_input`, `grad_weight`, `grad_bias`.",
            _with(lambda g, x, w, gi, gw, gb: (gw, gb, gi)),
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

# --- conv_backward_weight ----------------------------------------------------------------------------------


def _convolutions(rng):
    """Draw stride 1 without padding first, then one of the two, then both; never anything square."""
    settings = [
        ((1, 1, 4, 3), 1, (2, 2), 1, 0),
        ((2, 1, 5, 6), 2, (2, 3), 1, 0),
        ((3, 2, 6, 5), 1, (3, 3), 1, 1),
        ((2, 3, 7, 6), 2, (3, 2), 2, 0),
        ((2, 2, 7, 9), 3, (3, 3), 2, 1),
        ((2, 2, 8, 7), 3, (2, 4), 3, 1),
    ]
    for shape, filters, kernel, stride, padding in settings:
        size = [(n + 2 * padding - k) // stride + 1 for n, k in zip(shape[2:], kernel, strict=True)]
        grad_output = rng.normal(size=(shape[0], filters, *size))
        yield case(grad_output, rng.normal(size=shape), kernel, stride, padding)


def _backward_weight(grad_output, x, kernel_size, stride, padding):
    shape = grad_output.shape[1], x.shape[1], *kernel_size
    return conv2d_backward_weight(grad_output, x, shape, stride, padding)


def _taps(grad_output, x, kernel_size, stride, padding):
    """Compute the gradients tap by tap, as the exercise does, with whatever padding and stride."""
    out_h, out_w = grad_output.shape[2:]
    padded = np.pad(x, [(0, 0), (0, 0), (padding, padding), (padding, padding)])
    result = np.zeros((grad_output.shape[1], x.shape[1], *kernel_size))
    for kh, kw in np.ndindex(*kernel_size):
        pixels = padded[:, :, kh : kh + stride * out_h : stride, kw : kw + stride * out_w : stride]
        result[:, :, kh, kw] = np.einsum("nohw,nihw->oi", grad_output, pixels)
    return result


def _sides_exchanged(grad_output, x, kernel_size, stride, padding):
    result = np.zeros((grad_output.shape[1], x.shape[1], *kernel_size))
    exchanged = _taps(grad_output, x, kernel_size[::-1], stride, padding)
    for kh, kw in np.ndindex(*kernel_size):
        result[:, :, kh, kw] = exchanged[:, :, kw, kh]
    return result


conv_backward_weight = Exercise(
    "conv_backward_weight",
    reference=_backward_weight,
    cases=_convolutions,
    properties=(avoids("conv2d_backward_weight", "conv2d_weight"),),
    mistakes={
        "stride ignored": (
            "Right for stride 1 only. Output `oh` looks at pixel `{stride} * oh + kh`.",
            lambda g, x, kernel_size, stride, padding: _taps(g, x, kernel_size, 1, padding),
            [("kh + stride * out_h, stride", "kh + out_h"), ("kw + stride * out_w, stride", "kw + out_w")],
        ),
        "padding left out": (
            "Right without padding only. The forward pass padded with zeros: use `np.pad` here too.",
            lambda g, x, kernel_size, stride, padding: _taps(g, x, kernel_size, stride, 0),
            ("(padding, padding), (padding, padding)", "(0, 0), (0, 0)"),
        ),
        "flipped": (
            "Your gradient is turned by 180 degrees: weight `(kh, kw)` meets the pixel that lies `kh` rows "
            "below and `kw` columns right of the window's corner. There is no flip in this one.",
            lambda *args: _backward_weight(*args)[:, :, ::-1, ::-1],
            ("grad_weight[:, :, kh, kw]", "grad_weight[:, :, -1 - kh, -1 - kw]"),
        ),
        "mean over the batch": (
            "You divide by the number of images. The loss has done that already: add them up here.",
            lambda g, x, *rest: _backward_weight(g, x, *rest) / len(x),
            ('"nohw,nihw->oi", grad_output, pixels', '"nohw,nihw->noi", grad_output, pixels).mean(axis=0'),
        ),
        "last image only": (
            "Only the last image counts: `=` overwrites the sum where `+=` adds to it.",
            lambda g, x, *rest: _backward_weight(g[-1:], x[-1:], *rest),
            ('"nohw,nihw->oi", grad_output, pixels', '"ohw,ihw->oi", grad_output[-1], pixels[-1]'),
        ),
        "channels exchanged": (
            "The two channel axes are exchanged: a filter is `(out_channels, in_channels, kh, kw)`.",
            lambda *args: _backward_weight(*args).swapaxes(0, 1),
            [("grad_output.shape[1], x.shape", "x.shape[1], grad_output.shape"), ('->oi",', '->io",')],
        ),
        "averaged": (
            "You divide by the number of outputs of an image. Add their gradients up instead.",
            lambda g, x, *rest: _backward_weight(g, x, *rest) / (g.shape[2] * g.shape[3]),
            (
                'grad_weight[:, :, kh, kw] = np.einsum("nohw,nihw->oi", grad_output, pixels)',
                "products = grad_output[:, :, None] * pixels[:, None]\n"
                "grad_weight[:, :, kh, kw] = products.mean(axis=(3, 4)).sum(axis=0)",
            ),
        ),
        "input channels summed": (
            "All input channels get the same gradient, the sum of theirs: keep the index `i`.",
            lambda g, x, *rest: _backward_weight(
                g, np.broadcast_to(x.sum(axis=1, keepdims=True), x.shape), *rest
            ),
            ('("nohw,nihw->oi", grad_output, pixels)', '("nohw,nihw->o", grad_output, pixels)[:, None]'),
        ),
        "sides exchanged": (
            "You have exchanged `kh` and `kw`: the first counts rows and comes first in `grad_weight`.",
            _sides_exchanged,
            [
                ("for kh in range(kernel_size[0])", "for kh in range(kernel_size[1])"),
                ("for kw in range(kernel_size[1])", "for kw in range(kernel_size[0])"),
                ("grad_weight[:, :, kh, kw]", "grad_weight[:, :, kw, kh]"),
            ],
        ),
    },
)

# --- cross_entropy_gradient --------------------------------------------------------------------------------


def _scores(rng):
    """Draw scores, the last ones so large that their exponentials overflow."""
    sizes = [(1, 2, 1), (3, 4, 1), (5, 3, 3), (4, 4, 2), (2, 7, 1), (6, 3, 2), (3, 5, 900)]
    return [
        (scale * rng.normal(size=(n, k)), rng.integers(0, k, n).astype(np.int32)) for n, k, scale in sizes
    ]


def _softmax(logits):
    exponentials = np.exp(logits)
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def _right(logits, labels):
    return cross_entropy_forward_backward(logits, labels.astype(np.int32))[1]


def _stable_softmax(logits, axis):
    exponentials = np.exp(logits - logits.max(axis=axis, keepdims=True))
    return exponentials / exponentials.sum(axis=axis, keepdims=True)


def _whole_columns(logits, labels):
    gradient = _stable_softmax(logits, 1)
    gradient[:, labels] -= 1
    return gradient / len(labels)


def _of_the_probability(logits, labels):
    gradient, at = np.zeros(logits.shape), (np.arange(len(labels)), labels)
    gradient[at] = -1 / _stable_softmax(logits, 1)[at]
    return gradient / len(labels)


cross_entropy_gradient = Exercise(
    "cross_entropy_gradient",
    reference=_right,
    cases=_scores,
    properties=(avoids("cross_entropy_backward", "cross_entropy_forward_backward", "cross_entropy"),),
    mistakes={
        "sum over the batch": (
            "This is the gradient of the summed losses. The loss is their mean: divide by the batch size.",
            lambda logits, labels: _right(logits, labels) * len(labels),
            ("gradient / len(labels)", "gradient"),
        ),
        "label left out": (
            "You return the softmax alone. Subtract 1 from the entry of each sample's right class.",
            lambda logits, labels: _right(logits, labels) + one_hot(logits, labels) / len(labels),
            ("gradient[np.arange(len(labels)), labels] -= 1", ""),
        ),
        "divided by all": (
            "You divide by the number of all scores. The mean is over the samples: divide by their number.",
            lambda logits, labels: _right(logits, labels) / logits.shape[1],
            ("gradient / len(labels)", "gradient / gradient.size"),
        ),
        "overflow": (
            "Right, until a score is large: `np.exp(800)` is infinite, and infinite divided by infinite is "
            "NaN. Subtract the row's largest score from all of them first; the softmax stays the same.",
            lambda logits, labels: (_softmax(logits) - one_hot(logits, labels)) / len(labels),
            ("logits - logits.max(axis=1, keepdims=True)", "logits"),
        ),
        "largest of the batch": (
            "Right, until the scores of one sample lie far below those of another: if you subtract the "
            "largest score of the batch, all exponentials of a row may be 0. Use the largest of each row: "
            "`max(axis=1, keepdims=True)`.",
            lambda logits, labels: (_softmax(logits - logits.max()) - one_hot(logits, labels)) / len(labels),
            ("logits.max(axis=1, keepdims=True)", "logits.max()"),
        ),
        "largest of each column": (
            "You subtract the largest of each column, which changes the softmax. Use each row's: `axis=1`.",
            lambda logits, labels: (
                (_softmax(logits - logits.max(axis=0)) - one_hot(logits, labels)) / len(labels)
            ),
            ("logits.max(axis=1, keepdims=True)", "logits.max(axis=0)"),
        ),
        "down the columns": (
            "Your softmax runs over the samples. The probabilities of one sample add up to 1: `axis=1`.",
            lambda logits, labels: (_stable_softmax(logits, 0) - one_hot(logits, labels)) / len(labels),
            ("axis=1", "axis=0", 2),
        ),
        "over the whole array": (
            "You divide by one sum for the whole batch. Each sample has its own: `axis=1`, `keepdims=True`.",
            lambda logits, labels: (_stable_softmax(logits, None) - one_hot(logits, labels)) / len(labels),
            ("axis=1", "axis=None", 2),
        ),
        "whole columns": (
            "`gradient[:, {labels}]` takes whole columns. Take one entry a row: `[np.arange(n), {labels}]`.",
            _whole_columns,
            ("gradient[np.arange(len(labels)), labels]", "gradient[:, labels]"),
        ),
        "of the probability": (
            "-1/p is the derivative with respect to the probability. Go one step further, to the logits.",
            _of_the_probability,
            (
                "gradient[np.arange(len(labels)), labels] -= 1",
                "at = np.arange(len(labels)), labels\n"
                "slopes, gradient = -1 / gradient[at], np.zeros(logits.shape)\n"
                "gradient[at] = slopes",
            ),
        ),
    },
)

# --- name_the_bug ------------------------------------------------------------------------------------------

_SIGNS = {
    "flipped filter": "A flipped filter would spoil the gradient of the images, all over, and with every "
    "stride and padding. All that comes before it on the way back would be right.",
    "padding row skipped": "A skipped padding row would spoil the uppermost rows of the images' gradient and "
    "no others, and nothing at all with padding 0.",
    "stride ignored": "With the stride ignored the gradient of the images would be pushed together in a "
    "corner, and be right with stride 1.",
    "sum over the batch": "A sum in place of the mean would make every gradient too large, by the same "
    "factor, from the logits on; with one image it would do no harm.",
    "last image only": "Were only the last image counted, the gradient of the filters would be wrong and "
    "that of the images right; with one image nothing would be wrong.",
    "tie sent twice": "Ties sent twice would show from the convolution's output on, where an image is flat: "
    "several pixels of one window get the whole gradient.",
    "pooled as an average": "Pooled as an average, every window would spread its gradient evenly over its "
    "pixels, in flat places and in others.",
    "gate left open": "With ReLU's gate open, the convolution's output would have gradients where the right "
    "ones are 0, because ReLU had cut the pixel off.",
}


def _named(attempt, patient):
    """Call the attempt on one patient; return the number of the name, or say what speaks against it."""
    answer = attempt(patient)
    if answer is ...:
        return answer
    if not isinstance(answer, str):
        given = f"a value of type `{type(answer).__name__}`"
        raise Wrong("not a name", f"Give a name, a string, for patient {patient}; yours is {given}.")
    if answer not in BUGS:
        names = ", ".join(f"`{name}`" for name in BUGS)
        raise Wrong("unknown name", f"`{answer}` is not in the list. The names are: {names}.")
    if answer != PATIENTS[patient]:
        message = f"Patient {patient} has something else. {_SIGNS[answer]}"
        found = [letter for letter, bug in PATIENTS.items() if attempt(letter) == bug]
        known = [f"Right already: {', '.join(found)}."] if found else []
        raise Wrong(f"no {answer}", message, "Move the sliders and see whether that is so.", *known)
    return list(BUGS).index(answer)


name_the_bug = Exercise(
    "name_the_bug",
    reference=lambda patient: list(BUGS).index(PATIENTS[patient]),
    cases=lambda rng: [(patient,) for patient in PATIENTS],
    run=_named,
    properties=(avoids("PATIENTS", "gradient_bugs"),),
)
