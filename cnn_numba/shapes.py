"""Output-size arithmetic and every shape check, in one place and in one style.

The operations call these before any work starts, so a wrong argument is an error that names
the offending values, and never a crash, a half-written array or a silently wrong number.
"""

import operator
from typing import NamedTuple

import numpy as np

from cnn_numba import device

#: Elements of an array on the GPU: the kernels compute indices in 32 bits, which is faster.
MOST_ELEMENTS = 2**31 - 1


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


def pair(value, name, minimum=1):
    """Return `value` as a pair of integers, one for each axis of the image.

    Parameters
    ----------
    value : int or tuple of two ints
        One number for both axes, or (vertical, horizontal).
    name : str
        What to call it in an error.
    minimum : int
        The smallest value allowed.

    Returns
    -------
    tuple of (int, int)

    Raises
    ------
    TypeError
        If `value` is neither an integer nor a pair of integers.
    ValueError
        If an entry is below `minimum`.

    Examples
    --------
    >>> pair(3, "kernel_size"), pair((1, 2), "stride")
    ((3, 3), (1, 2))
    """
    entries = value if isinstance(value, (tuple, list)) else (value, value)
    try:
        vertical, horizontal = (operator.index(entry) for entry in entries)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be an int or a pair of ints, got {value!r}") from None
    if vertical < minimum or horizontal < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value!r}")
    return vertical, horizontal


def output_size(size, kernel_size, stride=1, padding=0):
    """Count the positions of a window along one axis.

    ``(size + 2 * padding - kernel_size) // stride + 1``, as in Dumoulin and Visin, "A guide to
    convolution arithmetic for deep learning" (2016), relationship 6.

    Parameters
    ----------
    size, kernel_size, stride, padding : int
        Lengths in elements along the axis.

    Returns
    -------
    int

    Raises
    ------
    ValueError
        If the window does not fit even once.

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


def window2d(name, x_shape, kernel_size, stride, padding):
    """Work out how a window slides over images of shape `x_shape`.

    Parameters
    ----------
    name : str
        The operation, for the error message.
    x_shape : tuple (N, C, H, W)
        Shape of the images.
    kernel_size, stride, padding : int or pair of ints
        Size of the window, its step, and the zeros added on each side.

    Returns
    -------
    Window2d

    Raises
    ------
    TypeError, ValueError
        If an argument is not an integer, is too small, or the window does not fit.

    Examples
    --------
    >>> window2d("pool", (1, 1, 5, 7), 2, 2, 0)[-2:]
    (2, 3)
    """
    kernel_h, kernel_w = pair(kernel_size, "kernel_size")
    stride_h, stride_w = pair(stride, "stride")
    padding_h, padding_w = pair(padding, "padding", minimum=0)
    if len(x_shape) != 4:
        raise ValueError(f"{name}: x must have shape (N, C, H, W), got {tuple(x_shape)}")
    if min(x_shape[1:]) < 1:
        raise ValueError(f"{name}: only the batch of x may be empty, got shape {tuple(x_shape)}")
    try:
        out_h = output_size(x_shape[2], kernel_h, stride_h, padding_h)
        out_w = output_size(x_shape[3], kernel_w, stride_w, padding_w)
    except ValueError as error:
        raise ValueError(f"{name}: {error} (x has shape {tuple(x_shape)})") from None
    return Window2d(kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w, out_h, out_w)


def conv2d_window(x_shape, weight_shape, stride, padding):
    """Check a convolution's shapes against each other and work out its window.

    Parameters
    ----------
    x_shape : tuple (N, C_in, H, W)
    weight_shape : tuple (C_out, C_in, K_h, K_w)
    stride, padding : int or pair of ints

    Returns
    -------
    Window2d

    Raises
    ------
    ValueError
        If the shapes do not belong together.

    Examples
    --------
    >>> conv2d_window((64, 1, 28, 28), (32, 1, 3, 3), stride=1, padding=0)[-2:]
    (26, 26)
    """
    if len(weight_shape) != 4:
        raise ValueError(f"conv2d: weight must have shape (C_out, C_in, K_h, K_w), got {tuple(weight_shape)}")
    window = window2d("conv2d", x_shape, weight_shape[2:], stride, padding)
    if x_shape[1] != weight_shape[1]:
        raise ValueError(
            f"conv2d: x has {x_shape[1]} channels but weight expects {weight_shape[1]} "
            f"(x has shape {tuple(x_shape)}, weight has shape {tuple(weight_shape)})"
        )
    return window


def pool2d_window(x_shape, kernel_size, stride, padding):
    """Check a pooling's arguments and work out its window; `stride` None means `kernel_size`.

    Parameters
    ----------
    x_shape : tuple (N, C, H, W)
    kernel_size : int or pair of ints
    stride : int, pair of ints or None
    padding : int or pair of ints
        At most half of `kernel_size`, so that no window lies wholly in the padding.

    Returns
    -------
    Window2d

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong type, too small or too large.

    Examples
    --------
    >>> pool2d_window((1, 1, 11, 11), 2, None, 0)[-2:]
    (5, 5)
    """
    window = window2d("pool2d", x_shape, kernel_size, kernel_size if stride is None else stride, padding)
    if 2 * window.padding_h > window.kernel_h or 2 * window.padding_w > window.kernel_w:
        raise ValueError(
            f"pool2d: padding must be at most half of kernel_size, got padding {padding!r} "
            f"and kernel_size {kernel_size!r}"
        )
    return window


def check_array(name, array, shape, dtype=np.float32, writeable=False):
    """Insist that `array` has this shape and dtype and is C-contiguous.

    Parameters
    ----------
    name : str
        What to call it in an error.
    array : ndarray or device array
    shape : tuple
        The shape it must have. A None stands for any length; a shape of None for any shape.
    dtype : dtype
        The dtype it must have.
    writeable : bool
        Whether it is going to be written to.

    Raises
    ------
    TypeError
        If it is not an array, or of another dtype.
    ValueError
        If it has another shape, is not C-contiguous, or is read-only but going to be written to.

    Examples
    --------
    >>> check_array("bias", np.zeros(3, np.float32), (4,))
    Traceback (most recent call last):
        ...
    ValueError: bias must have shape (4,), got (3,)
    """
    if not isinstance(array, np.ndarray) and not hasattr(array, "copy_to_host"):
        raise TypeError(f"{name} must be an array, got {type(array).__name__}: {array!r}")
    if array.dtype != dtype:
        raise TypeError(f"{name} must have dtype {np.dtype(dtype)}, got {array.dtype}")
    if shape is not None and array.shape != shape:
        wanted = len(shape) == array.ndim and all(
            want is None or want == got for want, got in zip(shape, array.shape, strict=True)
        )
        if not wanted:
            axes = ", ".join("any" if want is None else str(want) for want in shape)
            axes += "," * (len(shape) == 1)
            raise ValueError(f"{name} must have shape ({axes}), got {array.shape}")
    contiguous = array.flags.c_contiguous if isinstance(array, np.ndarray) else array.is_c_contiguous()
    if not contiguous:
        raise ValueError(f"{name} must be C-contiguous, got shape {array.shape} with strides {array.strides}")
    if writeable and isinstance(array, np.ndarray) and not array.flags.writeable:
        raise ValueError(f"{name} must be writeable, but this array is read-only")


def output_array(name, out, shape, dtype=np.float32, inputs=()):
    """Return `out` once checked, or a new uninitialised NumPy array if it is None.

    Parameters
    ----------
    name : str
        What to call it in an error.
    out : ndarray or None
    shape : tuple of int
    dtype : dtype
    inputs : sequence of ndarray
        What is still being read while `out` is written: the two must not overlap.

    Returns
    -------
    ndarray

    Raises
    ------
    TypeError, ValueError
        As in `check_array`, or if it shares memory with an input.

    Examples
    --------
    >>> output_array("out", None, (2, 3)).shape
    (2, 3)
    """
    if out is None:
        return np.empty(shape, dtype)
    check_array(name, out, shape, dtype, writeable=True)
    if any(np.may_share_memory(out, array) for array in inputs):
        raise ValueError(f"{name} must not share memory with an input of the operation (shape {out.shape})")
    return out


def check_device_array(name, array, shape, dtype=np.float32):
    """Insist that `array` is on the device, has this shape and dtype and is C-contiguous.

    Parameters
    ----------
    name : str
        What to call it in an error.
    array : device array
    shape : tuple
        As for `check_array`.
    dtype : dtype

    Raises
    ------
    TypeError
        If it is not an array on the device, or of another dtype.
    ValueError
        If it has another shape or 2**31 elements, is not C-contiguous, or is on another GPU than the current
        one.

    Examples
    --------
    >>> check_device_array("x", np.zeros(3, np.float32), (3,))
    Traceback (most recent call last):
        ...
    TypeError: x is an array on the host, shape (3,): copy it with cnn_numba.device.to_device
    """
    if isinstance(array, np.ndarray) and not device.is_device_array(array):
        raise TypeError(
            f"{name} is an array on the host, shape {array.shape}: copy it with cnn_numba.device.to_device"
        )
    if not device.is_device_array(array):
        raise TypeError(f"{name} must be an array on the device, got {type(array).__name__}: {array!r}")
    check_array(name, array, shape, dtype)
    if array.size > MOST_ELEMENTS:
        raise ValueError(f"{name} has {array.size} elements; the kernels count up to {MOST_ELEMENTS}")
    if (number := device.elsewhere(array)) is not None:
        raise ValueError(f"{name} is on GPU {number}, which is not the current one (shape {array.shape})")


def device_output(name, out, shape, dtype=np.float32, inputs=()):
    """Return `out` once checked, or a new uninitialised array on the device if it is None.

    Parameters
    ----------
    name : str
        What to call it in an error.
    out : device array or None
    shape : tuple of int
    dtype : dtype
    inputs : sequence of device array
        What is still being read while `out` is written: the two must not overlap.

    Returns
    -------
    device array

    Raises
    ------
    TypeError, ValueError
        As in `check_device_array`, or if it shares memory with an input.

    Examples
    --------
    >>> device_output("out", None, (2, 3)).shape
    (2, 3)
    """
    if out is None:
        return device.empty(shape, dtype)
    check_device_array(name, out, shape, dtype)
    if any(device.overlap(out, array) for array in inputs):
        raise ValueError(f"{name} must not share memory with an input of the operation (shape {out.shape})")
    return out


def check_scratch(operation, scratch, shapes, integers=()):
    """Insist that working space is as `operation`'s own function makes it.

    Kernels write into it unchecked, so nothing else may get there.

    Parameters
    ----------
    operation : str
        Its name: the working space comes from ``{operation}_scratch``.
    scratch : NamedTuple of ndarray
        Its arrays of several axes have one part per thread; any number of parts will do, since each
        takes its share of the work.
    shapes : NamedTuple of tuple
        The shape of each array, of the same type as `scratch`.
    integers : sequence of str
        Which of the arrays are int64; the others are float32.

    Raises
    ------
    TypeError, ValueError
        If it is something else, or was made for other shapes.
    """
    if type(scratch) is not type(shapes):
        raise TypeError(f"scratch must come from {operation}_scratch, got {type(scratch).__name__}")
    parts = max(scratch[0].shape[0], 1)
    for name, array, shape in zip(shapes._fields, scratch, shapes, strict=True):
        dtype = np.int64 if name in integers else np.float32
        wanted = (parts, *shape[1:]) if len(shape) > 1 else shape
        try:
            check_array(f"scratch.{name}", array, wanted, dtype, writeable=True)
        except ValueError as error:
            raise ValueError(f"{error}: make it with {operation}_scratch for these shapes") from None


def check_labels(labels, batch_size, classes):
    """Insist on int32 labels of shape (N,), each between 0 and ``classes - 1``.

    Parameters
    ----------
    labels : ndarray, shape (N,), int32
    batch_size : int
        N.
    classes : int

    Raises
    ------
    TypeError, ValueError
        As in `check_array`, or if a label is out of range.

    Examples
    --------
    >>> check_labels(np.array([3, 10], np.int32), 2, 10)
    Traceback (most recent call last):
        ...
    ValueError: labels must lie in 0..9, got 10 at index 1
    """
    check_array("labels", labels, (batch_size,), np.int32)
    if batch_size and not (0 <= labels.min() and labels.max() < classes):
        index = int(np.flatnonzero((labels < 0) | (labels >= classes))[0])
        raise ValueError(f"labels must lie in 0..{classes - 1}, got {labels[index]} at index {index}")
