"""The yardstick of notebook 25 in Triton: images of one channel, kernels of 3 x 3, float32 throughout.

A program handles a block of elements at once. Its code deals with whole blocks, their addresses and their
masks; the compiler decides which thread does what. The environment variable TRITON_INTERPRET decides at
import whether kernels are interpreted or compiled.
"""

import triton
import triton.language as tl

TAPS = tl.constexpr(3)


@triton.jit
def conv_forward(
    x, weight, bias, out, count, height, width, channels, relu: tl.constexpr, PLACES: tl.constexpr,
    CHANNELS: tl.constexpr, DEPTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute PLACES places in all channels: a block of windows times the block of the filters."""
    out_h, out_w = height - TAPS + 1, width - TAPS + 1
    place = tl.program_id(0) * PLACES + tl.arange(0, PLACES)
    channel, tap = tl.arange(0, CHANNELS), tl.arange(0, DEPTH)
    n, oh, ow = place // (out_h * out_w), place // out_w % out_h, place % out_w
    there, is_tap, is_channel = place < count * out_h * out_w, tap < TAPS * TAPS, channel < channels
    pixel = (n * height + oh) * width + ow
    pixels = pixel[:, None] + (tap // TAPS * width + tap % TAPS)[None, :]
    windows = tl.load(x + pixels, mask=there[:, None] & is_tap[None, :], other=0.0)
    weights = channel[None, :] * TAPS * TAPS + tap[:, None]
    filters = tl.load(weight + weights, mask=is_tap[:, None] & is_channel[None, :], other=0.0)
    total = tl.dot(windows, filters, input_precision=PRECISION)
    total += tl.load(bias + channel, mask=is_channel, other=0.0)[None, :]
    if relu:
        total = tl.maximum(total, 0.0)
    places = ((n * channels * out_h + oh) * out_w + ow)[:, None] + (channel * out_h * out_w)[None, :]
    tl.store(out + places, total, mask=there[:, None] & is_channel[None, :])


@triton.jit
def conv_grad_weight(
    grad, x, grad_weight, grad_bias, count, height, width, channels, PLACES: tl.constexpr,
    CHANNELS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Sum up all gradients in one program; a column of ones after the last tap gives those of the bias."""
    out_h, out_w = height - TAPS + 1, width - TAPS + 1
    size = out_h * out_w
    channel, tap = tl.arange(0, CHANNELS), tl.arange(0, DEPTH)
    is_tap, is_channel = tap < TAPS * TAPS, channel < channels
    total = tl.full((CHANNELS, DEPTH), 0.0, tl.float32)
    for first in range(0, count * size, PLACES):
        place = first + tl.arange(0, PLACES)
        n, oh, ow = place // size, place // out_w % out_h, place % out_w
        there = place < count * size
        pixels = ((n * height + oh) * width + ow)[:, None] + (tap // TAPS * width + tap % TAPS)[None, :]
        windows = tl.load(x + pixels, mask=there[:, None] & is_tap[None, :], other=1.0)
        places = (channel * size)[:, None] + (n * channels * size + place % size)[None, :]
        gradient = tl.load(grad + places, mask=is_channel[:, None] & there[None, :], other=0.0)
        total += tl.dot(gradient, windows, input_precision="ieee")
    weights = channel[:, None] * TAPS * TAPS + tap[None, :]
    tl.store(grad_weight + weights, total, mask=is_channel[:, None] & is_tap[None, :])
    is_bias = is_channel[:, None] & (tap == TAPS * TAPS)[None, :]
    tl.store(grad_bias + channel[:, None] + tl.full((CHANNELS, DEPTH), 0, tl.int32), total, mask=is_bias)


@triton.jit
def conv_grad_input(
    grad, weight, grad_input, count, height, width, channels, PIXELS: tl.constexpr
):  # fmt: skip
    """Compute the gradients of PIXELS pixels: what every window that they were in sends back."""
    out_h, out_w = height - TAPS + 1, width - TAPS + 1
    pixel = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    n, h, w = pixel // (height * width), pixel // width % height, pixel % width
    there = pixel < count * height * width
    total = tl.full((PIXELS,), 0.0, tl.float32)
    for channel in range(channels):
        for tap in range(9):
            oh, ow = h - tap // 3, w - tap % 3
            inside = there & (oh >= 0) & (oh < out_h) & (ow >= 0) & (ow < out_w)
            place = ((n * channels + channel) * out_h + oh) * out_w + ow
            total += tl.load(grad + place, mask=inside, other=0.0) * tl.load(weight + channel * 9 + tap)
    tl.store(grad_input + pixel, total, mask=there)


@triton.jit
def product(
    a, a_row, a_column, b, b_row, b_column, out, m, n, depth, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
):  # fmt: skip
    """Compute ROWS x COLUMNS results. A matrix has two strides, so that it can be taken transposed."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.full((ROWS, COLUMNS), 0.0, tl.float32)
    for start in range(0, depth, DEPTH):
        k = start + tl.arange(0, DEPTH)
        left_there = (row < m)[:, None] & (k < depth)[None, :]
        left = tl.load(a + row[:, None] * a_row + k[None, :] * a_column, mask=left_there, other=0.0)
        right_there = (k < depth)[:, None] & (column < n)[None, :]
        right = tl.load(b + k[:, None] * b_row + column[None, :] * b_column, mask=right_there, other=0.0)
        total += tl.dot(left, right, input_precision="ieee")
    tl.store(out + row[:, None] * n + column[None, :], total, mask=(row < m)[:, None] & (column < n)[None, :])


@triton.jit
def cross_entropy(logits, bias, labels, losses, grad, count, classes, CLASSES: tl.constexpr):
    """One image a program: the loss, and the gradient of the mean loss."""
    n, k = tl.program_id(0), tl.arange(0, CLASSES)
    there = k < classes
    score = tl.load(logits + n * classes + k, mask=there, other=-float("inf"))
    score += tl.load(bias + k, mask=there, other=0.0)
    score -= tl.max(score, axis=0)
    total = tl.sum(tl.exp(score), axis=0)
    is_label = k == tl.load(labels + n)
    tl.store(losses + n, tl.log(total) - tl.sum(tl.where(is_label, score, 0.0), axis=0))
    tl.store(
        grad + n * classes + k, (tl.exp(score) / total - tl.where(is_label, 1.0, 0.0)) / count, mask=there
    )


@triton.jit
def relu_backward(out, gradient, size, BLOCK: tl.constexpr):
    """BLOCK numbers a program: no gradient where nothing came through."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    came_through = tl.load(out + i, mask=i < size, other=0.0) > 0.0
    tl.store(gradient + i, 0.0, mask=(i < size) & (came_through == 0))


@triton.jit
def sgd(parameters, gradient, rate, size, BLOCK: tl.constexpr):
    """BLOCK parameters a program."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    new = tl.load(parameters + i, mask=i < size) - rate * tl.load(gradient + i, mask=i < size)
    tl.store(parameters + i, new, mask=i < size)
