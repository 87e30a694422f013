"""How windows slide, the sizes of their outputs, and what arrays `HOST` and `DEVICE` accept for every `Spec`.

The operations call these before any work starts. A wrong argument is an error that names its value, never a
crash, a half-written array or a silently wrong number.
"""

from typing import NamedTuple

import numpy as np

from cnn_numba import device
from cnn_numba.arguments import MOST_ELEMENTS, pair, shown
from cnn_numba.device.arrays import check_array, check_device_array, check_memory
from cnn_numba.ops.specs import Memory, Spec


class Window2d(NamedTuple):
    """How a window slides over a plane: `x` (N, C, H, W) -> `out` (N, C', H_out, W_out)."""

    kernel_h: int
    kernel_w: int
    stride_h: int
    stride_w: int
    padding_h: int
    padding_w: int
    out_h: int
    out_w: int

    @property
    def out(self):
        """The number of positions, vertical and horizontal."""
        return self.out_h, self.out_w

    @property
    def steps(self):
        """Stride and padding, vertical and horizontal."""
        return self.stride_h, self.stride_w, self.padding_h, self.padding_w


def output_size(size, kernel_size, stride=1, padding=0):
    """Return the number of positions of a window along one axis.

    ``(size + 2 * padding - kernel_size) // stride + 1``, as in Dumoulin and Visin, "A guide to
    convolution arithmetic for deep learning" (2016), relationship 6.

    Examples
    --------
    >>> output_size(28, 3), output_size(26, 2, stride=2)
    (26, 13)
    """
    if size + 2 * padding < kernel_size:
        raise ValueError(
            f"a window of {kernel_size} does not fit into {size} elements with padding {padding} on each side"
        )
    return (size + 2 * padding - kernel_size) // stride + 1


def window2d(image, kernel_size, stride, padding):
    """Return how a window slides over an image (H, W).

    `kernel_size`, `stride` and `padding`, the zeros added on each side, are ints or pairs.
    """
    kernel_h, kernel_w = pair(kernel_size, "kernel_size")
    stride_h, stride_w = pair(stride, "stride")
    padding_h, padding_w = pair(padding, "padding", minimum=0)
    if min(image) < 1:
        raise ValueError(f"images must have pixels, got {image[0]} x {image[1]}")
    height, width = image[0] + 2 * padding_h, image[1] + 2 * padding_w
    if height * width > MOST_ELEMENTS:
        raise ValueError(
            f"padding {shown(padding)} makes images of {height} x {width}, more than {MOST_ELEMENTS} pixels"
        )
    if height < kernel_h or width < kernel_w:
        raise ValueError(
            f"a window of {kernel_h, kernel_w} does not fit into an image of {tuple(image)} "
            f"with padding {padding_h, padding_w} on each side"
        )
    out_h = output_size(image[0], kernel_h, stride_h, padding_h)
    out_w = output_size(image[1], kernel_w, stride_w, padding_w)
    return Window2d(kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w, out_h, out_w)


def _window(sizes, stride, padding, kernel_size=None):
    """Return the window of a convolution, or of a pooling if no axes belong to a kernel.

    A pooling's `padding` is at most half of `kernel_size`, so that no window lies wholly in the padding.
    """
    image = sizes["H"], sizes["W"]
    if "K_h" in sizes:
        return window2d(image, (sizes["K_h"], sizes["K_w"]), stride, padding)
    window = window2d(image, kernel_size, kernel_size if stride is None else stride, padding)
    if 2 * window.padding_h > window.kernel_h or 2 * window.padding_w > window.kernel_w:
        raise ValueError(
            f"padding must be at most half of kernel_size, got padding {shown(padding)} and kernel_size "
            f"{shown(kernel_size)}"
        )
    return window


def layout_advice(shape: tuple[int, ...], channels: int) -> str:
    """Return the end of a message about images of this shape: what to do if their channels come last."""
    # With more channels, the last axis is more likely a width that happens to be as large.
    if len(shape) < 3 or shape[-1] != channels or shape[-3] == channels or channels > 4:
        return ""
    return "; images are NCHW, with the channels first: np.ascontiguousarray(np.moveaxis(images, -1, -3))"


HOST = Memory(check_array, np.empty, check_memory, _window)
DEVICE = Memory(check_device_array, lambda shape, dtype: device.empty(shape, dtype), check_memory, _window)


_CONV2D = Spec("input_shape(N C_in H W), weight_shape(C_out C_in K_h K_w)", filled="C_out C_in H W K_h K_w")
_POOL2D = Spec("input_shape(N C H W)", filled="C H W")


def conv2d_window(input_shape, weight_shape, stride=1, padding=0):
    """Check that the shapes match; return the window.

    Examples
    --------
    >>> conv2d_window((64, 1, 28, 28), (32, 1, 3, 3)).out
    (26, 26)
    """
    return _CONV2D(HOST, input_shape, weight_shape, window=(stride, padding))[-1]


def pool2d_window(input_shape, kernel_size, stride, padding):
    """Check a pooling's arguments; return its window. `stride` None means `kernel_size`."""
    return _POOL2D(HOST, input_shape, window=(stride, padding, kernel_size))[-1]
