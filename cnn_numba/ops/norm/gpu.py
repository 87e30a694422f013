"""Normalisation on the GPU: a block sums up a channel, or a part of one, or a sample.

float32 has seven digits, and three things keep them. Numbers are taken relative to the first of their channel
before they are added, so that a large mean costs none. Mean and squared distances take two passes. And each
thread adds with Kahan's correction: it costs three more additions where the memory is what everybody waits
for, and the sum of a million numbers is as good as one in float64 rounded at the end.

Few channels would leave most of a GPU idle, so a long one is shared out among several blocks, and a second
launch puts their results together. They need a place until then: the first elements of the output, which the
third launch overwrites. That spares the functions an argument for scratch space, and an allocation.
"""

import functools
import inspect
import math

import numpy as np
from numba import cuda, float32, uint32

from cnn_numba import device
from cnn_numba.ops.norm import checks
from cnn_numba.ops.shapes import DEVICE
from cnn_numba.ops.shared.warps import WARP, block_sum, warp_sum

THREADS = 256
PART = 8192  # elements of a channel that one block sums up: read twice, and small enough for the L1 cache
PART_ROWS = 512  # samples of which one block of `layer_norm_columns_kernel` adds up the columns
COLUMN_ROWS = 8  # threads that share a column there


# --- What kernels share ------------------------------------------------------------------------------------


@cuda.jit(device=True)
def _add(total, lost, value):
    """Return a sum with one more value, and what rounding added to it: Kahan, "Further remarks" (1965)."""
    value -= lost
    raised = total + value
    return raised, (raised - total) - value


@cuda.jit(device=True)
def _element(x, c, j):
    """Return element number `j` of channel `c` of an array (N, C, pixels)."""
    pixels = uint32(x.shape[2])
    n = uint32(j // pixels)
    return x[n, c, uint32(j - n * pixels)]


@cuda.jit(device=True)
def _moments(x, c, begin, end):
    """Return the mean of a part of a channel and the sum of the squared distances from it.

    The mean is relative to the channel's first element. The whole block works; all threads get the result.
    """
    thread, threads = uint32(cuda.threadIdx.x), uint32(cuda.blockDim.x)
    origin = x[uint32(0), c, uint32(0)]
    total, lost = float32(0), float32(0)
    j = uint32(begin + thread)
    while j < end:
        total, lost = _add(total, lost, _element(x, c, j) - origin)
        j = uint32(j + threads)
    centre = block_sum(total) / float32(uint32(end - begin))
    total, lost = float32(0), float32(0)
    j = uint32(begin + thread)
    while j < end:
        distance = (_element(x, c, j) - origin) - centre
        total, lost = _add(total, lost, distance * distance)
        j = uint32(j + threads)
    return centre, block_sum(total)


@cuda.jit(device=True)
def _inverse_std(variance, eps):
    return float32(1) / math.sqrt(variance + eps)


def _launch(kernel, threads, *arguments):
    """Launch `kernel` on that many threads."""
    device.launch(kernel, device.blocks(threads, THREADS), THREADS, *arguments)


def _block(elements):
    """Return how many threads shall share so many elements: whole warps."""
    return min(THREADS, WARP * device.blocks(elements, WARP))


def _two_scratch(array, rows, columns):
    """Return two arrays (rows, columns) that lie in the memory of another."""
    flat, size = array.ravel(), rows * columns
    return flat[:size].reshape(rows, columns), flat[size : 2 * size].reshape(rows, columns)


@cuda.jit
def add_parts_kernel(weight_parts, bias_parts, grad_weight, grad_bias):
    """Add up the parts of one row of each array, one row a warp; launched over 32 threads a row."""
    thread = uint32(cuda.grid(1))
    row, lane = uint32(thread // uint32(WARP)), uint32(thread % uint32(WARP))
    if row >= uint32(weight_parts.shape[0]):
        return
    weight_sum, weight_lost, bias_sum, bias_lost = float32(0), float32(0), float32(0), float32(0)
    for part in range(lane, uint32(weight_parts.shape[1]), uint32(WARP)):
        weight_sum, weight_lost = _add(weight_sum, weight_lost, weight_parts[row, part])
        bias_sum, bias_lost = _add(bias_sum, bias_lost, bias_parts[row, part])
    weight_sum, bias_sum = warp_sum(weight_sum), warp_sum(bias_sum)
    if lane == 0:
        grad_weight[row] = weight_sum
        grad_bias[row] = bias_sum


def _rung(operation, launch, split):
    """Return an operation that splits every channel into parts, or none; its arguments are the same."""
    signature = inspect.signature(operation)

    @functools.wraps(operation)
    def rung(*arguments, **named):
        bound = signature.bind(*arguments, **named)
        bound.apply_defaults()
        return launch(split, *bound.args)

    ending, whose = ("split", "`PART` elements of a channel") if split else ("block", "channel")
    rung.__name__ = rung.__qualname__ = f"{operation.__name__}_{ending}"
    rung.__doc__ = f"Do what `{operation.__name__}` does, with a block for each {whose}."
    return rung


# --- Batch normalisation, forward --------------------------------------------------------------------------


@cuda.jit(device=True)
def _keep_statistics(c, centre, squares, count, running_mean, running_var, momentum, eps, mean, inv_std):
    """Write the statistics of a channel of `count` elements, and move the running ones."""
    variance = squares / float32(count)
    mean[c] = centre
    inv_std[c] = _inverse_std(variance, eps)
    kept = float32(1) - momentum
    running_mean[c] = kept * running_mean[c] + momentum * centre
    running_var[c] = kept * running_var[c] + momentum * (squares / float32(uint32(count - uint32(1))))


@cuda.jit
def batch_norm2d_forward_block_kernel(
    x, weight, bias, running_mean, running_var, momentum, eps, out, mean, inv_std
):
    """Normalise one channel a block, from statistics to output; launched over the channels."""
    c, thread, threads = uint32(cuda.blockIdx.x), uint32(cuda.threadIdx.x), uint32(cuda.blockDim.x)
    pixels = uint32(x.shape[2])
    count = uint32(uint32(x.shape[0]) * pixels)
    centre, squares = _moments(x, c, uint32(0), count)
    centre += x[uint32(0), c, uint32(0)]
    if thread == 0:
        _keep_statistics(c, centre, squares, count, running_mean, running_var, momentum, eps, mean, inv_std)
    scale, shift = weight[c] * _inverse_std(squares / float32(count), eps), bias[c]
    j = thread
    while j < count:
        n = uint32(j // pixels)
        pixel = uint32(j - n * pixels)
        out[n, c, pixel] = (x[n, c, pixel] - centre) * scale + shift
        j = uint32(j + threads)


@cuda.jit
def batch_norm2d_parts_kernel(x, part_size, centres, squares):
    """Take the moments of one part of a channel a block; launched over (parts, channels)."""
    part, c = uint32(cuda.blockIdx.x), uint32(cuda.blockIdx.y)
    begin = uint32(part * uint32(part_size))
    end = min(uint32(begin + uint32(part_size)), uint32(uint32(x.shape[0]) * uint32(x.shape[2])))
    centre, square = _moments(x, c, begin, end)
    if cuda.threadIdx.x == 0:
        centres[c, part] = centre
        squares[c, part] = square


@cuda.jit
def batch_norm2d_combine_kernel(
    x, part_size, centres, squares, running_mean, running_var, momentum, eps, mean, inv_std
):
    """Put the moments of a channel's parts together, one channel a warp; over 32 threads a channel.

    Chan, Golub and LeVeque, "Algorithms for computing the sample variance" (1983): the squared distances from
    the mean of the whole are those from the mean of the part, and for each element how far apart the two are.
    """
    thread = uint32(cuda.grid(1))
    c, lane = uint32(thread // uint32(WARP)), uint32(thread % uint32(WARP))
    if c >= uint32(x.shape[1]):
        return
    part_size, parts = uint32(part_size), uint32(centres.shape[1])
    count = uint32(uint32(x.shape[0]) * uint32(x.shape[2]))
    total, lost = float32(0), float32(0)
    for part in range(lane, parts, uint32(WARP)):
        size = float32(min(part_size, uint32(count - uint32(part) * part_size)))
        total, lost = _add(total, lost, size * centres[c, part])
    centre = warp_sum(total) / float32(count)
    total, lost = float32(0), float32(0)
    for part in range(lane, parts, uint32(WARP)):
        size = float32(min(part_size, uint32(count - uint32(part) * part_size)))
        distance = centres[c, part] - centre
        total, lost = _add(total, lost, squares[c, part] + size * (distance * distance))
    total = warp_sum(total)
    if lane == 0:
        centre += x[uint32(0), c, uint32(0)]
        _keep_statistics(c, centre, total, count, running_mean, running_var, momentum, eps, mean, inv_std)


@cuda.jit
def batch_norm2d_use_running_kernel(running_mean, running_var, eps, mean, inv_std):
    """Take over the running statistics, one channel a thread; launched over the channels."""
    c = uint32(cuda.grid(1))
    if c < uint32(mean.size):
        mean[c] = running_mean[c]
        inv_std[c] = _inverse_std(running_var[c], eps)


@cuda.jit
def batch_norm2d_normalise_kernel(x, pixels, weight, bias, mean, inv_std, out):
    """Normalise one element a thread, given the statistics; launched over all elements."""
    i = uint32(cuda.grid(1))
    if i < uint32(x.size):
        c = uint32(i // uint32(pixels)) % uint32(mean.size)
        out[i] = (x[i] - mean[c]) * (weight[c] * inv_std[c]) + bias[c]


def _forward(split, x, weight, bias, running_mean, running_var, training, momentum, eps, out, mean, inv_std):
    """Check the arguments of a forward pass and launch it, the channels `split` into parts or not."""
    statistics = running_mean, running_var, training
    outputs = checks.batch_norm2d_forward(DEVICE, x, weight, bias, *statistics, out, mean, inv_std)
    out, mean, inv_std = outputs
    planes, count, eps = _flat_planes(x), x.size // x.shape[1], np.float32(eps)
    running = running_mean, running_var, np.float32(momentum), eps
    if training and not split:
        arguments = planes, weight, bias, *running, _flat_planes(out), mean, inv_std
        device.launch(batch_norm2d_forward_block_kernel, x.shape[1], _block(count), *arguments)
        return out, mean, inv_std
    if training:
        parts = device.blocks(count, PART)
        centres, squares = _two_scratch(out, x.shape[1], parts)
        grid = parts, x.shape[1]
        device.launch(batch_norm2d_parts_kernel, grid, _block(PART), planes, PART, centres, squares)
        arguments = planes, PART, centres, squares, *running, mean, inv_std
        _launch(batch_norm2d_combine_kernel, WARP * x.shape[1], *arguments)
    else:
        arguments = running_mean, running_var, eps, mean, inv_std
        _launch(batch_norm2d_use_running_kernel, x.shape[1], *arguments)
    arguments = x.ravel(), planes.shape[2], weight, bias, mean, inv_std, out.ravel()
    _launch(batch_norm2d_normalise_kernel, x.size, *arguments)
    return out, mean, inv_std


def batch_norm2d_forward(
    x,
    weight,
    bias,
    running_mean,
    running_var,
    training=True,
    momentum=0.1,
    eps=1e-5,
    out=None,
    mean=None,
    inv_std=None,
):
    """Normalise each channel of a batch of images; see `reference.batch_norm2d_forward`.

    Channels of more than `PART` elements are shared out among several blocks.
    """
    statistics = running_mean, running_var, training, momentum, eps
    return _forward(_is_long(x), x, weight, bias, *statistics, out, mean, inv_std)


batch_norm2d_forward_block = _rung(batch_norm2d_forward, _forward, split=False)
batch_norm2d_forward_split = _rung(batch_norm2d_forward, _forward, split=True)


def _is_long(x):
    """Return whether a channel has more elements than one block shall sum up."""
    checks.images(DEVICE, x)
    return x.size > PART * x.shape[1]


def _flat_planes(x):
    """View images (N, C, H, W) as (N, C, H * W)."""
    batch, channels, height, width = x.shape
    return x.reshape(batch, channels, height * width)


# --- Batch normalisation, backward -------------------------------------------------------------------------


@cuda.jit(device=True)
def _gradient_sums(grad_output, x, mean, inv_std, c, begin, end):
    """Return the shares of a part of a channel in grad_weight and grad_bias; as for `_moments`."""
    thread, threads = uint32(cuda.threadIdx.x), uint32(cuda.blockDim.x)
    product, product_lost, total, total_lost = float32(0), float32(0), float32(0), float32(0)
    j = uint32(begin + thread)
    while j < end:
        gradient = _element(grad_output, c, j)
        distance = _element(x, c, j) - mean[c]
        product, product_lost = _add(product, product_lost, gradient * distance)
        total, total_lost = _add(total, total_lost, gradient)
        j = uint32(j + threads)
    return block_sum(product) * inv_std[c], block_sum(total)


@cuda.jit
def batch_norm2d_backward_block_kernel(
    grad_output, x, weight, mean, inv_std, share, grad_input, grad_weight, grad_bias
):
    """Send the gradients of one channel back, one channel a block; launched over the channels.

    `share` is that of one element in an average; 0 in evaluation, where no average depends on x.
    """
    c, thread, threads = uint32(cuda.blockIdx.x), uint32(cuda.threadIdx.x), uint32(cuda.blockDim.x)
    pixels = uint32(x.shape[2])
    count = uint32(uint32(x.shape[0]) * pixels)
    weight_sum, bias_sum = _gradient_sums(grad_output, x, mean, inv_std, c, uint32(0), count)
    if thread == 0:
        grad_weight[c] = weight_sum
        grad_bias[c] = bias_sum
    average, slope = float32(0), float32(0)
    if share > float32(0):
        average, slope = bias_sum * share, weight_sum * inv_std[c] * share
    shift, scale = mean[c], weight[c] * inv_std[c]
    j = thread
    while j < count:
        n = uint32(j // pixels)
        pixel = uint32(j - n * pixels)
        distance = x[n, c, pixel] - shift
        grad_input[n, c, pixel] = scale * (grad_output[n, c, pixel] - average - distance * slope)
        j = uint32(j + threads)


@cuda.jit
def batch_norm2d_gradient_parts_kernel(grad_output, x, mean, inv_std, part_size, weight_parts, bias_parts):
    """Sum up one part of a channel a block; launched over (parts, channels)."""
    part, c = uint32(cuda.blockIdx.x), uint32(cuda.blockIdx.y)
    begin = uint32(part * uint32(part_size))
    end = min(uint32(begin + uint32(part_size)), uint32(uint32(x.shape[0]) * uint32(x.shape[2])))
    weight_sum, bias_sum = _gradient_sums(grad_output, x, mean, inv_std, c, begin, end)
    if cuda.threadIdx.x == 0:
        weight_parts[c, part] = weight_sum
        bias_parts[c, part] = bias_sum


@cuda.jit
def batch_norm2d_backward_input_kernel(
    grad_output, x, pixels, weight, mean, inv_std, share, grad_weight, grad_bias, grad_input
):
    """Send one gradient back a thread, given the sums of its channel; launched over all elements."""
    i = uint32(cuda.grid(1))
    if i >= uint32(x.size):
        return
    c = uint32(i // uint32(pixels)) % uint32(mean.size)
    average, slope = float32(0), float32(0)
    if share > float32(0):
        average, slope = grad_bias[c] * share, grad_weight[c] * inv_std[c] * share
    distance = x[i] - mean[c]
    grad_input[i] = weight[c] * inv_std[c] * (grad_output[i] - average - distance * slope)


def _backward(split, grad_output, x, weight, mean, inv_std, training, grad_input, grad_weight, grad_bias):
    """Check the arguments of a backward pass and launch it, the channels `split` into parts or not."""
    inputs = grad_output, x, weight, mean, inv_std
    outputs = checks.batch_norm2d_backward(DEVICE, *inputs, grad_input, grad_weight, grad_bias)
    grad_input, grad_weight, grad_bias = outputs
    gradient_planes, planes = _flat_planes(grad_output), _flat_planes(x)
    count = x.size // x.shape[1]
    share = np.float32(1 / count if training else 0)
    if split:
        parts = device.blocks(count, PART)
        shares = _two_scratch(grad_input, x.shape[1], parts)
        arguments = gradient_planes, planes, mean, inv_std, PART, *shares
        grid = parts, x.shape[1]
        device.launch(batch_norm2d_gradient_parts_kernel, grid, _block(PART), *arguments)
        _launch(add_parts_kernel, WARP * x.shape[1], *shares, grad_weight, grad_bias)
        arguments = weight, mean, inv_std, share, grad_weight, grad_bias, grad_input.ravel()
        flat = grad_output.ravel(), x.ravel(), planes.shape[2]
        _launch(batch_norm2d_backward_input_kernel, x.size, *flat, *arguments)
    else:
        arguments = weight, mean, inv_std, share, _flat_planes(grad_input), grad_weight, grad_bias
        kernel = batch_norm2d_backward_block_kernel
        device.launch(kernel, x.shape[1], _block(count), gradient_planes, planes, *arguments)
    return grad_input, grad_weight, grad_bias


def batch_norm2d_backward(
    grad_output, x, weight, mean, inv_std, training=True, grad_input=None, grad_weight=None, grad_bias=None
):
    """Send the gradient back through a batch normalisation; see `reference.batch_norm2d_backward`.

    Channels of more than `PART` elements are shared out among several blocks.
    """
    outputs = grad_input, grad_weight, grad_bias
    return _backward(_is_long(x), grad_output, x, weight, mean, inv_std, training, *outputs)


batch_norm2d_backward_block = _rung(batch_norm2d_backward, _backward, split=False)
batch_norm2d_backward_split = _rung(batch_norm2d_backward, _backward, split=True)


# --- Layer normalisation -----------------------------------------------------------------------------------


@cuda.jit
def layer_norm_forward_kernel(x, weight, bias, eps, out, mean, inv_std):
    """Normalise one sample a block, x and out being (1, samples, features); launched over the samples."""
    sample, thread, threads = uint32(cuda.blockIdx.x), uint32(cuda.threadIdx.x), uint32(cuda.blockDim.x)
    first, features = uint32(0), uint32(x.shape[2])
    centre, squares = _moments(x, sample, first, features)
    centre += x[first, sample, first]
    scale = _inverse_std(squares / float32(features), eps)
    if thread == 0:
        mean[sample] = centre
        inv_std[sample] = scale
    i = thread
    while i < features:
        out[first, sample, i] = (x[first, sample, i] - centre) * scale * weight[i] + bias[i]
        i = uint32(i + threads)


def layer_norm_forward(x, weight, bias, eps=1e-5, out=None, mean=None, inv_std=None):
    """Normalise the features of each sample; see `reference.layer_norm_forward`."""
    out, mean, inv_std = checks.layer_norm_forward(DEVICE, x, weight, bias, out, mean, inv_std)
    samples = x.size // weight.size
    shape = (1, samples, weight.size)
    arguments = x.reshape(shape), weight.ravel(), bias.ravel(), np.float32(eps), out.reshape(shape)
    grid, block = samples, _block(weight.size)
    device.launch(layer_norm_forward_kernel, grid, block, *arguments, mean.ravel(), inv_std.ravel())
    return out, mean, inv_std


@cuda.jit
def layer_norm_backward_input_kernel(grad_output, x, weight, mean, inv_std, grad_input):
    """Send the gradients of one sample back, one sample a block; launched over the samples."""
    sample, thread, threads = uint32(cuda.blockIdx.x), uint32(cuda.threadIdx.x), uint32(cuda.blockDim.x)
    features = uint32(x.shape[1])
    shift, scale = mean[sample], inv_std[sample]
    product, product_lost, total, total_lost = float32(0), float32(0), float32(0), float32(0)
    i = thread
    while i < features:
        gradient = grad_output[sample, i] * weight[i]
        product, product_lost = _add(product, product_lost, gradient * (x[sample, i] - shift))
        total, total_lost = _add(total, total_lost, gradient)
        i = uint32(i + threads)
    slope = block_sum(product) * scale * scale / float32(features)
    average = block_sum(total) / float32(features)
    i = thread
    while i < features:
        gradient = grad_output[sample, i] * weight[i]
        grad_input[sample, i] = scale * (gradient - average - (x[sample, i] - shift) * slope)
        i = uint32(i + threads)


@cuda.jit
def layer_norm_columns_kernel(grad_output, x, mean, inv_std, part_rows, weight_parts, bias_parts):
    """Add up 32 columns over `part_rows` samples a block of (32, COLUMN_ROWS); over (columns, samples).

    A warp reads 32 neighbouring columns of one sample at a time: along a column each thread would read from a
    row of its own.
    """
    weight_sums = cuda.shared.array((COLUMN_ROWS, WARP), float32)
    bias_sums = cuda.shared.array((COLUMN_ROWS, WARP), float32)
    lane, group, part = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y), uint32(cuda.blockIdx.y)
    column = uint32(uint32(cuda.blockIdx.x) * uint32(WARP) + lane)
    begin = uint32(part * uint32(part_rows))
    end = min(uint32(begin + uint32(part_rows)), uint32(x.shape[0]))
    product, product_lost, total, total_lost = float32(0), float32(0), float32(0), float32(0)
    if column < uint32(x.shape[1]):
        for row in range(uint32(begin + group), end, uint32(COLUMN_ROWS)):
            gradient = grad_output[row, column]
            x_hat = (x[row, column] - mean[row]) * inv_std[row]
            product, product_lost = _add(product, product_lost, gradient * x_hat)
            total, total_lost = _add(total, total_lost, gradient)
    weight_sums[group, lane] = product
    bias_sums[group, lane] = total
    cuda.syncthreads()
    if group == 0 and column < uint32(x.shape[1]):
        for other in range(uint32(1), uint32(COLUMN_ROWS)):
            product += weight_sums[other, lane]
            total += bias_sums[other, lane]
        weight_parts[column, part] = product
        bias_parts[column, part] = total


def layer_norm_backward(
    grad_output, x, weight, mean, inv_std, grad_input=None, grad_weight=None, grad_bias=None
):
    """Send the gradient back through a layer normalisation; see `reference.layer_norm_backward`."""
    inputs = grad_output, x, weight, mean, inv_std
    outputs = checks.layer_norm_backward(DEVICE, *inputs, grad_input, grad_weight, grad_bias)
    grad_input, grad_weight, grad_bias = outputs
    features, samples = weight.size, x.size // weight.size
    rows = grad_output.reshape(samples, features), x.reshape(samples, features)
    statistics = mean.ravel(), inv_std.ravel()
    parts = device.blocks(samples, PART_ROWS)
    sums = grad_weight.ravel(), grad_bias.ravel()
    # A single part is the sum already. Several stay in grad_input until they are added up.
    shares = [array.reshape(features, 1) for array in sums]
    if parts > 1:
        shares = _two_scratch(grad_input, features, parts)
    grid, block = (device.blocks(features, WARP), parts), (WARP, COLUMN_ROWS)
    device.launch(layer_norm_columns_kernel, grid, block, *rows, *statistics, PART_ROWS, *shares)
    if parts > 1:
        _launch(add_parts_kernel, WARP * features, *shares, *sums)
    arguments = *rows, weight.ravel(), *statistics, grad_input.reshape(samples, features)
    device.launch(layer_norm_backward_input_kernel, samples, _block(features), *arguments)
    return grad_input, grad_weight, grad_bias


_ROW, _ROWS, _PLANES = "float32[::1]", "float32[:, ::1]", "float32[:, :, ::1]"
SIGNATURES = {
    "add_parts_kernel": f"void({_ROWS}, {_ROWS}, {_ROW}, {_ROW})",
    "batch_norm2d_forward_block_kernel": (
        f"void({_PLANES}, {_ROW}, {_ROW}, {_ROW}, {_ROW}, float32, float32, {_PLANES}, {_ROW}, {_ROW})"
    ),
    "batch_norm2d_parts_kernel": f"void({_PLANES}, int64, {_ROWS}, {_ROWS})",
    "batch_norm2d_combine_kernel": (
        f"void({_PLANES}, int64, {_ROWS}, {_ROWS}, {_ROW}, {_ROW}, float32, float32, {_ROW}, {_ROW})"
    ),
    "batch_norm2d_use_running_kernel": f"void({_ROW}, {_ROW}, float32, {_ROW}, {_ROW})",
    "batch_norm2d_normalise_kernel": f"void({_ROW}, int64, {_ROW}, {_ROW}, {_ROW}, {_ROW}, {_ROW})",
    "batch_norm2d_backward_block_kernel": (
        f"void({_PLANES}, {_PLANES}, {_ROW}, {_ROW}, {_ROW}, float32, {_PLANES}, {_ROW}, {_ROW})"
    ),
    "batch_norm2d_gradient_parts_kernel": (
        f"void({_PLANES}, {_PLANES}, {_ROW}, {_ROW}, int64, {_ROWS}, {_ROWS})"
    ),
    "batch_norm2d_backward_input_kernel": (
        f"void({_ROW}, {_ROW}, int64, {_ROW}, {_ROW}, {_ROW}, float32, {_ROW}, {_ROW}, {_ROW})"
    ),
    "layer_norm_forward_kernel": (f"void({_PLANES}, {_ROW}, {_ROW}, float32, {_PLANES}, {_ROW}, {_ROW})"),
    "layer_norm_backward_input_kernel": f"void({_ROWS}, {_ROWS}, {_ROW}, {_ROW}, {_ROW}, {_ROWS})",
    "layer_norm_columns_kernel": f"void({_ROWS}, {_ROWS}, {_ROW}, {_ROW}, int64, {_ROWS}, {_ROWS})",
}
