"""Loss scaling on the GPU: the scale, its counters and `found_inf` all lie on the device.

A step does not ask the host whether it is skipped: `scheduled_rates` in `gpu` passes that on to the update.
"""

import math

import numpy as np

from cnn_numba import device
from cnn_numba.arguments import settings
from cnn_numba.device.compiler import ONE, cuda, float32
from cnn_numba.ops.shapes import DEVICE
from cnn_numba.ops.shared.warps import own_element
from cnn_numba.ops.update import checks

THREADS = 256
_COUNT = "int32[::1]"


@cuda.jit
@device.signature("void(float32[::1], float32[::1], float32[::1])")
def scale_gradient_kernel(gradient, scale, out):
    """One thread multiplies one element; a grid of one dimension covers them all."""
    i, exists = own_element(gradient)
    if exists:
        out[i] = gradient[i] * scale[0]


def scale_gradient(gradient, scale, out=None):
    """Multiply the gradient of the loss by the loss scale; see `reference.scale_gradient`."""
    *_, out = checks.scale_gradient(DEVICE, gradient, scale, out)
    arrays = gradient.ravel(), scale, out.ravel()
    device.launch_for_each(scale_gradient_kernel, gradient.size, THREADS, *arrays)
    return out


@cuda.jit
@device.signature(f"void(float32[::1], float32[::1], {_COUNT})")
def unscale_gradients_kernel(gradients, scale, found_inf):
    """One thread divides one gradient; a grid of one dimension covers them all."""
    i, exists = own_element(gradients)
    if exists:
        gradient = gradients[i] * (ONE / scale[0])
        gradients[i] = gradient
        # False for NaN and infinity, true for any other number. Mostly no thread gets here.
        if not abs(gradient) < float32(math.inf):
            cuda.atomic.max(found_inf, 0, 1)


def unscale_gradients(gradients, scale, found_inf):
    """Divide by the loss scale, and look for NaN and infinity; see `reference.unscale_gradients`."""
    checks.unscale_gradients(DEVICE, gradients, scale, found_inf)
    device.launch_for_each(unscale_gradients_kernel, gradients.size, THREADS, gradients, scale, found_inf)
    return gradients


@cuda.jit
@device.signature(f"void(float32[::1], {_COUNT}, {_COUNT}, {_COUNT}, float32, float32, int32)")
def update_loss_scale_kernel(scale, good_steps, skipped, found_inf, growth, backoff, interval):
    """One thread does it all; a grid of one thread."""
    if found_inf[0] != 0:
        scale[0] *= backoff
        good_steps[0] = 0
        skipped[0] += 1
    else:
        good_steps[0] += 1
        if good_steps[0] >= interval:
            good_steps[0] = 0
            grown = scale[0] * growth
            if grown < float32(math.inf):
                scale[0] = grown
    found_inf[0] = 0


def update_loss_scale(scale, good_steps, skipped, found_inf, growth=2.0, backoff=0.5, interval=2000):
    """Take one step of dynamic loss scaling; see `reference.update_loss_scale`."""
    arrays = scale, good_steps, skipped, found_inf
    growth, backoff, interval = settings(growth=growth, backoff=backoff, interval=interval)
    checks.update_loss_scale(DEVICE, *arrays)
    factors = np.float32(growth), np.float32(backoff), np.int32(interval)
    device.launch(update_loss_scale_kernel, 1, 1, *arrays, *factors)
    return scale
