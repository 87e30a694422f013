"""Convolution on the CPU with vector instructions.

Images arrive and leave as NCHW. Each thread takes whole images. It copies one at a time to a channels-last
layout with zero padding, where the K_w * C_in values under one row of the kernel are neighbours. Such a copy
fits into the core's cache.

- forward: a tile of 6 pixels x 2 vectors of output channels is summed in registers.
- backward: after max pooling three quarters of `grad_output` are zeros. The non-zero entries of a
  channel are listed first, and only these are multiplied: with a row of the image for the gradient of the
  weight, with a row of the weight for the gradient of the image.
- backward weight with few input channels: rows are short, with three colours 9 values, and take one
  vector, not six. With one channel even that would be mostly empty: there the gradient is spread over
  a plane of zeros as wide as the image, so that every element is one long dot product.

If inputs are NaN or infinite, the backward passes may give NaN in other elements than the reference.
"""

from typing import NamedTuple

import numba
import numpy as np
from numba import prange

from cnn_numba.ops.conv import checks
from cnn_numba.ops.shapes import HOST, check_scratch, conv2d_window
from cnn_numba.ops.shared.jit import inner_jit, parallel_jit, serial_jit
from cnn_numba.ops.shared.rounding import nearest, round_all, rounding
from cnn_numba.ops.shared.simd import WIDTH, load, multiply_add, store, vectors
from cnn_numba.ops.shared.tile import TILE_COLUMNS, TILE_ROWS, aligned_zeros, multiply_tile, round_up

ROW_VECTORS = 6
ROW = ROW_VECTORS * WIDTH  # floats that the backward passes multiply at a time, in vector registers


class Conv2dScratch(NamedTuple):
    """Working space of one convolution, with a part for each of T threads."""

    image: np.ndarray  # (T, plane): one image or its gradient, padded, channels-last
    tile: np.ndarray  # (T, pixels * channels): its output, in blocks of TILE_COLUMNS channels
    values: np.ndarray  # (T, positions): the non-zero entries of one channel of grad_output ...
    offsets: np.ndarray  # (T, positions): ... and where their windows begin in `image`; also those of a tile
    columns: np.ndarray  # bias and weight as panels: a row of output channels per (K_h, K_w, C_in)
    rows: np.ndarray  # weight, one row per (C_out, K_h): its K_w * C_in values and zeros up to ROW
    partial: np.ndarray  # (T, as rows): the weight gradient of one thread's images
    planes: np.ndarray  # (T, C_in + 1, size): the padded channels of one image; one of its gradient


def _scratch_shapes(input_shape, weight_shape, window):
    channels, height, width = input_shape[1:]
    out_channels, _, kernel_h, kernel_w = weight_shape
    threads = numba.get_num_threads()
    # Vector loads and stores at the end of a row may exceed the image by less than a ROW.
    size = (height + 2 * window.padding_h) * (width + 2 * window.padding_w)
    plane = round_up(size * channels + ROW, 16)
    padded_channels = round_up(out_channels, TILE_COLUMNS)
    positions = window.out_h * window.out_w
    rows = out_channels * kernel_h * round_up(kernel_w * channels, ROW)
    return Conv2dScratch(
        image=(threads, plane),
        tile=(threads, round_up(positions, TILE_ROWS) * padded_channels),
        values=(threads, positions),
        offsets=(threads, max(positions, TILE_ROWS)),
        columns=((kernel_h * kernel_w * channels + 1) * padded_channels,),
        rows=(rows,),
        partial=(threads, rows),
        planes=(threads, channels + 1, size),
    )


def conv2d_scratch(input_shape, weight_shape, stride=1, padding=0):
    """Allocate the working space that the convolutions of one layer can share.

    It is the `scratch` of `conv2d_forward` and its gradients, for batches of any size.
    """
    window = conv2d_window(input_shape, weight_shape, stride, padding)
    shapes = _scratch_shapes(input_shape, weight_shape, window)
    arrays = {name: aligned_zeros(shape) for name, shape in shapes._asdict().items()}
    arrays["offsets"] = np.zeros(shapes.offsets, np.int64)
    return Conv2dScratch(**arrays)


def _checked_scratch(scratch, input_shape, weight_shape, stride, padding, window):
    if scratch is None:
        return conv2d_scratch(input_shape, weight_shape, stride, padding)
    check_scratch("conv2d", scratch, _scratch_shapes(input_shape, weight_shape, window), integers=["offsets"])
    return scratch


# ---------------------------------------------------------------------------------------- repacking


@serial_jit
def _pack_image(x, n, window, image, pixel, plane):
    """Copy image n inside a border of zeros; its pixels lie `pixel` floats apart, its channels `plane`."""
    _, channels, height, width = x.shape
    pitch = width + 2 * window.padding_w
    for c in range(channels):
        for h in range(height):
            start = c * plane + ((h + window.padding_h) * pitch + window.padding_w) * pixel
            for w in range(width):
                image[start + w * pixel] = x[n, c, h, w]


@serial_jit
def _unpack_image(image, n, window, x):
    """Copy the middle of the channels-last `image` into image n."""
    _, channels, height, width = x.shape
    pitch = (width + 2 * window.padding_w) * channels
    for c in range(channels):
        for h in range(height):
            start = (h + window.padding_h) * pitch + window.padding_w * channels + c
            for w in range(width):
                x[n, c, h, w] = image[start + w * channels]


@serial_jit
def _pack_columns(weight, bias, precision, columns):
    """Copy bias and rounded weight to panels for the tiles, one for TILE_COLUMNS channels."""
    out_channels, channels, kernel_h, kernel_w = weight.shape
    taps = kernel_h * kernel_w
    columns[:] = 0
    for oc in range(out_channels):
        start = (oc // TILE_COLUMNS) * (taps * channels + 1) * TILE_COLUMNS + oc % TILE_COLUMNS
        columns[start] = bias[oc]
        for ic in range(channels):
            for tap in range(taps):
                row = 1 + tap * channels + ic
                value = weight[oc, ic, tap // kernel_w, tap % kernel_w]
                columns[start + row * TILE_COLUMNS] = nearest(value, precision)


def _pack_rows(weight, rows):
    """Copy the weight to rows for the backward passes: K_w * C_in values for each (C_out, K_h)."""
    out_channels, channels, kernel_h, kernel_w = weight.shape
    by_row = rows.reshape(out_channels * kernel_h, -1)[:, : kernel_w * channels]
    by_row[:] = weight.transpose(0, 2, 3, 1).reshape(by_row.shape)


@serial_jit
def _unpack_rows(partial, grad_weight):
    """Add up the threads' weight gradients, always in the same order, into OIHW."""
    out_channels, channels, kernel_h, kernel_w = grad_weight.shape
    threads = partial.shape[0]
    pitch = partial.shape[1] // (out_channels * kernel_h)
    for oc in range(out_channels):
        for kh in range(kernel_h):
            start = (oc * kernel_h + kh) * pitch
            for kw in range(kernel_w):
                for ic in range(channels):
                    total = np.float32(0)
                    for t in range(threads):
                        total += partial[t, start + kw * channels + ic]
                    grad_weight[oc, ic, kh, kw] = total


@serial_jit
def _list_nonzeros(grad_output, n, oc, window, pitch, channels, values, offsets):
    """List the non-zero entries of one channel and where their windows begin; return their number."""
    count = 0
    for oh in range(window.out_h):
        for ow in range(window.out_w):
            value = grad_output[n, oc, oh, ow]
            # Always written, kept only if the count increases: no branch to mispredict.
            values[count] = value
            offsets[count] = oh * window.stride_h * pitch + ow * window.stride_w * channels
            count += value != 0
    return count


# ------------------------------------------------------------------------------------------ forward


@inner_jit
def _forward_image(image, channels, width, window, columns, starts, tile, block_size):
    """Convolve one packed image, tile by tile."""
    row = window.kernel_w * channels
    pitch = (width + 2 * window.padding_w) * channels
    weight_size = (window.kernel_h * row + 1) * TILE_COLUMNS
    for position in range(0, window.out_h * window.out_w, TILE_ROWS):
        for i in range(TILE_ROWS):
            # Beyond the last pixel, repeat it: the tile needs no special case.
            pixel = min(position + i, window.out_h * window.out_w - 1)
            oh, ow = pixel // window.out_w, pixel % window.out_w
            starts[i] = oh * window.stride_h * pitch + ow * window.stride_w * channels
        for block in range(tile.size // block_size):
            c, t = block * weight_size, block * block_size + position * TILE_COLUMNS
            multiply_tile(image, starts, window.kernel_h, pitch, row, 1, columns, c, tile, t)


@serial_jit
def _unpack_tile(tile, n, block_size, smallest, out):
    """Copy the channels-last result of one image into ``out[n]``; numbers below `smallest` become that."""
    _, out_channels, out_h, out_w = out.shape
    for oc in range(out_channels):
        start = (oc // TILE_COLUMNS) * block_size + oc % TILE_COLUMNS
        for oh in range(out_h):
            for ow in range(out_w):
                value = tile[start + (oh * out_w + ow) * TILE_COLUMNS]
                # NaN is not below anything, and stays.
                out[n, oc, oh, ow] = smallest if value < smallest else value


@parallel_jit
def _forward(x, window, scratch, precision, smallest, out):
    batch, channels, _, width = x.shape
    threads = scratch.image.shape[0]
    block_size = (window.out_h * window.out_w + TILE_ROWS - 1) // TILE_ROWS * TILE_ROWS * TILE_COLUMNS
    for thread in prange(threads):
        image, tile, starts = scratch.image[thread], scratch.tile[thread], scratch.offsets[thread]
        image[:] = 0  # the border, which another convolution may have used
        for n in range(thread * batch // threads, (thread + 1) * batch // threads):
            _pack_image(x, n, window, image, channels, 1)
            round_all(image, precision)
            _forward_image(image, channels, width, window, scratch.columns, starts, tile, block_size)
            _unpack_tile(tile, n, block_size, smallest, out)


def conv2d_forward(
    x, weight, bias=None, stride=1, padding=0, out=None, relu=False, precision="float32", *, scratch=None
):
    """Convolve a batch of images; see `reference.conv2d_forward`.

    `scratch` comes from `conv2d_scratch`; None allocates it, here and in the gradients.
    """
    arrays, how = (x, weight, bias, out), {"relu": relu, "precision": precision}
    *_, out, window = checks.conv2d_forward(HOST, *arrays, window=(stride, padding), **how)
    if bias is None:
        bias = np.zeros(weight.shape[0], np.float32)
    scratch = _checked_scratch(scratch, x.shape, weight.shape, stride, padding, window)
    precision = rounding(precision)
    _pack_columns(weight, bias, precision, scratch.columns)
    _forward(x, window, scratch, precision, np.float32(0 if relu else -np.inf), out)
    return out


# ----------------------------------------------------------------------------------- backward input


@inner_jit
def _spread_row(values, offsets, count, rows, r, gradient, start):
    """Add ``values[k] * rows[r : r + ROW]`` at each ``gradient[offsets[k] + start]``."""
    weights = vectors(ROW_VECTORS)
    for i in range(ROW_VECTORS):
        weights[i] = load(rows, r + i * WIDTH)
    for k in range(count):
        value, g = values[k], offsets[k] + start
        for i in range(ROW_VECTORS):
            at = g + i * WIDTH
            store(gradient, at, multiply_add(value, weights[i], load(gradient, at)))


@parallel_jit
def _backward_input(grad_output, window, scratch, precision, grad_input):
    batch, channels, _, width = grad_input.shape
    out_channels = grad_output.shape[1]
    threads = scratch.image.shape[0]
    pitch = (width + 2 * window.padding_w) * channels
    row_pitch = scratch.rows.size // (out_channels * window.kernel_h)
    for thread in prange(threads):
        gradient = scratch.image[thread]
        values, offsets = scratch.values[thread], scratch.offsets[thread]
        for n in range(thread * batch // threads, (thread + 1) * batch // threads):
            gradient[:] = 0
            for oc in range(out_channels):
                count = _list_nonzeros(grad_output, n, oc, window, pitch, channels, values, offsets)
                round_all(values[:count], precision)
                for kh in range(window.kernel_h):
                    for j in range(0, row_pitch, ROW):
                        r = (oc * window.kernel_h + kh) * row_pitch + j
                        _spread_row(values, offsets, count, scratch.rows, r, gradient, kh * pitch + j)
            _unpack_image(gradient, n, window, grad_input)


def conv2d_backward_input(
    grad_output, weight, input_shape, stride=1, padding=0, grad_input=None, precision="float32", *,
    scratch=None,
):  # fmt: skip
    """Gradient of `conv2d_forward` with respect to `x`; see `reference.conv2d_backward_input`."""
    arrays, steps = (weight, input_shape, grad_output, grad_input), (stride, padding)
    *_, grad_input, window = checks.conv2d_backward_input(HOST, *arrays, window=steps, precision=precision)
    scratch = _checked_scratch(scratch, grad_input.shape, weight.shape, stride, padding, window)
    _pack_rows(weight, scratch.rows)
    round_all(scratch.rows, rounding(precision))
    _backward_input(grad_output, window, scratch, rounding(precision), grad_input)
    return grad_input


# ---------------------------------------------------------------------------------- backward weight


@inner_jit
def _gather_row(values, offsets, count, image, start, partial, p):
    """Add the sum of ``values[k] * image[offsets[k] + start : ... + ROW]`` to ``partial[p : p + ROW]``."""
    sums = vectors(ROW_VECTORS)
    for i in range(ROW_VECTORS):
        sums[i] = load(partial, p + i * WIDTH)
    for k in range(count):
        value, x = values[k], offsets[k] + start
        for i in range(ROW_VECTORS):
            sums[i] = multiply_add(value, load(image, x + i * WIDTH), sums[i])
    for i in range(ROW_VECTORS):
        store(partial, p + i * WIDTH, sums[i])


@inner_jit
def _gather_short_rows(values, offsets, count, image, pitch, window, row, partial, p, row_pitch):
    """Do the same as `_gather_row` for all rows of a kernel, three rows at a time, in single vectors."""
    sums = vectors(3)
    for j in range(0, row, WIDTH):
        for kh in range(0, window.kernel_h, 3):
            start, q = kh * pitch + j, p + kh * row_pitch + j
            # In place of missing rows, the last one is computed and written again.
            last = window.kernel_h - 1 - kh
            for i in range(3):
                sums[i] = load(partial, q + min(i, last) * row_pitch)
            for k in range(count):
                value, x = values[k], offsets[k] + start
                for i in range(3):
                    sums[i] = multiply_add(value, load(image, x + min(i, last) * pitch), sums[i])
            for i in range(3):
                store(partial, q + min(i, last) * row_pitch, sums[i])


@parallel_jit
def _backward_weight_rows(grad_output, x, window, scratch, precision):
    batch, channels, _, width = x.shape
    out_channels = grad_output.shape[1]
    threads = scratch.image.shape[0]
    pitch = (width + 2 * window.padding_w) * channels
    row = window.kernel_w * channels
    row_pitch = scratch.rows.size // (out_channels * window.kernel_h)
    for thread in prange(threads):
        image, partial = scratch.image[thread], scratch.partial[thread]
        values, offsets = scratch.values[thread], scratch.offsets[thread]
        image[:] = 0
        partial[:] = 0
        for n in range(thread * batch // threads, (thread + 1) * batch // threads):
            _pack_image(x, n, window, image, channels, 1)
            round_all(image, precision)
            for oc in range(out_channels):
                count = _list_nonzeros(grad_output, n, oc, window, pitch, channels, values, offsets)
                round_all(values[:count], precision)
                if row < ROW // 2:
                    p = oc * window.kernel_h * row_pitch
                    where = image, pitch, window, row, partial, p, row_pitch
                    _gather_short_rows(values, offsets, count, *where)
                    continue
                for kh in range(window.kernel_h):
                    for j in range(0, row_pitch, ROW):
                        p = (oc * window.kernel_h + kh) * row_pitch + j
                        _gather_row(values, offsets, count, image, kh * pitch + j, partial, p)


@serial_jit
def _dot(a, b):
    total = np.float32(0)
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@parallel_jit
def _backward_weight_planes(grad_output, x, window, scratch, precision):
    batch, channels, _, width = x.shape
    out_channels = grad_output.shape[1]
    threads = scratch.planes.shape[0]
    pitch = width + 2 * window.padding_w
    length = (window.out_h - 1) * window.stride_h * pitch + (window.out_w - 1) * window.stride_w + 1
    row_pitch = scratch.rows.size // (out_channels * window.kernel_h)
    for thread in prange(threads):
        planes, partial = scratch.planes[thread], scratch.partial[thread]
        image, spread = planes[:channels].reshape(-1), planes[channels]
        planes[:] = 0
        partial[:] = 0
        for n in range(thread * batch // threads, (thread + 1) * batch // threads):
            _pack_image(x, n, window, image, 1, planes.shape[1])
            round_all(image, precision)
            for oc in range(out_channels):
                for oh in range(window.out_h):
                    for ow in range(window.out_w):
                        position = oh * window.stride_h * pitch + ow * window.stride_w
                        spread[position] = nearest(grad_output[n, oc, oh, ow], precision)
                for kh in range(window.kernel_h):
                    for kw in range(window.kernel_w):
                        p = (oc * window.kernel_h + kh) * row_pitch + kw * channels
                        for ic in range(channels):
                            start = kh * pitch + kw
                            partial[p + ic] += _dot(spread[:length], planes[ic, start : start + length])


def conv2d_backward_weight(
    grad_output, x, weight_shape, stride=1, padding=0, grad_weight=None, precision="float32", *, scratch=None
):
    """Gradient of `conv2d_forward` with respect to `weight`; see `reference.conv2d_backward_weight`."""
    arrays, steps = (x, weight_shape, grad_output, grad_weight), (stride, padding)
    *_, grad_weight, window = checks.conv2d_backward_weight(HOST, *arrays, window=steps, precision=precision)
    scratch = _checked_scratch(scratch, x.shape, grad_weight.shape, stride, padding, window)
    # Rows shorter than half a vector would be mostly padding.
    rows_are_short = x.shape[1] * window.kernel_w < WIDTH // 2
    backward = _backward_weight_planes if rows_are_short else _backward_weight_rows
    backward(grad_output, x, window, scratch, rounding(precision))
    _unpack_rows(scratch.partial, grad_weight)
    return grad_weight


# ------------------------------------------------------------------------------------ backward bias


@parallel_jit
def _backward_bias(grad_output, grad_bias):
    batch, out_channels, out_h, out_w = grad_output.shape
    for oc in prange(out_channels):
        total = np.float32(0)
        for n in range(batch):
            for oh in range(out_h):
                for ow in range(out_w):
                    total += grad_output[n, oc, oh, ow]
        grad_bias[oc] = total


def conv2d_backward_bias(grad_output, grad_bias=None):
    """Gradient of `conv2d_forward` with respect to `bias`; see `reference.conv2d_backward_bias`."""
    _, grad_bias = checks.conv2d_backward_bias(HOST, grad_output, grad_bias)
    _backward_bias(grad_output, grad_bias)
    return grad_bias
