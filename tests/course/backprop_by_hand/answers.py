"""Wrong answers beside those that `mistakes` of the exercises hold."""

import numpy as np
from wrong_answers import wrong

WRONG = {
    "linear_backward": {
        "type": [("grad_output.T @ x, grad_output.sum(axis=0)", "grad_output.T @ x")],
        "returns None": [("return grad_output", "grad_output")],
        "shape": [
            ("grad_output.sum(axis=0)", "grad_output.sum(axis=0, keepdims=True)"),
            ("grad_output.sum(axis=0)", "grad_output.sum(axis=0, keepdims=True)"),
        ],
        "changes input": [
            (
                "return grad_output @ weight",
                "grad_input = grad_output @ weight\nx *= 0\nx += grad_input\nreturn grad_input",
            )
        ],
    },
    "conv_backward_weight": {
        "not initialised": [
            [
                (
                    "np.zeros((grad_output.shape[1], x.shape[1], *kernel_size))",
                    "np.empty((grad_output.shape[1], x.shape[1], *kernel_size))",
                ),
                (
                    'grad_weight[:, :, kh, kw] = np.einsum("nohw,nihw->oi", grad_output, pixels)',
                    'grad_weight[:, :, kh, kw] += np.einsum("nohw,nihw->oi", grad_output, pixels)',
                ),
            ]
        ],
    },
    "cross_entropy_gradient": {
        "negated": [("gradient / len(labels)", "-gradient / len(labels)")],
        "changes input": [
            (
                "exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))",
                "logits -= logits.max(axis=1, keepdims=True)\nexponentials = np.exp(logits)",
            )
        ],
    },
    "name_the_bug": {
        "no flipped filter": [
            [('"stride ignored"', '"flipped filter"'), ('"D": "flipped filter"', '"D": "stride ignored"')]
        ],
        "no stride ignored": [('"flipped filter"', '"stride ignored"')],
        "no pooled as an average": [('"tie sent twice"', '"pooled as an average"')],
        "no gate left open": [('"tie sent twice"', '"gate left open"')],
        "no last image only": [('"sum over the batch"', '"last image only"')],
        "no sum over the batch": [('"last image only"', '"sum over the batch"')],
        "no padding row skipped": [("names[patient]", '"padding row skipped"')],
        "no tie sent twice": [('"padding row skipped"', '"tie sent twice"')],
        "unknown name": [('"stride ignored"', '"no stride"')],
        "not a name": [("names[patient]", "list(names).index(patient)")],
        "raises": [('"F": "padding row skipped",', "")],
    },
}


def _taps(grad_output, x, kernel_size, stride, padding):
    """Yield each tap, and the pixels it meets."""
    out_h, out_w = grad_output.shape[2:]
    x = np.pad(x, [(0, 0), (0, 0), (padding, padding), (padding, padding)])
    for kh in range(kernel_size[0]):
        for kw in range(kernel_size[1]):
            yield kh, kw, x[:, :, kh : kh + stride * out_h : stride, kw : kw + stride * out_w : stride]


def _filters(grad_output, x, kernel_size):
    return np.zeros((grad_output.shape[1], x.shape[1], *kernel_size))


@wrong("conv_backward_weight", "last image only")
def conv_overwrites(grad_output, x, kernel_size, stride, padding):
    grad_weight = _filters(grad_output, x, kernel_size)
    for n in range(len(x)):
        for kh, kw, pixels in _taps(grad_output, x, kernel_size, stride, padding):
            grad_weight[:, :, kh, kw] = np.einsum("ohw,ihw->oi", grad_output[n], pixels[n])
    return grad_weight


def _softmax(logits, axis=1):
    exponentials = np.exp(logits - logits.max(axis=axis, keepdims=True))
    return exponentials / exponentials.sum(axis=axis, keepdims=True)


@wrong("cross_entropy_gradient", "of the probability")
def cross_entropy_stops_at_the_probability(logits, labels):
    probabilities, rows = _softmax(logits), np.arange(len(labels))
    gradient = np.zeros_like(probabilities)
    gradient[rows, labels] = -1 / probabilities[rows, labels]
    return gradient / len(labels)
