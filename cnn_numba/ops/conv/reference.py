"""The definition of convolution, in plain loops and float64.

Read `conv_cpu` first: a kernel slides over one image, in four nested loops. `correlate_cpu` is the same in
one dimension, a signal against itself. The ``conv2d_*`` functions extend it to batches and channels, with
bias, stride and padding, and add the three gradients that training needs.

Deep learning calls cross-correlation "convolution", and so does this course: the kernel is not
flipped, unless ``flip=True``.
"""

import numpy as np
from numpy.typing import ArrayLike

from cnn_numba.arguments import choice, integer
from cnn_numba.ops._reference import ANYTHING, put, rounded
from cnn_numba.ops.conv import checks


def conv_cpu(image: ArrayLike, kernel: ArrayLike, mode: str = "valid", flip: bool = False) -> np.ndarray:
    """Slide a kernel over an image and sum the products.

    In ``"valid"`` mode, with images of H x W and kernels of K_h x K_w::

        out[i, j] = sum over m, n of image[i + m, j + n] * kernel[m, n]
        H_out, W_out = H - K_h + 1, W - K_w + 1

    Parameters
    ----------
    image : array_like, shape (H, W)
    kernel : array_like, shape (K_h, K_w)
    mode : {"valid", "same", "full"}
        ``"valid"`` keeps the positions where the kernel lies wholly on the image. ``"full"`` keeps every
        position where the two overlap, with zeros around the image: (H + K_h - 1, W + K_w - 1) outputs.
        ``"same"`` keeps as many outputs as the image has pixels: output (i, j) has the kernel's entry
        ((K_h - 1) // 2, (K_w - 1) // 2), the middle of an odd kernel, on pixel (i, j).
    flip : bool
        True turns the kernel by 180 degrees first: the convolution of mathematics.

    Returns
    -------
    ndarray, float64

    Raises
    ------
    ValueError
        If in ``"valid"`` mode the kernel is larger than the image.

    Notes
    -----
    Names and formula are those of the article "GPU-accelerated deep learning: CUDA, OpenCL, XLA, mixed
    precision", which calls the valid region of a cross-correlation a convolution of the image's size. All
    modes agree with `scipy.signal.correlate2d`; with ``flip=True``, with `scipy.signal.convolve2d`.

    Examples
    --------
    >>> image = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    >>> conv_cpu(image, [[1, 0], [0, -1]])
    array([[-4., -4.],
           [-4., -4.]])
    >>> conv_cpu(image, [[1, 0], [0, -1]], flip=True)
    array([[4., 4.],
           [4., 4.]])
    """
    choice(mode, "mode", ("valid", "same", "full"))
    image, kernel = checks.conv_cpu(ANYTHING, image, kernel, flip=flip)
    if mode == "valid" and (kernel.shape[0] > image.shape[0] or kernel.shape[1] > image.shape[1]):
        raise ValueError(f"kernel {kernel.shape} is larger than image {image.shape}: no valid position")
    image = np.pad(image, [_border(size, mode, flip) for size in kernel.shape])
    if flip:
        kernel = kernel[::-1, ::-1]
    kernel_h, kernel_w = kernel.shape
    out = np.zeros((image.shape[0] - kernel_h + 1, image.shape[1] - kernel_w + 1))
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            for m in range(kernel_h):
                for n in range(kernel_w):
                    out[i, j] += image[i + m, j + n] * kernel[m, n]
    return out


def correlate_cpu(signal: ArrayLike, delay: ArrayLike | None = None) -> np.ndarray:
    """Correlate a signal with itself, shifted by each lag from `delay` on.

    With the signal taken as zero outside its n samples::

        r[d] = sum over k of signal[k] * signal[k + d],    d = delay, ..., n - 1

    Parameters
    ----------
    signal : array_like, shape (n,)
    delay : int, optional
        The first lag, from -(n - 1) to n - 1; None is 0, the centre of the full autocorrelation.

    Returns
    -------
    ndarray, shape (n - delay,), float64
        Entry i is the correlation at lag ``delay + i``.

    Raises
    ------
    TypeError
        If `delay` is not an integer; a bool is not.
    ValueError
        If `delay` lies outside -(n - 1) to n - 1.

    Notes
    -----
    Name and arguments come from the same article as `conv_cpu`, whose listing correlates the signal
    with its *reversed* self; that is the convolution x * x. An autocorrelation is symmetric in the
    lag, r[-d] = r[d], and largest at lag 0, where it is the signal's energy.

    Examples
    --------
    >>> correlate_cpu([1, 2, 3])
    array([14.,  8.,  3.])
    >>> correlate_cpu([1, 2, 3], delay=-2)
    array([ 3.,  8., 14.,  8.,  3.])
    """
    (signal,) = checks.correlate_cpu(ANYTHING, signal)
    n = len(signal)
    delay = 0 if delay is None else integer(delay, "delay", 1 - n, n - 1, "an int or None")
    out = np.zeros(n - delay)
    for d in range(delay, n):
        for k in range(max(0, -d), n - max(0, d)):  # where both samples exist
            out[d - delay] += signal[k] * signal[k + d]
    return out


def conv2d_forward(x, weight, bias=None, stride=1, padding=0, out=None, relu=False, precision="float32"):
    """Convolve a batch of images.

    With x taken as zero outside its H x W pixels::

        out[n, oc, oh, ow] = bias[oc] + sum over ic, kh, kw of
            weight[oc, ic, kh, kw] * x[n, ic, stride_h * oh + kh - padding_h, stride_w * ow + kw - padding_w]

        H_out = (H + 2 * padding_h - K_h) // stride_h + 1,    W_out likewise

    Parameters
    ----------
    x : ndarray, shape (N, C_in, H, W), float
    weight : ndarray, shape (C_out, C_in, K_h, K_w), float
        One kernel for each pair of output and input channel.
    bias : ndarray, shape (C_out,), float, optional
    stride, padding : int or pair of ints
        Step of the window and zeros on each side; a pair is (vertical, horizontal).
    out : ndarray, shape (N, C_out, H_out, W_out), float, optional
    relu : bool
        Whether to apply ``max(out, 0)``, which the faster backends do while they write the result.
    precision : {"float32", "tf32", "float16", "bfloat16"}
        What `x` and `weight` are rounded to before they are multiplied: see `rounded`.

    Notes
    -----
    The formula of the article "Heterogeneous computing in deep learning", and of
    `torch.nn.functional.conv2d`.

    Examples
    --------
    >>> x = np.arange(9.0).reshape(1, 1, 3, 3)
    >>> conv2d_forward(x, np.ones((1, 1, 2, 2)), bias=np.array([100.0]), stride=2, padding=1)
    array([[[[100., 103.],
             [109., 124.]]]])
    """
    x, weight, bias, out, window = checks.conv2d_forward(
        ANYTHING, x, weight, bias, out, window=(stride, padding), relu=relu, precision=precision
    )
    result = np.zeros((x.shape[0], weight.shape[0], *window.out))
    if bias is not None:
        result += bias[:, None, None]
    padded, weight = _pad(rounded(x, precision), window), rounded(weight, precision)
    for kh, kw, pixels in _taps(window):
        result += np.einsum("nihw,oi->nohw", padded[pixels], weight[:, :, kh, kw])
    if relu:
        np.maximum(result, 0, out=result)
    return put(out, result)


def conv2d_backward_input(
    grad_output, weight, input_shape, stride=1, padding=0, grad_input=None, precision="float32"
):
    """Return the gradient with respect to the images.

    Each pixel adds up the gradients of all outputs that it was part of, times the weight that multiplied it::

        grad_input[n, ic, h, w] = sum over oc, oh, ow, kh, kw of
            grad_output[n, oc, oh, ow] * weight[oc, ic, kh, kw]

    over all (oh, kh) with stride_h * oh + kh - padding_h = h, and (ow, kw) with the same for w.

    Parameters
    ----------
    grad_output : ndarray, shape (N, C_out, H_out, W_out), float
    weight : ndarray, shape (C_out, C_in, K_h, K_w), float
    input_shape : tuple (N, C_in, H, W)
        With a stride above 1, `grad_output` does not determine it.
    stride, padding, precision
        As for `conv2d_forward`; `grad_output` and `weight` are rounded.
    grad_input : ndarray, shape (N, C_in, H, W), float, optional

    Examples
    --------
    The middle pixel was part of all four outputs, each corner of one:

    >>> conv2d_backward_input(np.ones((1, 1, 2, 2)), np.ones((1, 1, 2, 2)), (1, 1, 3, 3))
    array([[[[1., 2., 1.],
             [2., 4., 2.],
             [1., 2., 1.]]]])
    """
    arrays, options = (grad_output, weight, input_shape, grad_input), (stride, padding)
    grad_output, weight, input_shape, grad_input, window = checks.conv2d_backward_input(
        ANYTHING, *arrays, window=options, precision=precision
    )
    padded = _pad(np.zeros(input_shape), window)
    grad_output, weight = rounded(grad_output, precision), rounded(weight, precision)
    for kh, kw, pixels in _taps(window):
        padded[pixels] += np.einsum("nohw,oi->nihw", grad_output, weight[:, :, kh, kw])
    (top, left), (height, width) = window.padding, window.image
    return put(grad_input, padded[:, :, top : top + height, left : left + width])


def conv2d_backward_weight(
    grad_output, x, weight_shape, stride=1, padding=0, grad_weight=None, precision="float32"
):
    """Return the gradient with respect to the kernels.

    Each weight adds up the gradients of all outputs, times the pixel that it multiplied::

        grad_weight[oc, ic, kh, kw] = sum over n, oh, ow of
            grad_output[n, oc, oh, ow] *
            x[n, ic, stride_h * oh + kh - padding_h, stride_w * ow + kw - padding_w]

    Parameters
    ----------
    grad_output : ndarray, shape (N, C_out, H_out, W_out), float
    x : ndarray, shape (N, C_in, H, W), float
    weight_shape : tuple (C_out, C_in, K_h, K_w)
    stride, padding, precision
        As for `conv2d_forward`; `grad_output` and `x` are rounded.
    grad_weight : ndarray, shape (C_out, C_in, K_h, K_w), float, optional
        Overwritten, not added to.

    Examples
    --------
    >>> x = np.arange(9.0).reshape(1, 1, 3, 3)
    >>> conv2d_backward_weight(np.ones((1, 1, 2, 2)), x, (1, 1, 2, 2))
    array([[[[ 8., 12.],
             [20., 24.]]]])
    """
    arrays = grad_output, x, weight_shape, grad_weight
    grad_output, x, weight_shape, grad_weight, window = checks.conv2d_backward_weight(
        ANYTHING, *arrays, window=(stride, padding), precision=precision
    )
    result = np.zeros(weight_shape)
    grad_output, padded = rounded(grad_output, precision), _pad(rounded(x, precision), window)
    for kh, kw, pixels in _taps(window):
        result[:, :, kh, kw] = np.einsum("nohw,nihw->oi", grad_output, padded[pixels])
    return put(grad_weight, result)


def conv2d_backward_bias(grad_output, grad_bias=None):
    """Return the gradient with respect to the bias, which is added to every output of its channel.

    ``grad_bias[oc] = sum over n, oh, ow of grad_output[n, oc, oh, ow]``

    Parameters
    ----------
    grad_output : ndarray, shape (N, C_out, H_out, W_out), float
    grad_bias : ndarray, shape (C_out,), float, optional

    Examples
    --------
    >>> conv2d_backward_bias(np.ones((2, 3, 4, 5)))
    array([40., 40., 40.])
    """
    grad_output, grad_bias = checks.conv2d_backward_bias(ANYTHING, grad_output, grad_bias)
    return put(grad_bias, grad_output.sum(axis=(0, 2, 3)))


def _pad(x, window):
    """Return a copy of `x` with zeros around it."""
    return np.pad(x, [(0, 0), (0, 0), *((pad, pad) for pad in window.padding)])


def _taps(window):
    """Yield each (kh, kw), and the index of the padded pixels that it multiplies, one for each output."""
    (stride_h, stride_w), (out_h, out_w) = window.stride, window.out
    for kh, kw in np.ndindex(window.kernel):
        rows = slice(kh, kh + stride_h * out_h, stride_h)
        columns = slice(kw, kw + stride_w * out_w, stride_w)
        yield kh, kw, (slice(None), slice(None), rows, columns)


def _border(kernel_size, mode, flip):
    """Return the numbers of zeros to add before and after an image's axis."""
    if mode == "valid":
        return 0, 0
    if mode == "full":
        return kernel_size - 1, kernel_size - 1
    # The flip moves an even kernel's centre to the other side of its middle.
    before, after = (kernel_size - 1) // 2, kernel_size // 2
    return (after, before) if flip else (before, after)
