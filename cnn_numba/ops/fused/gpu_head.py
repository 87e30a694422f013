"""The head of a classifier on the GPU: its last dense layer and the loss, in two launches.

In the first, a block computes the scores, the loss and the gradients of one sample, which all depend on one
row. The second computes the sums over the samples: the gradients of weight and bias, and the totals of an
epoch. The separate operations are six launches, each of which takes longer to start than to compute.

The dense layer before the head has few results and long sums, which many blocks share. No extra launch adds
up their parts: the block of a sample does it for its row.
"""

import numpy as np

from cnn_numba import device
from cnn_numba.device.compiler import ONE, ZERO, cuda, float32, uint32
from cnn_numba.ops.activation.gpu import relu_gradient
from cnn_numba.ops.dense import checks as dense
from cnn_numba.ops.dense.gpu import linear_scratch
from cnn_numba.ops.dense.gpu_vectorised import multiply_parts
from cnn_numba.ops.fused import checks
from cnn_numba.ops.loss.checks import Target, target_of
from cnn_numba.ops.loss.gpu import TOTALS, add_metrics, forward_backward_row
from cnn_numba.ops.shapes import DEVICE
from cnn_numba.ops.shared.results import at_least, lower_bound
from cnn_numba.ops.shared.warps import WARP, warp_and_lane, warp_sum

GROUPS = 16  # of samples, each with its own sum for a column of gradients
LOADS = 4  # numbers that a thread loads at a time
PARTS = 32  # parts of a sum that it loads at a time; most products have fewer
_MOST_SAMPLES, _MOST_CLASSES, _MOST_WEIGHTS = 256, 32, 1 << 15


@cuda.jit(device=True)
def _dot(a, b, ones, first, step):
    """Return the sum of ``a[i] * b[i]``, or with `ones` of ``a[i]``, over every `step`-th i from `first` on.

    It adds in this order. LOADS pairs are requested before the first product waits for one.
    """
    total = ZERO
    left, right = cuda.local.array(LOADS, float32), cuda.local.array(LOADS, float32)
    while first < uint32(a.size):
        for j in range(LOADS):
            i = uint32(first + j * step)
            left[j] = a[i] if i < uint32(a.size) else ZERO
            right[j] = b[i] if i < uint32(a.size) else ZERO
            right[j] = ONE if ones else right[j]
        for j in range(LOADS):
            total += left[j] * right[j]
        first = uint32(first + LOADS * step)
    return total


@cuda.jit(device=True)
def _finish_hidden(parts, bias, row, hidden):
    """Add up the parts of a row's sums, add the bias, and rectify; one sum per thread."""
    i, units = uint32(cuda.threadIdx.y * WARP + cuda.threadIdx.x), uint32(hidden.shape[1])
    values, step = cuda.local.array(PARTS, float32), uint32(hidden.shape[0] * units)
    while i < units:
        total, at, end = bias[i], uint32(row * units + i), uint32(parts.size)
        while at < end:
            for j in range(PARTS):
                values[j] = parts[at] if at < end else ZERO
                at = uint32(at + step)
            for j in range(PARTS):
                total += values[j]
        hidden[row, i] = at_least(lower_bound(True), total)
        i = uint32(i + cuda.blockDim.y * WARP)


@cuda.jit(device=True)
def _find_scores(x, weight, bias, row, logits):
    """Multiply the row by the weight, one class per warp."""
    lane, k = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
    while k < uint32(weight.shape[0]):
        score = warp_sum(_dot(x[row], weight[k], False, lane, WARP))
        if lane == 0:
            logits[row, k] = score + bias[k]
        k = uint32(k + cuda.blockDim.y)


@cuda.jit(device=True)
def _send_back(grad_logits, x, weight, row, relu, grad_input):
    """Multiply the gradient of the row's scores by the weight, one input per thread."""
    i = uint32(cuda.threadIdx.y * WARP + cuda.threadIdx.x)
    while i < uint32(x.shape[1]):
        gradient = _dot(grad_logits[row], weight[:, i], False, uint32(0), 1)
        grad_input[row, i] = relu_gradient(gradient, x[row, i]) if relu else gradient
        i = uint32(i + cuda.blockDim.y * WARP)


@cuda.jit
@device.signature(
    "void(float32[::1], float32[::1], float32[:, ::1], float32[:, ::1], float32[::1], int32[::1], bool, "
    "Target, float32[:, ::1], float32[::1], float32[:, ::1], float32[:, ::1])"
)
def linear_cross_entropy_rows_kernel(
    parts, hidden_bias, x, weight, bias, labels, relu, target: Target, logits, losses, grad_logits,
    grad_input,
):  # fmt: skip
    """Compute a row per block of (32, warps) threads; a grid of one dimension covers the rows.

    If `parts` is not empty, x is first computed from these partial sums.
    """
    row = uint32(cuda.blockIdx.x)
    if parts.size > 0:
        _finish_hidden(parts, hidden_bias, row, x)
        cuda.syncthreads()
    _find_scores(x, weight, bias, row, logits)
    cuda.syncthreads()
    if cuda.threadIdx.y == 0:
        forward_backward_row(logits, labels, row, target, losses, grad_logits)
    cuda.syncthreads()
    _send_back(grad_logits, x, weight, row, relu, grad_input)


def _parts_of(hidden):
    """Launch the product of a hidden layer; return the partial sums, None if the output is complete."""
    x, weight, bias, out, scratch = hidden
    *_, scratch = dense.linear_forward(DEVICE, x, weight, bias, out, scratch=(linear_scratch, scratch))
    return multiply_parts(x, weight, out, False, True, bias=bias, relu=True, partial=scratch.partial)


def linear_cross_entropy_rows(
    x, weight, bias, labels, logits=None, losses=None, grad_logits=None, grad_input=None, relu=False,
    label_smoothing=0.0,
):  # fmt: skip
    """Compute all results for a sample in one launch; see `reference.linear_cross_entropy_rows`.

    The product of a hidden layer is another launch.
    """
    hidden = x if isinstance(x, checks.Hidden) else None
    x = x if hidden is None else hidden.out
    arrays, how = (x, weight, bias, labels), {"relu": relu, "label_smoothing": label_smoothing}
    given = logits, losses, grad_logits, grad_input
    results = checks.linear_cross_entropy_rows(DEVICE, *arrays, *given, **how)[len(arrays) :]
    parts = None if hidden is None else _parts_of(hidden)
    of_hidden = (bias[:0], bias) if parts is None else (parts.reshape(parts.size), hidden.bias)
    numbers = relu or hidden is not None, target_of(results[0], label_smoothing)
    arguments = *of_hidden, *arrays, *numbers, *results
    block = WARP, min(weight.shape[0], GROUPS)
    device.launch(linear_cross_entropy_rows_kernel, len(x), block, *arguments)
    return results


@cuda.jit(device=True, inline="always")
def _sum_samples(grad_logits, x, k, i):
    """Return to warp 0 the gradient of weight i of class k; i after the last weight is the bias."""
    sums = cuda.shared.array((GROUPS, WARP), float32)
    group, lane = warp_and_lane()
    # The factors of the bias are 1; column 0 is read and ignored.
    is_weight = i < uint32(x.shape[1])
    total = _dot(grad_logits[:, k], x[:, i if is_weight else 0], not is_weight, group, uint32(GROUPS))
    sums[group, lane] = total
    cuda.syncthreads()
    if group == 0:
        # In a fixed order, so that the same input gives the same bits.
        for other in range(1, GROUPS):
            total += sums[other, lane]
    return total


@cuda.jit
@device.signature(
    "void(float32[:, ::1], float32[:, ::1], float32[:, ::1], int32[::1], float32[::1], "
    "float32[:, ::1], float32[::1], float64[::1])",
    allowed=TOTALS,
)
def linear_cross_entropy_sums_kernel(grad_logits, x, logits, labels, losses, grad_weight, grad_bias, totals):
    """Compute WARP gradients of a class per block of GROUPS warps; a grid of (columns, classes).

    The first block of a further class adds up the totals.
    """
    thread, k, inputs = uint32(cuda.threadIdx.x), uint32(cuda.blockIdx.y), uint32(x.shape[1])
    if k == uint32(grad_bias.size):
        if cuda.blockIdx.x == 0:
            add_metrics(losses, logits, labels, totals)
        return
    i = uint32(cuda.blockIdx.x * WARP + thread % WARP)
    total = _sum_samples(grad_logits, x, k, i)
    if thread < WARP:
        if i < inputs:
            grad_weight[k, i] = total
        elif i == inputs:
            grad_bias[k] = total


def linear_cross_entropy_sums(
    grad_logits, x, logits, labels, losses, totals=None, grad_weight=None, grad_bias=None
):
    """Compute all sums over the samples in one launch; see `reference.linear_cross_entropy_sums`."""
    arrays = grad_logits, x, logits, labels, losses
    *_, grad_weight, grad_bias = checks.linear_cross_entropy_sums(
        DEVICE, *arrays, totals, grad_weight, grad_bias
    )
    classes, inputs = grad_weight.shape
    grid = device.blocks(inputs + 1, WARP), classes + (totals is not None)
    # A kernel needs some array, and ignores it.
    results = grad_weight, grad_bias, device.empty(2, np.float64) if totals is None else totals
    device.launch(linear_cross_entropy_sums_kernel, grid, WARP * GROUPS, *arrays, *results)
    return grad_weight, grad_bias, totals


def head_fits(samples, classes, inputs):
    """Return whether a head of these sizes takes two launches; larger ones need tiled products."""
    return samples <= _MOST_SAMPLES and classes <= _MOST_CLASSES and classes * inputs <= _MOST_WEIGHTS
