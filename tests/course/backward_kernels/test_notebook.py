"""Notebook 08: the launches of its checks, its kernels, its pictures."""

import numpy as np
import pytest
from numba import cuda, float32

from cnn_course.chapters.backprop_by_hand.gradient_bugs import batch, gradients
from cnn_course.chapters.backward_kernels import backward_step, exercises as backward_kernels, films
from cnn_course.chapters.backward_kernels.backward_step import (
    Kernels,
    Step,
    at_full_size,
    mean_loss,
    pixel_gradient,
)
from cnn_course.chapters.backward_kernels.pictures import network_map, pixel_picture
from cnn_course.engine.checks.exercise import Exercise
from cnn_course.engine.outline import notebook_on
from cnn_numba import device
from cnn_numba.nn.layers import AvgPool2d, CrossEntropyLoss, Flatten, Linear
from cnn_numba.nn.models import Sequential
from cnn_numba.ops.conv.reference import conv2d_backward_input
from cnn_numba.pretrained import MNIST_CNN
from cnn_numba.train.checkpoint import load_model

CHECKS = {name: value for name, value in vars(backward_kernels).items() if isinstance(value, Exercise)}

each_check = pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)


def threads(case):
    return int(np.prod(case.grid)) * int(np.prod(case.block))


@each_check
def test_a_check_launches_few_threads_over_several_blocks(check):
    cases = check.inputs()
    assert sum(map(threads, cases)) < 5000
    assert any(np.prod(case.grid) > 1 for case in cases)


@each_check
def test_arrays_are_never_square(check):
    for case in check.inputs():
        for array in case.args:
            shape = [size for size in np.shape(array)[-2:] if size > 1]
            assert len(set(shape)) == len(shape)


@pytest.mark.parametrize("name", ["conv2d_backward_weight_kernel", "conv2d_backward_input_kernel"])
def test_convolutions_have_batches_strides_and_paddings_that_differ(name):
    cases = CHECKS[name].inputs()
    steps = [case.args[2:6] for case in cases]
    assert any(stride_h != stride_w for stride_h, stride_w, _, _ in steps)
    assert any(padding_h != padding_w for _, _, padding_h, padding_w in steps)
    assert max(len(case.args[0]) for case in cases) > 1
    # After the last window some rows or columns remain: their gradient is 0.
    assert any(_left_over(case) for case in cases)


def _left_over(case):
    images, filters = (
        (case.args[1], case.args[6]) if case.args[6].shape[2] < 4 else (case.args[6], case.args[1])
    )
    stride, padding = case.args[2:4], case.args[4:6]
    sizes = zip(images.shape[2:], filters.shape[2:], stride, padding, strict=True)
    return any((size + 2 * pad - k) % step for size, k, step, pad in sizes)


def test_some_windows_of_the_pooling_share_a_winner_and_some_cannot():
    shared = []
    for case in backward_kernels.max_pool_backward_kernel.inputs():
        argmax = case.args[1].reshape(len(case.args[1]), -1)
        shared.append(any(len(np.unique(plane)) < plane.size for plane in argmax))
    assert any(shared)
    assert not all(shared)


# --- the kernels at work -----------------------------------------------------------------------------------


@cuda.jit
def relu_backward_kernel(grad_output, out, grad_input):
    i = cuda.grid(1)
    if i < out.size:
        grad_input[i] = grad_output[i] if out[i] > float32(0) else float32(0)


@cuda.jit
def bias_gradient_kernel(grad_output, grad_bias):
    """Forget all positions but the first."""
    c = cuda.blockIdx.x
    if cuda.threadIdx.x == 0:
        grad_bias[c] = grad_output[0, c, 0]


@cuda.jit
def cross_entropy_kernel(logits, labels, losses, grad_logits): ...


def test_there_is_a_part_for_each_exercise():
    assert list(backward_step.PARTS) == list(notebook_on("backward_kernels").exercises)


def test_kernels_are_the_readers_if_they_are_written():
    kernels = Kernels(cross_entropy_kernel, relu_backward_kernel)
    assert kernels.own == ["relu_backward_kernel"]
    with pytest.raises(AttributeError, match="there is no kernel conv2d_kernel"):
        kernels.conv2d_kernel  # noqa: B018


def test_a_kernel_is_right_only_if_its_check_is_green():
    kernels = Kernels(bias_gradient_kernel, cross_entropy_kernel, relu_backward_kernel)
    assert kernels.own == ["relu_backward_kernel", "bias_gradient_kernel"]
    assert kernels.right(backward_kernels) == ["relu_backward_kernel"]


def test_an_unknown_kernel_raises():
    @cuda.jit
    def conv2d_kernel(x, out):
        out[0] = x[0]

    with pytest.raises(ValueError, match="a backward step has no kernel conv2d_kernel"):
        Kernels(conv2d_kernel)


def test_full_size_says_whose_a_kernel_is_and_finds_a_wrong_one(monkeypatch):
    names = "bias_gradient_kernel", "relu_backward_kernel"
    monkeypatch.setattr(backward_step, "PARTS", {name: backward_step.PARTS[name] for name in names})
    bias, relu = at_full_size(Kernels(bias_gradient_kernel))
    assert (bias.own, relu.own) == (True, False)
    assert relu.error < backward_step.TOLERANCE < bias.error
    table = repr(backward_step.FullSizes([bias, relu])).splitlines()
    assert "yours" in table[1]
    assert "NO: off by" in table[1]
    assert table[2].endswith("yes")


def small():
    rng = np.random.default_rng(3)
    return batch(rng.uniform(size=(2, 1, 10, 8)), np.array([4, 1], np.int32))


def test_a_step_has_what_the_forward_pass_leaves():
    net = small()
    step, right = Step(net), gradients(net)
    grad_logits = device.zeros(step.logits.shape)
    Kernels().cross_entropy_kernel(step.logits, step.labels, device.zeros(2), grad_logits)
    np.testing.assert_allclose(device.to_host(grad_logits), right["logits"], atol=1e-6)
    for name, expected in right.items():
        assert step.gradients[name].shape == expected.shape
    arrays = {name: device.to_host(array) for name, array in step.gradients.items()}
    assert not arrays.pop("ReLU output").any()
    assert all(np.isnan(array).all() for array in arrays.values())


def test_the_mean_loss_answers_to_a_nudge_as_the_gradient_says():
    net = small()
    slope = gradients(net)["filters"][1, 0, 2, 0]
    losses = []
    for step in (1e-6, -1e-6):
        net.weight[1, 0, 2, 0] += step
        losses.append(mean_loss(net))
        net.weight[1, 0, 2, 0] -= step
    np.testing.assert_allclose((losses[0] - losses[1]) / 2e-6, slope, rtol=1e-6)


def test_the_pixels_gradient_is_the_slope_of_the_loss():
    model = load_model(MNIST_CNN, batch_size=2)
    rng, labels = np.random.default_rng(0), np.array([3, 8], np.int32)
    images = rng.uniform(size=(2, 1, 28, 28)).astype(np.float32)
    gradient = pixel_gradient(Kernels(relu_backward_kernel), model, images, labels)
    assert not gradient[:, :, 26:].any()  # no window of the second pooling covers it
    assert not gradient[..., 26:].any()
    criterion = CrossEntropyLoss(2, 10, "cpu")

    def loss(step):
        return criterion.forward(model.forward(images + np.float32(step) * direction), labels).mean()

    direction = (gradient / np.abs(gradient).max()).astype(np.float32)
    measured = (loss(1e-3) - loss(-1e-3)) / 2e-3
    np.testing.assert_allclose((gradient * direction).sum(), measured, rtol=0.02)


def test_a_layer_without_a_kernel_is_named():
    model = Sequential([AvgPool2d(2), Flatten(), Linear(4, 3)], (1, 4, 4), batch_size=1)
    with pytest.raises(TypeError, match="there is no kernel for AvgPool2d"):
        pixel_gradient(Kernels(), model, np.ones((1, 1, 4, 4), np.float32), np.array([0], np.int32))


# --- pictures ----------------------------------------------------------------------------------------------


def test_the_map_counts_correct_kernels():
    picture = network_map(["relu_backward_kernel"])
    assert "passes its check: 1 of 8." in picture.caption
    assert "Right so far: relu_backward_kernel." in picture.alt
    assert "Right so far: none." in network_map().alt


@pytest.mark.parametrize("stride", [1, 2])
def test_the_backward_window_has_the_weights_of_the_gradient(stride):
    """Send back 1 from one output alone: the pixel's gradient is the weight that it met there."""
    outputs = (9 - 3) // stride + 1
    weight = np.arange(1.0, 10).reshape(1, 1, 3, 3)
    letters = films.gathered((4, 4), outputs, stride)
    for place, letter in np.ndenumerate(letters):
        grad_output = np.zeros((1, 1, outputs, outputs))
        grad_output[0, 0][place] = 1
        gradient = conv2d_backward_input(grad_output, weight, (1, 1, 9, 9), stride, 0)[0, 0, 4, 4]
        assert gradient == (" abcdefghi".index(letter) if letter else 0)


def test_gathering_reads_what_scattering_writes():
    for pixel in range(6):
        assert films.gathered_from(pixel, 4) == [o for o in range(4) if pixel in films.scattered_to(o)]
    alt = films.scatter_film().alt
    assert "at the end 4 pixels have several writers, up to 3" in alt


def test_the_picture_of_pixels_names_the_predictions():
    digits = np.random.default_rng(0).uniform(size=(2, 1, 5, 4))
    alt = pixel_picture(digits, digits - 0.5, digits, [7, 2], [9, 3]).alt
    assert "read as 7, 2" in alt
    assert "now read as 9, 3" in alt
