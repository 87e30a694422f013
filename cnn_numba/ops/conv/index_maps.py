"""Convolution and its gradient of the images as matrix products: their numbers, and their tiles."""

from typing import NamedTuple

import numpy as np

from cnn_numba import device
from cnn_numba.device.compiler import cuda, float32, uint32
from cnn_numba.ops.shared.results import OUTSIDE, result_store

#: The signature of a kernel ``(source, weight, bias, has_bias, relu, target, geometry)``.
CONVOLUTION = "void(float32[::1], float32[::1], float32[::1], bool, bool, float32[::1], ConvGeometry)"


class ConvGeometry(NamedTuple):
    """Which numbers of `source` and `weight` make up an element of `target`; ints until the launch.

    Image n, row m, position (i, j) of the target is a sum over channels c and taps (a, b) of::

        weight[weight_first + m * weight_m + c * weight_c + a * weight_a + b * weight_b]
        * source[n, c, i * step_h + start_h + a * sign, j * step_w + start_w + b * sign]

    and lies in the plane (n, m) of the target at ``target_first + i * target_i + j * target_j``.
    """

    images: np.uint32
    rows: np.uint32
    count_h: np.uint32
    count_w: np.uint32
    channels: np.uint32
    taps_h: np.uint32
    taps_w: np.uint32
    source_h: np.uint32
    source_w: np.uint32
    start_h: np.uint32
    start_w: np.uint32
    weight_m: np.uint32
    weight_c: np.uint32
    weight_a: np.uint32
    target_plane: np.uint32
    target_i: np.uint32
    step_h: np.uint32 = 1
    step_w: np.uint32 = 1
    sign: np.uint32 = 1
    weight_first: np.uint32 = 0
    weight_b: np.uint32 = 1
    target_first: np.uint32 = 0
    target_j: np.uint32 = 1
    target_fours: bool = False
    """Whether each four positions lie side by side in the target, at a multiple of 16 bytes."""

    def aimed_at(self, target):
        """Return this geometry with `target_fours` as it is for an array."""
        dense = self.target_j == 1 and self.target_i == self.count_w and self.target_plane % 4 == 0
        return self._replace(target_fours=dense and device.aligned(target))


def forward_geometry(x, weight, window):
    """Return the geometry of a convolution."""
    (images, channels, height, width), taps = x.shape, window.kernel_h * window.kernel_w
    return ConvGeometry(
        images=images,
        rows=weight.shape[0],
        count_h=window.out_h,
        count_w=window.out_w,
        channels=channels,
        taps_h=window.kernel_h,
        taps_w=window.kernel_w,
        source_h=height,
        source_w=width,
        step_h=window.stride_h,
        step_w=window.stride_w,
        start_h=-window.padding_h,
        start_w=-window.padding_w,
        weight_m=channels * taps,
        weight_c=taps,
        weight_a=window.kernel_w,
        target_plane=window.out_h * window.out_w,
        target_i=window.out_w,
    )


def _axis(size, kernel, stride, padding, first):
    """Return what holds along one axis for the pixels first, first + stride, ...

    That is how many they are, how many taps they meet, the first of these, and where they meet it first.
    """
    begin = first + padding
    tap = begin % stride
    return (
        device.blocks(size - first, stride),
        max(device.blocks(kernel - tap, stride), 0),
        tap,
        begin // stride,
    )


def backward_geometries(weight, window, grad_input):
    """Yield the geometry for each class of pixels that meet the same weights: one if the stride is 1."""
    images, rows, height, width = grad_input.shape
    kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w, out_h, out_w = window
    taps = kernel_h * kernel_w
    for first_h in range(min(stride_h, height)):
        count_h, taps_h, tap_h, start_h = _axis(height, kernel_h, stride_h, padding_h, first_h)
        for first_w in range(min(stride_w, width)):
            count_w, taps_w, tap_w, start_w = _axis(width, kernel_w, stride_w, padding_w, first_w)
            # Where the stride exceeds the kernel, some pixels meet no weight. Their sum has no channels, but
            # one tap: kernels divide by the number of taps.
            met = taps_h * taps_w > 0
            yield ConvGeometry(
                images=images,
                rows=rows,
                count_h=count_h,
                count_w=count_w,
                channels=weight.shape[0] if met else 0,
                taps_h=taps_h if met else 1,
                taps_w=taps_w if met else 1,
                source_h=out_h,
                source_w=out_w,
                start_h=start_h,
                start_w=start_w,
                sign=-1,
                weight_first=tap_h * kernel_w + tap_w,
                weight_m=taps,
                weight_c=rows * taps,
                weight_a=stride_h * kernel_w,
                weight_b=stride_w,
                target_plane=height * width,
                target_first=first_h * width + first_w,
                target_i=stride_h * width,
                target_j=stride_w,
            )


# Two for each of the 132 multiprocessors of an H200.
_ENOUGH_BLOCKS = 264


def grid_of(tile, geometry):
    """Return how many blocks compute the target: blocks of columns, blocks of rows."""
    columns = geometry.images * geometry.count_h * geometry.count_w
    return device.blocks(columns, tile.columns), device.blocks(geometry.rows, tile.rows)


def best_tile(geometry, tiles, for_few_rows):
    """Return the tile with which this product is expected to run fastest.

    `tiles` are a larger and a smaller one, `for_few_rows` those for products with no more rows than these.
    The larger one loads less for each product, but a GPU with idle multiprocessors is slower still.
    """
    large, small = for_few_rows if geometry.rows <= for_few_rows[0].rows else tiles
    across, down = grid_of(large, geometry)
    return large if across * down >= _ENOUGH_BLOCKS else small


@cuda.jit(device=True)
def _bias(given, row):
    bias, has_bias, geometry = given
    return bias[row] if has_bias and row < geometry.rows else float32(0)


def target_store(tile, position):
    """Make the device function that writes a thread's results to the target.

    ``position(geometry, column)`` returns image, row and column of the element in a column of the product.
    """

    @cuda.jit(device=True)
    def locate(given, column):
        """Return where in the first plane of its image a column lies, OUTSIDE if there is none."""
        _, _, geometry = given
        n, h, w = position(geometry, column)
        in_plane = geometry.target_first + h * geometry.target_i + w * geometry.target_j
        at = uint32(n * (geometry.rows * geometry.target_plane) + in_plane)
        return at if n < geometry.images else OUTSIDE

    store = result_store(tile, locate, _bias, by_row=True)

    @cuda.jit(device=True)
    def store_results(sums, first, bias, has_bias, relu, target, geometry):
        rows, plane, fours = geometry.rows, geometry.target_plane, geometry.target_fours
        store(sums, first, rows, plane, relu, fours, target, (bias, has_bias, geometry))

    return store_results
