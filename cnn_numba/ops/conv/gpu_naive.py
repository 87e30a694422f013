"""Convolution on the GPU, the first rung: one thread computes one element, straight from the formula.

Every product loads two numbers from global memory, and neighbouring threads load much the same ones. The
caches hide a part of it; the rungs above do not ask twice.
"""

from cnn_numba import device
from cnn_numba.device.compiler import cuda, float32, int32, uint32
from cnn_numba.ops.conv import checks
from cnn_numba.ops.shapes import DEVICE

THREADS = 256
_IMAGES = "float32[:, :, :, ::1]"
_STEPS = "int64, int64, int64, int64"


@cuda.jit(device=True)
def place(i, shape):
    """Return the four indices of element i of a C-contiguous array; i is uint32, which divides fastest."""
    rest, d3 = i // uint32(shape[3]), i % uint32(shape[3])
    rest, d2 = rest // uint32(shape[2]), rest % uint32(shape[2])
    return int32(rest // uint32(shape[1])), int32(rest % uint32(shape[1])), int32(d2), int32(d3)


@cuda.jit
@device.signature(f"void({_IMAGES}, {_IMAGES}, float32[::1], bool, {_STEPS}, bool, {_IMAGES})")
def conv2d_forward_naive_kernel(
    x, weight, bias, has_bias, stride_h, stride_w, padding_h, padding_w, relu, out
):
    """Compute one output a thread; blocks of THREADS cover `out`, its last axis first."""
    i = uint32(cuda.grid(1))
    if i >= out.size:
        return
    n, oc, oh, ow = place(i, out.shape)
    total = float32(0)
    for ic in range(x.shape[1]):
        for kh in range(weight.shape[2]):
            h = oh * stride_h + kh - padding_h
            for kw in range(weight.shape[3]):
                w = ow * stride_w + kw - padding_w
                if 0 <= h < x.shape[2] and 0 <= w < x.shape[3]:
                    total += weight[oc, ic, kh, kw] * x[n, ic, h, w]
    if has_bias:
        total += bias[oc]
    if relu and total < float32(0):  # not so for NaN, which must stay
        total = float32(0)
    out[n, oc, oh, ow] = total


def conv2d_forward_naive(x, weight, bias=None, stride=1, padding=0, out=None, relu=False):
    """`conv2d_forward` with one thread for each output; arguments and result are the same."""
    *_, out, window = checks.conv2d_forward(DEVICE, x, weight, bias, out, window=(stride, padding), relu=relu)
    arguments = x, weight, *checks.bias_for_kernel(weight, bias), *window.steps, relu, out
    device.launch_for_each(conv2d_forward_naive_kernel, out.size, THREADS, *arguments)
    return out


@cuda.jit
@device.signature(f"void({_IMAGES}, {_IMAGES}, {_STEPS}, {_IMAGES})")
def conv2d_backward_input_naive_kernel(
    grad_output, weight, stride_h, stride_w, padding_h, padding_w, grad_input
):
    """Gather one pixel's gradient a thread, from the outputs it took part in; blocks cover `grad_input`.

    The formula as it stands scatters: each output adds to all pixels of its window, and threads that add to
    the same pixel get in each other's way. Gathered, each pixel has one owner, and its sum a fixed order.
    """
    i = uint32(cuda.grid(1))
    if i >= grad_input.size:
        return
    n, ic, h, w = place(i, grad_input.shape)
    total = float32(0)
    for oc in range(grad_output.shape[1]):
        for kh in range(weight.shape[2]):
            top = h + padding_h - kh  # where the window begins in which this pixel meets row kh
            if top < 0 or top % stride_h != 0 or top // stride_h >= grad_output.shape[2]:
                continue
            for kw in range(weight.shape[3]):
                left = w + padding_w - kw
                if left < 0 or left % stride_w != 0 or left // stride_w >= grad_output.shape[3]:
                    continue
                gradient = grad_output[n, oc, top // stride_h, left // stride_w]
                total += gradient * weight[oc, ic, kh, kw]
    grad_input[n, ic, h, w] = total


def conv2d_backward_input_naive(grad_output, weight, input_shape, stride=1, padding=0, grad_input=None):
    """`conv2d_backward_input` with one thread for each pixel; arguments and result are the same."""
    *_, grad_input, window = checks.conv2d_backward_input(
        DEVICE, weight, input_shape, grad_output, grad_input, window=(stride, padding)
    )
    arguments = grad_output, weight, *window.steps, grad_input
    device.launch_for_each(conv2d_backward_input_naive_kernel, grad_input.size, THREADS, *arguments)
    return grad_input


@cuda.jit
@device.signature(f"void({_IMAGES}, {_IMAGES}, {_STEPS}, {_IMAGES})")
def conv2d_backward_weight_naive_kernel(
    grad_output, x, stride_h, stride_w, padding_h, padding_w, grad_weight
):
    """Sum up one weight's gradient a thread, over all outputs of its channel; blocks cover `grad_weight`."""
    i = uint32(cuda.grid(1))
    if i >= grad_weight.size:
        return
    oc, ic, kh, kw = place(i, grad_weight.shape)
    total = float32(0)
    for n in range(grad_output.shape[0]):
        for oh in range(grad_output.shape[2]):
            h = oh * stride_h + kh - padding_h
            for ow in range(grad_output.shape[3]):
                w = ow * stride_w + kw - padding_w
                if 0 <= h < x.shape[2] and 0 <= w < x.shape[3]:
                    total += grad_output[n, oc, oh, ow] * x[n, ic, h, w]
    grad_weight[oc, ic, kh, kw] = total


def conv2d_backward_weight_naive(grad_output, x, weight_shape, stride=1, padding=0, grad_weight=None):
    """`conv2d_backward_weight` with one thread for each weight; arguments and result are the same."""
    *_, grad_weight, window = checks.conv2d_backward_weight(
        DEVICE, x, weight_shape, grad_output, grad_weight, window=(stride, padding)
    )
    arguments = grad_output, x, *window.steps, grad_weight
    device.launch_for_each(conv2d_backward_weight_naive_kernel, grad_weight.size, THREADS, *arguments)
    return grad_weight
