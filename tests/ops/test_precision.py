"""Products of rounded operands: `precision` in every backend, on Tensor Cores and without."""

import numpy as np
import pytest
import torch
from helpers import assert_close, backends, kernels_in, poisoned, random_float32
from launches import only_launches, sanitized
from torch.nn import functional

from cnn_numba import device
from cnn_numba.device.compiler import cuda
from cnn_numba.ops._reference import PRECISIONS, rounded
from cnn_numba.ops.conv import gpu as conv_gpu, gpu_implicit, gpu_weight, reference as conv_reference
from cnn_numba.ops.dense import gpu as dense_gpu, gpu_vectorised, reference as dense_reference
from cnn_numba.ops.shared import products, tensor_cores
from cnn_numba.ops.shared.rounding import round_all, rounding
from gpuless.inspector import NoCompiler, inspect_kernels

REDUCED = PRECISIONS[1:]
of_each_precision = pytest.mark.parametrize("precision", REDUCED)
of_each_unit = pytest.mark.parametrize("unit", ["Tensor Cores", "FFMA"], indirect=True)


@pytest.fixture
def unit(request, monkeypatch):
    """Compute products with the unit given to the test."""
    monkeypatch.setattr(products, "product_unit", lambda precision: request.param)
    return request.param


# --- Rounding ----------------------------------------------------------------------------------------------

INFINITY = np.inf
WORKED = [
    # (number, tf32, float16, bfloat16): steps of 2**-10, 2**-10 and 2**-7 above 1
    (1.0, 1.0, 1.0, 1.0),
    (-0.1, -0.0999755859375, -0.0999755859375, -0.10009765625),
    (1 + 2**-11, 1 + 2**-10, 1.0, 1.0),  # in the middle: away from zero; to even
    (1 + 3 * 2**-11, 1 + 2**-9, 1 + 2**-9, 1.0),
    (-1 - 2**-11, -1 - 2**-10, -1.0, -1.0),
    (1 + 2**-8, 1 + 2**-8, 1 + 2**-8, 1.0),
    (1 + 3 * 2**-8, 1 + 3 * 2**-8, 1 + 3 * 2**-8, 1 + 2**-6),
    (65504.0, 65504.0, 65504.0, 65536.0),  # the largest of float16
    (65519.0, 65504.0, 65504.0, 65536.0),
    (65520.0, 65536.0, INFINITY, 65536.0),
    (-1e6, -999936.0, -INFINITY, -999424.0),
    (2**-24, 2**-24, 2**-24, 2**-24),  # the smallest
    (2**-25, 2**-25, 0.0, 2**-25),
    (1.5 * 2**-24, 1.5 * 2**-24, 2**-23, 1.5 * 2**-24),
    (3.4028235e38, INFINITY, INFINITY, INFINITY),
    (-INFINITY, -INFINITY, -INFINITY, -INFINITY),
]


@pytest.mark.parametrize(("number", "tf32", "float16", "bfloat16"), WORKED)
def test_rounding_worked_by_hand(number, tf32, float16, bfloat16):
    wanted = {"float32": np.float32(number), "tf32": tf32, "float16": float16, "bfloat16": bfloat16}
    for dtype in (np.float32, np.float64):
        for precision, value in wanted.items():
            received = rounded(np.array([number], np.float32).astype(dtype), precision)
            assert received.dtype == dtype
            assert received[0] == value, precision


def awkward_numbers():
    """Return random bits, all of float16, the midpoints between these, and their neighbours."""
    bits = np.random.default_rng(0).integers(0, 2**32, 100_000, dtype=np.uint32)
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32).view(np.uint32)
    middles = halves + np.uint32(0x1000)
    largest = np.array([0x7F7FFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 0xFF800000, 0x80000000, 1], np.uint32)
    neighbours = middles + np.uint32(1), middles - np.uint32(1)
    return np.concatenate([bits, halves, middles, *neighbours, largest]).view(np.float32)


def without_lower_bits(numbers):
    return (numbers.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def assert_same_bits(received, expected):
    number = ~np.isnan(expected)
    assert np.isnan(received[~number]).all()
    np.testing.assert_array_equal(received[number].view(np.uint32), expected[number].view(np.uint32))


def test_rounding_against_torch():
    numbers = awkward_numbers()
    for precision, kind in (("float16", torch.float16), ("bfloat16", torch.bfloat16)):
        assert_same_bits(rounded(numbers, precision), torch.from_numpy(numbers).to(kind).float().numpy())


def test_tf32_is_the_nearest_with_ten_bits():
    numbers = awkward_numbers()
    numbers = numbers[(np.abs(numbers) > 1e-30) & (np.abs(numbers) < 1e30)].astype(float)
    step = 2.0 ** (np.frexp(numbers)[1] - 11)
    expected = np.sign(numbers) * np.floor(np.abs(numbers) / step + 0.5) * step
    np.testing.assert_array_equal(rounded(numbers, "tf32"), expected)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_cpu_rounds_to_the_same_bits(precision):
    numbers = awkward_numbers()
    received = numbers.copy()
    round_all(received, rounding(precision))
    assert_same_bits(received, rounded(numbers, precision))


@cuda.jit
def round_kernel(numbers, instruction, others, packed):
    i = cuda.grid(1)
    if i < numbers.size:
        number = numbers[i]
        instruction[i] = tensor_cores.to_tf32(number)
        others[0, i] = tensor_cores.round_to_tf32(number)
        others[1, i] = tensor_cores.round_to_float16(number)
        others[2, i] = tensor_cores.round_to_bfloat16(number)
        packed[0, i] = tensor_cores.pack_float16(number, -number)
        packed[1, i] = tensor_cores.pack_bfloat16(number, -number)


@pytest.mark.gpu
def test_gpu_rounds_to_the_same_bits():
    numbers = awkward_numbers()
    there = device.to_device(numbers)
    instruction, others = device.empty(numbers.shape), device.empty((3, numbers.size))
    packed = device.empty((2, numbers.size), np.uint32)
    round_kernel[device.blocks(numbers.size, 256), 256](there, instruction, others, packed)
    for received, precision in zip(device.to_host(others), REDUCED, strict=True):
        assert_same_bits(received, rounded(numbers, precision))
    expected = np.where(np.isnan(numbers), without_lower_bits(numbers), rounded(numbers, "tf32"))
    received = device.to_host(instruction).view(np.uint32)
    np.testing.assert_array_equal(received, expected.view(np.uint32))
    float16, bfloat16 = device.to_host(packed).view(np.uint16).reshape(2, -1, 2)
    low, high = float16.view(np.float16).astype(np.float32).T
    assert_same_bits(low.copy(), rounded(numbers, "float16"))
    assert_same_bits(high.copy(), rounded(-numbers, "float16"))
    low, high = (bfloat16.astype(np.uint32) << 16).view(np.float32).T
    assert_same_bits(low.copy(), rounded(numbers, "bfloat16"))
    assert_same_bits(high.copy(), rounded(-numbers, "bfloat16"))


# --- The operations ----------------------------------------------------------------------------------------

# batch, in_features, out_features: one element, tails on all sides, whole tiles, several blocks and parts
LINEAR = [(1, 1, 1), (5, 7, 3), (64, 16, 64), (17, 70, 18), (70, 332, 68), (3, 333, 65)]
# images, channels, height, width, out_channels, kernel, stride, padding
CONV = [
    (1, 1, 1, 1, 1, 1, 1, 0),
    (2, 3, 7, 9, 5, 3, 1, 1),
    (3, 2, 11, 8, 33, 3, 2, 1),
    (1, 4, 5, 5, 6, 2, 3, 0),
    (2, 17, 12, 12, 70, 3, 1, 0),
]


def linear_calls(rng, batch, in_features, out_features):
    """Return (operation, arguments, the shape of its output)."""
    x, weight = random_float32(rng, batch, in_features), random_float32(rng, out_features, in_features)
    bias, grad_output = random_float32(rng, out_features), random_float32(rng, batch, out_features)
    return [
        ("linear_forward", (x, weight, bias), grad_output.shape, "out"),
        ("linear_backward_input", (grad_output, weight), x.shape, "grad_input"),
        ("linear_backward_weight", (grad_output, x), weight.shape, "grad_weight"),
    ]


def conv_calls(rng, images, channels, height, width, out_channels, kernel, stride, padding):
    x = random_float32(rng, images, channels, height, width)
    weight, bias = (
        random_float32(rng, out_channels, channels, kernel, kernel),
        random_float32(rng, out_channels),
    )
    shape = conv_reference.conv2d_forward(x, weight, bias, stride, padding).shape
    grad_output = random_float32(rng, *shape)
    options = stride, padding
    return [
        ("conv2d_forward", (x, weight, bias, *options), shape, "out"),
        ("conv2d_backward_input", (grad_output, weight, x.shape, *options), x.shape, "grad_input"),
        ("conv2d_backward_weight", (grad_output, x, weight.shape, *options), weight.shape, "grad_weight"),
    ]


def check(ops, reference, calls, precision):
    for name, arguments, shape, output in calls:
        out = poisoned(shape)
        assert getattr(ops, name)(*arguments, **{output: out}, precision=precision) is out
        assert_close(out, getattr(reference, name)(*arguments, precision=precision))


@pytest.mark.exhaustive_unless(
    lambda precision: precision == "float16", "tf32 in convolutions; the others round other bits away"
)
@backends("dense", gpu=True)
@of_each_precision
@pytest.mark.parametrize("size", LINEAR, ids=str)
def test_linear_against_the_reference(rng, ops, size, precision):
    calls = linear_calls(rng, *size)
    check(ops, dense_reference, calls, precision)
    (_, (x, weight, _), *_), (_, (grad_output, _), *_), _ = calls
    arguments = grad_output, x, weight
    expected = dense_reference.linear_backward(*arguments, precision=precision)
    for received, gradient in zip(
        ops.linear_backward(*arguments, precision=precision), expected, strict=True
    ):
        assert_close(received, gradient)


@pytest.mark.exhaustive_unless(
    lambda precision: precision == "tf32", "float16 in dense layers; the others round other bits away"
)
@backends("conv", gpu=True)
@of_each_precision
@pytest.mark.parametrize("size", CONV, ids=str)
def test_conv_against_the_reference(rng, ops, size, precision):
    check(ops, conv_reference, conv_calls(rng, *size), precision)


@of_each_precision
def test_the_reference_against_torch_with_rounded_operands(rng, precision):
    def torch_of(array):
        return torch.from_numpy(rounded(array, precision)).double()

    for name, (x, weight, bias), *_ in linear_calls(rng, 5, 30, 7)[:1]:
        expected = functional.linear(torch_of(x), torch_of(weight), torch.from_numpy(bias).double())
        received = getattr(dense_reference, name)(x, weight, bias, precision=precision)
        assert_close(received, expected)
        assert np.abs(received - dense_reference.linear_forward(x, weight, bias)).max() > 1e-5
    x, weight = random_float32(rng, 2, 3, 8, 8), random_float32(rng, 4, 3, 3, 3)
    grad_output = random_float32(rng, 2, 4, 4, 4)
    leaves = [torch_of(array).requires_grad_() for array in (x, weight)]
    out = functional.conv2d(*leaves, stride=2, padding=1)
    assert_close(conv_reference.conv2d_forward(x, weight, None, 2, 1, precision=precision), out.detach())
    grad_input, grad_weight = torch.autograd.grad(out, leaves, torch_of(grad_output))
    backward = conv_reference.conv2d_backward_input(grad_output, weight, x.shape, 2, 1, precision=precision)
    assert_close(backward, grad_input)
    backward = conv_reference.conv2d_backward_weight(grad_output, x, weight.shape, 2, 1, precision=precision)
    assert_close(backward, grad_weight)


@backends("dense", gpu=True)
@of_each_precision
def test_the_bias_is_not_rounded_nor_the_result(ops, precision):
    x, weight = np.ones((2, 1), np.float32), np.ones((3, 1), np.float32)
    bias = np.full(3, 2**-20, np.float32)
    out = ops.linear_forward(x, weight, bias, relu=True, precision=precision)
    np.testing.assert_array_equal(out, np.full((2, 3), 1 + 2**-20))


@backends("dense", gpu=True)
def test_float16_overflows_to_infinity_in_its_own_row(ops):
    # Five outputs are no whole vectors: the kernels for whole vectors need not be compiled for this test.
    x, weight = np.ones((3, 20), np.float32), np.ones((5, 20), np.float32)
    x[1, 3] = 70_000
    for precision, expected in (("float16", INFINITY), ("bfloat16", 70_144 + 19), ("tf32", 70_016 + 19)):
        out = ops.linear_forward(x, weight, precision=precision)
        np.testing.assert_array_equal(out, [[20] * 5, [expected] * 5, [20] * 5])


@backends("dense", gpu=True)
def test_nan_reaches_only_its_own_row(rng, ops):
    x, weight = random_float32(rng, 4, 20), random_float32(rng, 6, 20)
    x[2, 7] = np.nan
    for precision in REDUCED:
        wrong = np.isnan(ops.linear_forward(x, weight, relu=True, precision=precision))
        np.testing.assert_array_equal(wrong.all(axis=1), [False, False, True, False])
        assert wrong.sum() == 6


@backends("dense", gpu=True)
def test_empty_products(ops):
    x, weight, grad_output = (np.ones(shape, np.float32) for shape in ((0, 5), (4, 5), (0, 4)))
    for precision in REDUCED:
        assert ops.linear_forward(x, weight, precision=precision).shape == (0, 4)
        np.testing.assert_array_equal(ops.linear_backward_weight(grad_output, x, precision=precision), 0)


@backends("dense", gpu=True)
def test_another_precision_is_rejected_in_dense_layers(rng, ops):
    refuses(ops, linear_calls(rng, 2, 3, 4))


@backends("conv", gpu=True)
def test_another_precision_is_rejected_in_convolutions(rng, ops):
    refuses(ops, conv_calls(rng, *CONV[1]))


def refuses(ops, calls):
    match = "precision must be one of float32, tf32, float16, bfloat16, got 'float8'"
    for name, arguments, shape, output in calls:
        out = poisoned(shape)
        with pytest.raises(ValueError, match=match):
            getattr(ops, name)(*arguments, **{output: out}, precision="float8")
        assert np.isnan(out).all()


# --- On the GPU --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["FFMA"], indirect=True)
@pytest.mark.gpu
def test_without_tensor_cores_the_operations_compute_the_same(rng, unit):
    for gpu, reference, precision, calls in (
        (dense_gpu, dense_reference, "float16", linear_calls(rng, 17, 70, 18)),
        (conv_gpu, conv_reference, "tf32", conv_calls(rng, *CONV[2])),
    ):
        for name, arguments, shape, output in calls:
            there = [device.to_device(a) if isinstance(a, np.ndarray) else a for a in arguments]
            out = device.to_device(poisoned(shape))
            getattr(gpu, name)(*there, **{output: out}, precision=precision)
            assert_close(device.to_host(out), getattr(reference, name)(*arguments, precision=precision))


def test_the_used_unit_is_reported(monkeypatch):
    assert tensor_cores.product_unit("float32") == "FFMA"
    for capability, wanted in (((7, 5), "FFMA"), ((8, 0), "Tensor Cores"), ((12, 0), "Tensor Cores")):
        gpu = type("Gpu", (), {"compute_capability": capability})
        monkeypatch.setattr(tensor_cores.cuda, "get_current_device", lambda gpu=gpu: gpu)
        monkeypatch.setattr(device, "simulated", lambda: False)
        assert [tensor_cores.product_unit(precision) for precision in REDUCED] == [wanted] * 3
    monkeypatch.setattr(device, "simulated", lambda: True)
    assert tensor_cores.product_unit("tf32") == "FFMA"


@of_each_unit
@pytest.mark.gpu
def test_a_step_launches_kernels_and_nothing_else(rng, unit):
    suffix = "" if unit == "Tensor Cores" else "_ffma"
    calls = linear_calls(rng, 5, 332, 8)
    scratch = dense_gpu.linear_scratch(5, 332, 8)
    there = [
        (name, [device.to_device(a) for a in arguments], {output: device.to_device(poisoned(shape))})
        for name, arguments, shape, output in calls
    ]
    with only_launches() as launched:
        for name, arguments, out in there:
            getattr(dense_gpu, name)(*arguments, **out, scratch=scratch, precision="float16")
    kernel = f"matmul_float16{suffix}_kernel"
    assert launched == [kernel, "matmul_sum_parts_kernel", kernel, kernel]


@pytest.mark.exhaustive_unless(
    lambda precision: precision != "bfloat16", "float16 is packed and multiplied likewise"
)
@pytest.mark.gpu
@of_each_precision
def test_at_real_sizes_and_twice_the_same_bits(rng, precision):
    calls = linear_calls(rng, 64, 1600, 128) + linear_calls(rng, 1000, 777, 333)
    for name, arguments, *_ in calls:
        there = [device.to_device(array) for array in arguments]
        results = [device.to_host(getattr(dense_gpu, name)(*there, precision=precision)) for _ in range(2)]
        expected = getattr(dense_reference, name)(*arguments, precision=precision)
        np.testing.assert_allclose(results[0], expected, rtol=0, atol=6 * 1600 * 2**-24)
        assert results[0].tobytes() == results[1].tobytes()


@pytest.mark.gpu
def test_views_that_begin_off_a_vector(rng):
    x, weight = random_float32(rng, 64, 64), random_float32(rng, 64, 64)
    arena = device.empty(2 * 64 * 64 + 2)
    x_there, weight_there = arena[1 : 64 * 64 + 1].reshape(64, 64), arena[64 * 64 + 2 :].reshape(64, 64)
    device.copy(x_there, x)
    device.copy(weight_there, weight)
    out = device.to_host(dense_gpu.linear_forward(x_there, weight_there, precision="tf32"))
    assert_close(out, dense_reference.linear_forward(x, weight, precision="tf32"))


@pytest.mark.exhaustive("test_matmul_tensor.py and test_dense_gpu.py: both engines under the sanitizer")
@of_each_unit
def test_the_sanitizer_finds_nothing(rng, unit):
    """Two tiles along k, with tails."""
    convolution = conv_calls(rng, 2, 2, 4, 4, 3, 3, 1, 1)
    on_tensor_cores = [
        (dense_gpu, dense_reference, "tf32", linear_calls(rng, 5, 18, 3)[0]),
        (conv_gpu, conv_reference, "bfloat16", convolution[2]),
    ]
    without = [(conv_gpu, conv_reference, "bfloat16", convolution[0])]
    chosen = on_tensor_cores if unit == "Tensor Cores" else without
    for gpu, reference, precision, (name, arguments, *_) in chosen:
        there = [device.to_device(value) if isinstance(value, np.ndarray) else value for value in arguments]
        with sanitized() as reports:
            out = getattr(gpu, name)(*there, precision=precision)
        assert all(report.ok for report in reports), str(reports[0])
        assert_close(device.to_host(out), getattr(reference, name)(*arguments, precision=precision))


def listings(kernels, cc):
    """Return the machine code of kernels."""
    try:
        reports = inspect_kernels([(kernel, kernel.py_func.signature) for kernel in kernels], [cc])
    except NoCompiler as error:
        pytest.skip(str(error))
    if any(report.language != "SASS" for report in reports):
        pytest.skip("there is no disassembler")
    return [report.listing() for report in reports]


@pytest.mark.exhaustive("test_matmul_tensor.py: the instructions of the same engine")
def test_the_machine_code_multiplies_on_tensor_cores():
    named = kernels_in(gpu_vectorised) | kernels_in(gpu_implicit) | kernels_in(gpu_weight)
    kernels = [named["matmul_tf32_kernel"], named["conv2d_implicit_bfloat16_kernel"]]
    wanted = ["HMMA.1688.F32.TF32", "HMMA.16816.F32.BF16"]
    for listing, instruction in zip(listings(kernels, "8.0"), wanted, strict=True):
        assert instruction in listing
        assert "FFMA" not in listing
    for listing in listings([named["conv2d_backward_weight_float16_ffma_kernel"]], "7.5"):
        assert "FFMA" in listing
        assert "HMMA" not in listing
