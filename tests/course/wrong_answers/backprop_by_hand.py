import numpy as np

from wrong_answers import derive, wrong

# --- linear_backward ---

linear_backward = derive(
    "linear_backward",
    linear_divides_by_the_batch=(
        "mean over the batch",
        ("grad_output.T @ x", "grad_output.T @ x / len(x)"),
        ("grad_output.sum(axis=0)", "grad_output.sum(axis=0) / len(x)"),
    ),
    linear_bias_is_a_mean=("bias mean", ("grad_output.sum(axis=0)", "grad_output.mean(axis=0)")),
    linear_bias_keeps_its_rows=("bias not summed", ("grad_output.sum(axis=0)", "grad_output")),
    linear_bias_over_the_wrong_axis=(
        "bias over the outputs",
        ("grad_output.sum(axis=0)", "grad_output.sum(axis=1)"),
    ),
    linear_inputs_first=("weight gradient transposed", ("grad_output.T @ x", "x.T @ grad_output")),
    linear_multiplies_as_forward=("weight transposed", ("grad_output @ weight", "grad_output @ weight.T")),
    linear_in_another_order=(
        "other order",
        (
            "grad_output @ weight, grad_output.T @ x, grad_output.sum(axis=0)",
            "grad_output.T @ x, grad_output.sum(axis=0), grad_output @ weight",
        ),
    ),
    linear_without_the_chain=(
        "ones sent back",
        ("return", "ones = np.ones_like(grad_output)\nreturn"),
        ("grad_output.T @ x, grad_output.sum(axis=0)", "ones.T @ x, ones.sum(axis=0)"),
    ),
    linear_without_bias=("type", ("grad_output.T @ x, grad_output.sum(axis=0)", "grad_output.T @ x")),
    linear_returns_nothing=("returns None", ("return grad_output", "grad_output")),
    linear_bias_keeps_an_axis=(
        "shape",
        ("grad_output.sum(axis=0)", "grad_output.sum(axis=0, keepdims=True)"),
    ),
    linear_into_its_input=(
        "changes input",
        (
            "return grad_output @ weight",
            "grad_input = grad_output @ weight\nx *= 0\nx += grad_input\nreturn grad_input",
        ),
    ),
    linear_backward_keeps_the_axis=(
        "shape",
        ("grad_output.sum(axis=0)", "grad_output.sum(axis=0, keepdims=True)"),
    ),
)

# --- conv_backward_weight ---

conv_backward_weight = derive(
    "conv_backward_weight",
    conv_takes_every_pixel=(
        "stride ignored",
        ("slice(kh, kh + stride * out_h, stride)", "slice(kh, kh + out_h)"),
        ("slice(kw, kw + stride * out_w, stride)", "slice(kw, kw + out_w)"),
    ),
    conv_pads_nothing=("padding left out", ("(padding, padding), (padding, padding)", "(0, 0), (0, 0)")),
    conv_stores_it_flipped=("flipped", ("grad_weight[:, :, kh, kw]", "grad_weight[:, :, -1 - kh, -1 - kw]")),
    conv_divides_by_the_batch=(
        "mean over the batch",
        (
            'np.einsum("nohw,nihw->oi", grad_output, pixels)',
            'np.einsum("nohw,nihw->noi", grad_output, pixels).mean(axis=0)',
        ),
    ),
    conv_input_channels_first=(
        "channels exchanged",
        (
            "np.zeros((grad_output.shape[1], x.shape[1], *kernel_size))",
            "np.zeros((x.shape[1], grad_output.shape[1], *kernel_size))",
        ),
        (
            'np.einsum("nohw,nihw->oi", grad_output, pixels)',
            'np.einsum("nohw,nihw->io", grad_output, pixels)',
        ),
    ),
    conv_averages_the_outputs=(
        "averaged",
        (
            'grad_weight[:, :, kh, kw] = np.einsum("nohw,nihw->oi", grad_output, pixels)',
            "products = grad_output[:, :, None] * pixels[:, None]\n"
            "grad_weight[:, :, kh, kw] = products.mean(axis=(3, 4)).sum(axis=0)",
        ),
    ),
    conv_sums_the_input_channels=(
        "input channels summed",
        (
            'np.einsum("nohw,nihw->oi", grad_output, pixels)',
            'np.einsum("nohw,nihw->o", grad_output, pixels)[:, None]',
        ),
    ),
    conv_adds_to_what_is_there=(
        "not initialised",
        (
            "np.zeros((grad_output.shape[1], x.shape[1], *kernel_size))",
            "np.empty((grad_output.shape[1], x.shape[1], *kernel_size))",
        ),
        (
            'grad_weight[:, :, kh, kw] = np.einsum("nohw,nihw->oi", grad_output, pixels)',
            'grad_weight[:, :, kh, kw] += np.einsum("nohw,nihw->oi", grad_output, pixels)',
        ),
    ),
    conv_exchanges_the_sides=(
        "sides exchanged",
        ("for kh in range(kernel_size[0])", "for kh in range(kernel_size[1])"),
        ("for kw in range(kernel_size[1])", "for kw in range(kernel_size[0])"),
        ("grad_weight[:, :, kh, kw]", "grad_weight[:, :, kw, kh]"),
    ),
)


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


# --- cross_entropy_gradient ---

cross_entropy_gradient = derive(
    "cross_entropy_gradient",
    cross_entropy_of_the_sum=("sum over the batch", ("gradient / len(labels)", "gradient")),
    cross_entropy_is_the_softmax=("label left out", ("gradient[np.arange(len(labels)), labels] -= 1", "")),
    cross_entropy_divides_by_all=("divided by all", ("gradient / len(labels)", "gradient / gradient.size")),
    cross_entropy_overflows=("overflow", ("logits - logits.max(axis=1, keepdims=True)", "logits")),
    cross_entropy_over_the_samples=("down the columns", ("axis=1", "axis=0", 2)),
    cross_entropy_over_everything=("over the whole array", ("axis=1", "axis=None", 2)),
    cross_entropy_takes_from_whole_columns=(
        "whole columns",
        ("gradient[np.arange(len(labels)), labels]", "gradient[:, labels]"),
    ),
    cross_entropy_with_the_other_sign=("negated", ("gradient / len(labels)", "-gradient / len(labels)")),
    cross_entropy_in_place=(
        "changes input",
        (
            "exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))",
            "logits -= logits.max(axis=1, keepdims=True)\nexponentials = np.exp(logits)",
        ),
    ),
    cross_entropy_with_one_largest_for_all=(
        "largest of the batch",
        ("logits.max(axis=1, keepdims=True)", "logits.max()"),
    ),
    cross_entropy_with_the_largest_of_each_column=(
        "largest of each column",
        ("logits.max(axis=1, keepdims=True)", "logits.max(axis=0)"),
    ),
)


def _softmax(logits, axis=1):
    exponentials = np.exp(logits - logits.max(axis=axis, keepdims=True))
    return exponentials / exponentials.sum(axis=axis, keepdims=True)


@wrong("cross_entropy_gradient", "of the probability")
def cross_entropy_stops_at_the_probability(logits, labels):
    probabilities, rows = _softmax(logits), np.arange(len(labels))
    gradient = np.zeros_like(probabilities)
    gradient[rows, labels] = -1 / probabilities[rows, labels]
    return gradient / len(labels)


# --- name_the_bug ---

name_the_bug = derive(
    "name_the_bug",
    stride_taken_for_a_flip=(
        "no flipped filter",
        ('"stride ignored"', '"flipped filter"'),
        ('"D": "flipped filter"', '"D": "stride ignored"'),
    ),
    flip_taken_for_the_stride=("no stride ignored", ('"flipped filter"', '"stride ignored"')),
    ties_taken_for_an_average=("no pooled as an average", ('"tie sent twice"', '"pooled as an average"')),
    ties_taken_for_an_open_gate=("no gate left open", ('"tie sent twice"', '"gate left open"')),
    sum_taken_for_the_last_image=("no last image only", ('"sum over the batch"', '"last image only"')),
    last_image_taken_for_a_sum=("no sum over the batch", ('"last image only"', '"sum over the batch"')),
    everything_is_padding=("no padding row skipped", ("names[patient]", '"padding row skipped"')),
    padding_taken_for_ties=("no tie sent twice", ('"padding row skipped"', '"tie sent twice"')),
    a_name_of_ones_own=("unknown name", ('"stride ignored"', '"no stride"')),
    a_number=("not a name", ("names[patient]", "list(names).index(patient)")),
    one_patient_forgotten=("raises", ('"F": "padding row skipped",', "")),
)
