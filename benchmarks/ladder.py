"""Times a convolution with its pooling, forward and backward, from plain loops to the chain.

The loops are the definition, first in Python and then compiled unchanged.
"""

import numpy as np
from numba import njit

from benchmarks.stages import Stage, calls_of, median_seconds
from cnn_numba.ops.activation import cpu as activation
from cnn_numba.ops.conv import cpu as conv
from cnn_numba.ops.fused import reference
from cnn_numba.ops.pool import cpu as pool


def loops_forward(x, weight, bias, relu, convolved, codes, out):
    """Convolve, then keep the largest pixel of each window, and its index among the four in `codes`."""
    for n, oc, oh, ow in np.ndindex(convolved.shape):
        total = bias[oc]
        for ic in range(weight.shape[1]):
            for kh in range(weight.shape[2]):
                for kw in range(weight.shape[3]):
                    total += x[n, ic, oh + kh, ow + kw] * weight[oc, ic, kh, kw]
        convolved[n, oc, oh, ow] = 0 if relu and total < 0 else total
    for n, oc, oh, ow in np.ndindex(out.shape):
        out[n, oc, oh, ow], codes[n, oc, oh, ow] = convolved[n, oc, 2 * oh, 2 * ow], 0
        for k in range(1, 4):
            value = convolved[n, oc, 2 * oh + k // 2, 2 * ow + k % 2]
            if value > out[n, oc, oh, ow]:
                out[n, oc, oh, ow], codes[n, oc, oh, ow] = value, k


def loops_backward(gradient, x, weight, relu, left, spread, grads, grad_x):
    """Pass each gradient to the pixel it came from, then loop over all pixels, zeros included.

    `left` are codes and output of `loops_forward`; `grads` are the gradients of weight and bias.
    """
    (codes, out), (grad_weight, grad_bias) = left, grads
    spread[:], grad_weight[:], grad_bias[:], grad_x[:] = 0, 0, 0, 0
    for n, oc, oh, ow in np.ndindex(out.shape):
        if not relu or out[n, oc, oh, ow] > 0:
            k = codes[n, oc, oh, ow]
            spread[n, oc, 2 * oh + k // 2, 2 * ow + k % 2] = gradient[n, oc, oh, ow]
    for n, oc, oh, ow in np.ndindex(spread.shape):
        value = spread[n, oc, oh, ow]
        grad_bias[oc] += value
        for ic in range(weight.shape[1]):
            for kh in range(weight.shape[2]):
                for kw in range(weight.shape[3]):
                    grad_weight[oc, ic, kh, kw] += value * x[n, ic, oh + kh, ow + kw]
                    grad_x[n, ic, oh + kh, ow + kw] += value * weight[oc, ic, kh, kw]


def loop_calls(stage: Stage, forward, backward):
    """Return functions that run a stage with stride 1 forward and backward by these loops."""
    each = stage.convolution
    (top, left), relu = np.broadcast_to(each.padding, 2).tolist(), bool(each.relu)
    x = np.pad(stage.x, ((0, 0), (0, 0), (top, top), (left, left)))
    size = [x.shape[axis] - each.weight.shape[axis] + 1 for axis in (2, 3)]
    convolved = np.empty((*stage.out.shape[:2], *size), np.float32)
    out, codes, spread = np.empty_like(stage.out), np.empty(stage.out.shape, np.int64), convolved.copy()
    grads, grad_x = (np.empty_like(each.weight), np.empty_like(each.bias)), np.empty_like(x)

    def run_forward():
        forward(x, each.weight, each.bias, relu, convolved, codes, out)
        return out

    def run_backward():
        backward(stage.gradient, x, each.weight, relu, (codes, out), spread, grads, grad_x)
        return [grads], grad_x[:, :, top : top + stage.x.shape[2], left : left + stage.x.shape[3]]

    return run_forward, run_backward


def separate_calls(stage: Stage):
    """Return functions that run a stage forward and backward by separate operations."""
    x, (weight, bias, stride, padding, relu, _) = stage.x, stage.convolution
    scratch = conv.conv2d_scratch(x.shape, weight.shape, stride, padding)
    how = {"stride": stride, "padding": padding, "scratch": scratch}
    convolved = conv.conv2d_forward(x, weight, bias, relu=relu, **how)
    out, argmax = pool.max_pool2d_forward(convolved, 2)
    spread, grads, grad_input = convolved.copy(), (weight.copy(), bias.copy()), x.copy()

    def forward():
        conv.conv2d_forward(x, weight, bias, out=convolved, relu=relu, **how)
        return pool.max_pool2d_forward(convolved, 2, out=out, argmax=argmax)[0]

    def backward():
        pool.max_pool2d_backward(stage.gradient, argmax, convolved.shape, spread)
        masked = activation.relu_backward(spread, convolved) if relu else spread
        conv.conv2d_backward_weight(masked, x, weight.shape, grad_weight=grads[0], **how)
        conv.conv2d_backward_bias(masked, grads[1])
        conv.conv2d_backward_input(masked, weight, x.shape, grad_input=grad_input, **how)
        return [grads], grad_input

    return forward, backward


def climb(stages: list[Stage], peak: float) -> list[dict]:
    """Time each rung on the last stage with pooling and stride 1; return [] if there is none.

    Returns
    -------
    list of dict
        For each rung the seconds of a batch forward and backward, the number of measured images, the share of
        the peak that its useful operations reach, and the largest error of its output, divided by the largest
        output.
    """
    fit = [each for each in stages if each.convolution.pool and np.all(np.equal(each.convolution.stride, 1))]
    if not fit:
        return []
    stage = fit[-1]._replace(needs_input=True)
    one = stage._replace(x=stage.x[:1], out=stage.out[:1], gradient=stage.gradient[:1])
    compiled = [njit(loop) for loop in (loops_forward, loops_backward)]
    rungs = {
        "loops in Python": (one, loop_calls(one, loops_forward, loops_backward), {"fewest": 1, "warm_up": 0}),
        "the same loops, compiled": (stage, loop_calls(stage, *compiled), {}),
        "fast operations, one after another": (stage, separate_calls(stage), {}),
        "one pass, without Winograd": (stage, calls_of([stage], winograd=False), {}),
        "one pass": (stage, calls_of([stage]), {}),
    }
    return [_rung(name, stage, *rung, peak) for name, rung in rungs.items()]


def _rung(name, stage, measured, calls, options, peak):
    images, batch = len(measured.x), len(stage.x)
    forward, backward = (median_seconds(call, **options) * batch / images for call in calls)
    exact, out = _exact(measured), calls[0]()
    found = {
        "rung": name,
        "stage": stage.name,
        "images": images,
        "forward": forward,
        "backward": backward,
        "share_of_peak": float(sum(stage.flops()) / (forward + backward) / peak),
        "error": float(np.abs(out - exact).max() / np.abs(exact).max()),
    }
    print(f"{name}  {1e3 * forward:.2f} ms forward, {1e3 * backward:.2f} backward", flush=True)
    return found


def _exact(stage):
    """Return a stage's output in float64."""
    wide = [part.astype(np.float64) for part in stage.convolution[:2]]
    each = stage.convolution._replace(weight=wide[0], bias=wide[1])
    return reference.conv_chain_forward(stage.x.astype(np.float64), [each])
