"""The course's own short, faster kernels for parts of the step, with their launchers.

They replace swaps that a reader hasn't made. The solutions of notebook 18 are among them; a test compares
the two.
"""

import numpy as np
from numba import cuda, float32, uint32

from cnn_course.chapters.capstone.judging import KernelLauncher
from cnn_numba import device
from cnn_numba.ops.shared.warps import block_sum, warp_sum

MAPS = 8  # output channels of a thread
ROWS = 4  # results of a thread in the dense layer's gradients, filters of one in the convolution's
BLOCKS = 640  # that share out a filter gradient, at least


# --- The solutions of the notebook --------------------------------------------------------------------------


@cuda.jit
def filter_gradient_kernel(grad_output, x, grad_weight):
    """Add up one weight's gradient per block; x of the grid: the window, y: channels, z: filters."""
    oc, ic = cuda.blockIdx.z, cuda.blockIdx.y
    kh, kw = cuda.blockIdx.x // 3, cuda.blockIdx.x % 3
    width = grad_output.shape[3]
    total = float32(0)
    for n in range(x.shape[0]):
        for p in range(cuda.threadIdx.x, grad_output.shape[2] * width, cuda.blockDim.x):
            h, w = p // width, p % width
            total += grad_output[n, oc, h, w] * x[n, ic, h + kh, w + kw]
    total = block_sum(total)
    if cuda.threadIdx.x == 0:
        grad_weight[oc, ic, kh, kw] = total


def launch_filter_gradient(kernel, grad_output, x, grad_weight):
    """Launch a block of 128 threads for each weight."""
    filters, channels = grad_weight.shape[:2]
    kernel[(9, channels, filters), 128](grad_output, x, grad_weight)


@cuda.jit
def forward_maps_kernel(x, weight, bias, out):
    """Compute one position of MAPS output channels a thread; y of the grid: groups of them, z: images."""
    window = cuda.shared.array((9, MAPS), float32)
    t, n, first = cuda.threadIdx.x, cuda.blockIdx.z, cuda.blockIdx.y * MAPS
    h, w = cuda.grid(1) // out.shape[3], cuda.grid(1) % out.shape[3]
    sums = cuda.local.array(MAPS, float32)
    for m in range(MAPS):
        sums[m] = bias[min(first + m, bias.size - 1)]
    for ic in range(x.shape[1]):
        cuda.syncthreads()
        if t < 9 * MAPS:
            k, oc = t // MAPS, min(first + t % MAPS, bias.size - 1)
            window[k, t % MAPS] = weight[oc, ic, k // 3, k % 3]
        cuda.syncthreads()
        if h < out.shape[2]:
            for k in range(9):
                pixel = x[n, ic, h + k // 3, w + k % 3]
                for m in range(MAPS):
                    sums[m] += pixel * window[k, m]
    if h < out.shape[2]:
        for m in range(min(MAPS, bias.size - first)):
            out[n, first + m, h, w] = sums[m]


def launch_forward_maps(kernel, x, weight, bias, out):
    """Launch blocks of 128 threads, a thread for each position."""
    n, maps, height, width = out.shape
    grid = device.blocks(height * width, 128), device.blocks(maps, MAPS), n
    kernel[grid, 128](x, weight, bias, out)


@cuda.jit
def dense_warp_kernel(x, weight, bias, relu, out):
    """Compute one output per warp; blocks of 128 threads."""
    lane, i = cuda.threadIdx.x % 32, cuda.grid(1) // 32
    if i < out.size:
        n, o = i // out.shape[1], i % out.shape[1]
        total = float32(0)
        for k in range(lane, x.shape[1], 32):
            total += x[n, k] * weight[o, k]
        total = warp_sum(total)
        if lane == 0:
            total += bias[o]
            out[n, o] = max(total, float32(0)) if relu else total


def dense_by_warps(x, weight, bias, relu, out):
    """Launch a warp for each output."""
    dense_warp_kernel[device.blocks(out.size, 4), 128](x, weight, bias, relu, out)


# --- How the course went on ---------------------------------------------------------------------------------


@cuda.jit(device=True)
def store_window(sums, is_there, window):
    """Add up nine sums over the block, and store them as a window of 3 x 3."""
    for k in range(9):
        total = block_sum(sums[k])
        if cuda.threadIdx.x == 0 and is_there:
            window[k // 3, k % 3] = total


@cuda.jit
def filter_parts_kernel(grad_output, x, parts):
    """Add up all nine weights of ROWS filters a block, over some images; x of the grid: which images."""
    part, ic, first = cuda.blockIdx.x, uint32(cuda.blockIdx.z), cuda.blockIdx.y * ROWS
    width, positions = uint32(grad_output.shape[3]), uint32(grad_output.shape[2] * grad_output.shape[3])
    sums, pixels = cuda.local.array((ROWS, 9), float32), cuda.local.array(9, float32)
    for r in range(ROWS):
        for k in range(9):
            sums[r, k] = float32(0)
    last = grad_output.shape[1] - 1
    for n in range(uint32(part), uint32(x.shape[0]), uint32(parts.shape[0])):
        for p in range(uint32(cuda.threadIdx.x), positions, uint32(cuda.blockDim.x)):
            h, w = p // width, p % width
            for k in range(9):
                pixels[k] = x[n, ic, h + uint32(k // 3), w + uint32(k % 3)]
            for r in range(ROWS):
                g = grad_output[n, uint32(min(first + r, last)), h, w]
                for k in range(9):
                    sums[r, k] += g * pixels[k]
    for r in range(ROWS):
        store_window(sums[r], first + r <= last, parts[part, min(first + r, last), ic])


@cuda.jit
def add_parts_kernel(parts, out):
    """Add up the parts of one element per thread."""
    i = cuda.grid(1)
    if i < out.size:
        total = float32(0)
        for part in range(parts.shape[0]):
            total += parts[part, i]
        out[i] = total


def filter_gradient_in_parts(grad_output, x, grad_weight):
    """Share the images out until there are BLOCKS blocks, and add up what they come to."""
    groups, channels = device.blocks(grad_weight.shape[0], ROWS), grad_weight.shape[1]
    count = min(x.shape[0], device.blocks(BLOCKS, groups * channels))
    parts = cuda.device_array((count, *grad_weight.shape), np.float32)
    filter_parts_kernel[(count, groups, channels), 128](grad_output, x, parts)
    flat = parts.reshape(count, grad_weight.size), grad_weight.reshape(grad_weight.size)
    add_parts_kernel[device.blocks(grad_weight.size, 128), 128](*flat)


@cuda.jit
def input_maps_kernel(grad_output, weight, grad_input):
    """Gather one pixel of MAPS input channels a thread; y of the grid: groups of them, z: images."""
    window = cuda.shared.array((9, MAPS), float32)
    t, n, first = cuda.threadIdx.x, uint32(cuda.blockIdx.z), cuda.blockIdx.y * MAPS
    channels, width = weight.shape[1], uint32(grad_input.shape[3])
    p = uint32(cuda.grid(1))
    h, w = p // width, p % width
    sums = cuda.local.array(MAPS, float32)
    for m in range(MAPS):
        sums[m] = float32(0)
    for oc in range(uint32(grad_output.shape[1])):
        cuda.syncthreads()
        if t < 9 * MAPS:
            k = t // MAPS
            window[k, t % MAPS] = weight[oc, min(first + t % MAPS, channels - 1), k // 3, k % 3]
        cuda.syncthreads()
        for k in range(9):
            # Unsigned: one row above the first is a very large number.
            top, left = uint32(h - uint32(k // 3)), uint32(w - uint32(k % 3))
            if top < uint32(grad_output.shape[2]) and left < uint32(grad_output.shape[3]):
                g = grad_output[n, oc, top, left]
                for m in range(MAPS):
                    sums[m] += g * window[k, m]
    if h < uint32(grad_input.shape[2]):
        for m in range(min(MAPS, channels - first)):
            grad_input[n, uint32(first + m), h, w] = sums[m]


def input_gradient_by_maps(grad_output, weight, grad_input):
    """Launch blocks of 128 threads, a thread for each pixel."""
    n, maps, height, width = grad_input.shape
    grid = device.blocks(height * width, 128), device.blocks(maps, MAPS), n
    input_maps_kernel[grid, 128](grad_output, weight, grad_input)


@cuda.jit
def dense_weight_rows_kernel(grad_output, x, grad_weight):
    """Compute ROWS gradients of a column per thread: one number of x serves all of them."""
    i, first, last = cuda.grid(1), cuda.blockIdx.y * ROWS, grad_weight.shape[0] - 1
    if i < grad_weight.shape[1]:
        sums = cuda.local.array(ROWS, float32)
        for r in range(ROWS):
            sums[r] = float32(0)
        for n in range(x.shape[0]):
            value = x[n, i]
            for r in range(ROWS):
                sums[r] += value * grad_output[n, min(first + r, last)]
        for r in range(min(ROWS, grad_weight.shape[0] - first)):
            grad_weight[first + r, i] = sums[r]


def dense_weight_by_rows(grad_output, x, grad_weight):
    """Launch a thread for ROWS weights."""
    rows, columns = grad_weight.shape
    grid = device.blocks(columns, 128), device.blocks(rows, ROWS)
    dense_weight_rows_kernel[grid, 128](grad_output, x, grad_weight)


@cuda.jit
def dense_input_rows_kernel(grad_output, weight, grad_input):
    """Compute ROWS gradients of a column per thread: one weight serves all of them."""
    i, first, last = cuda.grid(1), cuda.blockIdx.y * ROWS, grad_input.shape[0] - 1
    if i < grad_input.shape[1]:
        sums = cuda.local.array(ROWS, float32)
        for r in range(ROWS):
            sums[r] = float32(0)
        for o in range(weight.shape[0]):
            value = weight[o, i]
            for r in range(ROWS):
                sums[r] += value * grad_output[min(first + r, last), o]
        for r in range(min(ROWS, grad_input.shape[0] - first)):
            grad_input[first + r, i] = sums[r]


def dense_input_by_rows(grad_output, weight, grad_input):
    """Launch a thread for ROWS inputs."""
    rows, columns = grad_input.shape
    grid = device.blocks(columns, 128), device.blocks(rows, ROWS)
    dense_input_rows_kernel[grid, 128](grad_output, weight, grad_input)


@cuda.jit
def bias_rows_kernel(grad_output, grad_bias):
    """Add up one channel per block of 32 x 32 threads: a warp for each image, lanes along the positions."""
    sums = cuda.shared.array(32, float32)
    lane, row, c = cuda.threadIdx.x, cuda.threadIdx.y, cuda.blockIdx.x
    total = float32(0)
    for n in range(row, grad_output.shape[0], 32):
        for p in range(lane, grad_output.shape[2], 32):
            total += grad_output[n, c, p]
    total = warp_sum(total)
    if lane == 0:
        sums[row] = total
    cuda.syncthreads()
    if row == 0:
        total = warp_sum(sums[lane])
        if lane == 0:
            grad_bias[c] = total


def bias_by_rows(grad_output, grad_bias):
    """Launch a block for each channel."""
    bias_rows_kernel[grad_bias.size, (32, 32)](grad_output, grad_bias)


#: The course's own way, swap by swap: notebook 18 goes it, and leaves some of it to the reader.
SWAPS = (
    ("conv_weight", KernelLauncher(filter_gradient_kernel, launch_filter_gradient)),
    ("conv_weight", filter_gradient_in_parts),
    ("conv_forward", KernelLauncher(forward_maps_kernel, launch_forward_maps)),
    ("conv_input", input_gradient_by_maps),
    ("dense_forward", dense_by_warps),
    ("bias", bias_by_rows),
    ("dense_weight", dense_weight_by_rows),
    ("dense_input", dense_input_by_rows),
)
#: What each of these changes.
CHANGES = (
    "a block for each weight",
    "nine sums a thread",
    "eight channels a thread",
    "input gradient: eight channels",
    "dense: a warp for each result",
    "bias: a warp for each image",
    "dense weights: four rows",
    "dense inputs: four rows",
)
