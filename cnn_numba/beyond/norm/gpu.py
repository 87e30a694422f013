"""Batch normalisation on the GPU: a block sums up a channel, or a part of one.

A few channels would leave most of a GPU idle, so long ones are divided among several blocks, and a second
launch combines their results. These are in the first elements of the output, which the third launch
overwrites, so no scratch space is needed.

Layer normalisation is in `gpu_layer`; `gpu_sums` says how both sum without losing precision.
"""

import numpy as np

from cnn_numba import device
from cnn_numba.beyond.norm import checks
from cnn_numba.beyond.norm.gpu_layer import (
    layer_norm_backward as layer_norm_backward,
    layer_norm_forward as layer_norm_forward,
)
from cnn_numba.beyond.norm.gpu_sums import (
    add,
    add_parts_kernel,
    channel_size,
    element,
    image_and_pixel,
    inverse_std,
    moments,
    threads_of_block,
    two_arrays_in,
)
from cnn_numba.device.compiler import ONE, ZERO, cuda, float32, uint32
from cnn_numba.ops.shapes import DEVICE
from cnn_numba.ops.shared.views import flat_planes
from cnn_numba.ops.shared.warps import (
    LANE_COUNT,
    WARP,
    block_sum,
    own_element,
    unsigned_divmod,
    warp_sum,
    whole_warps,
)

THREADS = 256
PART = 8192  # elements of a channel per block: it reads them twice, so they should fit into the L1 cache
_ROW, _ROWS, _PLANES = "float32[::1]", "float32[:, ::1]", "float32[:, :, ::1]"


# --- Forward -----------------------------------------------------------------------------------------------


@cuda.jit(device=True)
def _keep_statistics(c, centre, squares, count, running_mean, running_var, momentum, eps, mean, inv_std):
    """Write the statistics of a channel of `count` elements, and update the running ones."""
    variance = squares / float32(count)
    mean[c] = centre
    inv_std[c] = inverse_std(variance, eps)
    kept = ONE - momentum
    running_mean[c] = kept * running_mean[c] + momentum * centre
    running_var[c] = kept * running_var[c] + momentum * (squares / float32(uint32(count - 1)))


@cuda.jit
@device.signature(
    f"void({_PLANES}, {_ROW}, {_ROW}, {_ROW}, {_ROW}, float32, float32, {_PLANES}, {_ROW}, {_ROW})"
)
def batch_norm2d_forward_block_kernel(
    x, weight, bias, running_mean, running_var, momentum, eps, out, mean, inv_std
):
    """Normalise one channel per block, from statistics to output; launched over the channels."""
    c, (thread, threads), count = uint32(cuda.blockIdx.x), threads_of_block(), channel_size(x)
    centre, squares = moments(x, c, 0, count)
    centre += x[0, c, 0]
    if thread == 0:
        _keep_statistics(c, centre, squares, count, running_mean, running_var, momentum, eps, mean, inv_std)
    scale, shift = weight[c] * inverse_std(squares / float32(count), eps), bias[c]
    j = thread
    while j < count:
        n, pixel = image_and_pixel(x, j)
        out[n, c, pixel] = (x[n, c, pixel] - centre) * scale + shift
        j = uint32(j + threads)


@cuda.jit(device=True)
def _part(x, part, part_size):
    """Return where a part of a channel begins and ends."""
    begin = uint32(part * part_size)
    return begin, min(uint32(begin + part_size), channel_size(x))


@cuda.jit
@device.signature(f"void({_PLANES}, uint32, {_ROWS}, {_ROWS})")
def batch_norm2d_parts_kernel(x, part_size, centres, squares):
    """Take the moments of one part of a channel per block; launched over (parts, channels)."""
    part, c = uint32(cuda.blockIdx.x), uint32(cuda.blockIdx.y)
    begin, end = _part(x, part, part_size)
    centre, square = moments(x, c, begin, end)
    if cuda.threadIdx.x == 0:
        centres[c, part] = centre
        squares[c, part] = square


@cuda.jit
@device.signature(
    f"void({_PLANES}, uint32, {_ROWS}, {_ROWS}, {_ROW}, {_ROW}, float32, float32, {_ROW}, {_ROW})"
)
def batch_norm2d_combine_kernel(
    x, part_size, centres, squares, running_mean, running_var, momentum, eps, mean, inv_std
):
    """Combine the moments of a channel's parts, one channel per warp; over 32 threads per channel.

    Chan, Golub and LeVeque, "Algorithms for computing the sample variance" (1983): a part's squared distances
    from the whole's mean are those from its own mean, plus its size times the squared distance of the means.
    """
    c, lane = unsigned_divmod(uint32(cuda.grid(1)), WARP)
    if c >= uint32(x.shape[1]):
        return
    parts, count = uint32(centres.shape[1]), channel_size(x)
    total, lost = ZERO, ZERO
    for part in range(lane, parts, LANE_COUNT):
        size = float32(min(part_size, uint32(count - part * part_size)))
        total, lost = add(total, lost, size * centres[c, part])
    centre = warp_sum(total) / float32(count)
    total, lost = ZERO, ZERO
    for part in range(lane, parts, LANE_COUNT):
        size = float32(min(part_size, uint32(count - part * part_size)))
        distance = centres[c, part] - centre
        total, lost = add(total, lost, squares[c, part] + size * (distance * distance))
    total = warp_sum(total)
    if lane == 0:
        centre += x[0, c, 0]
        _keep_statistics(c, centre, total, count, running_mean, running_var, momentum, eps, mean, inv_std)


@cuda.jit
@device.signature(f"void({_ROW}, {_ROW}, float32, {_ROW}, {_ROW})")
def batch_norm2d_use_running_kernel(running_mean, running_var, eps, mean, inv_std):
    """Use the running statistics, one channel per thread; launched over the channels."""
    c = uint32(cuda.grid(1))
    if c < uint32(mean.size):
        mean[c] = running_mean[c]
        inv_std[c] = inverse_std(running_var[c], eps)


@cuda.jit
@device.signature(f"void({_ROW}, uint32, {_ROW}, {_ROW}, {_ROW}, {_ROW}, {_ROW})")
def batch_norm2d_normalise_kernel(x, pixels, weight, bias, mean, inv_std, out):
    """Normalise one element per thread, given the statistics; launched over all elements."""
    i, exists = own_element(x)
    if exists:
        c = i // pixels % uint32(mean.size)
        out[i] = (x[i] - mean[c]) * (weight[c] * inv_std[c]) + bias[c]


def batch_norm2d_forward(
    x, weight, bias, running_mean, running_var, training=True, momentum=0.1, eps=1e-5, out=None, mean=None,
    inv_std=None,
):  # fmt: skip
    """Normalise each channel of a batch of images; see `reference.batch_norm2d_forward`."""
    arrays = x, weight, bias, running_mean, running_var, out, mean, inv_std
    *_, out, mean, inv_std = checks.batch_norm2d_forward(
        DEVICE, *arrays, training=training, momentum=momentum, eps=eps
    )
    planes, count, eps = flat_planes(x), x.size // x.shape[1], np.float32(eps)
    running = running_mean, running_var, np.float32(momentum), eps
    if training and not _is_long(x):
        arguments = planes, weight, bias, *running, flat_planes(out), mean, inv_std
        device.launch(batch_norm2d_forward_block_kernel, x.shape[1], whole_warps(count, THREADS), *arguments)
        return out, mean, inv_std
    if training:
        parts = device.blocks(count, PART)
        centres, squares = two_arrays_in(out, x.shape[1], parts)
        grid, block = (parts, x.shape[1]), whole_warps(PART, THREADS)
        device.launch(batch_norm2d_parts_kernel, grid, block, planes, np.uint32(PART), centres, squares)
        arguments = planes, np.uint32(PART), centres, squares, *running, mean, inv_std
        device.launch_for_each(batch_norm2d_combine_kernel, WARP * x.shape[1], THREADS, *arguments)
    else:
        arguments = running_mean, running_var, eps, mean, inv_std
        device.launch_for_each(batch_norm2d_use_running_kernel, x.shape[1], THREADS, *arguments)
    arguments = x.ravel(), np.uint32(planes.shape[2]), weight, bias, mean, inv_std, out.ravel()
    device.launch_for_each(batch_norm2d_normalise_kernel, x.size, THREADS, *arguments)
    return out, mean, inv_std


def _is_long(x):
    """Return whether a channel is divided among several blocks."""
    return x.size > PART * x.shape[1]


# --- Backward ----------------------------------------------------------------------------------------------


@cuda.jit(device=True, inline="always")
def _gradient_sums(grad_output, x, mean, inv_std, c, begin, end):
    """Return what a part of a channel adds to grad_weight and grad_bias; otherwise as `moments`."""
    thread, threads = threads_of_block()
    product, product_lost, total, total_lost = ZERO, ZERO, ZERO, ZERO
    j = uint32(begin + thread)
    while j < end:
        gradient = element(grad_output, c, j)
        distance = element(x, c, j) - mean[c]
        product, product_lost = add(product, product_lost, gradient * distance)
        total, total_lost = add(total, total_lost, gradient)
        j = uint32(j + threads)
    return block_sum(product) * inv_std[c], block_sum(total)


@cuda.jit
@device.signature(f"void({_PLANES}, {_PLANES}, {_ROW}, {_ROW}, {_ROW}, float32, {_PLANES}, {_ROW}, {_ROW})")
def batch_norm2d_backward_block_kernel(
    grad_output, x, weight, mean, inv_std, share, grad_input, grad_weight, grad_bias
):
    """Send the gradients of one channel back, one channel per block; launched over the channels.

    `share` is one element's share of an average; 0 in evaluation, where no average depends on x.
    """
    c, (thread, threads), count = uint32(cuda.blockIdx.x), threads_of_block(), channel_size(x)
    weight_sum, bias_sum = _gradient_sums(grad_output, x, mean, inv_std, c, 0, count)
    if thread == 0:
        grad_weight[c] = weight_sum
        grad_bias[c] = bias_sum
    average, slope = ZERO, ZERO
    if share > ZERO:
        average, slope = bias_sum * share, weight_sum * inv_std[c] * share
    shift, scale = mean[c], weight[c] * inv_std[c]
    j = thread
    while j < count:
        n, pixel = image_and_pixel(x, j)
        distance = x[n, c, pixel] - shift
        grad_input[n, c, pixel] = scale * (grad_output[n, c, pixel] - average - distance * slope)
        j = uint32(j + threads)


@cuda.jit
@device.signature(f"void({_PLANES}, {_PLANES}, {_ROW}, {_ROW}, uint32, {_ROWS}, {_ROWS})")
def batch_norm2d_gradient_parts_kernel(grad_output, x, mean, inv_std, part_size, weight_parts, bias_parts):
    """Sum up one part of a channel per block; launched over (parts, channels)."""
    part, c = uint32(cuda.blockIdx.x), uint32(cuda.blockIdx.y)
    begin, end = _part(x, part, part_size)
    weight_sum, bias_sum = _gradient_sums(grad_output, x, mean, inv_std, c, begin, end)
    if cuda.threadIdx.x == 0:
        weight_parts[c, part] = weight_sum
        bias_parts[c, part] = bias_sum


@cuda.jit
@device.signature(f"void({_ROW}, {_ROW}, uint32, {_ROW}, {_ROW}, {_ROW}, float32, {_ROW}, {_ROW}, {_ROW})")
def batch_norm2d_backward_input_kernel(
    grad_output, x, pixels, weight, mean, inv_std, share, grad_weight, grad_bias, grad_input
):
    """Send one gradient back per thread, given its channel's sums; launched over all elements."""
    i, exists = own_element(x)
    if not exists:
        return
    c = i // pixels % uint32(mean.size)
    average, slope = ZERO, ZERO
    if share > ZERO:
        average, slope = grad_bias[c] * share, grad_weight[c] * inv_std[c] * share
    distance = x[i] - mean[c]
    grad_input[i] = weight[c] * inv_std[c] * (grad_output[i] - average - distance * slope)


def batch_norm2d_backward(
    grad_output, x, weight, mean, inv_std, training=True, grad_input=None, grad_weight=None, grad_bias=None
):
    """Send the gradient back through a batch normalisation; see `reference.batch_norm2d_backward`."""
    arrays = grad_output, x, weight, mean, inv_std, grad_input, grad_weight, grad_bias
    *_, grad_input, grad_weight, grad_bias = checks.batch_norm2d_backward(DEVICE, *arrays, training=training)
    gradient_planes, planes = flat_planes(grad_output), flat_planes(x)
    count = x.size // x.shape[1]
    share = np.float32(1 / count if training else 0)
    if _is_long(x):
        parts = device.blocks(count, PART)
        partial_sums = two_arrays_in(grad_input, x.shape[1], parts)
        arguments = gradient_planes, planes, mean, inv_std, np.uint32(PART), *partial_sums
        grid, block = (parts, x.shape[1]), whole_warps(PART, THREADS)
        device.launch(batch_norm2d_gradient_parts_kernel, grid, block, *arguments)
        arrays = *partial_sums, grad_weight, grad_bias
        device.launch_for_each(add_parts_kernel, WARP * x.shape[1], THREADS, *arrays)
        arguments = weight, mean, inv_std, share, grad_weight, grad_bias, grad_input.ravel()
        flat = grad_output.ravel(), x.ravel(), np.uint32(planes.shape[2])
        device.launch_for_each(batch_norm2d_backward_input_kernel, x.size, THREADS, *flat, *arguments)
    else:
        arguments = weight, mean, inv_std, share, flat_planes(grad_input), grad_weight, grad_bias
        kernel = batch_norm2d_backward_block_kernel
        device.launch(kernel, x.shape[1], whole_warps(count, THREADS), gradient_planes, planes, *arguments)
    return grad_input, grad_weight, grad_bias
