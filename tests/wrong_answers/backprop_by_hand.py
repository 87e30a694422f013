import numpy as np
from numba import cuda, float32

from wrong_answers import wrong

# --- linear_backward ---


@wrong("linear_backward", "mean over the batch")
def linear_divides_by_the_batch(grad_output, x, weight):
    n = len(x)
    return grad_output @ weight, grad_output.T @ x / n, grad_output.sum(axis=0) / n


@wrong("linear_backward", "bias mean")
def linear_bias_is_a_mean(grad_output, x, weight):
    return grad_output @ weight, grad_output.T @ x, grad_output.mean(axis=0)


@wrong("linear_backward", "bias not summed")
def linear_bias_keeps_its_rows(grad_output, x, weight):
    return grad_output @ weight, grad_output.T @ x, grad_output


@wrong("linear_backward", "bias over the outputs")
def linear_bias_over_the_wrong_axis(grad_output, x, weight):
    return grad_output @ weight, grad_output.T @ x, grad_output.sum(axis=1)


@wrong("linear_backward", "weight gradient transposed")
def linear_inputs_first(grad_output, x, weight):
    return grad_output @ weight, x.T @ grad_output, grad_output.sum(axis=0)


@wrong("linear_backward", "weight transposed")
def linear_multiplies_as_forward(grad_output, x, weight):
    return grad_output @ weight.T, grad_output.T @ x, grad_output.sum(axis=0)


@wrong("linear_backward", "other order")
def linear_in_another_order(grad_output, x, weight):
    return grad_output.T @ x, grad_output.sum(axis=0), grad_output @ weight


@wrong("linear_backward", "ones sent back")
def linear_without_the_chain(grad_output, x, weight):
    ones = np.ones_like(grad_output)
    return grad_output @ weight, ones.T @ x, ones.sum(axis=0)


@wrong("linear_backward", "type")
def linear_without_bias(grad_output, x, weight):
    return grad_output @ weight, grad_output.T @ x


@wrong("linear_backward", "returns None")
def linear_returns_nothing(grad_output, x, weight):
    grad_output @ weight
    grad_output.T @ x
    grad_output.sum(axis=0)


@wrong("linear_backward", "shape")
def linear_bias_keeps_an_axis(grad_output, x, weight):
    return grad_output @ weight, grad_output.T @ x, grad_output.sum(axis=0, keepdims=True)


@wrong("linear_backward", "changes input")
def linear_into_its_input(grad_output, x, weight):
    grad_input = grad_output @ weight
    x *= 0
    x += grad_input
    return grad_input, grad_output.T @ x, grad_output.sum(axis=0)


# --- conv_backward_weight ---


def _taps(grad_output, x, kernel_size, stride, padding):
    """Yield each tap, and the pixels it meets."""
    out_h, out_w = grad_output.shape[2:]
    x = np.pad(x, [(0, 0), (0, 0), (padding, padding), (padding, padding)])
    for kh in range(kernel_size[0]):
        for kw in range(kernel_size[1]):
            yield kh, kw, x[:, :, kh : kh + stride * out_h : stride, kw : kw + stride * out_w : stride]


def _filters(grad_output, x, kernel_size):
    return np.zeros((grad_output.shape[1], x.shape[1], *kernel_size))


@wrong("conv_backward_weight", "stride ignored")
def conv_takes_every_pixel(grad_output, x, kernel_size, stride, padding):
    grad_weight = _filters(grad_output, x, kernel_size)
    for kh, kw, pixels in _taps(grad_output, x, kernel_size, 1, padding):
        grad_weight[:, :, kh, kw] = np.einsum("nohw,nihw->oi", grad_output, pixels)
    return grad_weight


@wrong("conv_backward_weight", "padding left out")
def conv_pads_nothing(grad_output, x, kernel_size, stride, padding):
    grad_weight = _filters(grad_output, x, kernel_size)
    for kh, kw, pixels in _taps(grad_output, x, kernel_size, stride, 0):
        grad_weight[:, :, kh, kw] = np.einsum("nohw,nihw->oi", grad_output, pixels)
    return grad_weight


@wrong("conv_backward_weight", "flipped")
def conv_stores_it_flipped(grad_output, x, kernel_size, stride, padding):
    grad_weight = _filters(grad_output, x, kernel_size)
    for kh, kw, pixels in _taps(grad_output, x, kernel_size, stride, padding):
        grad_weight[:, :, -1 - kh, -1 - kw] = np.einsum("nohw,nihw->oi", grad_output, pixels)
    return grad_weight


@wrong("conv_backward_weight", "mean over the batch")
def conv_divides_by_the_batch(grad_output, x, kernel_size, stride, padding):
    grad_weight = _filters(grad_output, x, kernel_size)
    for kh, kw, pixels in _taps(grad_output, x, kernel_size, stride, padding):
        grad_weight[:, :, kh, kw] = np.einsum("nohw,nihw->noi", grad_output, pixels).mean(axis=0)
    return grad_weight


@wrong("conv_backward_weight", "last image only")
def conv_overwrites(grad_output, x, kernel_size, stride, padding):
    grad_weight = _filters(grad_output, x, kernel_size)
    for n in range(len(x)):
        for kh, kw, pixels in _taps(grad_output, x, kernel_size, stride, padding):
            grad_weight[:, :, kh, kw] = np.einsum("ohw,ihw->oi", grad_output[n], pixels[n])
    return grad_weight


@wrong("conv_backward_weight", "channels exchanged")
def conv_input_channels_first(grad_output, x, kernel_size, stride, padding):
    grad_weight = np.zeros((x.shape[1], grad_output.shape[1], *kernel_size))
    for kh, kw, pixels in _taps(grad_output, x, kernel_size, stride, padding):
        grad_weight[:, :, kh, kw] = np.einsum("nohw,nihw->io", grad_output, pixels)
    return grad_weight


@wrong("conv_backward_weight", "averaged")
def conv_averages_the_outputs(grad_output, x, kernel_size, stride, padding):
    grad_weight = _filters(grad_output, x, kernel_size)
    for kh, kw, pixels in _taps(grad_output, x, kernel_size, stride, padding):
        products = grad_output[:, :, None] * pixels[:, None]
        grad_weight[:, :, kh, kw] = products.mean(axis=(3, 4)).sum(axis=0)
    return grad_weight


@wrong("conv_backward_weight", "input channels summed")
def conv_sums_the_input_channels(grad_output, x, kernel_size, stride, padding):
    grad_weight = _filters(grad_output, x, kernel_size)
    for kh, kw, pixels in _taps(grad_output, x, kernel_size, stride, padding):
        grad_weight[:, :, kh, kw] = np.einsum("nohw,nihw->o", grad_output, pixels)[:, None]
    return grad_weight


@wrong("conv_backward_weight", "not initialised")
def conv_adds_to_what_is_there(grad_output, x, kernel_size, stride, padding):
    grad_weight = np.empty((grad_output.shape[1], x.shape[1], *kernel_size))
    for kh, kw, pixels in _taps(grad_output, x, kernel_size, stride, padding):
        grad_weight[:, :, kh, kw] += np.einsum("nohw,nihw->oi", grad_output, pixels)
    return grad_weight


@wrong("conv_backward_weight", "sides exchanged")
def conv_exchanges_the_sides(grad_output, x, kernel_size, stride, padding):
    grad_weight = _filters(grad_output, x, kernel_size)
    for kw, kh, pixels in _taps(grad_output, x, kernel_size[::-1], stride, padding):
        grad_weight[:, :, kh, kw] = np.einsum("nohw,nihw->oi", grad_output, pixels)
    return grad_weight


# --- cross_entropy_gradient ---


def _softmax(logits, axis=1):
    exponentials = np.exp(logits - logits.max(axis=axis, keepdims=True))
    return exponentials / exponentials.sum(axis=axis, keepdims=True)


@wrong("cross_entropy_gradient", "sum over the batch")
def cross_entropy_of_the_sum(logits, labels):
    gradient = _softmax(logits)
    gradient[np.arange(len(labels)), labels] -= 1
    return gradient


@wrong("cross_entropy_gradient", "label left out")
def cross_entropy_is_the_softmax(logits, labels):
    return _softmax(logits) / len(labels)


@wrong("cross_entropy_gradient", "divided by all")
def cross_entropy_divides_by_all(logits, labels):
    gradient = _softmax(logits)
    gradient[np.arange(len(labels)), labels] -= 1
    return gradient / gradient.size


@wrong("cross_entropy_gradient", "overflow")
def cross_entropy_overflows(logits, labels):
    exponentials = np.exp(logits)
    gradient = exponentials / exponentials.sum(axis=1, keepdims=True)
    gradient[np.arange(len(labels)), labels] -= 1
    return gradient / len(labels)


@wrong("cross_entropy_gradient", "down the columns")
def cross_entropy_over_the_samples(logits, labels):
    gradient = _softmax(logits, axis=0)
    gradient[np.arange(len(labels)), labels] -= 1
    return gradient / len(labels)


@wrong("cross_entropy_gradient", "over the whole array")
def cross_entropy_over_everything(logits, labels):
    gradient = _softmax(logits, axis=None)
    gradient[np.arange(len(labels)), labels] -= 1
    return gradient / len(labels)


@wrong("cross_entropy_gradient", "whole columns")
def cross_entropy_takes_from_whole_columns(logits, labels):
    gradient = _softmax(logits)
    gradient[:, labels] -= 1
    return gradient / len(labels)


@wrong("cross_entropy_gradient", "of the probability")
def cross_entropy_stops_at_the_probability(logits, labels):
    probabilities, rows = _softmax(logits), np.arange(len(labels))
    gradient = np.zeros_like(probabilities)
    gradient[rows, labels] = -1 / probabilities[rows, labels]
    return gradient / len(labels)


@wrong("cross_entropy_gradient", "negated")
def cross_entropy_with_the_other_sign(logits, labels):
    gradient = -_softmax(logits)
    gradient[np.arange(len(labels)), labels] += 1
    return gradient / len(labels)


@wrong("cross_entropy_gradient", "changes input")
def cross_entropy_in_place(logits, labels):
    logits -= logits.max(axis=1, keepdims=True)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=1, keepdims=True)
    logits[np.arange(len(labels)), labels] -= 1
    return logits / len(labels)


@wrong("cross_entropy_gradient", "largest of the batch")
def cross_entropy_with_one_largest_for_all(logits, labels):
    exponentials = np.exp(logits - logits.max())
    gradient = exponentials / exponentials.sum(axis=1, keepdims=True)
    gradient[np.arange(len(labels)), labels] -= 1
    return gradient / len(labels)


@wrong("cross_entropy_gradient", "largest of each column")
def cross_entropy_with_the_largest_of_each_column(logits, labels):
    exponentials = np.exp(logits - logits.max(axis=0))
    gradient = exponentials / exponentials.sum(axis=1, keepdims=True)
    gradient[np.arange(len(labels)), labels] -= 1
    return gradient / len(labels)


@wrong("linear_backward", "shape")
def linear_backward_keeps_the_axis(grad_output, x, weight):
    return grad_output @ weight, grad_output.T @ x, grad_output.sum(axis=0, keepdims=True)


# --- relu_backward_kernel ---


@wrong("relu_backward_kernel", "open at zero")
@cuda.jit
def relu_open_at_zero(grad_output, out, grad_input):
    i = cuda.grid(1)
    if i < out.size:
        grad_input[i] = grad_output[i] if out[i] >= float32(0) else float32(0)


@wrong("relu_backward_kernel", "slope only")
@cuda.jit
def relu_stores_the_slope(grad_output, out, grad_input):
    i = cuda.grid(1)
    if i < out.size:
        grad_input[i] = float32(1) if out[i] > float32(0) else float32(0)


@wrong("relu_backward_kernel", "gradient rectified")
@cuda.jit
def relu_of_the_gradient(grad_output, out, grad_input):
    i = cuda.grid(1)
    if i < out.size:
        grad_input[i] = max(grad_output[i], float32(0))


@wrong("relu_backward_kernel", "times the output")
@cuda.jit
def relu_times_the_output(grad_output, out, grad_input):
    i = cuda.grid(1)
    if i < out.size:
        grad_input[i] = grad_output[i] * out[i]


@wrong("relu_backward_kernel", "inverted")
@cuda.jit
def relu_the_other_way_round(grad_output, out, grad_input):
    i = cuda.grid(1)
    if i < out.size:
        grad_input[i] = float32(0) if out[i] > float32(0) else grad_output[i]


@wrong("relu_backward_kernel", "forward again")
@cuda.jit
def relu_forward_again(grad_output, out, grad_input):
    i = cuda.grid(1)
    if i < out.size:
        grad_input[i] = max(out[i], float32(0))


@wrong("relu_backward_kernel", "nothing where it is cut off")
@cuda.jit
def relu_writes_no_zeros(grad_output, out, grad_input):
    i = cuda.grid(1)
    if i < out.size and out[i] > float32(0):
        grad_input[i] = grad_output[i]


@wrong("relu_backward_kernel", "writes past the edge")
@cuda.jit
def relu_without_guard(grad_output, out, grad_input):
    i = cuda.grid(1)
    grad_input[i] = grad_output[i] if out[i] > float32(0) else float32(0)


@wrong("relu_backward_kernel", "first block only")
@cuda.jit
def relu_of_the_thread_in_its_block(grad_output, out, grad_input):
    i = cuda.threadIdx.x
    if i < out.size:
        grad_input[i] = grad_output[i] if out[i] > float32(0) else float32(0)


@wrong("relu_backward_kernel", "changes input")
@cuda.jit
def relu_in_place(grad_output, out, grad_input):
    i = cuda.grid(1)
    if i < out.size:
        if out[i] <= float32(0):
            grad_output[i] = float32(0)
        grad_input[i] = grad_output[i]


@wrong("relu_backward_kernel", "float64")
@cuda.jit
def relu_in_float64(grad_output, out, grad_input):
    i = cuda.grid(1)
    if i < out.size:
        slope = 1.0 if out[i] > 0 else 0.0
        grad_input[i] = slope * grad_output[i]


# --- name_the_bug ---

RIGHT = {
    "A": "stride ignored",
    "B": "tie sent twice",
    "C": "sum over the batch",
    "D": "flipped filter",
    "E": "last image only",
    "F": "padding row skipped",
}


@wrong("name_the_bug", "no flipped filter")
def stride_taken_for_a_flip(patient):
    return (RIGHT | {"A": "flipped filter", "D": "stride ignored"})[patient]


@wrong("name_the_bug", "no stride ignored")
def flip_taken_for_the_stride(patient):
    return (RIGHT | {"D": "stride ignored"})[patient]


@wrong("name_the_bug", "no pooled as an average")
def ties_taken_for_an_average(patient):
    return (RIGHT | {"B": "pooled as an average"})[patient]


@wrong("name_the_bug", "no gate left open")
def ties_taken_for_an_open_gate(patient):
    return (RIGHT | {"B": "gate left open"})[patient]


@wrong("name_the_bug", "no last image only")
def sum_taken_for_the_last_image(patient):
    return (RIGHT | {"C": "last image only"})[patient]


@wrong("name_the_bug", "no sum over the batch")
def last_image_taken_for_a_sum(patient):
    return (RIGHT | {"E": "sum over the batch"})[patient]


@wrong("name_the_bug", "no padding row skipped")
def everything_is_padding(patient):
    return "padding row skipped"


@wrong("name_the_bug", "no tie sent twice")
def padding_taken_for_ties(patient):
    return (RIGHT | {"F": "tie sent twice"})[patient]


@wrong("name_the_bug", "unknown name")
def a_name_of_ones_own(patient):
    return (RIGHT | {"A": "no stride"})[patient]


@wrong("name_the_bug", "not a name")
def a_number(patient):
    return list(RIGHT).index(patient)


@wrong("name_the_bug", "raises")
def one_patient_forgotten(patient):
    return {letter: name for letter, name in RIGHT.items() if letter != "F"}[patient]
