"""Layer normalisation on the GPU: a block sums up a sample, or some columns of many samples."""

import numpy as np

from cnn_numba import device
from cnn_numba.beyond.norm import checks
from cnn_numba.beyond.norm.gpu_sums import (
    add,
    add_parts_kernel,
    inverse_std,
    moments,
    threads_of_block,
    two_arrays_in,
)
from cnn_numba.device.compiler import ZERO, cuda, float32, uint32
from cnn_numba.ops.shapes import DEVICE
from cnn_numba.ops.shared.intrinsics import ptx
from cnn_numba.ops.shared.warps import WARP, block_sum, whole_warps

THREADS = 256
PART_ROWS = 512  # samples per block of `layer_norm_columns_kernel`
COLUMN_ROWS = 8  # threads that share a column in it
_ROW, _ROWS, _PLANES = "float32[::1]", "float32[:, ::1]", "float32[:, :, ::1]"


def _product(a, b):
    return a * b


# A GPU doesn't round the product in `a * b - c`. Rounded, equal numbers minus their mean are 0.
rounded_product = ptx(_product, "mul.rn.f32 $0, $1, $2;", "=f,f,f", float32, float32, float32)


@cuda.jit
@device.signature(f"void({_PLANES}, {_ROW}, {_ROW}, float32, {_PLANES}, {_ROW}, {_ROW})")
def layer_norm_forward_kernel(x, weight, bias, eps, out, mean, inv_std):
    """Normalise one sample per block, x and out being (1, samples, features); launched over the samples."""
    sample, (thread, threads) = uint32(cuda.blockIdx.x), threads_of_block()
    features = uint32(x.shape[2])
    centre, squares = moments(x, sample, 0, features)
    centre += x[0, sample, 0]
    scale = inverse_std(squares / float32(features), eps)
    if thread == 0:
        mean[sample] = centre
        inv_std[sample] = scale
    i = thread
    while i < features:
        out[0, sample, i] = (x[0, sample, i] - centre) * scale * weight[i] + bias[i]
        i = uint32(i + threads)


def layer_norm_forward(x, weight, bias, eps=1e-5, out=None, mean=None, inv_std=None):
    """Normalise the features of each sample; see `reference.layer_norm_forward`."""
    arrays = x, weight, bias, out, mean, inv_std
    *_, out, mean, inv_std = checks.layer_norm_forward(DEVICE, *arrays, eps=eps)
    samples = x.size // weight.size
    shape = (1, samples, weight.size)
    arguments = x.reshape(shape), weight.ravel(), bias.ravel(), np.float32(eps), out.reshape(shape)
    arguments += mean.ravel(), inv_std.ravel()
    device.launch(layer_norm_forward_kernel, samples, whole_warps(weight.size, THREADS), *arguments)
    return out, mean, inv_std


@cuda.jit
@device.signature(f"void({_ROWS}, {_ROWS}, {_ROW}, {_ROW}, {_ROW}, {_ROWS})")
def layer_norm_backward_input_kernel(grad_output, x, weight, mean, inv_std, grad_input):
    """Send the gradients of one sample back, one sample per block; launched over the samples."""
    sample, (thread, threads) = uint32(cuda.blockIdx.x), threads_of_block()
    features = uint32(x.shape[1])
    shift, scale = mean[sample], inv_std[sample]
    product, product_lost, total, total_lost = ZERO, ZERO, ZERO, ZERO
    i = thread
    while i < features:
        gradient = grad_output[sample, i] * weight[i]
        product, product_lost = add(product, product_lost, gradient * (x[sample, i] - shift))
        total, total_lost = add(total, total_lost, gradient)
        i = uint32(i + threads)
    slope = block_sum(product) * scale * scale / float32(features)
    average = block_sum(total) / float32(features)
    i = thread
    while i < features:
        gradient = rounded_product(grad_output[sample, i], weight[i])
        grad_input[sample, i] = scale * (gradient - average - (x[sample, i] - shift) * slope)
        i = uint32(i + threads)


@cuda.jit
@device.signature(f"void({_ROWS}, {_ROWS}, {_ROW}, {_ROW}, int64, {_ROWS}, {_ROWS})")
def layer_norm_columns_kernel(grad_output, x, mean, inv_std, part_rows, weight_parts, bias_parts):
    """Add up 32 columns over `part_rows` samples per block of (32, COLUMN_ROWS); over (columns, samples).

    A warp reads 32 neighbouring columns of one sample at a time, which is coalesced; along a column, each
    thread would read from another row.
    """
    weight_sums = cuda.shared.array((COLUMN_ROWS, WARP), float32)
    bias_sums = cuda.shared.array((COLUMN_ROWS, WARP), float32)
    lane, group, part = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y), uint32(cuda.blockIdx.y)
    column = uint32(cuda.blockIdx.x * WARP + lane)
    begin = uint32(part * part_rows)
    end = min(uint32(begin + part_rows), uint32(x.shape[0]))
    product, product_lost, total, total_lost = ZERO, ZERO, ZERO, ZERO
    if column < x.shape[1]:
        for row in range(uint32(begin + group), end, uint32(COLUMN_ROWS)):
            gradient = grad_output[row, column]
            x_hat = (x[row, column] - mean[row]) * inv_std[row]
            product, product_lost = add(product, product_lost, gradient * x_hat)
            total, total_lost = add(total, total_lost, gradient)
    weight_sums[group, lane] = product
    bias_sums[group, lane] = total
    cuda.syncthreads()
    if group == 0 and column < x.shape[1]:
        for other in range(1, COLUMN_ROWS):
            product += weight_sums[other, lane]
            total += bias_sums[other, lane]
        weight_parts[column, part] = product
        bias_parts[column, part] = total


def layer_norm_backward(
    grad_output, x, weight, mean, inv_std, grad_input=None, grad_weight=None, grad_bias=None
):
    """Send the gradient back through a layer normalisation; see `reference.layer_norm_backward`."""
    arrays = grad_output, x, weight, mean, inv_std, grad_input, grad_weight, grad_bias
    *_, grad_input, grad_weight, grad_bias = checks.layer_norm_backward(DEVICE, *arrays)
    features, samples = weight.size, x.size // weight.size
    rows = grad_output.reshape(samples, features), x.reshape(samples, features)
    statistics = mean.ravel(), inv_std.ravel()
    parts = device.blocks(samples, PART_ROWS)
    sums = grad_weight.ravel(), grad_bias.ravel()
    # A single part is the sum. Several lie in grad_input until they are added up.
    partial_sums = [array.reshape(features, 1) for array in sums]
    if parts > 1:
        partial_sums = two_arrays_in(grad_input, features, parts)
    grid, block = (device.blocks(features, WARP), parts), (WARP, COLUMN_ROWS)
    device.launch(layer_norm_columns_kernel, grid, block, *rows, *statistics, PART_ROWS, *partial_sums)
    if parts > 1:
        device.launch_for_each(add_parts_kernel, WARP * features, THREADS, *partial_sums, *sums)
    arguments = *rows, weight.ravel(), *statistics, grad_input.reshape(samples, features)
    device.launch(layer_norm_backward_input_kernel, samples, whole_warps(features, THREADS), *arguments)
    return grad_input, grad_weight, grad_bias
