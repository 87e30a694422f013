"""Losses on the GPU: a warp for each row of logits, whose maximum and sum stay in registers.

A warp reads 32 neighbouring logits at once. Ten classes leave 22 of its lanes idle, but a single thread would
go along the row three times while most of the GPU is idle (not measured on a GPU yet). A thousand classes are
32 for each lane.

The host cannot check labels on the device, so a label outside ``0 .. K - 1`` is not refused: the loss and the
gradient of its row are NaN, and its answer counts as wrong.
"""

import math

from cnn_numba import device
from cnn_numba.device.compiler import ONE, ZERO, cuda, float32, int32, uint32
from cnn_numba.ops.loss import checks
from cnn_numba.ops.loss.checks import Target, target_of
from cnn_numba.ops.shapes import DEVICE
from cnn_numba.ops.shared.warps import LANE_COUNT, WARP, block_sum, warp_max, warp_sum, whole_warps

ROWS = 4  # of a block, a warp each
THREADS = 256


@cuda.jit(device=True)
def _largest_and_total(logits, row):
    """Return a row's largest logit and the sum of exp(logit - largest), to all lanes of its warp."""
    lane, classes = uint32(cuda.threadIdx.x), uint32(logits.shape[1])
    largest = float32(-math.inf)
    for k in range(lane, classes, LANE_COUNT):
        # No NaN is larger than a number; the sum brings it back.
        if logits[row, k] > largest:
            largest = logits[row, k]
    largest = warp_max(largest)
    total = ZERO
    for k in range(lane, classes, LANE_COUNT):
        total += math.exp(logits[row, k] - largest)
    return largest, warp_sum(total)


@cuda.jit(device=True)
def _share_of_all(logits, row, target, largest):
    """Return the sum of target.each * (logit - largest) over a row, to all lanes of its warp."""
    total = ZERO
    if target.each > 0:  # the same for all lanes
        for k in range(uint32(cuda.threadIdx.x), uint32(logits.shape[1]), LANE_COUNT):
            total += target.each * (logits[row, k] - largest)
        total = warp_sum(total)
    return total


@cuda.jit(device=True)
def _loss(logits, row, label, target, largest, total):
    """Return the loss of a row without the part of all classes; NaN if the label is no class."""
    # As an unsigned number, a negative label is larger than all classes.
    if label >= uint32(logits.shape[1]):
        return float32(math.nan)
    return math.log(total) - target.right * (logits[row, label] - largest)


@cuda.jit(device=True)
def _gradient(probability, k, label, classes, target):
    """Return the gradient of logit k, NaN if the label is no class."""
    if label >= classes:
        return float32(math.nan)
    if uint32(k) == label:
        probability -= target.right
    return (probability - target.each) * target.scale


@cuda.jit
@device.signature("void(float32[:, ::1], int32[::1], Target, float32[::1], float32[:, ::1])")
def cross_entropy_forward_kernel(logits, labels, target: Target, losses, probabilities):
    """One warp computes a row; blocks of (32, ROWS), a grid of one dimension covers the rows."""
    lane, row = uint32(cuda.threadIdx.x), uint32(cuda.blockIdx.x * ROWS + cuda.threadIdx.y)
    if row >= uint32(logits.shape[0]):
        return  # the whole warp, so no shuffle misses a lane
    largest, total = _largest_and_total(logits, row)
    of_all = _share_of_all(logits, row, target, largest)
    if lane == 0:
        losses[row] = _loss(logits, row, uint32(labels[row]), target, largest, total) - of_all
    scale = ONE / total
    for k in range(lane, uint32(logits.shape[1]), LANE_COUNT):
        probabilities[row, k] = math.exp(logits[row, k] - largest) * scale


def cross_entropy_forward(logits, labels, losses=None, probabilities=None, label_smoothing=0.0):
    """Probabilities and losses of a batch of logits; see `reference.cross_entropy_forward`.

    Examples
    --------
    >>> import numpy as np  # label 2 is no class
    >>> logits, labels = device.zeros((2, 2)), device.to_device(np.array([0, 2], np.int32))
    >>> losses, probabilities = cross_entropy_forward(logits, labels)
    >>> device.to_host(losses), device.to_host(probabilities).tolist()
    (array([0.6931472,       nan], dtype=float32), [[0.5, 0.5], [0.5, 0.5]])
    """
    *_, losses, probabilities = checks.cross_entropy_forward(
        DEVICE, logits, labels, losses, probabilities, label_smoothing=label_smoothing
    )
    target = target_of(logits, label_smoothing)
    _launch_rows(cross_entropy_forward_kernel, logits, labels, target, losses, probabilities)
    return losses, probabilities


@cuda.jit
@device.signature("void(float32[:, ::1], int32[::1], Target, float32[:, ::1])")
def cross_entropy_backward_kernel(probabilities, labels, target: Target, grad_logits):
    """One thread computes one gradient; a grid of one dimension covers them all."""
    i, classes = uint32(cuda.grid(1)), uint32(probabilities.shape[1])
    row = uint32(i // classes)
    if row < uint32(probabilities.shape[0]):
        k, label = uint32(i - row * classes), uint32(labels[row])
        grad_logits[row, k] = _gradient(probabilities[row, k], k, label, classes, target)


def cross_entropy_backward(probabilities, labels, grad_logits=None, label_smoothing=0.0):
    """Gradient of the mean cross-entropy; see `reference.cross_entropy_backward`."""
    *_, grad_logits = checks.cross_entropy_backward(
        DEVICE, probabilities, labels, grad_logits, label_smoothing=label_smoothing
    )
    arguments = probabilities, labels, target_of(probabilities, label_smoothing), grad_logits
    device.launch_for_each(cross_entropy_backward_kernel, grad_logits.size, THREADS, *arguments)
    return grad_logits


@cuda.jit(device=True)
def forward_backward_row(logits, labels, row, target, losses, grad_logits):
    """Compute the loss and the gradients of a row with the warp along x."""
    lane, classes = uint32(cuda.threadIdx.x), uint32(logits.shape[1])
    label = uint32(labels[row])  # loaded early, while the sums are computed
    largest, total = _largest_and_total(logits, row)
    of_all = _share_of_all(logits, row, target, largest)
    if lane == 0:
        losses[row] = _loss(logits, row, label, target, largest, total) - of_all
    to_probability = ONE / total
    for k in range(lane, classes, LANE_COUNT):
        probability = math.exp(logits[row, k] - largest) * to_probability
        grad_logits[row, k] = _gradient(probability, k, label, classes, target)


@cuda.jit
@device.signature("void(float32[:, ::1], int32[::1], Target, float32[::1], float32[:, ::1])")
def cross_entropy_forward_backward_kernel(logits, labels, target: Target, losses, grad_logits):
    """One warp computes a row; blocks of (32, ROWS), a grid of one dimension covers the rows."""
    row = uint32(cuda.blockIdx.x * ROWS + cuda.threadIdx.y)
    if row < uint32(logits.shape[0]):
        forward_backward_row(logits, labels, row, target, losses, grad_logits)


def cross_entropy_forward_backward(logits, labels, losses=None, grad_logits=None, label_smoothing=0.0):
    """Losses, and the gradient of their mean, in one launch; see `reference.cross_entropy_forward_backward`.

    The probabilities never leave the registers.
    """
    *_, losses, grad_logits = checks.cross_entropy_forward_backward(
        DEVICE, logits, labels, losses, grad_logits, label_smoothing=label_smoothing
    )
    target = target_of(logits, label_smoothing)
    _launch_rows(cross_entropy_forward_backward_kernel, logits, labels, target, losses, grad_logits)
    return losses, grad_logits


@cuda.jit(device=True)
def _argmax(logits, row):
    """Return the first of a row's largest logits; a NaN is larger than any number."""
    where, largest = uint32(0), logits[row, 0]
    for k in range(uint32(1), uint32(logits.shape[1])):
        value = logits[row, k]
        if value > largest or (math.isnan(value) and largest == largest):
            where, largest = uint32(k), value
    return where


@cuda.jit(device=True, inline="always")
def add_metrics(losses, logits, labels, totals):
    """Let each thread judge every `blockDim.x`-th row, and add up the block's results."""
    thread, threads = uint32(cuda.threadIdx.x), uint32(cuda.blockDim.x)
    rows = uint32(labels.size)
    loss, right = ZERO, 0
    first = uint32(0)
    while first < rows:  # also in threads without a row: all must call syncthreads_count
        row = first + thread
        is_right = int32(0)
        if row < rows:
            loss += losses[row]
            is_right = int32(_argmax(logits, row) == uint32(labels[row]))
        right += cuda.syncthreads_count(is_right)
        first += threads
    loss = block_sum(loss)
    if thread == 0:
        totals[0] += loss
        totals[1] += right


#: Why the totals of an epoch may be in float64.
TOTALS = {
    "float64": "one thread adds the batch to the totals of an epoch, two additions a step: in float32 "
    "the totals would lose digits as they grow"
}


@cuda.jit
@device.signature("void(float32[::1], float32[:, ::1], int32[::1], float64[::1])", allowed=TOTALS)
def accumulate_metrics_kernel(losses, logits, labels, totals):
    """One thread judges every `blockDim.x`-th row, the block adds up; a grid of one block."""
    add_metrics(losses, logits, labels, totals)


def accumulate_metrics(losses, logits, labels, totals):
    """Add a batch's losses and right answers to running totals; see `reference.accumulate_metrics`.

    One block adds in a fixed order: the losses of the batch in float32, the answers as integers.
    """
    checks.accumulate_metrics(DEVICE, losses, logits, labels, totals)
    block = whole_warps(labels.size, THREADS)
    device.launch(accumulate_metrics_kernel, 1, block, losses, logits, labels, totals)
    return totals


def _launch_rows(kernel, logits, *arguments):
    """Launch a kernel with one warp for each row of the logits."""
    device.launch(kernel, device.blocks(logits.shape[0], ROWS), (WARP, ROWS), logits, *arguments)
