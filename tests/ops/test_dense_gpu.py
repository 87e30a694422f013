import numpy as np
import pytest
import torch
from helpers import assert_close, poisoned, random_float32
from hypothesis import given, settings, strategies as st
from launches import in_two_parts, on_device, only_launches, sanitized

import gpuless
from benchmarks.ops import launches_of
from benchmarks.rungs import matmul
from cnn_numba import device
from cnn_numba.device.arrays import extent, overlap
from cnn_numba.ops.dense import gpu, gpu_vectorised, reference
from cnn_numba.ops.dense.gpu_vectorised import LARGE, SMALL, choose_tile, count_parts, most_partial_sums
from cnn_numba.ops.shared.warps import sum_grid
from gpuless import access_map

SMALL_RUNGS = (matmul.matmul_naive, matmul.matmul_tiled, matmul.matmul_split)
LARGE_RUNGS = (matmul.matmul_register_tiled, matmul.matmul_vectorised)
RUNGS = SMALL_RUNGS + LARGE_RUNGS

# rows, columns, depth: one element; tails everywhere; several blocks down, across and along k; whole vectors
SMALL_SIZES = [(1, 1, 1), (5, 3, 7), (17, 70, 18), (36, 40, 20), (70, 4, 33)]
# as few blocks of 128 x 128 as have a tail in each direction
LARGE_SIZES = [(1, 1, 1), (3, 131, 9), (130, 4, 20), (132, 8, 12)]


def of_each_rung(test):
    cases = [(rung, size) for rung in SMALL_RUNGS for size in SMALL_SIZES]
    cases += [(rung, size) for rung in LARGE_RUNGS for size in LARGE_SIZES]
    ids = [f"{rung.__name__}-{size}" for rung, size in cases]
    return pytest.mark.parametrize(("rung", "size"), cases, ids=ids)(test)


transpositions = pytest.mark.parametrize("transpose_a", [False, True])
transpositions_of_b = pytest.mark.parametrize("transpose_b", [False, True])


def matrices(rng, rows, columns, depth, transpose_a=False, transpose_b=False):
    """Two matrices and their product in float64."""
    a, b = random_float32(rng, rows, depth), random_float32(rng, depth, columns)
    product = a.astype(float) @ b
    return a.T.copy() if transpose_a else a, b.T.copy() if transpose_b else b, product


# --- The rungs ---------------------------------------------------------------------------------------------


@of_each_rung
@transpositions
@transpositions_of_b
def test_rungs(rng, rung, size, transpose_a, transpose_b):
    a, b, expected = matrices(rng, *size, transpose_a, transpose_b)
    a, b, out = on_device(a, b, poisoned(expected.shape))
    assert rung(a, b, out, transpose_a, transpose_b) is out
    assert_close(device.to_host(out), expected)


@pytest.mark.parametrize("rung", RUNGS)
def test_rungs_allocate(rng, rung):
    a, b, expected = matrices(rng, 3, 4, 5)
    assert_close(device.to_host(rung(*on_device(a, b))), expected)


@pytest.mark.parametrize("rung", RUNGS)
def test_a_sum_of_nothing_is_zero(rung):
    a, b, out = on_device(np.ones((3, 0), np.float32), np.ones((0, 4), np.float32), poisoned((3, 4)))
    np.testing.assert_array_equal(device.to_host(rung(a, b, out)), np.zeros((3, 4)))


@pytest.mark.parametrize("rung", RUNGS)
def test_no_results_no_launch(rung):
    a, b = on_device(np.ones((0, 3), np.float32), np.ones((3, 4), np.float32))
    with only_launches() as launched:
        assert rung(a, b, b[:0]).shape == (0, 4)
    assert launched == []


@pytest.mark.parametrize("size", [(3, 6, 330), (4, 8, 332)], ids=str)
@transpositions
@transpositions_of_b
def test_sums_in_parts(rng, size, transpose_a, transpose_b):
    rows, columns, depth = size
    parts, part_depth = count_parts(SMALL, rows, columns, depth)
    assert parts > 1
    assert depth % part_depth != 0  # the last part is shorter
    a, b, expected = matrices(rng, *size, transpose_a, transpose_b)
    a, b, out = on_device(a, b, poisoned(expected.shape))
    assert_close(device.to_host(matmul.matmul_split(a, b, out, transpose_a, transpose_b)), expected)


@pytest.mark.parametrize(
    ("parts", "size"), [(1, 1), (70, 33), (9, (1 << 15) + 1), (2, (1 << 17) - 3), (3, 1 << 18)]
)
def test_parts_of_few_and_many_results_are_added_up(rng, parts, size):
    if device.simulated() and size > 33:
        pytest.skip("millions of steps in the simulator")
    numbers = random_float32(rng, parts, size)
    d_parts, out = on_device(numbers, poisoned(size))
    flags = np.uint32(size), False, False
    device.launch(gpu_vectorised.matmul_sum_parts_kernel, *sum_grid(size), d_parts, out, *flags, out)
    assert_close(device.to_host(out), numbers.sum(0, dtype=float))


def test_adding_up_many_results_takes_less_than_three_times_as_long_as_loading_them():
    if not device.SELECTION.emulated:
        pytest.skip("modelled, for launches of the emulated GPU")
    pytest.importorskip("scipy", reason="solves linear programs")
    size, flags = 1 << 20, (np.uint32(1), False, False)
    d_parts, out = on_device(np.ones((2, size), np.float32), np.empty(size, np.float32))
    launch = gpu_vectorised.matmul_sum_parts_kernel[sum_grid(size)]
    report = gpuless.profile(launch, "H100")(d_parts, out, *flags, out)
    of_memory = report.dram_bytes / report.device.dram / 1e3
    assert report.microseconds < 3 * (report.device.launch + of_memory)  # 2.2 by numba-cuda-mlir


def test_sums_in_parts_of_large_tiles(rng, monkeypatch):
    tile = LARGE._replace(part_depth=16)  # or it would take too long to simulate
    monkeypatch.setattr(gpu_vectorised, "LARGE", tile)
    kernels = gpu_vectorised._KERNELS
    monkeypatch.setitem(kernels, (tile, True), kernels[LARGE, True])
    size = 130, 4, 64
    assert count_parts(tile, *size) == (4, 16)
    a, b, expected = matrices(rng, *size)
    assert_close(device.to_host(matmul.matmul_vectorised(*on_device(a, b))), expected)


@pytest.mark.parametrize("rung", RUNGS)
def test_nan_and_infinity_reach_only_their_own_row_and_column(rng, rung):
    a, b, expected = matrices(rng, 6, 7, 9)
    a[2, 8], b[0, 3] = np.nan, np.inf
    out = device.to_host(rung(*on_device(a, b)))
    assert np.isnan(out[2]).all()
    assert np.isinf(np.delete(out[:, 3], 2)).all()
    rest = np.ix_([0, 1, 3, 4, 5], [0, 1, 2, 4, 5, 6])
    assert_close(out[rest], expected[rest])


# --- Which kernel ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "kernel"),
    [
        ((4, 8, 12), "matmul_{}_kernel"),
        ((3, 8, 12), "matmul_{}_kernel"),  # rows need not consist of fours: none is that long
        ((4, 9, 12), "matmul_{}_guarded_kernel"),
        ((4, 8, 11), "matmul_{}_guarded_kernel"),
    ],
)
def test_vectors_are_used_if_all_rows_consist_of_them(rng, sizes, kernel):
    a, b, _ = matrices(rng, *sizes)
    a, b, out = on_device(a, b, poisoned((sizes[0], sizes[1])))
    with only_launches() as launched:
        matmul.matmul_split(a, b, out)
        matmul.matmul_vectorised(a, b, out)
    assert launched == [kernel.format("small"), kernel.format("large")]


def test_no_vectors_at_unaligned_addresses(monkeypatch):
    class Arena:
        """A matrix that begins in the middle of an arena, as on a GPU."""

        shape = (4, 8)

        def __init__(self, address):
            self.__cuda_array_interface__ = {"data": (address, False)}

    monkeypatch.setattr(device, "simulated", lambda: False)
    assert [gpu_vectorised.aligned(Arena(address)) for address in (512, 516, 528)] == [True, False, True]


def test_the_placeholder_of_a_bias_is_not_written_to(rng):
    """The sanitizer copies a real GPU's arrays separately: if two are the same, one copy is never written."""
    a, b, _ = matrices(rng, 4, 4, 4)
    a, b, out = on_device(a, b, poisoned((4, 4)))
    (launch,) = launches_of(lambda: matmul.matmul_split(a, b, out), run=False)
    *_, bias, sums = launch.arguments[:4]
    assert extent(sums) == extent(out)
    assert not overlap(extent(bias), extent(sums))


sizes = st.integers(1, 5000)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(sizes, sizes, sizes, st.sampled_from([LARGE, SMALL]))
def test_parts_cover_each_sum_once_and_fit_their_scratch(rows, columns, depth, tile):
    parts, part_depth = count_parts(tile, rows, columns, depth)
    assert (parts - 1) * part_depth < depth <= parts * part_depth
    if parts > 1:
        assert part_depth % tile.depth == 0
        assert parts * rows * columns <= most_partial_sums(rows, columns, depth)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.tuples(sizes, sizes, sizes), st.tuples(sizes, sizes, sizes))
def test_a_scratch_serves_smaller_sizes(one, other):
    larger = map(max, one, other)
    assert most_partial_sums(*larger) >= max(most_partial_sums(*one), most_partial_sums(*other))


@pytest.mark.parametrize("batch_size", [64, 256, 1024])
@pytest.mark.parametrize(("in_features", "out_features"), [(1600, 128), (4096, 512)])
def test_the_course_s_layers_fill_a_large_gpu(batch_size, in_features, out_features):
    for product in (
        (batch_size, out_features, in_features),
        (batch_size, in_features, out_features),
        (out_features, in_features, batch_size),
    ):
        tile = choose_tile(*product)
        parts, _ = count_parts(tile, *product)
        rows, columns, _ = product
        blocks = parts * device.blocks(rows, tile.rows) * device.blocks(columns, tile.columns)
        assert blocks >= 96, product


def test_large_matrices_get_large_tiles():
    assert choose_tile(4096, 4096, 4096) is LARGE
    assert choose_tile(64, 128, 1600) is SMALL
    assert choose_tile(64, 4096, 512) is SMALL  # half of each large tile would be empty


# --- The layer ---------------------------------------------------------------------------------------------


def layer(rng, batch_size, in_features, out_features):
    """Return x, weight, bias, grad_output."""
    shapes = (batch_size, in_features), (out_features, in_features), (out_features,)
    return [random_float32(rng, *shape) for shape in (*shapes, (batch_size, out_features))]


@pytest.mark.parametrize("size", [(3, 330, 6), (4, 332, 8)], ids=str)
@pytest.mark.parametrize("relu", [False, True])
def test_bias_and_relu_with_sums_in_parts(rng, size, relu):
    x, weight, bias, _ = layer(rng, *size)
    *there, out = on_device(x, weight, bias, poisoned((size[0], size[2])))
    scratch = gpu.linear_scratch(*size)
    with only_launches() as launched:
        gpu.linear_forward(*there, out, relu, scratch=scratch)
    assert launched[1:] == ["matmul_sum_parts_kernel"]
    assert_close(device.to_host(out), reference.linear_forward(x, weight, bias, relu=relu))


def test_given_arrays_need_only_launches(rng):
    size = 4, 332, 8
    x, weight, bias, grad_output = on_device(*layer(rng, *size))
    out, grad_input, grad_weight, grad_bias = on_device(
        *(poisoned(array.shape) for array in (grad_output, x, weight, bias))
    )
    scratch = gpu.linear_scratch(*size)
    with only_launches() as launched:
        gpu.linear_forward(x, weight, bias, out, scratch=scratch)
        gpu.linear_backward_input(grad_output, weight, grad_input, scratch=scratch)
        gpu.linear_backward_weight(grad_output, x, grad_weight, scratch=scratch)
        gpu.linear_backward_bias(grad_output, grad_bias)
    small = "matmul_small_kernel"
    assert launched == [small, "matmul_sum_parts_kernel", small, small, "linear_backward_bias_kernel"]


@pytest.mark.parametrize(
    ("size", "kernel"),
    [
        ((4, 8, 12), "linear_backward_kernel"),
        ((64, 72, 64), "linear_backward_kernel"),
        ((1, 1, 1), "linear_backward_guarded_kernel"),
        ((33, 70, 35), "linear_backward_guarded_kernel"),
        ((192, 40, 3), "linear_backward_guarded_kernel"),
    ],
)
def test_gradients_of_a_small_layer_are_one_launch_and_the_bits_of_three(rng, size, kernel):
    x, weight, bias, grad_output = on_device(*layer(rng, *size))
    results = on_device(*(poisoned(array.shape) for array in (x, weight, bias)))
    scratch = gpu.linear_scratch(*size)
    with only_launches() as launched:
        gpu.linear_backward(grad_output, x, weight, *results, scratch=scratch)
    expected = (
        gpu.linear_backward_input(grad_output, weight),
        gpu.linear_backward_weight(grad_output, x),
        gpu.linear_backward_bias(grad_output),
    )
    assert launched == [kernel]
    for ours, theirs in zip(results, expected, strict=True):
        np.testing.assert_array_equal(device.to_host(ours), device.to_host(theirs))


@pytest.mark.parametrize("size", [(257, 40, 3), (4, 40, 1024), (8, 2048, 2048)])
def test_gradients_of_larger_layers_are_a_launch_each(size):
    batch_size, in_features, out_features = size
    assert not gpu._fits(batch_size, out_features, in_features)
    assert gpu._fits(64, 128, 1600)  # as in the course's network


@pytest.mark.parametrize("shape", [(1, 1), (5, 33), (40, 70), (17, 32)], ids=str)
def test_bias_gradient_over_several_blocks_and_rounds(rng, shape):
    grad_output = random_float32(rng, *shape)
    grad_bias = gpu.linear_backward_bias(*on_device(grad_output, poisoned(shape[1])))
    assert_close(device.to_host(grad_bias), grad_output.astype(float).sum(axis=0))


def test_two_calls_give_the_same_bits(rng):
    arrays = on_device(*layer(rng, 3, 330, 6))
    results = [device.to_host(gpu.linear_forward(*arrays[:3])).tobytes() for _ in range(2)]
    assert results[0] == results[1]


# --- Errors ------------------------------------------------------------------------------------------------

CORRECT = {
    "linear_forward": {"x": (2, 3), "weight": (4, 3), "bias": (4,), "out": (2, 4)},
    "linear_backward_input": {"grad_output": (2, 4), "weight": (4, 3), "grad_input": (2, 3)},
    "linear_backward_weight": {"grad_output": (2, 4), "x": (2, 3), "grad_weight": (4, 3)},
    "linear_backward_bias": {"grad_output": (2, 4), "grad_bias": (4,)},
    "matmul_naive": {"a": (2, 3), "b": (3, 4), "out": (2, 4)},
    "matmul_split": {"a": (2, 3), "b": (3, 4), "out": (2, 4)},
}


@pytest.mark.parametrize(("name", "wrong"), [(name, key) for name, keys in CORRECT.items() for key in keys])
def test_host_arrays_and_other_dtypes_are_rejected(name, wrong):
    arguments = {key: np.zeros(shape, np.float32) for key, shape in CORRECT[name].items()}
    there = {key: device.to_device(array) for key, array in arguments.items()}
    module = gpu if hasattr(gpu, name) else matmul
    for bad, error, match in (
        (arguments[wrong], TypeError, f"{wrong} is an array on the host, shape .*device.to_device"),
        (device.to_device(arguments[wrong].astype(float)), TypeError, f"{wrong} must have dtype float32"),
        (arguments[wrong].tolist(), TypeError, f"{wrong} must be an array on the device, got list"),
    ):
        with only_launches() as launched, pytest.raises(error, match=match):
            getattr(module, name)(**{**there, wrong: bad})
        assert launched == []


@pytest.mark.parametrize("rung", RUNGS)
def test_wrong_sizes_raise(rung):
    a, b, out = on_device(*(np.ones(shape, np.float32) for shape in ((2, 3), (4, 3), (2, 3))))
    with pytest.raises(ValueError, match=r"b must have shape \(3, columns\), got \(4, 3\): a has depth = 3"):
        rung(a, b)
    with pytest.raises(ValueError, match=r"b must have shape \(columns, 2\), got \(4, 3\): a has depth = 2"):
        rung(a, b, None, True, True)
    with pytest.raises(ValueError, match=r"out must have shape \(2, 4\), got \(2, 3\)"):
        rung(a, b, out, transpose_b=True)
    with pytest.raises(ValueError, match=r"a must have shape \(rows, depth\), got \(6,\)"):
        rung(a.reshape(6), b)


def test_outputs_may_not_overlap_inputs():
    square = device.to_device(np.ones((4, 4), np.float32))
    for call in (
        lambda: gpu.linear_forward(square, square, out=square),
        lambda: gpu.linear_backward_input(square, square, grad_input=square),
        lambda: gpu.linear_backward_weight(square, square, grad_weight=square),
        lambda: gpu.linear_backward_bias(square, grad_bias=square[0]),
        lambda: matmul.matmul_tiled(square, square, square),
    ):
        with pytest.raises(ValueError, match="must not share memory"):
            call()


@pytest.mark.parametrize(
    ("scratch", "error", "match"),
    [
        (lambda: "x", TypeError, "scratch must come from linear_scratch, got str"),
        (lambda: gpu.linear_scratch(3, 330, 6).partial, TypeError, "scratch must come from linear_scratch"),
        (
            lambda: gpu.linear_scratch(3, 200, 6),
            ValueError,
            "partial must have at least 90 elements, got 54: make it with linear_scratch for these",
        ),
        (lambda: gpu.LinearScratch(np.ones(90, np.float32)), TypeError, "scratch.partial is an array on the"),
    ],
)
def test_a_foreign_scratch_is_rejected(scratch, error, match):
    x, weight, grad_output = on_device(*(np.ones(s, np.float32) for s in ((3, 330), (6, 330), (3, 6))))
    for call in (
        lambda scratch: gpu.linear_forward(x, weight, scratch=scratch),
        lambda scratch: gpu.linear_backward_input(grad_output, weight, scratch=scratch),
        lambda scratch: gpu.linear_backward_weight(grad_output, x, scratch=scratch),
    ):
        with pytest.raises(error, match=match):
            call(scratch())


# --- The sanitizer, and accesses ---------------------------------------------------------------------------


def assert_nothing_found(call):
    with sanitized() as reports:
        call()
    for report in reports:
        assert report.ok, str(report)


# At least two tiles along k each, so that one that is overwritten too early would show.
SANITIZED = [
    (matmul.matmul_naive, (5, 6, 7), (True, True)),
    (matmul.matmul_tiled, (5, 6, 34), (False, True)),
    (matmul.matmul_tiled, (5, 6, 34), (True, False)),
    (matmul.matmul_register_tiled, (5, 6, 10), (False, True)),
    (matmul.matmul_register_tiled, (5, 6, 10), (True, False)),
    (matmul.matmul_split, (5, 6, 34), (False, True)),
    (matmul.matmul_split, (8, 4, 36), (True, False)),
    (matmul.matmul_vectorised, (5, 6, 18), (True, False)),
    (matmul.matmul_vectorised, (8, 4, 12), (False, True)),
]


@pytest.mark.exhaustive_unless(
    lambda transpose: transpose != (True, False), "each rung with one of its factors transposed"
)
@pytest.mark.parametrize(("rung", "size", "transpose"), SANITIZED)
def test_the_sanitizer_finds_nothing_in_any_rung(rng, rung, size, transpose):
    a, b, expected = matrices(rng, *size, *transpose)
    a, b, out = on_device(a, b, poisoned(expected.shape))
    assert_nothing_found(lambda: rung(a, b, out, *transpose))
    assert_close(device.to_host(out), expected)


def test_the_sanitizer_finds_nothing_in_the_layer(rng, monkeypatch):
    x, weight, bias, grad_output = on_device(*layer(rng, 5, 50, 3))
    in_two_parts(monkeypatch)
    assert_nothing_found(lambda: gpu.linear_forward(x, weight, bias, relu=True))
    monkeypatch.undo()
    assert_nothing_found(lambda: gpu.linear_backward_bias(grad_output))
    assert_nothing_found(lambda: gpu.linear_backward(grad_output, x, weight))
    x, weight, bias, grad_output = on_device(*layer(rng, 5, 8, 36))
    assert_nothing_found(lambda: gpu.linear_backward(grad_output, x, weight))


@pytest.mark.exhaustive_unless(
    lambda transpose: transpose == (True, False), "each kernel with one of its factors transposed"
)
@pytest.mark.parametrize(
    ("kernel", "block"),
    [
        (matmul.matmul_tiled_kernel, (matmul.TILE, matmul.TILE)),
        (matmul.matmul_register_tiled_kernel, matmul.SIDE**2),
    ],
    ids=["tiled", "register_tiled"],
)
@pytest.mark.parametrize("transpose", [(False, True), (True, False)])
def test_tiles_have_no_bank_conflicts(rng, kernel, block, transpose):
    a, b, expected = matrices(rng, 32, 32, 8, *transpose)
    accesses = access_map(kernel)[1, block](*on_device(a, b, poisoned(expected.shape)), *transpose)
    for tile in ("a_tile", "b_tile"):
        assert accesses.total(tile).degree == 1


# --- At real sizes, compiled: on a GPU, or the emulated one -----------------------------------------------

LARGE_PRODUCTS = [(64, 128, 1600), (1000, 777, 333), (127, 4097, 129)]
LARGE_PRODUCTS += [(1024, 512, 4096), (2048, 2048, 2048)] if device.hardware() else [(512, 256, 2048)]


@pytest.mark.exhaustive_unless(
    lambda transpose_a, transpose_b: transpose_a and transpose_b,
    "each rung and size with both factors transposed; small sizes with all",
)
@pytest.mark.gpu
@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize("size", LARGE_PRODUCTS, ids=str)
@transpositions
@transpositions_of_b
def test_rungs_against_torch_at_large_sizes(rng, rung, size, transpose_a, transpose_b):
    rows, columns, depth = size
    a, b = random_float32(rng, rows, depth), random_float32(rng, depth, columns)
    expected = (torch.from_numpy(a).double() @ torch.from_numpy(b).double()).cpu().numpy()
    a, b = a.T.copy() if transpose_a else a, b.T.copy() if transpose_b else b
    results = []
    for _ in range(2):
        a_there, b_there, out = on_device(a, b, poisoned(expected.shape))
        rung(a_there, b_there, out, transpose_a, transpose_b)
        results.append(device.to_host(out))
    assert_sums_close(results[0], expected, depth)
    assert results[0].tobytes() == results[1].tobytes()


def assert_sums_close(received, expected, terms):
    # Each addition rounds a sum of about sqrt(terms) by up to 2**-24 of it. At random these errors add up to
    # sqrt(terms) as much, and the worst of millions of sums is some six standard deviations out.
    np.testing.assert_allclose(received, expected, rtol=0, atol=6 * terms * 2**-24 + 1e-6)


@pytest.mark.exhaustive_unless(
    lambda batch_size, in_features: batch_size == 64 or in_features < 4096,
    "the course's layers, and the largest with the course's batch",
)
@pytest.mark.gpu
@pytest.mark.parametrize("batch_size", [1, 64, 1000])
@pytest.mark.parametrize(("in_features", "out_features"), [(1600, 128), (128, 10), (4096, 512)])
def test_layer_against_torch_at_large_sizes(rng, batch_size, in_features, out_features):
    arrays = x, weight, bias, grad_output = layer(rng, batch_size, in_features, out_features)
    leaves = [torch.from_numpy(array).double().requires_grad_() for array in (x, weight, bias)]
    expected = torch.nn.functional.linear(*leaves)
    gradients = torch.autograd.grad(expected, leaves, torch.from_numpy(grad_output).double())
    x, weight, bias, grad_output = on_device(*arrays)
    scratch = gpu.linear_scratch(batch_size, in_features, out_features)
    results = [
        gpu.linear_forward(x, weight, bias, scratch=scratch, relu=True),
        gpu.linear_backward_input(grad_output, weight, scratch=scratch),
        gpu.linear_backward_weight(grad_output, x, scratch=scratch),
        gpu.linear_backward_bias(grad_output),
    ]
    terms = in_features, out_features, batch_size, batch_size
    for received, wanted, count in zip(results, (expected.relu(), *gradients), terms, strict=True):
        assert_sums_close(device.to_host(received), wanted.detach().cpu().numpy(), count)


@pytest.mark.gpu
def test_views_that_begin_off_a_vector(rng):
    a, b, expected = matrices(rng, 64, 64, 64)
    arena = device.empty(2 * 64 * 64 + 2)
    a_there, b_there = arena[1 : 64 * 64 + 1].reshape(64, 64), arena[64 * 64 + 2 :].reshape(64, 64)
    device.copy(a_there, a)
    device.copy(b_there, b)
    for rung in RUNGS:
        assert_sums_close(device.to_host(rung(a_there, b_there)), expected, 64)
