"""Chains of convolutions on the GPU, compared with the operations one after another."""

import numpy as np
import pytest
from helpers import kernels_in, poisoned, random_float32
from hypothesis import assume, given, settings, strategies as st
from launches import sanitized, to_host
from test_fused import CHAINS, MNIST, assert_as_defined, chain_of, has_a_near_tie

from cnn_numba import device
from cnn_numba.ops.conv.gpu_weight import WITH_ONES
from cnn_numba.ops.fused import gpu, gpu_backward, gpu_forward, gpu_sparse_input, gpu_sparse_weight, reference
from cnn_numba.ops.fused.checks import Convolution
from cnn_numba.ops.gather import gpu as gather
from cnn_numba.ops.update.gpu import SKIPPED, adam_rates, adam_update_scheduled
from gpuless import sanitize

# Beyond those of the CPU: bands of an image, the last one smaller; more windows in a row than a block takes;
# or just as many; more channels than a warp has lanes; more images than parts; a stride and another kernel
# below a pooling. Windows, channels and output channels that fill no tile; rows too long for few blocks.
MORE_CHAINS = [
    ((2, 9, 30, 41), [(11, 3, 1, 2, True, True)]),
    ((1, 8, 6, 140), [(3, 3, 1, 1, False, True)]),
    ((2, 3, 6, 68), [(8, 3, 1, 0, True, True)]),
    ((2, 3, 5, 66), [(8, 3, 1, 0, False, True)]),
    ((5, 2, 9, 12), [(3, 3, 1, 1, True, True)]),
    ((2, 40, 9, 8), [(70, 3, 1, 0, True, True)]),
    ((3, 9, 9, 27), [(35, 3, 1, 2, True, True)]),
    ((1, 8, 31, 12), [(40, 3, 1, 1, False, True)]),
    ((1, 2, 6, 600), [(8, 3, 1, 1, True, True)]),
    ((220, 1, 4, 5), [(8, 3, 1, 0, True, True)]),
    ((2, 8, 15, 14), [(9, 3, 2, 1, True, True), (5, 2, 1, 0, False, True)]),
    ((3, 2, 8, 8), [(4, 3, 1, 1, True, False), (5, 3, 1, 1, True, False)]),
]


def on_device(chain):
    return [
        each._replace(weight=device.to_device(each.weight), bias=device.to_device(each.bias))
        for each in chain
    ]


def both(chain, x, grad_output, needs_grad_input=True, **scratch):
    """Return the result of a chain and its gradients, on the host, in a list."""
    chain, x, grad_output = on_device(chain), device.to_device(x), device.to_device(grad_output)
    out = gpu.conv_chain_forward(x, chain, **scratch)
    where = None if needs_grad_input else False
    grads, grad_input = gpu.conv_chain_backward(grad_output, x, chain, grad_input=where, **scratch)
    arrays = [out, *(array for pair in grads for array in pair), *([grad_input] if needs_grad_input else [])]
    return [device.to_host(array) for array in arrays]


@pytest.mark.parametrize("needs_grad_input", [True, False])
@pytest.mark.parametrize(("shape", "layers"), [*CHAINS, *MORE_CHAINS])
def test_a_chain_equals_its_definition(shape, layers, needs_grad_input):
    rng = np.random.default_rng(0)
    chain, x = chain_of(layers, shape[1], rng), random_float32(rng, *shape)
    grad_output = random_float32(rng, *reference.conv_chain_forward(x, chain).shape)
    assert_as_defined(both(chain, x, grad_output, needs_grad_input), chain, x, grad_output)


def test_a_working_space_without_a_gradient_of_the_images_refuses_it():
    rng = np.random.default_rng(0)
    chain, x = on_device(chain_of(MNIST, 1, rng)), device.to_device(random_float32(rng, 3, 1, 28, 28))
    scratch = gpu.conv_chain_scratch(x.shape, chain, needs_grad_input=False)
    out = gpu.conv_chain_forward(x, chain, scratch=scratch)
    with pytest.raises(ValueError, match=r"scratch.needs_grad_input must be True, got False: make it"):
        gpu.conv_chain_backward(out, x, chain, scratch=scratch)


def test_a_convolution_may_occur_twice_in_a_chain():
    rng = np.random.default_rng(0)
    chain, x = chain_of([(4, 3, 1, 0, True, True)], 4, rng) * 2, random_float32(rng, 2, 4, 20, 20)
    there = on_device(chain[:1]) * 2
    out = gpu.conv_chain_forward(device.to_device(x), there)
    grad_output = random_float32(rng, *out.shape)
    grads, grad_input = gpu.conv_chain_backward(device.to_device(grad_output), device.to_device(x), there)
    arrays = [out, *(array for pair in grads for array in pair), grad_input]
    assert_as_defined([device.to_host(array) for array in arrays], chain, x, grad_output)


@settings(deadline=None, derandomize=True, max_examples=20)
@given(data=st.data())
def test_any_chain_equals_its_definition(data):
    draw = data.draw
    layers = []
    for _ in range(draw(st.integers(1, 3))):
        kernel, padding = draw(st.sampled_from([1, 2, 3, 3, 3, 4])), draw(st.integers(0, 2))
        sizes = draw(st.integers(1, 40)), kernel, draw(st.integers(1, 2)), padding
        layers.append((*sizes, draw(st.booleans()), draw(st.booleans())))
    shape = draw(st.tuples(st.integers(1, 4), st.integers(1, 18), st.integers(8, 17), st.integers(8, 17)))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    chain, x = chain_of(layers, shape[1], rng), random_float32(rng, *shape)
    try:
        out = reference.conv_chain_forward(x, chain)
    except ValueError:
        with pytest.raises(ValueError, match=r"does not fit|too few"):
            gpu.conv_chain_forward(device.to_device(x), on_device(chain))
        return
    assume(not has_a_near_tie(chain, x))
    arguments = chain, x, random_float32(rng, *out.shape)
    assert_as_defined(both(*arguments), *arguments)


def test_one_working_space_serves_smaller_batches_and_repeats_the_same_bits():
    rng = np.random.default_rng(0)
    chain, x = chain_of(MNIST, 1, rng), random_float32(rng, 7, 1, 28, 28)
    grad_output = random_float32(rng, 7, 64, 5, 5)
    scratch = gpu.conv_chain_scratch(x.shape, on_device(chain))
    first = both(chain, x, grad_output, scratch=scratch)
    smaller = chain, x[:3] * 5, grad_output[:3] * 9
    assert_as_defined(both(*smaller, scratch=scratch), *smaller)
    for one, other in zip(both(chain, x, grad_output, scratch=scratch), first, strict=True):
        np.testing.assert_array_equal(one, other)


def test_of_equal_pixels_the_first_gets_the_gradient():
    chain = on_device([Convolution(np.ones((1, 8, 2, 2), np.float32), np.zeros(1, np.float32), pool=True)])
    x, ones = (device.to_device(np.ones(shape, np.float32)) for shape in ((1, 8, 3, 3), (1, 1, 1, 1)))
    _, grad_input = gpu.conv_chain_backward(ones, x, chain)
    for plane in device.to_host(grad_input)[0]:
        assert plane.tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 0]]


@pytest.mark.parametrize("relu", [False, True])
def test_nan_wins_in_pooling_and_passes_relu(relu):
    x = np.zeros((1, 1, 4, 4), np.float32)
    x[0, 0, 2, 1] = np.nan
    weight, bias = np.ones((1, 1, 2, 2), np.float32), np.ones(1, np.float32)
    chain = [Convolution(weight, bias, padding=1, relu=relu, pool=True)]
    received = device.to_host(gpu.conv_chain_forward(device.to_device(x), on_device(chain)))
    assert np.isnan(received).any()
    np.testing.assert_array_equal(received, reference.conv_chain_forward(x, chain))


@pytest.mark.parametrize("channels", [1, 8])
def test_a_dead_pixel_gets_no_gradient(channels):
    rng = np.random.default_rng(0)
    weight, bias = random_float32(rng, 4, channels, 3, 3), np.full(4, -100, np.float32)
    x, grad_output = random_float32(rng, 2, channels, 6, 6), random_float32(rng, 2, 4, 2, 2)
    _, *gradients = both([Convolution(weight, bias, relu=True, pool=True)], x, grad_output)
    assert not any(array.any() for array in gradients)


def test_an_empty_batch_has_gradients_of_zero():
    rng = np.random.default_rng(0)
    chain, x = chain_of(MNIST, 1, rng), np.empty((0, 1, 28, 28), np.float32)
    out, *grads, grad_input = both(chain, x, np.empty((0, 64, 5, 5), np.float32))
    assert (out.shape, grad_input.shape) == ((0, 64, 5, 5), x.shape)
    assert not any(array.any() for array in grads)


def test_a_working_space_of_another_chain_or_for_fewer_images_raises():
    rng = np.random.default_rng(0)
    chain, x = on_device(chain_of(MNIST, 1, rng)), device.to_device(random_float32(rng, 3, 1, 28, 28))
    for shape, layers in (((2, 1, 28, 28), MNIST), ((3, 1, 28, 28), [(32, 3, 1, 0, True, True), MNIST[1]])):
        scratch = gpu.conv_chain_scratch(shape, on_device(chain_of(layers, 1, rng)))
        with pytest.raises(ValueError, match=r"scratch\..* must be .*: make it with conv_chain_scratch"):
            gpu.conv_chain_forward(x, chain, scratch=scratch)
    with pytest.raises(TypeError, match="x is an array on the host"):
        gpu.conv_chain_forward(device.to_host(x), chain)


def test_the_number_of_images_may_be_one_of_numpys():
    rng = np.random.default_rng(0)
    arrays = chain_of(MNIST, 1, rng), random_float32(rng, 2, 1, 28, 28), random_float32(rng, 2, 64, 5, 5)
    scratch = gpu.conv_chain_scratch((np.int64(2), 1, 28, 28), on_device(arrays[0]))
    assert_as_defined(both(*arrays, scratch=scratch), *arrays)


def test_stages_take_one_kernel_forward_and_two_backward_and_share_their_sums():
    chain = on_device(chain_of(MNIST, 1, np.random.default_rng(0)))
    x, grad_output = device.zeros((2, 1, 28, 28)), device.zeros((2, 64, 5, 5))
    scratch = gpu.conv_chain_scratch(x.shape, chain, needs_grad_input=False)
    made = []
    with device.observe_launches(lambda launch: made.append(launch.kernel)):
        gpu.conv_chain_forward(x, chain, scratch=scratch)
        gpu.conv_chain_backward(grad_output, x, chain, grad_input=False, scratch=scratch)
    assert made == [
        kernels_in(gpu_forward)["conv2d_pool_narrow_kernel"],
        gpu_forward.conv2d_pool_windows_kernel,
        gpu_sparse_weight.conv2d_pool_backward_weight_sparse_kernel,
        gpu_sparse_input.conv2d_pool_backward_input_sparse_kernel,
        gpu_sparse_weight.conv2d_pool_backward_weight_few_kernel,
        gpu_backward.conv2d_sum_weight_and_bias_kernel,
    ]


@pytest.mark.parametrize(
    ("shape", "layer", "needs_grad_input", "names"),
    [
        ((2, 2, 9, 12), (3, 3, 1, 1, True, True), False, ["conv2d_pool_backward_weight_few_kernel"]),
        (
            (2, 2, 9, 12),
            (3, 3, 1, 1, True, True),
            True,
            [
                "unpool_kernel",
                "conv2d_backward_weight_and_bias_narrow_kernel",
                "conv2d_implicit_narrow_kernel",
            ],
        ),
        (
            (2, 1, 13, 12),
            (8, 5, 1, 2, True, True),
            False,
            ["unpool_kernel", "conv2d_backward_weight_and_bias_narrow_kernel"],
        ),
    ],
)
def test_pooled_stages_unpool_only_where_a_sparse_kernel_is_missing(shape, layer, needs_grad_input, names):
    chain, x = on_device(chain_of([layer], shape[1], np.random.default_rng(0))), device.zeros(shape)
    scratch = gpu.conv_chain_scratch(shape, chain, needs_grad_input)
    grad_output, made = gpu.conv_chain_forward(x, chain, scratch=scratch), []
    with device.observe_launches(lambda launch: made.append(launch.kernel.py_func.__name__)):
        how = {} if needs_grad_input else {"grad_input": False}
        gpu.conv_chain_backward(grad_output, x, chain, scratch=scratch, **how)
    assert made == [*names, "conv2d_sum_weight_and_bias_kernel"]


def test_a_stage_whose_gradient_cannot_be_unpooled_is_named():
    chain = [Convolution(device.zeros((8, 1, 5, 5)), None, pool=True)]
    with pytest.raises(ValueError, match="convolution 0 has 2147680000 outputs before its pooling; the ker"):
        gpu.conv_chain_scratch((67115, 1, 44, 104), chain)


# --- Gathered together with the first stage -----------------------------------------------------------------


class Gathered:
    """A data set of random images, a chain, and a batch in an order with indices outside the data."""

    COUNT = 9

    def __init__(self, shape, layers, size=None):
        rng = np.random.default_rng(0)
        images = rng.integers(0, 256, (self.COUNT, *shape[1:]), dtype=np.uint8)
        order = rng.permutation(2 * self.COUNT) % self.COUNT
        order[[shape[0], shape[0] + 2, shape[0] + 3]] = -1, self.COUNT, 2**32
        self.chain = on_device(chain_of(layers, shape[1], rng))
        self.data = [
            device.to_device(each) for each in (images, np.arange(self.COUNT, dtype=np.int32), order)
        ]
        mean, std = rng.random(shape[1]).tolist(), (rng.random(shape[1]) + 0.1).tolist()
        self.size, count = shape[0], size or shape[0]
        self.x = device.to_device(poisoned((count, *shape[1:])))
        self.y, self.other = device.to_device(poisoned(count, np.int32)), device.zeros(1, np.int32)
        self.cursor = device.to_device(np.array([1], np.int32))
        self.scratch = gpu.conv_chain_scratch(shape, self.chain)
        where = *self.data, self.cursor, mean, std, self.x, self.y
        self.arguments = *where, self.size, self.other

    def together(self):
        return gpu.conv_chain_gather_at(self.chain, self.scratch, *self.arguments)

    def run(self, take):
        """Gather and run the chain; return the kernels, and all that they write, on the host."""
        launched = []
        with device.observe_launches(lambda launch: launched.append((launch.kernel, launch.run()))):
            assert take() == (self.x, self.y)
            out = gpu.conv_chain_forward(self.x, self.chain, scratch=self.scratch)
        first = self.scratch.stages[0]
        arrays = [self.x, self.y, self.other, out]
        arrays += [array[: len(self.x)] for array in (first.out, first.codes) if array is not None]
        return [kernel for kernel, _ in launched], to_host(arrays)


LAST = (4, 2, 1, 1, True, False)  # the last stage of a chain


@pytest.mark.parametrize(
    ("shape", "layer", "size"),
    [
        ((5, 1, 9, 8), (3, 3, 1, 0, False, True), None),
        ((5, 3, 7, 11), (32, 3, 1, 1, True, True), 4),
        ((6, 1, 28, 28), MNIST[0], 5),
        ((4, 9, 6, 4), (31, 3, 1, 2, True, True), 1),
        ((4, 2, 4, 5), (1, 3, 1, 0, True, True), None),
    ],
)
def test_a_batch_is_gathered_with_the_first_stage(shape, layer, size):
    """All have the same bits as alone: pixels, labels and what the stages write, also where no image is."""
    one, other = (Gathered(shape, [layer, LAST], size) for _ in range(2))
    alone, expected = one.run(lambda: gather.gather_batch_at(*one.arguments))
    kernels, received = other.run(other.together)
    narrow = kernels_in(gpu_forward)["conv2d_pool_narrow_kernel"]
    assert alone[:2] == [gather.gather_batch_at_kernel, narrow]
    assert kernels == [gpu_forward.gather_conv2d_pool_kernel, *alone[2:]]
    assert [array.tobytes() for array in received] == [array.tobytes() for array in expected]
    assert received[2].tolist() == [1]
    assert np.isnan(received[0][0]).all()
    assert received[1][0] == -1


def test_the_sanitizer_finds_nothing_in_a_gathered_stage():
    gathered = Gathered((2, 3, 7, 6), [(5, 3, 1, 1, True, True), LAST])
    gathered.data[2] = device.to_device(np.array([3, 1, 0, 8]))
    gathered.arguments = *gathered.arguments[:2], gathered.data[2], *gathered.arguments[3:]
    reports = []
    with device.observe_launches(lambda launch: reports.append(launch.examine(sanitize))):
        gathered.together()
    assert len(reports) == 1
    assert reports[0].ok, str(reports[0])


@pytest.mark.parametrize(
    "layers",
    [
        [(3, 3, 1, 0, True, False), LAST],  # no pooling
        [(3, 5, 1, 0, True, True), LAST],
        [(3, 3, (1, 2), 0, True, True), LAST],
        [(33, 3, 1, 0, True, True), LAST],
        [(3, 3, 1, 0, True, True)],  # nowhere to keep the result
    ],
)
def test_other_first_stages_run_after_the_gathering(layers):
    one, other = (Gathered((4, 1, 12, 12), layers) for _ in range(2))
    alone, expected = one.run(lambda: gather.gather_batch_at(*one.arguments))
    kernels, received = other.run(other.together)
    assert kernels == alone
    assert [array.tobytes() for array in received] == [array.tobytes() for array in expected]


def test_a_stage_is_kept_for_one_forward_pass_of_its_batch():
    gathered = Gathered((4, 1, 9, 8), [(3, 3, 1, 0, True, True), LAST])
    _, (*_, out, _, _) = gathered.run(gathered.together)
    device.copy(gathered.chain[0].weight, -device.to_host(gathered.chain[0].weight))
    again = gpu.conv_chain_forward(gathered.x, gathered.chain, scratch=gathered.scratch)
    expected = device.to_host(gpu.conv_chain_forward(gathered.x, gathered.chain))
    np.testing.assert_array_equal(device.to_host(again), expected)
    assert (expected != out).any()
    gathered.together()
    x = device.to_device(np.ones(gathered.x.shape, np.float32))
    of_ones = gpu.conv_chain_forward(x, gathered.chain, scratch=gathered.scratch)
    assert np.isfinite(device.to_host(of_ones)).all()


def test_wrong_arguments_of_a_gathered_stage_raise_before_any_launch():
    gathered = Gathered((4, 1, 9, 8), [(3, 3, 1, 0, True, True), LAST])
    wrong = gathered.chain[0]._replace(bias=device.zeros(2))
    smaller = gpu.conv_chain_scratch((3, 1, 9, 8), gathered.chain)
    for chain, scratch, match in (
        ([wrong, gathered.chain[1]], gathered.scratch, "bias_0 must have shape"),
        (gathered.chain, smaller, "make it with conv_chain_scratch"),
    ):
        with pytest.raises(ValueError, match=match), device.observe_launches(pytest.fail):
            gpu.conv_chain_gather_at(chain, scratch, *gathered.arguments)


# --- Under the sanitizer ------------------------------------------------------------------------------------


def assert_nothing_found(shape, layers, needs_grad_input=True):
    """Run a chain under the sanitizer; return the kernels that it launched."""
    rng, examined = np.random.default_rng(0), {}
    chain, x = chain_of(layers, shape[1], rng), random_float32(rng, *shape)
    grad_output = random_float32(rng, *reference.conv_chain_forward(x, chain).shape)
    # With a working space the backward pass does not repeat launches of the forward pass.
    scratch = gpu.conv_chain_scratch(shape, on_device(chain), needs_grad_input)
    with device.observe_launches(
        lambda launch: examined.setdefault(launch.kernel, []).append(launch.examine(sanitize))
    ):
        both(chain, x, grad_output, needs_grad_input, scratch=scratch)
    reports = [report for found in examined.values() for report in found]
    assert all(report.ok for report in reports), "\n".join(map(str, reports))
    return set(examined)


SANITIZED = [
    ((1, 1, 8, 9), [(3, 3, 1, 1, True, True), (2, 3, 1, 0, False, True)], True),
    ((1, 8, 6, 6), [(9, 3, 1, 0, True, True)], True),
    ((1, 3, 6, 7), [(8, 3, 1, 1, True, True), (2, 3, 1, 1, False, True)], False),
    ((1, 9, 4, 6), [(33, 3, 1, 1, True, True)], True),
]


@pytest.mark.exhaustive_unless(
    lambda shape: shape in (SANITIZED[2][0], SANITIZED[3][0]),
    "few and many channels: the kernels of 3x3 windows, forward and both gradients, and unpooling",
)
@pytest.mark.parametrize(("shape", "layers", "needs_grad_input"), SANITIZED)
def test_the_sanitizer_finds_nothing(shape, layers, needs_grad_input):
    assert_nothing_found(shape, layers, needs_grad_input)


@pytest.mark.exhaustive(
    "the tiles of test_the_sanitizer_finds_nothing are made by the same functions as the others"
)
def test_the_sanitizer_finds_nothing_in_any_kernel_of_a_chain(monkeypatch):
    launched = {kernel for each in SANITIZED[1:] for kernel in assert_nothing_found(*each)}
    for tile in (gpu_forward.LARGE, gpu_forward.SMALL, gpu_forward.NARROW):
        monkeypatch.setattr(gpu_forward, "best_tile", lambda *_, tile=tile: tile)
        launched |= assert_nothing_found((1, 3, 4, 4), [(2, 3, 1, 0, False, True)])
    # Many channels, without a pooling, and a stride below one.
    unpooled = [(33, 3, 1, 0, True, False), (3, 1, 1, 0, False, False)]
    launched |= assert_nothing_found((1, 4, 3, 4), unpooled)
    launched |= assert_nothing_found((1, 4, 4, 4), [(33, 3, 2, 1, True, True)])
    launched.add(gpu_forward.gather_conv2d_pool_kernel)  # see test_a_batch_is_gathered_with_the_first_stage
    modules = (gpu_forward, gpu_backward, gpu_sparse_input, gpu_sparse_weight)
    kernels = {kernel for module in modules for kernel in kernels_in(module).values()}
    assert kernels | set(WITH_ONES.values()) <= launched


# --- Adam that adds up the parts ---------------------------------------------------------------------------


class Problem:
    """Arenas that begin with the parameters of stages, given as (outputs, columns, parts), then the rest."""

    def __init__(self, stages, rest, rng):
        sizes = [rows * columns for rows, columns, _ in stages]
        arrays = random_float32(rng, 4, sum(sizes) + rest)
        self.parts = [
            random_float32(rng, count, size) for (*_, count), size in zip(stages, sizes, strict=True)
        ]
        self.arenas = [device.to_device(array) for array in (*arrays[:3], np.abs(arrays[3]))]
        self.sums, begin = [], 0
        for (rows, columns, _), parts in zip(stages, self.parts, strict=True):
            end = begin + rows * columns
            gradient, weights = self.arenas[1][begin:end], rows * (columns - 1)
            self.sums.insert(0, (device.to_device(parts), gradient[:weights], gradient[weights:]))
            begin = end

    def step(self, row, is_fused):
        """Return the arenas and both cursors after a step."""
        rates = device.to_device(adam_rates([0.1, 0.01, 0.3], 7))
        cursor, other = (device.to_device(np.array([each], np.int32)) for each in (row, 41))
        arrays, how = (*self.arenas, rates, cursor), {"advances": other, "weight_decay": 0.1}
        if is_fused:
            assert gpu.adam_update_with_sums(*arrays, self.sums, **how) is self.arenas[0]
        else:
            gpu_backward.conv2d_sum_weight_and_bias(self.sums)
            adam_update_scheduled(*arrays, **how)
        return [device.to_host(array) for array in (*self.arenas, cursor, other)]


#: A column more or less than blocks take, one output, one weight; as many parts as threads load, or one more.
ADDED_UP = [
    ([(1, 2, 1)], 0),
    ([(3, 11, 5)], 1),
    ([(4, 8, 64), (4, 9, 65)], 256),
    ([(3, 10, 3), (5, 28, 70)], 257),
    ([(31, 33, 9), (1, 31, 2)], 255),
]


def both_ways(stages, rest, row=1):
    """Return the arrays after a step in one launch and in two, each from the same start."""
    problems = [Problem(stages, rest, np.random.default_rng(0)) for _ in range(2)]
    return [problem.step(row, is_fused) for problem, is_fused in zip(problems, (True, False), strict=True)]


def assert_same_bits(received, expected):
    assert [array.tobytes() for array in received] == [array.tobytes() for array in expected]


@pytest.mark.exhaustive_unless(
    lambda stages, row: row == 1 or (stages, row) in [(ADDED_UP[0][0], 3), (ADDED_UP[2][0], SKIPPED)],
    "each size where a step is taken; whether one is depends on no size",
)
@pytest.mark.parametrize(("stages", "rest"), ADDED_UP)
@pytest.mark.parametrize("row", [1, SKIPPED, 3])
def test_adam_with_sums_has_the_bits_of_two_launches(stages, rest, row):
    """Also if the step is skipped, or its rates are missing."""
    received, expected = both_ways(stages, rest, row)
    assert_same_bits(received, expected)
    assert received[-1].tolist() == [42]
    with sanitized() as reports:
        assert_same_bits(*both_ways(stages, rest, row))
    assert len(reports) == 3
    assert reports[0].kinds <= ({"NaN produced"} if row == 3 else set()), str(reports[0])


@pytest.mark.parametrize(("stages", "rest"), ADDED_UP)
def test_adam_with_sums_updates_each_parameter_once(stages, rest):
    """With a gradient of 1 and means of 0, the first mean of each is 1 - beta1 after one update."""
    problem = Problem(stages, rest, np.random.default_rng(0))
    parameters, gradients, *means = problem.arenas
    ones = np.ones(gradients.shape, np.float32)
    for mean in means:
        device.copy(mean, 0 * ones)
    device.copy(gradients, ones)
    for parts, *_ in problem.sums:
        device.copy(parts, np.pad(np.ones((1, parts.shape[1]), np.float32), [(0, len(parts) - 1), (0, 0)]))
    rates, cursor = device.to_device(adam_rates([0.5])), device.zeros(1, np.int32)
    gpu.adam_update_with_sums(parameters, gradients, *means, rates, cursor, problem.sums, beta1=0.75)
    np.testing.assert_array_equal(device.to_host(gradients), ones)
    np.testing.assert_array_equal(device.to_host(means[0]), 0.25 * ones)


@pytest.mark.gpu
def test_adam_with_sums_has_the_bits_of_two_launches_at_the_sizes_of_mnist_cnn():
    assert_same_bits(*both_ways([(32, 10, 64), (64, 289, 32)], 206_218))
