"""The rungs of the matrix product that run on Tensor Cores."""

from pathlib import Path

import numpy as np
import pytest
from helpers import poisoned, random_float32
from launches import on_device, only_launches, sanitized

from benchmarks.rungs import matmul_tensor, tensor_copies as copies
from benchmarks.rungs.matmul import matmul_register_tiled
from cnn_numba import device
from cnn_numba.device.compiler import cuda, float32, uint32
from cnn_numba.ops._reference import rounded
from cnn_numba.ops.dense import gpu
from cnn_numba.ops.shared import tensor_cores
from gpuless import counting, nvidia, sanitize
from gpuless.inspector import NoCompiler, inspect_kernels

TYPES = {
    matmul_tensor.matmul_tf32: (np.float32, "tf32"),
    matmul_tensor.matmul_3xtf32: (np.float32, "float32"),
    matmul_tensor.matmul_float16: (np.float16, "float16"),
}
MEASURED = np.load(Path(__file__).with_name("tensor_cores_h200.npz"))
SUBNORMAL = np.load(Path(__file__).with_name("tensor_cores_h100_subnormal.npz"))
of_each_rung = pytest.mark.parametrize("rung", TYPES)
# rows, columns, depth: one element, tails, several blocks, whole copies, several stages of the pipeline
SIZES = [(1, 1, 1), (5, 3, 7), (17, 70, 18), (129, 65, 33), (128, 64, 96), (136, 72, 200), (3, 8, 8)]


def matrices(rng, rung, rows, columns, depth):
    """Return two matrices of the rung's type, and the product of the rounded matrices."""
    dtype, precision = TYPES[rung]
    a, b = (random_float32(rng, *shape).astype(dtype) for shape in ((rows, depth), (depth, columns)))
    left, right = (rounded(array.astype(np.float32), precision).astype(float) for array in (a, b))
    return a, b, left @ right


def assert_sums_close(received, expected, terms):
    np.testing.assert_allclose(received, expected, rtol=0, atol=12 * terms * 2**-24 + 1e-6)


@pytest.mark.gpu
@of_each_rung
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_rungs(rng, rung, size):
    a, b, expected = matrices(rng, rung, *size)
    d_a, d_b, out = on_device(a, b, poisoned(expected.shape))
    assert rung(d_a, d_b, out) is out
    received = device.to_host(out)
    assert_sums_close(received, expected, size[2])
    assert device.to_host(rung(d_a, d_b)).tobytes() == received.tobytes()


@pytest.mark.gpu
@pytest.mark.parametrize("rung", [matmul_tensor.matmul_tf32, matmul_tensor.matmul_float16])
@pytest.mark.parametrize("scale", ["alike", "wild"])
@pytest.mark.parametrize("depth", [4, 8, 16, 32, 512])
def test_the_bits_are_those_of_an_h200(rung, scale, depth):
    """Measured 2026-11-27, with these kernels; ``wild`` has factors from 2^-12 to 2^12, and overflows."""
    if device.hardware() and nvidia.driver().gpus[0].capability != (9, 0):
        pytest.skip("each generation of GPUs adds in its own way")
    dtype, precision = TYPES[rung]
    a, b, given = (MEASURED[f"{depth}_{scale}_{name}"] for name in ("a", "b", precision))
    received = device.to_host(rung(*on_device(a.astype(dtype), b.astype(dtype))))
    np.testing.assert_array_equal(received, given)


@pytest.mark.gpu
@pytest.mark.parametrize("name", [name for name in SUBNORMAL if not name.endswith(("_a", "_b"))])
def test_the_bits_of_subnormal_numbers_are_those_of_an_h100(name):
    """Measured 2026-11-28: factors, results or both are subnormal, or both kinds occur in a product."""
    if device.hardware() and nvidia.driver().gpus[0].capability != (9, 0):
        pytest.skip("each generation of GPUs adds in its own way")
    rung = matmul_tensor.matmul_tf32 if name.startswith("tf32") else matmul_tensor.matmul_float16
    received = device.to_host(rung(*on_device(SUBNORMAL[f"{name}_a"], SUBNORMAL[f"{name}_b"])))
    np.testing.assert_array_equal(received, SUBNORMAL[name])


@pytest.mark.gpu
@of_each_rung
def test_an_empty_sum_is_zero_and_no_results_need_no_launch(rng, rung):
    a, b, _ = matrices(rng, rung, 3, 4, 0)
    np.testing.assert_array_equal(device.to_host(rung(*on_device(a, b, poisoned((3, 4))))), 0)
    a, b, empty = on_device(*matrices(rng, rung, 0, 4, 3)[:2], poisoned((0, 4)))
    with only_launches() as launched:
        assert rung(a, b, empty) is empty
    assert launched == []


@pytest.mark.gpu
@of_each_rung
def test_rows_that_consist_of_whole_copies_are_copied_without_guards(rng, rung):
    name = rung.__name__.replace("matmul", "tensor")
    for depth, suffix in ((8, ""), (9, "_guarded")):
        a, b, out = on_device(*matrices(rng, rung, 3, 8, depth)[:2], poisoned((3, 8)))
        with only_launches() as launched:
            rung(a, b, out)
        assert launched == [f"{name}{suffix}_kernel"]


@pytest.mark.gpu
@of_each_rung
def test_views_that_begin_off_a_copy(rng, rung):
    a, b, expected = matrices(rng, rung, 16, 16, 16)
    memory = device.empty(2 * 256 + 1, a.dtype)
    d_a, d_b = memory[1:257].reshape(16, 16), memory[257:].reshape(16, 16)
    device.copy(d_a, a)
    device.copy(d_b, b)
    assert_sums_close(device.to_host(rung(d_a, d_b)), expected, 16)


@pytest.mark.gpu
@of_each_rung
def test_nan_reaches_only_its_own_row(rng, rung):
    a, b, expected = matrices(rng, rung, 20, 24, 40)
    a[2, 39] = np.nan
    received = device.to_host(rung(*on_device(a, b)))
    assert np.isnan(received[2]).all()
    assert_sums_close(np.delete(received, 2, axis=0), np.delete(expected, 2, axis=0), 40)


@pytest.mark.gpu
def test_three_products_are_nearly_as_exact_as_float32(rng):
    """Largest errors relative to the largest result, of sums of 512 products, against float64."""
    a, b = random_float32(rng, 128, 512), random_float32(rng, 512, 64)
    exact = a.astype(float) @ b
    halves = [array.astype(np.float16) for array in (a, b)]

    def error(rung, arrays=(a, b), **options):
        received = device.to_host(rung(*on_device(*arrays), **options))
        return np.abs(received - exact).max() / np.abs(exact).max()

    # One sum after the other, as Tensor Cores add: the parts of a split sum err less.
    ffma, three = error(matmul_register_tiled), error(matmul_tensor.matmul_3xtf32)
    tf32, float16 = error(matmul_tensor.matmul_tf32), error(matmul_tensor.matmul_float16, halves)
    bfloat16 = error(gpu.linear_forward, (a, b.T.copy()), precision="bfloat16")
    assert ffma < 2e-6
    assert three < 10 * ffma  # Tensor Cores cut sums off: 7.6 times, on an H200 as here
    assert 50 * three < tf32 < 1e-3
    assert 0.5 * tf32 < float16 < 2 * tf32
    assert 4 * tf32 < bfloat16 < 16 * tf32


def test_the_sanitizer_finds_nothing(rng):
    if device.simulated():
        pytest.skip("run beside compiled kernels")
    # The rungs differ in their instructions only. Two tiles along k, so that a place is written to again.
    rung, depth = matmul_tensor.matmul_tf32, 20
    a, b, expected = matrices(rng, rung, 5, 8, depth)
    d_a, d_b, out = on_device(a, b, poisoned(expected.shape))
    with sanitized() as reports:
        rung(d_a, d_b, out)
    assert reports[0].ok, str(reports[0])
    assert_sums_close(device.to_host(out), expected, depth)


@of_each_rung
def test_wrong_types_and_sizes_raise(rng, rung):
    a, b, _ = matrices(rng, rung, 3, 4, 5)
    a, b = on_device(a, b)
    other = np.float32 if rung is matmul_tensor.matmul_float16 else np.float16
    with pytest.raises(TypeError, match=f"b must have dtype {a.dtype}, got {np.dtype(other)}"):
        rung(a, *on_device(np.ones((5, 4), other)))
    with pytest.raises(ValueError, match=r"b must have shape \(5, columns\), got \(3, 5\): a has depth = 5"):
        rung(a, a)
    with pytest.raises(TypeError, match="out must have dtype float32, got float16"):
        rung(a, b, *on_device(np.ones((3, 4), np.float16)))


@of_each_rung
def test_a_gpu_without_tensor_cores_raises(rng, rung, monkeypatch):
    a, b = on_device(*matrices(rng, rung, 3, 4, 5)[:2])
    gpu_of_old = type("Gpu", (), {"compute_capability": (7, 5)})
    monkeypatch.setattr(matmul_tensor.cuda, "get_current_device", lambda: gpu_of_old)
    monkeypatch.setattr(device, "simulated", lambda: False)
    with pytest.raises(RuntimeError, match=f"{rung.__name__} needs a GPU of compute capability 8.0"):
        rung(a, b)


# --- The instructions --------------------------------------------------------------------------------------


@cuda.jit
def fragments_kernel(left, right, halves, words, sums, loaded, turned):
    """Multiply once with each instruction, and load four matrices both ways; one warp."""
    tile = cuda.shared.array(16 * 24, np.float16)
    lane = uint32(cuda.laneid)
    a = left[lane, 0], left[lane, 1], left[lane, 2], left[lane, 3]
    b = right[lane, 0], right[lane, 1]
    before = float32(0.5), float32(1), float32(2), float32(lane)
    results = (
        tensor_cores.multiply_tf32(a, b, before),
        tensor_cores.multiply_float16(
            (words[lane, 0], words[lane, 1], words[lane, 2], words[lane, 3]),
            (words[lane, 4], words[lane, 5]),
            before,
        ),
        tensor_cores.multiply_bfloat16(
            (
                tensor_cores.pack_bfloat16(left[lane, 0], left[lane, 1]),
                tensor_cores.pack_bfloat16(left[lane, 1], left[lane, 2]),
                tensor_cores.pack_bfloat16(left[lane, 2], left[lane, 3]),
                tensor_cores.pack_bfloat16(left[lane, 3], left[lane, 0]),
            ),
            (
                tensor_cores.pack_bfloat16(right[lane, 0], right[lane, 1]),
                tensor_cores.pack_bfloat16(right[lane, 1], right[lane, 0]),
            ),
            before,
        ),
    )
    for i in range(3):
        for j in range(4):
            sums[i, lane, j] = results[i][j]
    for i in range(2):  # 16 rows of 16 numbers, 24 apart
        row = uint32(lane // 2)
        start = uint32(8 * (lane % 2) + 4 * i)
        for j in range(4):
            tile[row * uint32(24) + start + uint32(j)] = halves[row, start + uint32(j)]
    cuda.syncthreads()
    index = uint32(lane % 16 * 24 + lane // 16 * 8)
    one, two = copies.load_matrices(tile, index), copies.load_matrices_transposed(tile, index)
    for i in range(4):
        loaded[lane, i], turned[lane, i] = one[i], two[i]


@pytest.mark.gpu
def test_the_python_functions_match_the_instructions(rng):
    """Compiled, and under the sanitizer, which runs the Python functions."""
    left, right = rounded(random_float32(rng, 32, 4), "tf32"), rounded(random_float32(rng, 32, 2), "tf32")
    halves = random_float32(rng, 16, 16).astype(np.float16)
    words = random_float32(rng, 32, 12).astype(np.float16).view(np.uint32)
    results = []
    for runs in (lambda launch: launch.run(), lambda launch: launch.examine(sanitize)):
        outputs = [poisoned((3, 32, 4)), *(np.zeros((32, 4), np.uint32) for _ in range(2))]
        arrays = on_device(left, right, halves, words, *outputs)
        report = runs(device.launches.Launch(fragments_kernel, 1, 32, tuple(arrays)))
        assert report is None or report.ok, str(report)
        results.append([device.to_host(array) for array in arrays[4:]])
    (sums, loaded, turned), (python_sums, python_loaded, python_turned) = results
    np.testing.assert_allclose(sums, python_sums, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(loaded, python_loaded)
    np.testing.assert_array_equal(turned, python_turned)
    # And by hand: lane 5 holds row 1, numbers 2 and 3 of the first; turned, column 1 of rows 2 and 3.
    np.testing.assert_array_equal(loaded[5, :1].view(np.float16), halves[1, 2:4])
    np.testing.assert_array_equal(turned[5, :1].view(np.float16), halves[2:4, 1])
    first = dense_of_fragments(left, right)[np.arange(32) // 4, 2 * (np.arange(32) % 4)]
    np.testing.assert_allclose(sums[0, :, 0], first + 0.5, rtol=0, atol=1e-5)


def dense_of_fragments(left, right):
    """Return the product of the fragments of tf32 that lanes hold, by definition."""
    a, b = np.zeros((16, 8)), np.zeros((8, 8))
    for lane in range(32):
        row, k = lane // 4, lane % 4
        a[row, k], a[row + 8, k], a[row, k + 4], a[row + 8, k + 4] = left[lane]
        b[k, row], b[k + 4, row] = right[lane]
    return a @ b


@cuda.jit
def pitch_kernel(out, pitch):
    """Load 16 rows of 8 numbers that begin `pitch` apart; one warp."""
    tile = cuda.shared.array(16 * 40, float32, alignment=16)
    lane = uint32(cuda.laneid)
    one = copies.load_matrices_tf32(tile, uint32(lane % 16 * pitch + lane // 16 * 4))
    out[lane] = one[0] + one[1] + one[2] + one[3]


@pytest.mark.gpu
@pytest.mark.parametrize(("pitch", "conflicts"), [(8, 4), (16, 12), (32, 28), (12, 0), (20, 0), (36, 0)])
def test_bank_conflicts_of_ldmatrix(pitch, conflicts):
    if device.hardware():
        pytest.skip("counted on the emulated GPU")
    with counting() as counts:
        pitch_kernel[1, 32](device.empty(32), pitch)
    assert counts[0].shared_memory.conflicts == conflicts


def test_the_machine_code_has_the_instructions():
    names = ["tensor_tf32_kernel", "tensor_3xtf32_kernel", "tensor_float16_kernel"]
    kernels = [getattr(matmul_tensor, name) for name in names]
    try:
        reports = inspect_kernels([(kernel, kernel.py_func.signature) for kernel in kernels], ["8.0"])
    except NoCompiler as error:
        pytest.skip(str(error))
    for report, multiply in zip(reports, ["HMMA.1688.F32.TF32"] * 2 + ["HMMA.16816.F32"], strict=True):
        if report.language != "SASS":
            pytest.skip("there is no disassembler")
        assert report.local_bytes == 0
        assert all(instruction in report.listing() for instruction in (multiply, "LDSM", "LDGSTS"))
        assert "FFMA" not in report.listing()
