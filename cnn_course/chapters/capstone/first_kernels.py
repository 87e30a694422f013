"""The kernels of Part I, as in the solutions of its notebooks: where the capstone begins.

They replace those that a reader hasn't written. A test compares them with the notebooks.
"""

import math

from numba import cuda, float32, uint32

from benchmarks.rungs.conv_naive import place
from cnn_numba.ops.shared.warps import block_sum


@cuda.jit
def conv2d_kernel(x, weight, bias, stride_h, stride_w, padding_h, padding_w, out):
    """Compute one output of a convolution with stride and padding per thread; a grid of one axis."""
    i = uint32(cuda.grid(1))
    if i >= out.size:
        return
    n, oc, oh, ow = place(i, out.shape)
    total = bias[oc]
    for ic in range(x.shape[1]):
        for kh in range(weight.shape[2]):
            h = oh * stride_h + kh - padding_h
            for kw in range(weight.shape[3]):
                w = ow * stride_w + kw - padding_w
                if 0 <= h < x.shape[2] and 0 <= w < x.shape[3]:
                    total += weight[oc, ic, kh, kw] * x[n, ic, h, w]
    out[n, oc, oh, ow] = total


@cuda.jit
def conv2d_backward_input_kernel(grad_output, weight, stride_h, stride_w, padding_h, padding_w, grad_input):
    """Gather one pixel's gradient per thread; a grid of one axis covers grad_input."""
    i = cuda.grid(1)
    if i < grad_input.size:
        n, ic, h, w = place(uint32(i), grad_input.shape)
        total = float32(0)
        for kh in range(weight.shape[2]):
            top = h + padding_h - kh
            if top < 0 or top % stride_h != 0 or top // stride_h >= grad_output.shape[2]:
                continue
            for kw in range(weight.shape[3]):
                left = w + padding_w - kw
                if left < 0 or left % stride_w != 0 or left // stride_w >= grad_output.shape[3]:
                    continue
                oh, ow = top // stride_h, left // stride_w
                for oc in range(grad_output.shape[1]):
                    total += grad_output[n, oc, oh, ow] * weight[oc, ic, kh, kw]
        grad_input[n, ic, h, w] = total


@cuda.jit
def conv2d_backward_weight_kernel(grad_output, x, stride_h, stride_w, padding_h, padding_w, grad_weight):
    """Compute one weight's gradient per thread; a grid of one axis covers grad_weight."""
    i = cuda.grid(1)
    if i < grad_weight.size:
        oc, ic, kh, kw = place(uint32(i), grad_weight.shape)
        total = float32(0)
        for n in range(x.shape[0]):
            for oh in range(grad_output.shape[2]):
                h = oh * stride_h + kh - padding_h
                for ow in range(grad_output.shape[3]):
                    w = ow * stride_w + kw - padding_w
                    if 0 <= h < x.shape[2] and 0 <= w < x.shape[3]:
                        total += grad_output[n, oc, oh, ow] * x[n, ic, h, w]
        grad_weight[oc, ic, kh, kw] = total


@cuda.jit
def bias_gradient_kernel(grad_output, grad_bias):
    """Add up one channel's gradients per block; blocks of 128 threads."""
    c, positions = cuda.blockIdx.x, grad_output.shape[2]
    total = float32(0)
    for i in range(cuda.threadIdx.x, grad_output.shape[0] * positions, cuda.blockDim.x):
        total += grad_output[i // positions, c, i % positions]
    total = block_sum(total)
    if cuda.threadIdx.x == 0:
        grad_bias[c] = total


@cuda.jit
def max_pool_kernel(x, kernel, stride, out, argmax):
    """Find the largest pixel of one window per thread, and its place in the plane."""
    i = cuda.grid(1)
    if i < out.size:
        out_h, out_w = out.shape[1], out.shape[2]
        plane, oh, ow = i // (out_h * out_w), i // out_w % out_h, i % out_w
        top, left = oh * stride, ow * stride
        best, where = x[plane, top, left], top * x.shape[2] + left
        for h in range(top, top + kernel):
            for w in range(left, left + kernel):
                if x[plane, h, w] > best:
                    best, where = x[plane, h, w], h * x.shape[2] + w
        out[plane, oh, ow] = best
        argmax[plane, oh, ow] = where


@cuda.jit
def max_pool_backward_kernel(grad_output, argmax, grad_input):
    """Add one output's gradient to the pixel that won, a thread; grad_input holds zeros before."""
    i = cuda.grid(1)
    if i < grad_output.size:
        rest, ow = i // grad_output.shape[2], i % grad_output.shape[2]
        plane, oh = rest // grad_output.shape[1], rest % grad_output.shape[1]
        where, width = argmax[plane, oh, ow], grad_input.shape[2]
        pixel = plane, where // width, where % width
        cuda.atomic.add(grad_input, pixel, grad_output[plane, oh, ow])


@cuda.jit
def dense_kernel(x, weight, bias, relu, out):
    """Compute one output of one image per thread: weighted sum, bias, and ReLU if asked for."""
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = bias[column]
        for k in range(x.shape[1]):
            total += x[row, k] * weight[column, k]
        if relu:
            total = float32(0) if total <= float32(0) else total
        out[row, column] = total


@cuda.jit
def dense_backward_input_kernel(grad_output, weight, grad_input):
    """Compute one input's gradient per thread; launched over grad_input, x along a row."""
    i, n = cuda.grid(2)
    if n < grad_input.shape[0] and i < grad_input.shape[1]:
        total = float32(0)
        for o in range(weight.shape[0]):
            total += grad_output[n, o] * weight[o, i]
        grad_input[n, i] = total


@cuda.jit
def dense_backward_weight_kernel(grad_output, x, grad_weight):
    """Compute one weight's gradient per thread; launched over grad_weight, x along a row."""
    i, o = cuda.grid(2)
    if o < grad_weight.shape[0] and i < grad_weight.shape[1]:
        total = float32(0)
        for n in range(x.shape[0]):
            total += grad_output[n, o] * x[n, i]
        grad_weight[o, i] = total


@cuda.jit
def relu_stride_kernel(x, out):
    """Apply ReLU; launched on any grid."""
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        out[i] = float32(0) if x[i] <= float32(0) else x[i]


@cuda.jit
def relu_backward_kernel(grad_output, out, grad_input):
    """Compute one element of the gradient per thread."""
    i = cuda.grid(1)
    if i < out.size:
        grad_input[i] = grad_output[i] if out[i] > float32(0) else float32(0)


@cuda.jit
def cross_entropy_kernel(logits, labels, losses, grad_logits):
    """Compute one row's loss, and its part of the gradient of the mean loss, a thread."""
    row = cuda.grid(1)
    if row < logits.shape[0]:
        largest = logits[row, 0]
        for k in range(1, logits.shape[1]):
            largest = max(largest, logits[row, k])
        total = float32(0)
        for k in range(logits.shape[1]):
            total += math.exp(logits[row, k] - largest)
        losses[row] = math.log(total) + largest - logits[row, labels[row]]
        for k in range(logits.shape[1]):
            probability = math.exp(logits[row, k] - largest) / total
            target = float32(1) if k == labels[row] else float32(0)
            grad_logits[row, k] = (probability - target) / float32(logits.shape[0])


@cuda.jit
def adam_kernel(parameters, gradients, m, v, lr, beta1, beta2, eps, correction1, correction2):
    """Update one parameter and its two running means a thread."""
    i = cuda.grid(1)
    if i < parameters.size:
        g = gradients[i]
        new_m = beta1 * m[i] + (float32(1) - beta1) * g
        new_v = beta2 * v[i] + (float32(1) - beta2) * g * g
        m[i], v[i] = new_m, new_v
        parameters[i] -= lr * (new_m / correction1) / (math.sqrt(new_v / correction2) + eps)
