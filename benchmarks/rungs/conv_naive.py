"""Convolution on the GPU, the first rung: one thread computes one element, straight from the formula.

Every product loads two numbers from global memory, and neighbouring threads load mostly the same ones. Caches
hide a part of this; the next rungs load each number once.
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
    """Compute one output per thread; blocks of THREADS cover `out`, its last axis first."""
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
