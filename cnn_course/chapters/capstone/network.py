"""The network with swaps, checked and trained as in notebook 09."""

from cnn_course.chapters.capstone.step import StepByParts
from cnn_course.chapters.mnist_cnn.network import OwnNetwork
from cnn_course.chapters.mnist_cnn.own_backend import Operation, planes
from cnn_numba.nn.models import mnist_cnn


class _Convolution(Operation):
    def conv2d_forward(self, x, weight, bias, stride, padding, out, relu=False):
        if relu or not _plain(weight, stride, padding):
            return self.package.conv2d_forward(x, weight, bias, stride, padding, out, relu)
        self.own["conv_forward"](x, weight, bias, out)
        return out

    def conv2d_backward_input(self, grad_output, weight, input_shape, stride, padding, grad_input):
        if not _plain(weight, stride, padding):
            return self.package.conv2d_backward_input(
                grad_output, weight, input_shape, stride, padding, grad_input
            )
        self.own["conv_input"](grad_output, weight, grad_input)
        return grad_input

    def conv2d_backward_weight(self, grad_output, x, weight_shape, stride, padding, grad_weight, scratch):
        if not _plain(grad_weight, stride, padding):
            return self.package.conv2d_backward_weight(
                grad_output, x, weight_shape, stride, padding, grad_weight, scratch
            )
        self.own["conv_weight"](grad_output, x, grad_weight)
        return grad_weight

    def conv2d_backward_bias(self, grad_output, grad_bias):
        n, channels, *rest = grad_output.shape
        self.own["bias"](grad_output.reshape(n, channels, rest[0] * rest[1]), grad_bias)
        return grad_bias


class _Pooling(Operation):
    def max_pool2d_forward(self, x, kernel_size, stride, padding, out, argmax):
        self.own["pool_forward"](*map(planes, (x, out, argmax)))
        return out, argmax

    def max_pool2d_backward(self, grad_output, argmax, input_shape, grad_input):
        self.own["pool_backward"](*map(planes, (grad_output, argmax, grad_input)))
        return grad_input


class _Dense(Operation):
    def linear_forward(self, x, weight, bias, out, scratch, relu=False):
        self.own["dense_forward"](x, weight, bias, relu, out)
        return out

    def linear_backward(self, grad_output, x, weight, grad_input, grad_weight, grad_bias, scratch):
        self.own["dense_weight"](grad_output, x, grad_weight)
        self.own["bias"](grad_output.reshape(*grad_output.shape, 1), grad_bias)
        self.own["dense_input"](grad_output, weight, grad_input)
        return grad_input, grad_weight, grad_bias


class _Activation(Operation):
    def relu_backward(self, grad_output, out, grad_input):
        flat = (array.reshape(array.size) for array in (grad_output, out, grad_input))
        self.own["relu_backward"](*flat)
        return grad_input


class _Loss(Operation):
    def cross_entropy_forward_backward(self, logits, labels, losses, grad_logits, label_smoothing=0.0):
        self.own["loss"](logits, labels, losses, grad_logits)
        return losses, grad_logits


def network_of(step: StepByParts, batch_size: int = 64) -> OwnNetwork:
    """Return the network of notebook 09 with the launchers of a step."""
    network = OwnNetwork(batch_size)
    launchers = {name: holder.launcher for name, holder in step.holders.items()}
    ops = network.backend.ops
    kinds = {
        "conv": _Convolution,
        "pool": _Pooling,
        "dense": _Dense,
        "activation": _Activation,
        "loss": _Loss,
    }
    ops = ops.replace(**{name: kind(getattr(ops, name), launchers) for name, kind in kinds.items()})
    network.backend = network.backend._replace(ops=ops)
    network.model = mnist_cnn(batch_size, network.backend)
    return network


def _plain(weight, stride, padding):
    return weight.shape[2:] == (3, 3) and tuple(stride) == (1, 1) and tuple(padding) == (0, 0)
