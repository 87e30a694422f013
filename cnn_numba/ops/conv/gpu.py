"""Convolution on the GPU: the gradient of the bias, and the names of the other functions.

The forward pass and the gradient of the images are in `gpu_implicit`, which calls `gpu_direct` for large 3x3
convolutions. The gradient of the weight is in `gpu_weight`.
"""

from cnn_numba import device
from cnn_numba.device.compiler import ZERO, cuda, uint32
from cnn_numba.ops.conv import checks
from cnn_numba.ops.conv.gpu_implicit import (
    conv2d_backward_input as conv2d_backward_input,
    conv2d_forward as conv2d_forward,
)
from cnn_numba.ops.conv.gpu_weight import (
    conv2d_backward_weight as conv2d_backward_weight,
    conv2d_scratch as conv2d_scratch,
)
from cnn_numba.ops.shapes import DEVICE
from cnn_numba.ops.shared.warps import block_sum, divide, reciprocal

# A block for each channel makes few blocks: large ones, to have enough loads at a time.
BIAS_THREADS = 1024


@cuda.jit
@device.signature("void(float32[:, :, ::1], int64, int64, float32[::1])")
def conv2d_backward_bias_kernel(grad_output, factor, shift, grad_bias):
    """Sum up one channel of `grad_output` (N, C_out, H_out * W_out) per block of BIAS_THREADS."""
    oc = cuda.blockIdx.x
    positions = grad_output.shape[2]
    size = grad_output.shape[0] * positions
    total = ZERO
    # One index for images and positions: an image with few positions would leave most threads idle.
    i = cuda.threadIdx.x
    while i < size:
        n = divide(i, factor, shift)
        total += grad_output[n, oc, i - n * positions]
        i = uint32(i + BIAS_THREADS)
    total = block_sum(total)
    if cuda.threadIdx.x == 0:
        grad_bias[oc] = total


def conv2d_backward_bias(grad_output, grad_bias=None):
    """Gradient of `conv2d_forward` with respect to `bias`; see `reference.conv2d_backward_bias`."""
    _, grad_bias = checks.conv2d_backward_bias(DEVICE, grad_output, grad_bias)
    batch, out_channels, out_h, out_w = grad_output.shape
    positions = out_h * out_w
    arguments = grad_output.reshape(batch, out_channels, positions), *reciprocal(positions), grad_bias
    device.launch(conv2d_backward_bias_kernel, out_channels, BIAS_THREADS, *arguments)
    return grad_bias
