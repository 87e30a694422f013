"""Chains of convolutions in one pass, compared with the operations one after another."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from guards import Guards
from helpers import poisoned, random_float32, strided
from hypothesis import assume, given, settings, strategies as st

from cnn_numba.ops.activation import reference as activation
from cnn_numba.ops.conv import reference as conv
from cnn_numba.ops.fused import checks, cpu, reference
from cnn_numba.ops.fused.checks import Convolution
from cnn_numba.ops.fused.cpu_stage import Stage
from cnn_numba.ops.pool import reference as pooling
from cnn_numba.ops.shared.simd import WIDTH

# A chain: for each convolution output channels, kernel, stride, padding, ReLU, pooling.
MNIST = [(32, 3, 1, 0, False, True), (64, 3, 1, 0, False, True)]
CHAINS = [
    ((5, 1, 28, 28), MNIST),
    ((2, 3, 16, 16), [(32, 3, 1, 1, True, True), (64, 3, 1, 1, True, True)]),
    ((3, 1, 13, 12), [(8, 5, 1, 2, True, True), (20, 3, 1, 0, True, False), (7, 2, 1, 0, True, True)]),
    ((1, 20, 7, 9), [(33, (3, 2), (1, 2), (2, 0), False, False)]),
    ((2, 4, 5, 5), [(1, 4, 1, 1, False, True)]),
    # Four channels whose padded rows are as long as rows of whole vectors.
    ((2, 4, 2, 2), [(3, 7, 1, 3, True, False)]),
    ((2, 4, 4, 4), [(3, 5, 1, 2, True, False)]),
    # Several panels of flipped weights, whatever the width of the vectors.
    ((2, 70, 6, 5), [(9, 3, 1, 1, False, False)]),
]


def chain_of(settings_of_each, channels, rng):
    chain = []
    for out_channels, kernel, stride, padding, relu, pool in settings_of_each:
        height, width = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        weight = random_float32(rng, out_channels, channels, height, width)
        bias = random_float32(rng, out_channels)
        chain.append(
            Convolution(weight / np.sqrt(weight[0].size, dtype=np.float32), bias, stride, padding, relu, pool)
        )
        channels = out_channels
    return chain


def both(functions, chain, x, grad_output, needs_grad_input=True, **scratch):
    """Return the result of a chain and its gradients, in a list."""
    out = functions.conv_chain_forward(x, chain, **scratch)
    where = None if needs_grad_input else False
    grads, grad_input = functions.conv_chain_backward(grad_output, x, chain, grad_input=where, **scratch)
    return [out, *(array for pair in grads for array in pair), *([grad_input] if needs_grad_input else [])]


def absolute_sums(chain, x, grad_output):
    """Return what `both` returns, but computed from the absolute values of the summands of each sum."""
    sizes, passes = [np.abs(x)], reference._passes(x, chain)
    where = [{"stride": each.stride, "padding": each.padding} for each in chain]
    for each, geometry in zip(chain, where, strict=True):
        size = conv.conv2d_forward(sizes[-1], np.abs(each.weight), np.abs(each.bias), **geometry)
        sizes.append(pooling.max_pool2d_forward(size, 2)[0] if each.pool else size)
    size, grads = np.abs(grad_output), []
    for each, geometry, image, made in reversed([*zip(chain, where, sizes[:-1], passes, strict=True)]):
        x, output, argmax, _ = made
        size = pooling.max_pool2d_backward(size, argmax, output.shape) if each.pool else size
        size = activation.relu_backward(size, output) if each.relu else size
        grad_weight = conv.conv2d_backward_weight(size, image, each.weight.shape, **geometry)
        grads[:0] = grad_weight, conv.conv2d_backward_bias(size)
        size = conv.conv2d_backward_input(size, np.abs(each.weight), x.shape, **geometry)
    return [sizes[-1], *grads, size]


def has_a_near_tie(chain, x):
    """Return whether rounding may decide which pixel of a window is the largest, or if one passes a ReLU.

    The gradients then go elsewhere, and neither they nor those of the definition are wrong.
    """
    size = np.abs(x)
    for each, (image, *_) in zip(chain, reference._passes(x, chain), strict=True):
        geometry = {"stride": each.stride, "padding": each.padding}
        output = conv.conv2d_forward(image, each.weight, each.bias, **geometry)
        size = conv.conv2d_forward(size, np.abs(each.weight), np.abs(each.bias), **geometry)
        if each.relu and (np.abs(output) < 5e-7 * size).any():
            return True
        if each.pool:
            height, width = (length // 2 * 2 for length in output.shape[2:])
            corners = [output[:, :, i:height:2, j:width:2] for i in (0, 1) for j in (0, 1)]
            *_, second, largest = np.sort(corners, axis=0)
            size, _ = pooling.max_pool2d_forward(size, 2)
            passes = largest > 0 if each.relu else True
            if ((largest - second < 1e-6 * size) & passes).any():
                return True
    return False


def assert_as_defined(received, chain, x, grad_output):
    """Check what `both` returns; the gradient of the images may be missing.

    A sum is as inexact as its summands are large, however small it is itself: +1 and -1 cancel, and their
    rounding errors stay. The largest errors in some 1500 arrays of random chains were 5e-7 of these sums.
    """
    expected, sums = both(reference, chain, x, grad_output), absolute_sums(chain, x, grad_output)
    assert len(received) >= len(expected) - 1
    for one, other, total in zip(received, expected, sums, strict=False):
        assert one.shape == other.shape
        np.testing.assert_allclose((one - other) / np.maximum(total, 1e-30), 0, atol=1e-6)


@pytest.mark.parametrize("needs_grad_input", [True, False])
@pytest.mark.parametrize(("shape", "layers"), CHAINS)
def test_a_chain_equals_its_definition(shape, layers, needs_grad_input):
    rng = np.random.default_rng(0)
    chain, x = chain_of(layers, shape[1], rng), random_float32(rng, *shape)
    grad_output = random_float32(rng, *reference.conv_chain_forward(x, chain).shape)
    assert_as_defined(both(cpu, chain, x, grad_output, needs_grad_input), chain, x, grad_output)


@settings(deadline=None, derandomize=True, max_examples=25)
@given(data=st.data())
def test_any_chain_equals_its_definition(data):
    draw = data.draw
    layers = []
    for _ in range(draw(st.integers(1, 3))):
        kernel, padding = draw(st.integers(1, 5)), draw(st.integers(0, 2))
        sizes = draw(st.integers(1, 40)), kernel, draw(st.integers(1, 2)), padding
        layers.append((*sizes, draw(st.booleans()), draw(st.booleans())))
    shape = draw(st.tuples(st.integers(1, 4), st.integers(1, 18), st.integers(8, 17), st.integers(8, 17)))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    chain, x = chain_of(layers, shape[1], rng), random_float32(rng, *shape)
    try:
        out = reference.conv_chain_forward(x, chain)
    except ValueError:
        with pytest.raises(ValueError, match=r"does not fit|too few"):
            cpu.conv_chain_forward(x, chain)
        return
    assume(not has_a_near_tie(chain, x))
    needs_grad_input = draw(st.booleans())
    grad_output = random_float32(rng, *out.shape)
    assert_as_defined(both(cpu, chain, x, grad_output, needs_grad_input), chain, x, grad_output)


def test_one_working_space_serves_smaller_batches_and_repeated_steps():
    rng = np.random.default_rng(0)
    chain, x = chain_of(MNIST, 1, rng), random_float32(rng, 7, 1, 28, 28)
    grad_output = random_float32(rng, 7, 64, 5, 5)
    scratch = cpu.conv_chain_scratch(x.shape, chain, needs_grad_input=False)
    first = both(cpu, chain, x, grad_output, False, scratch=scratch)
    both(cpu, chain, x[:3] * 5, grad_output[:3] * 9, False, scratch=scratch)
    for one, other in zip(both(cpu, chain, x, grad_output, False, scratch=scratch), first, strict=True):
        np.testing.assert_array_equal(one, other)


def guarded_results(monkeypatch, guard, shape, layers, change=None):
    """Return the results of a chain whose arrays lie between gaps, what it was given, and the gaps."""
    rng = np.random.default_rng(0)
    chain, x = chain_of(layers, shape[1], rng), random_float32(rng, *shape)
    grad_output = random_float32(rng, *reference.conv_chain_forward(x, chain).shape)
    guards = Guards(monkeypatch, guard)
    scratch = cpu.conv_chain_scratch(shape, chain)
    guards.fill(scratch.memory)
    if change is not None:
        scratch.plan[..., Stage._fields.index(change)] += WIDTH
    received = both(cpu, chain, x, grad_output, scratch=scratch)
    return received, (chain, x, grad_output), guards


@pytest.mark.parametrize("guard", [np.nan, -0.0])
@pytest.mark.parametrize(("shape", "layers"), CHAINS)
def test_kernels_stay_within_their_arrays(monkeypatch, guard, shape, layers):
    received, given, guards = guarded_results(monkeypatch, guard, shape, layers)
    assert_as_defined(received, *given)
    guards.check()


@pytest.mark.parametrize("change", ["partial_size", "plane"])
def test_the_gaps_show_an_array_that_is_too_small(monkeypatch, change):
    *_, guards = guarded_results(monkeypatch, -0.0, (1, *CHAINS[1][0][1:]), CHAINS[1][1], change)
    with pytest.raises(AssertionError, match="a kernel left its array: gaps"):
        guards.check()


def test_given_outputs_are_written_to():
    rng = np.random.default_rng(0)
    chain, x = chain_of(MNIST, 1, rng), random_float32(rng, 2, 1, 28, 28)
    out, grad_input = poisoned((2, 64, 5, 5)), poisoned(x.shape)
    grads = [(poisoned(each.weight.shape), poisoned(each.bias.shape)) for each in chain]
    assert cpu.conv_chain_forward(x, chain, out) is out
    returned, returned_input = cpu.conv_chain_backward(out, x, chain, grads, grad_input)
    assert returned_input is grad_input
    for pair, given_pair in zip(returned, grads, strict=True):
        assert pair[0] is given_pair[0]
        assert pair[1] is given_pair[1]
    assert_as_defined([out, *(array for pair in grads for array in pair), grad_input], chain, x, out)


def test_of_equal_pixels_the_first_gets_the_gradient():
    chain = [Convolution(np.ones((1, 1, 2, 2), np.float32), np.zeros(1, np.float32), pool=True)]
    x = np.ones((1, 1, 3, 3), np.float32)
    grads, grad_input = cpu.conv_chain_backward(np.ones((1, 1, 1, 1), np.float32), x, chain)
    assert grad_input[0, 0].tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 0]]
    assert (grads[0][0] == 1).all()


@pytest.mark.parametrize("relu", [False, True])
def test_nan_wins_in_pooling_and_passes_relu(relu):
    x = np.zeros((1, 1, 4, 4), np.float32)
    x[0, 0, 2, 1] = np.nan
    chain = [
        Convolution(
            np.ones((1, 1, 2, 2), np.float32), np.ones(1, np.float32), padding=1, relu=relu, pool=True
        )
    ]
    results = [backend.conv_chain_forward(x, chain) for backend in (cpu, reference)]
    np.testing.assert_array_equal(*results)
    assert np.isnan(results[0]).any()


def test_a_dead_pixel_gets_no_gradient():
    rng = np.random.default_rng(0)
    weight, bias = random_float32(rng, 4, 1, 3, 3), np.full(4, -100, np.float32)
    x, grad_output = random_float32(rng, 2, 1, 6, 6), random_float32(rng, 2, 4, 2, 2)
    grads, grad_input = cpu.conv_chain_backward(
        grad_output, x, [Convolution(weight, bias, relu=True, pool=True)]
    )
    assert not any(array.any() for array in (*grads[0], grad_input))


# The CPU skips the dead pixels of the first image, but not those of the second.
@pytest.mark.parametrize(("stride", "padding"), [(1, 0), (1, 2), (2, 1), ((1, 2), (0, 3))])
@pytest.mark.parametrize("kernel", [1, 3, (2, 5)])
def test_images_with_few_and_with_many_live_pixels(kernel, stride, padding):
    rng = np.random.default_rng(0)
    chain = chain_of([(21, kernel, stride, padding, True, False)], 19, rng)
    chain[0].weight[:], chain[0].bias[:] = np.abs(chain[0].weight), -2
    x = np.abs(random_float32(rng, 2, 19, 12, 11))
    x[0] /= 100
    x[0, :, 4:6, 4:6] *= 1000
    x[1] *= 100
    out = cpu.conv_chain_forward(x, chain)
    alive = np.count_nonzero(out, axis=(1, 2, 3))
    stage = Stage(*cpu.conv_chain_scratch(x.shape, chain).plan[0, 0])
    assert 0 < alive[0] <= stage.most
    assert alive[1] > stage.most or out[0].size <= stage.most  # such as 3x3 squares for few, distant pixels
    grad_output = random_float32(rng, *out.shape)
    arrays = chain, x, grad_output
    assert_as_defined(both(cpu, *arrays), *arrays)


def test_an_empty_batch_has_gradients_of_zero():
    rng = np.random.default_rng(0)
    chain, x = chain_of(MNIST, 1, rng), np.empty((0, 1, 28, 28), np.float32)
    out, *grads, grad_input = both(cpu, chain, x, np.empty((0, 64, 5, 5), np.float32))
    assert (out.shape, grad_input.shape) == ((0, 64, 5, 5), x.shape)
    assert not any(array.any() for array in grads)


WRONG = {
    "no list": (
        lambda a: a.update(convolutions=[]),
        ValueError,
        "convolutions must be a list with at least one",
    ),
    "no sequence": (lambda a: a.update(convolutions=5), ValueError, "convolutions must be a list .*, got 5"),
    "channels": (
        lambda a: a.update(x=np.zeros((2, 3, 28, 28), np.float32)),
        ValueError,
        r"weight_0 must have shape \(C1, 3, K_h0, K_w0\), got \(32, 1, 3, 3\): x has C0 = 3",
    ),
    "dtype": (lambda a: a.update(x=np.zeros((2, 1, 28, 28))), TypeError, "x must have dtype float32"),
    "layout": (lambda a: a.update(x=strided(a["x"])), ValueError, "x must be C-contiguous"),
    "too small": (
        lambda a: a.update(x=np.zeros((2, 1, 7, 7), np.float32)),
        ValueError,
        "convolution 1: .*does not fit|of convolution 1 are too few",
    ),
    "out": (
        lambda a: a.update(out=np.zeros((2, 64, 4, 5), np.float32)),
        ValueError,
        r"out must have shape \(2, 64, 5",
    ),
    "scratch": (lambda a: a.update(scratch=(1, 2)), TypeError, "scratch must come from conv_chain_scratch"),
    "scratch with layers": (
        lambda a: a.update(scratch=SimpleNamespace(layers=checks.geometries(a["convolutions"]))),
        TypeError,
        "scratch must come from conv_chain_scratch",
    ),
}


@pytest.mark.parametrize("change", WRONG)
def test_wrong_arguments_are_rejected(change):
    rng = np.random.default_rng(0)
    arguments = {"x": random_float32(rng, 2, 1, 28, 28), "convolutions": chain_of(MNIST, 1, rng)}
    alter, error, message = WRONG[change]
    alter(arguments)
    with pytest.raises(error, match=message):
        cpu.conv_chain_forward(**arguments)


def test_a_working_space_of_another_chain_or_for_fewer_images_raises():
    rng = np.random.default_rng(0)
    chain, x = chain_of(MNIST, 1, rng), random_float32(rng, 3, 1, 28, 28)
    others = [
        [(32, 5, 1, 0, False, True), MNIST[1]],
        [(16, 3, 1, 0, False, True), MNIST[1]],
        [(32, 3, 1, 0, True, True), MNIST[1]],
        [MNIST[0], (64, 3, 1, 0, False, False)],
    ]
    for shape, layers in (((2, 1, 28, 28), MNIST), *(((3, 1, 28, 28), other) for other in others)):
        scratch = cpu.conv_chain_scratch(shape, chain_of(layers, 1, rng))
        match = r"scratch\.(batch|layers) must be .*: make it with conv_chain_scratch for these arguments"
        with pytest.raises(ValueError, match=match):
            cpu.conv_chain_forward(x, chain, scratch=scratch)


def test_the_number_of_images_may_be_one_of_numpys():
    rng = np.random.default_rng(0)
    arrays = chain_of(MNIST, 1, rng), random_float32(rng, 2, 1, 28, 28), random_float32(rng, 2, 64, 5, 5)
    scratch = cpu.conv_chain_scratch((np.int64(2), 1, 28, 28), arrays[0])
    assert_as_defined(both(cpu, *arrays, scratch=scratch), *arrays)


def test_a_working_space_without_image_gradients_returns_none():
    rng = np.random.default_rng(0)
    chain, x = chain_of(MNIST, 1, rng), random_float32(rng, 3, 1, 28, 28)
    scratch = cpu.conv_chain_scratch(x.shape, chain, needs_grad_input=False)
    out = cpu.conv_chain_forward(x, chain, scratch=scratch)
    with pytest.raises(ValueError, match=r"scratch.needs_grad_input must be True, got False: make it"):
        cpu.conv_chain_backward(out, x, chain, scratch=scratch)


def test_a_stride_may_be_a_list_but_not_a_bool():
    weight, bias = np.ones((1, 1, 3, 3), np.float32), np.zeros(1, np.float32)
    x = np.ones((1, 1, 5, 5), np.float32)
    for stride in (1, [1, 1]):
        assert cpu.conv_chain_forward(x, [Convolution(weight, bias, stride)]).shape == (1, 1, 3, 3)
    with pytest.raises(TypeError, match="stride must be an int"):
        cpu.conv_chain_forward(x, [Convolution(weight, bias, True)])


def test_gradients_may_not_overwrite_inputs():
    rng = np.random.default_rng(0)
    chain, x = chain_of(MNIST, 1, rng), random_float32(rng, 3, 1, 28, 28)
    with pytest.raises(ValueError, match="grad_input must not share memory with x"):
        cpu.conv_chain_backward(random_float32(rng, 3, 64, 5, 5), x, chain, grad_input=x)
    for lengths in ([2], [2, 1], [3, 2], [1, 3]):
        grads = [(None,) * length for length in lengths]
        match = re.escape(f"grads must hold a pair for each of 2 convolutions, got lengths {lengths}")
        with pytest.raises(ValueError, match=match):
            cpu.conv_chain_backward(random_float32(rng, 3, 64, 5, 5), x, chain, grads=grads)
