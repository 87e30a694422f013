"""Common mistakes in parts of the step, which the check of a swap names."""

import numpy as np

from cnn_course.chapters.capstone.parts import PARTS

_THREADS, _MAPS = 128, 8  # of a block; output channels per thread, in exercise 2


def _of_some(images=None, positions=None):
    """Return a mistake's function: the filter gradient of some images only, or some positions only."""

    def gradient(grad_output, x):
        grad_output = np.array(grad_output[:images])
        flat = grad_output.reshape(*grad_output.shape[:2], -1)
        if positions is not None:
            flat[..., np.arange(flat.shape[2]) % _THREADS >= positions] = 0
        return _filter_gradient(grad_output, x[:images])

    return gradient


def _filter_gradient(grad_output, x):
    return PARTS["conv_weight"].reference(grad_output, x)


def _forward(x, weight, bias):
    return PARTS["conv_forward"].reference(x, weight, bias)


def _input_gradient(grad_output, weight):
    return PARTS["conv_input"].reference(grad_output, weight)


def _dense(x, weight, bias, relu):
    return PARTS["dense_forward"].reference(x, weight, bias, relu)


#: By part and name: the message, and functions of the reference's arguments that compute the wrong numbers.
SLIPS = {
    "conv_weight": {
        "first image only": (
            "Your sum has only the first image. Add up over all images.",
            _of_some(images=1),
        ),
        "mean over the images": (
            "You divide by the number of images. Here the gradient is the sum.",
            lambda grad_output, x: _filter_gradient(grad_output, x) / len(x),
        ),
        "first thread only": (
            "You store only the sum of thread 0. `block_sum` *returns* the sum of the whole block.",
            _of_some(positions=1),
        ),
        "first warp only": (
            "You store only the sum of the first warp: `warp_sum` adds up 32 threads. A block has four "
            "warps.",
            _of_some(positions=32),
        ),
        "added by every thread": (
            f"Each of the {_THREADS} threads adds up all products, and then the block adds up all threads. "
            "Let the threads share the positions.",
            lambda grad_output, x: _THREADS * _filter_gradient(grad_output, x),
        ),
        "window exchanged": (
            "You exchange the window's row and column: element `k` is row `k // 3`, column `k % 3`.",
            lambda grad_output, x: _filter_gradient(grad_output, x).swapaxes(2, 3),
        ),
    },
    "conv_forward": {
        "bias left out": (
            "The bias is missing: add it to each sum, or begin the sums with it.",
            lambda x, weight, bias: _forward(x, weight, 0 * bias),
        ),
        "bias of the first group": (
            "Every group gets the bias of the first. Channel `m` of the group is channel `first + m`.",
            lambda x, weight, bias: _forward(x, weight, bias[np.arange(len(bias)) % _MAPS]),
        ),
        "weights of the first group": (
            "Every group gets the weights of the first. Channel `m` of the group is channel `first + m`.",
            lambda x, weight, bias: _forward(x, weight[np.arange(len(bias)) % _MAPS], bias),
        ),
        "bias in every round": (
            "You add the bias for every input channel. Add it once per sum.",
            lambda x, weight, bias: _forward(x, weight, x.shape[1] * bias),
        ),
        "filters turned": (
            "Your filters are turned by 180 degrees. Element `k` of the window meets the pixel at row `h + k "
            "// 3`, column `w + k % 3`.",
            lambda x, weight, bias: _forward(x, weight[:, :, ::-1, ::-1], bias),
        ),
        "filters transposed": (
            "You exchange the window's row and column: element `k` is row `k // 3`, column `k % 3`.",
            lambda x, weight, bias: _forward(x, weight.swapaxes(2, 3), bias),
        ),
        "last input channel only": (
            "Your sums have only the last input channel: start them once, before the loop over the channels.",
            lambda x, weight, bias: _forward(x[:, -1:], weight[:, -1:], bias),
        ),
        "first input channel only": (
            "Your sums have only the first input channel. Add up over all of them.",
            lambda x, weight, bias: _forward(x[:, :1], weight[:, :1], bias),
        ),
    },
    "conv_input": {
        "filters turned": (
            "Your filters are turned by 180 degrees. Input `h, w` has met weight `kh, kw` for output "
            "`h - kh, w - kw`.",
            lambda grad_output, weight: _input_gradient(grad_output, weight[:, :, ::-1, ::-1]),
        ),
        "filters transposed": (
            "You exchange the window's row and column: element `k` is row `k // 3`, column `k % 3`.",
            lambda grad_output, weight: _input_gradient(grad_output, weight.swapaxes(2, 3)),
        ),
    },
    "dense_forward": {
        "bias left out": (
            "The bias is missing: add it to each sum.",
            lambda x, weight, bias, relu: _dense(x, weight, 0 * bias, relu),
        ),
        "ReLU left out": (
            "You leave negative results as they are. Set them to 0 if `relu` is True.",
            lambda x, weight, bias, relu: _dense(x, weight, bias, False),
        ),
        "ReLU always": (
            "You set negative results to 0 even if `relu` is False: the last layer has no ReLU.",
            lambda x, weight, bias, relu: _dense(x, weight, bias, True),
        ),
        "ReLU before the bias": (
            "You add the bias after the ReLU. Add it before.",
            lambda x, weight, bias, relu: _dense(x, weight, 0 * bias, relu) + bias,
        ),
    },
}
