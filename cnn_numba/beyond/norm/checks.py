"""The checks that the cpu and the gpu backend share: they return the outputs, made if None."""

from cnn_numba.arguments import settings
from cnn_numba.ops.shapes import check_memory


def batch_norm2d_forward(
    memory, x, weight, bias, running_mean, running_var, training, momentum, eps, out, mean, inv_std
):
    """Check the arguments of `batch_norm2d_forward`."""
    settings(training=training, momentum=momentum, eps=eps)
    channels = images(memory, x)
    running = {"running_mean": running_mean, "running_var": running_var}
    memory.check("weight", weight, channels)
    for name, array in running.items():
        memory.check(name, array, channels, writeable=training)
    if training and x.size == x.shape[1]:
        raise ValueError(f"training needs more than 1 value per channel, got x with shape {x.shape}")
    return _forward(memory, x, weight, bias, channels, out, mean, inv_std, running, training)


def layer_norm_forward(memory, x, weight, bias, eps, out, mean, inv_std):
    """Check the arguments of `layer_norm_forward`."""
    settings(eps=eps)
    return _forward(memory, x, weight, bias, _samples(memory, x, weight), out, mean, inv_std)


def _forward(memory, x, weight, bias, leading, out, mean, inv_std, running=None, training=False):
    """Check what both have; the statistics have the shape `leading`."""
    running = running or {}
    memory.check("bias", bias, weight.shape)
    outputs = {
        "out": memory.output("out", out, x.shape),
        "mean": memory.output("mean", mean, leading),
        "inv_std": memory.output("inv_std", inv_std, leading),
    }
    written = outputs | running if training else outputs
    check_memory(written, {"x": x, "weight": weight, "bias": bias} | running)
    return outputs.values()


def batch_norm2d_backward(memory, grad_output, x, weight, mean, inv_std, training, *outputs):
    """Check the arguments of `batch_norm2d_backward`."""
    settings(training=training)
    channels = images(memory, x)
    memory.check("weight", weight, channels)
    return _backward(memory, grad_output, x, weight, mean, inv_std, channels, *outputs)


def layer_norm_backward(memory, grad_output, x, weight, mean, inv_std, *outputs):
    """Check the arguments of `layer_norm_backward`."""
    leading = _samples(memory, x, weight)
    return _backward(memory, grad_output, x, weight, mean, inv_std, leading, *outputs)


def _backward(memory, grad_output, x, weight, mean, inv_std, leading, grad_input, grad_weight, grad_bias):
    memory.check("grad_output", grad_output, x.shape)
    memory.check("mean", mean, leading)
    memory.check("inv_std", inv_std, leading)
    outputs = {
        "grad_input": memory.output("grad_input", grad_input, x.shape),
        "grad_weight": memory.output("grad_weight", grad_weight, weight.shape),
        "grad_bias": memory.output("grad_bias", grad_bias, weight.shape),
    }
    inputs = {"grad_output": grad_output, "x": x, "weight": weight, "mean": mean, "inv_std": inv_std}
    check_memory(outputs, inputs)
    return outputs.values()


def images(memory, x):
    """Check images (N, C, H, W), and return the shape (C,)."""
    memory.check("x", x, (None, None, None, None))
    if x.size == 0:
        raise ValueError(f"x must not be empty, got shape {x.shape}")
    return (x.shape[1],)


def _samples(memory, x, weight):
    """Check that the trailing axes of `x` are those of `weight`, and return the leading ones."""
    memory.check("x", x, None)
    memory.check("weight", weight, None)
    first = x.ndim - weight.ndim
    if weight.ndim == 0 or first < 0 or x.shape[first:] != weight.shape:
        raise ValueError(f"x must end in the axes of weight, {weight.shape}, got {x.shape}")
    if x.size == 0:
        raise ValueError(f"x must not be empty, got shape {x.shape}")
    return x.shape[:first]
