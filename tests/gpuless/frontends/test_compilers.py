"""The same kernels by both compilers on the emulated GPU: numba-cuda and numba-cuda-mlir."""

import importlib
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from fresh_python import program_text, python, run_pytest

import gpuless

if not gpuless.select().emulated:
    pytest.skip("about compilers that hand kernels to the emulated GPU", allow_module_level=True)

from gpuless import counts, emulator, frontends
from gpuless.emulator.translate.module import ModuleTranslator
from gpuless.frontends.numba_cuda_mlir import strides
from gpuless.inspector import inspect_kernel
from gpuless.profile import profile

pytestmark = pytest.mark.filterwarnings("ignore:Host array", "ignore:Grid size")
PACKAGES = {"numba-cuda": "numba", "numba-cuda-mlir": "numba_cuda_mlir"}


@pytest.fixture(scope="module", params=PACKAGES.values(), ids=PACKAGES)
def compiler(request):
    """Return a compiler's `cuda` and its types."""
    package = pytest.importorskip(request.param)
    types = package if request.param == "numba" else importlib.import_module(f"{request.param}.types")
    return SimpleNamespace(
        name=request.param, cuda=importlib.import_module(f"{request.param}.cuda"), types=types
    )


def test_both_hand_over_their_kernels(compiler):
    assert frontends.installed()
    assert compiler.cuda.get_current_device().compute_capability == (8, 0)


# --- What a kernel may do ----------------------------------------------------------------------------------


def scaled(cuda, types):
    @cuda.jit
    def kernel(x, factor, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = factor * x[i]

    def run(x):
        out = np.zeros_like(x)
        kernel[8, 32](x, np.float32(3), out)
        return out

    return run, lambda x: 3 * x


def from_the_end(cuda, types):
    @cuda.jit
    def kernel(x, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = x[i - 7]

    def run(x):
        out = np.zeros_like(x)
        kernel[8, 32](x, out)
        return out

    return run, lambda x: np.roll(x, 7)


def every_third(cuda, types):
    @cuda.jit
    def kernel(x, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = x[i]

    def run(x):
        out = cuda.device_array(x[::3].size, np.float32)
        kernel[8, 32](cuda.to_device(x)[::3], out)
        return out.copy_to_host()

    return run, lambda x: x[::3]


def transposed(cuda, types):
    @cuda.jit
    def kernel(x, out):
        tile = cuda.shared.array((16, 17), types.float32)
        col, row = cuda.grid(2)
        if row < x.shape[0] and col < x.shape[1]:
            tile[cuda.threadIdx.y, cuda.threadIdx.x] = x[row, col]
        cuda.syncthreads()
        row = cuda.blockIdx.x * 16 + cuda.threadIdx.y
        col = cuda.blockIdx.y * 16 + cuda.threadIdx.x
        if row < out.shape[0] and col < out.shape[1]:
            out[row, col] = tile[cuda.threadIdx.x, cuda.threadIdx.y]

    def run(x):
        image = x[:200].reshape(10, 20)
        out = np.zeros((20, 10), np.float32)
        kernel[(2, 2), (16, 16)](image, out)
        return out

    return run, lambda x: x[:200].reshape(10, 20).T


def by_columns(cuda, types):
    @cuda.jit
    def kernel(x, out):
        row, col = cuda.grid(2)
        if row < x.shape[0] and col < x.shape[1]:
            out[row, col] = 2 * x[row, col]

    def run(x):
        image = np.asfortranarray(x[:200].reshape(10, 20))
        out = np.zeros((10, 20), np.float32, order="F")
        kernel[(1, 2), (16, 16)](image, out)
        return out

    return run, lambda x: 2 * x[:200].reshape(10, 20)


def summed_by_shuffles(cuda, types):
    @cuda.jit
    def kernel(x, out):
        i = cuda.grid(1)
        value = x[i] if i < x.size else types.float32(0)
        for step in (16, 8, 4, 2, 1):
            value += cuda.shfl_down_sync(0xFFFFFFFF, value, step)
        if cuda.laneid == 0:
            cuda.atomic.add(out, 0, value)

    def run(x):
        out = np.zeros(1, np.float32)
        kernel[2, 128](np.round(8 * x), out)
        return out

    return run, lambda x: [np.round(8 * x).sum()]


def in_local_memory(cuda, types):
    @cuda.jit
    def kernel(x, out):
        i = cuda.grid(1)
        last = cuda.local.array(4, types.float32)
        if i < out.size:
            for j in range(4):
                last[j] = x[i + j]
            for j in range(4):
                out[i] += last[(i + j) % 4] * (j + 1)

    def expected(x):
        windows = np.lib.stride_tricks.sliding_window_view(x, 4)
        order = (np.arange(windows.shape[0])[:, None] + np.arange(4)) % 4
        return (np.take_along_axis(windows, order, 1) * np.arange(1, 5)).sum(1)

    def run(x):
        out = np.zeros(x.size - 3, np.float32)
        kernel[8, 32](x, out)
        return out

    return run, expected


def with_dynamic_shared_memory(cuda, types):
    @cuda.jit
    def kernel(x, out):
        held = cuda.shared.array(0, types.float32)
        i = cuda.threadIdx.x
        held[i + 10000] = x[i]
        cuda.syncthreads()
        out[i] = held[10127 - i]

    def run(x):
        out = np.zeros(128, np.float32)
        kernel[1, 128, 0, 40960](x, out)
        return out

    return run, lambda x: x[127::-1]


def by_a_device_function(cuda, types):
    @cuda.jit(device=True)
    def damped(value, times):
        for _ in range(times):
            value = math.sqrt(abs(value)) + value / 2
        return value

    @cuda.jit
    def kernel(x, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = damped(x[i], 3)

    def expected(x):
        for _ in range(3):
            x = np.sqrt(abs(x)) + x / 2
        return x

    def run(x):
        out = np.zeros_like(x)
        kernel[8, 32](x, out)
        return out

    return run, expected


def counted(cuda, types):
    @cuda.jit
    def kernel(x, bins):
        i = cuda.grid(1)
        if i < x.size:
            cuda.atomic.add(bins, int(min(max(x[i] + 2, 0), 3)), 1)

    def run(x):
        bins = np.zeros(4, np.int32)
        kernel[8, 32](x, bins)
        return bins

    return run, lambda x: np.bincount(np.clip(x + 2, 0, 3).astype(int), minlength=4)


def on_streams(cuda, types):
    @cuda.jit
    def kernel(x, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] += x[i]

    def run(x):
        first, second = cuda.stream(), cuda.stream()
        source, out = cuda.to_device(x, stream=first), cuda.to_device(np.zeros_like(x), stream=first)
        done = cuda.event()
        kernel[8, 32, first](source, out)
        done.record(first)
        done.wait(second)
        kernel[8, 32, second](source, out)
        second.synchronize()
        return out.copy_to_host()

    return run, lambda x: 2 * x


def from_a_table(cuda, types):
    table = np.arange(8, dtype=np.float32) ** 2

    @cuda.jit
    def kernel(x, out):
        known = cuda.const.array_like(table)
        i = cuda.grid(1)
        if i < out.size:
            out[i] = x[i] + known[i % 8]

    def run(x):
        out = np.zeros_like(x)
        kernel[8, 32](x, out)
        return out

    return run, lambda x: x + table[np.arange(x.size) % 8]


def in_half_precision(cuda, types):
    @cuda.jit
    def kernel(x, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = x[i] * x[i]

    def run(x):
        half = x.astype(np.float16)
        out = np.zeros_like(half)
        kernel[8, 32](half, out)
        return out.astype(np.float32)

    return run, lambda x: (x.astype(np.float16) ** 2).astype(np.float32)


def of_tuples(cuda, types):
    @cuda.jit
    def kernel(pair, numbers, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = pair[0][i] * numbers[0] + pair[1][i] * numbers[1]

    def run(x):
        a, b, out = cuda.to_device(x), cuda.to_device(x[::-1].copy()), cuda.device_array_like(x)
        kernel[8, 32]((a, b), (2.0, 3.0), out)
        return out.copy_to_host()

    return run, lambda x: 2 * x + 3 * x[::-1]


def after_the_others(cuda, types):
    @cuda.jit
    def kernel(x, out):
        grid, i = cuda.cg.this_grid(), cuda.grid(1)
        if i < x.size:
            x[i] *= 2
        grid.sync()
        if i < x.size:
            out[i] = x[x.size - 1 - i]

    def run(x):
        out = np.zeros_like(x)
        kernel[8, 32](x.copy(), out)
        return out

    return run, lambda x: 2 * x[::-1]


FEATURES = [
    *(scaled, from_the_end, every_third, transposed, by_columns, summed_by_shuffles, in_local_memory),
    *(with_dynamic_shared_memory, by_a_device_function, counted, on_streams, from_a_table, in_half_precision),
    *(of_tuples, after_the_others),
]


@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.__name__)
def test_a_kernel_computes_the_same(compiler, feature, rng):
    run, expected = feature(compiler.cuda, compiler.types)
    x = rng.standard_normal(250, np.float32)
    np.testing.assert_allclose(run(x), expected(x), rtol=1e-3, atol=1e-6)


def test_numba_cuda_mlir_asks_for_more_than_48_kb_itself(rng):
    cuda = pytest.importorskip("numba_cuda_mlir.cuda")

    @cuda.jit
    def kernel(x, out):
        held = cuda.shared.array(0, np.float32)
        i = cuda.threadIdx.x
        held[i + 15000] = x[i]
        cuda.syncthreads()
        out[i] = held[15127 - i]

    x, out = rng.standard_normal(128, np.float32), np.zeros(128, np.float32)
    kernel[1, 128, 0, 61440](x, out)
    np.testing.assert_array_equal(out, x[::-1])


# --- What goes wrong ---------------------------------------------------------------------------------------


#: In elements: no memory of a process is this far past an array, whatever earlier tests have left.
FAR = 1 << 36


def test_a_fault_names_array_line_and_thread(compiler):
    cuda = compiler.cuda

    @cuda.jit
    def astray_kernel(x, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = x[i + FAR]

    x, out = (cuda.to_device(np.zeros(100, np.float32)) for _ in range(2))
    with pytest.raises(Exception, match="CUDA_ERROR_ILLEGAL_ADDRESS") as caught:
        astray_kernel[4, 32](x, out)
    message = str(caught.value)
    assert "reading 4 bytes" in message
    assert "past the end of an array of 400 bytes (x)" in message
    assert "kernel astray_kernel, block (0, 0, 0), thread (0, 0, 0)" in message
    assert "test_compilers.py: out[i] = x[i + FAR]" in message


def test_a_fault_in_a_function_names_the_call(compiler):
    cuda = compiler.cuda

    @cuda.jit(device=True)
    def far_away(x, i):
        return x[i * FAR]

    @cuda.jit
    def calling_kernel(pair, out):
        i = cuda.grid(1)
        out[i] = far_away(pair[1], i)

    x, out = (cuda.to_device(np.zeros(32, np.float32)) for _ in range(2))
    with pytest.raises(Exception, match=r"past the end of .* \(pair\)") as caught:
        calling_kernel[1, 32]((out, x), out)
    assert "thread (1, 0, 0)" in str(caught.value)
    assert "return x[i * FAR]" in str(caught.value)


# --- What gpuless says of a launch -------------------------------------------------------------------------


def test_counts_match_the_kernel(compiler, rng):
    cuda = compiler.cuda

    @cuda.jit
    def add_kernel(x, y, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = x[2 * i] + y[i]

    x = rng.standard_normal(2000, np.float32)
    arrays = cuda.to_device(x), cuda.to_device(x[:1000]), cuda.device_array(1000, np.float32)
    found = counts.count(add_kernel)[8, 128](*arrays)
    assert found.kernel == "add_kernel"
    assert (found.global_loads.requests, found.global_loads.sectors) == (64, 375)
    assert found.global_stores.bytes_moved == 4000
    assert found.flops == 1000
    assert set(found.by_array) == {"x", "y", "out"}
    np.testing.assert_array_equal(arrays[2].copy_to_host(), x[::2] + x[:1000])


@pytest.mark.exhaustive_unless(
    lambda compiler: compiler != "numba", "test_inspector, whose kernels numba-cuda compiles"
)
def test_machine_code_is_inspected(compiler):
    cuda = compiler.cuda

    @cuda.jit
    def tenth_kernel(x, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = x[i] * 0.1

    report = inspect_kernel(tenth_kernel, "void(float32[::1], float32[::1])", cc="8.6")
    assert report.arguments == {"x": "float32[::1]", "out": "float32[::1]"}
    assert report.language == "SASS"
    assert 0 < report.registers < 64
    assert "x[i] * 0.1" in str(report.advice[0])
    # In the compiler's process this is an InspectionError, see test_inspector.
    with pytest.raises(ValueError, match="the kernel takes 2 arguments"):
        frontends.compiler_of(tenth_kernel).arguments_of(tenth_kernel, "void(float32[::1])")


@pytest.mark.exhaustive_unless(
    lambda compiler: compiler != "numba", "test_profile, whose kernels numba-cuda compiles"
)
def test_a_launch_is_modelled(compiler, rng):
    cuda = compiler.cuda

    @cuda.jit
    def strided_kernel(x, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = x[32 * i]

    x, out = cuda.to_device(rng.standard_normal(1 << 21, np.float32)), cuda.device_array(1 << 16, np.float32)
    report = profile(strided_kernel[256, 256], gpu="T4")(x, out)
    assert report.kernel == "strided_kernel"
    assert "DRAM" in report.limiter or "L2" in report.limiter or "L1" in report.limiter
    # 65,536 sectors of 32 bytes for each of x and out: the least that memory moves.
    assert report.dram_bytes >= 2.2e6


def blurring_kernel(compiler, barrier):
    """Return a kernel that sums three neighbours in shared memory, with a barrier or without."""
    cuda, types = compiler.cuda, compiler.types

    @cuda.jit
    def blur_kernel(x, out):
        tile = cuda.shared.array(64, types.float32)
        i = cuda.threadIdx.x
        tile[i] = x[i]
        if barrier:
            cuda.syncthreads()
        total = types.float32(0)
        for step in range(-1, 2):
            total += tile[(i + step) % 64]
        out[i] = total

    return blur_kernel


def test_a_kernel_is_stepped(compiler, rng):
    x, out = rng.standard_normal(64, np.float32), np.zeros(64, np.float32)
    gpuless.simulate(blurring_kernel(compiler, True))[1, 64](x, out)
    np.testing.assert_allclose(out, np.roll(x, 1) + x + np.roll(x, -1), rtol=1e-5)


SIDE = 32  # one compiler's name for the size of a warp


def test_numbers_are_not_named_after_names_of_the_compiler(compiler):
    pytest.importorskip("numba_cuda_mlir.cuda")
    cuda, types = compiler.cuda, compiler.types

    @cuda.jit
    def side_kernel(out):
        held = cuda.shared.array((SIDE, 1), types.float32)
        i = cuda.threadIdx.x
        held[i, 0] = SIDE * i + cuda.warpsize
        out[i] = held[i, 0]

    out = np.zeros(32, np.float32)
    gpuless.simulate(side_kernel)[1, 32](out)
    assert out.tolist() == [32 * i + 32 for i in range(32)]


def test_a_missing_barrier_is_found(compiler, rng):
    x, out = (compiler.cuda.to_device(rng.standard_normal(64, np.float32)) for _ in range(2))
    report = gpuless.sanitize(blurring_kernel(compiler, False))[1, 64](x, out)
    assert {finding.kind for finding in report.findings} == {"missing barrier"}
    assert "tile" in str(report)
    assert gpuless.sanitize(blurring_kernel(compiler, True))[1, 64](x, out).ok


def test_accesses_are_recorded(compiler, rng):
    x, out = (compiler.cuda.to_device(rng.standard_normal(64, np.float32)) for _ in range(2))
    trace = gpuless.record(blurring_kernel(compiler, True))[1, 64](x, out)
    assert trace.kernel == "blur_kernel"


def test_memory_can_be_looked_at(compiler):
    array = compiler.cuda.to_device(np.arange(12, dtype=np.float32).reshape(3, 4))
    seen = array[1:]._ary
    assert seen.tolist() == [[4, 5, 6, 7], [8, 9, 10, 11]]


def test_lanes_read_neighbours_as_fast(compiler, rng):
    """Types give strides, and thread ids are not negative: else lanes would be read one by one."""
    cuda = compiler.cuda

    @cuda.jit
    def product_kernel(a, b, c):
        col, row = cuda.grid(2)
        if row < c.shape[0] and col < c.shape[1]:
            total = np.float32(0)
            for k in range(a.shape[1]):
                total += a[row, k] * b[k, col]
            c[row, col] = total

    a, b = (cuda.to_device(rng.standard_normal((64, 64), np.float32)) for _ in range(2))
    c = cuda.device_array((64, 64), np.float32)
    with emulator.count_launches() as tallies:
        product_kernel[(2, 8), (32, 8)](a, b, c)
    kernel = tallies[0].launched.kernel
    text = ModuleTranslator(kernel.source, kernel.name, (32, 8, 1)).translate()
    assert "= load <32 x i32>" in text


RECORD = np.zeros(1, np.dtype([("a", np.int32), ("b", np.float64)]))
BEFORE = {
    "integer": 3,
    "bool": True,
    "complex": 1 + 2j,
    "half": np.float16(1),
    "tuples": ((1, 2.0), 3),
    "empty": (),
    "record": RECORD[0],
    "date": np.datetime64("2020-01-01"),
}


@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE)
def test_strides_are_known_behind_arguments_of_any_kind(before):
    cuda = pytest.importorskip("numba_cuda_mlir.cuda")

    @cuda.jit
    def behind_kernel(before, x, out):
        i, j = cuda.grid(2)
        if i < out.shape[0] and j < out.shape[1]:
            out[i, j] = x[i, j]

    x = np.arange(200, dtype=np.float32).reshape(20, 10)
    out = cuda.to_device(np.zeros((10, 5), np.float32))
    behind_kernel[(1, 1), (16, 16)](before, cuda.to_device(x)[10:, :5], out)  # whose rows are not contiguous
    np.testing.assert_array_equal(out.copy_to_host(), x[10:, :5])
    (result,) = behind_kernel.overloads.values()
    code, kernel = bytes(result.metadata["cubin"]).decode(), result.metadata["func_name"]
    last = sum(map(strides.count, result.signature.args)) - 1  # the last stride of `out`, which is contiguous
    assert f'"usual {kernel}_param_{last} = 1"' in code
    assert f'"usual {kernel}_param_{last - 1} =' not in code


def test_a_kernel_for_contiguous_arrays_is_right_for_others_too():
    """numba-cuda-mlir launches it with them: a GPU finds the strides among the arguments."""
    cuda = pytest.importorskip("numba_cuda_mlir.cuda")

    @cuda.jit
    def fill_kernel(out, value):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = value

    expected = np.zeros((5, 7), np.float32)
    out = cuda.to_device(expected)
    for value, index in enumerate([1, (slice(None), 2), (slice(None, None, 2), 4), 3], start=1):
        fill_kernel[1, 32](out[index], value)
        expected[index] = value
        np.testing.assert_array_equal(out.copy_to_host(), expected)


def test_an_argument_that_is_passed_in_another_way_is_left_alone():
    types = pytest.importorskip("numba_cuda_mlir.types")
    text = ".visible .entry f(\n\t.param .u64 f_param_0,\n\t.param .u64 f_param_1\n)\n"
    text += "{ ld.param.u64 \t%rd1, [f_param_4]; }"
    assert strides.with_usual_strides(text, "f", [types.float32[::1]]) == text


# --- Together, and in which order --------------------------------------------------------------------------

#: numba-cuda-mlir imports PyTorch if installed, which takes longer than all else in these programs.
_QUICKLY = "import sys; sys.modules['torch'] = None"

_KERNEL = """
from {package} import cuda
import numpy as np
@cuda.jit
def double(x):
    x[cuda.grid(1)] *= 2
x = np.ones(32, np.float32)
double[1, 32](x)
print(x.sum())
"""


@pytest.mark.exhaustive_unless(
    lambda first: first == "numba_cuda_mlir", "the tests above, whose process imports numba-cuda first"
)
@pytest.mark.parametrize("first", PACKAGES.values(), ids=PACKAGES)
def test_both_in_one_process(first):
    pytest.importorskip("numba_cuda_mlir")
    (second,) = set(PACKAGES.values()) - {first}
    texts = [_KERNEL.format(package=package) for package in (first, second)]
    assert python(_QUICKLY, "import gpuless", "gpuless.select()", *texts).split() == ["64.0", "64.0"]


def test_importing_numba_cuda_mlir_first_is_an_error_that_says_what_to_do():
    pytest.importorskip("numba_cuda_mlir")
    lines = [_QUICKLY, "from numba_cuda_mlir import cuda", "import gpuless", "gpuless.select()", "try:"]
    lines += [f"    exec({_KERNEL.format(package='numba_cuda_mlir')!r})"]
    lines += ["except RuntimeError as error: print(error)"]
    assert "call gpuless.select() first, or run the program with python -m gpuless" in python(*lines)


#: Hides numba-cuda, which otherwise replaces Numba's older `numba.cuda`.
_WITHOUT_NUMBA_CUDA = """
import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "numba_cuda" else find_spec(name, *rest)
"""


def test_numba_cuda_mlir_alone():
    pytest.importorskip("numba_cuda_mlir")
    lines = [_QUICKLY, _WITHOUT_NUMBA_CUDA, "import gpuless", "gpuless.select()"]
    lines += [_KERNEL.format(package="numba_cuda_mlir"), "from gpuless import frontends"]
    lines += ["import numba.cuda; print('numba_cuda' in numba.cuda.__file__, frontends.cuda() is cuda)"]
    lines += ["print(gpuless.sanitize(double)[1, 32](x))"]
    assert python(*lines).split("\n")[:2] == ["64.0", "False True"]


_KEPT = program_text("kept_by_numba_cuda_mlir.py")


def test_unchanged_programs_run_and_its_own_cache_keeps_kernels(tmp_path):
    pytest.importorskip("numba_cuda_mlir")
    (tmp_path / "program.py").write_text(_KEPT)
    starts = "import subprocess, sys; subprocess.run([sys.executable, 'program.py'], check=True)"
    for hits, command in enumerate((["program.py"], ["-c", starts])):
        command = [sys.executable, "-m", "gpuless", *command]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert done.stdout.split() == ["64.0", str(hits), "True", "True"], done.stderr


@pytest.mark.exhaustive("test_examples, whose suite it is one file of")
def test_an_unchanged_suite_runs():
    pytest.importorskip("numba_cuda_mlir")
    folder = Path(__file__).parents[3] / "examples"
    if not folder.exists():
        pytest.skip("a copy of the package without the examples")
    done = run_pytest("-p", "gpuless", "-n", "0", str(folder / "test_histogram_mlir.py"), cwd=folder)
    assert "5 passed" in done.stdout, done.stdout + done.stderr


def test_an_undefined_function_gives_the_message_of_ptxas(compiler):
    nowhere = compiler.cuda.declare_device("nowhere", compiler.types.int32(compiler.types.int32))

    @compiler.cuda.jit
    def kernel(out):
        out[0] = nowhere(1)

    with pytest.raises(Exception, match=r"INVALID_PTX.*Unresolved extern function 'nowhere'"):
        kernel[1, 1](np.zeros(1, np.int32))


@pytest.mark.parametrize("lto", [False, True])
def test_machine_code_is_not_linked(compiler, lto, tmp_path):
    from cuda.core import Program, ProgramOptions

    code = 'extern "C" __device__ int twice(int *found, int x) { *found = 2 * x; return 0; }'
    options = ProgramOptions(arch="sm_80", relocatable_device_code=True)
    (tmp_path / "twice.cubin").write_bytes(Program(code, "c++", options).compile("cubin").code)
    twice = compiler.cuda.declare_device("twice", "int32(int32)")

    @compiler.cuda.jit(link=[str(tmp_path / "twice.cubin")], lto=lto)
    def kernel(out):
        out[0] = twice(21)

    refused = r"the emulated GPU runs PTX and links no machine code: [<>\w.-]+ \(cubin\)"
    with pytest.raises(Exception, match=refused):
        kernel[1, 1](np.zeros(1, np.int32))


# --- What is numba-cuda-mlir's own: docs/numba-cuda-mlir.md names it ---------------------------------------


def test_mlir_quirk_a_nan_is_equal_to_itself():
    cuda = pytest.importorskip("numba_cuda_mlir.cuda")

    @cuda.jit
    def kernel(x, out):
        out[0] = x[0] != x[0]
        out[1] = math.isnan(x[0])

    out = np.zeros(2, np.bool_)
    kernel[1, 1](np.full(1, np.nan, np.float32), out)
    assert out.tolist() == [False, True], "fixed: delete it from docs/numba-cuda-mlir.md"


def test_mlir_quirk_a_mean_is_read_before_it_is_written():
    cuda = pytest.importorskip("numba_cuda_mlir.cuda")

    @cuda.jit
    def kernel(x, out):
        out[0], out[1], out[2] = np.sum(x), np.mean(x), np.var(x)

    out = np.zeros(3)
    kernel[1, 1](np.arange(6.0), out)
    np.testing.assert_equal(out, [15, np.nan, np.nan], "fixed: delete it from docs/numba-cuda-mlir.md")


def test_mlir_quirk_some_names_are_not_implemented():
    cuda = pytest.importorskip("numba_cuda_mlir.cuda")
    for ask in (lambda: cuda.vectorize(lambda x: x), lambda: cuda.compile_all(lambda x: None, "void(int32)")):
        with pytest.raises(NotImplementedError):
            ask()


def test_mlir_quirk_shared_arrays_in_functions_need_inlining():
    cuda = pytest.importorskip("numba_cuda_mlir.cuda")
    lines = [
        "def through_memory(x, i):",
        "    held = cuda.shared.array(32, np.float32)",
        "    held[i] = x[i]",
    ]
    lines += ["    total = held[0]", *[f"    total += held[i] * {n}" for n in range(40)], "    return total"]
    scope = {"cuda": cuda, "np": np}
    exec("\n".join(lines), scope)

    def launch(**options):
        function = cuda.jit(device=True, **options)(scope["through_memory"])

        @cuda.jit
        def kernel(x, out):
            i = cuda.threadIdx.x
            out[i] = function(x, i)

        out = np.zeros(32, np.float32)
        kernel[1, 32](np.ones(32, np.float32), out)
        return out

    np.testing.assert_array_equal(launch(inline="always"), 1 + sum(range(40)))
    with pytest.raises(Exception, match="compiler bug"):
        launch()


@pytest.mark.parametrize("aligned", [False, True])
def test_mlir_quirk_aligned_vectors_of_shared_arrays_are_treated_as_global(aligned):
    cuda = pytest.importorskip("numba_cuda_mlir.cuda")
    vector = pytest.importorskip("numba_cuda_mlir.cuda.vector")
    load = {False: lambda tile, i: vector.load(tile, i, 4), True: lambda tile, i: vector.load(tile, i, 4, 16)}
    load = cuda.jit(device=True)(load[aligned])

    @cuda.jit
    def kernel(out):
        tile, i = cuda.shared.array(128, np.float32, alignment=16), cuda.threadIdx.x
        for j in range(4):
            tile[4 * i + j] = 1
        cuda.syncthreads()
        vector.store(out, 4 * i, load(tile, 4 * i))

    out = np.zeros(128, np.float32)
    if aligned:
        with pytest.raises(Exception, match="ILLEGAL_ADDRESS"):
            kernel[1, 32](out)
    else:
        kernel[1, 32](out)
        assert out.min() == 1


def test_mlir_quirk_shuffles_of_float64_lose_digits():
    cuda = pytest.importorskip("numba_cuda_mlir.cuda")

    @cuda.jit
    def kernel(x, out):
        out[cuda.threadIdx.x] = cuda.shfl_sync(0xFFFFFFFF, x[cuda.threadIdx.x], 0)

    out = np.zeros(32)
    kernel[1, 32](np.full(32, 1 / 3), out)
    assert (out == np.float32(1 / 3)).all(), "fixed: delete it from docs/numba-cuda-mlir.md"


def test_mlir_quirk_a_counter_up_to_all_bits_stays_0():
    cuda = pytest.importorskip("numba_cuda_mlir.cuda")

    @cuda.jit
    def kernel(counters):
        cuda.atomic.inc(counters, 0, 0xFFFFFFFF)
        cuda.atomic.inc(counters, 1, 0x7FFFFFFF)

    counters = np.zeros(2, np.uint32)
    kernel[1, 4](counters)
    assert counters.tolist() == [0, 4], "fixed: delete it from docs/numba-cuda-mlir.md"


def test_mlir_quirk_atomics_on_shared_arrays_take_no_negative_index():
    cuda = pytest.importorskip("numba_cuda_mlir.cuda")

    @cuda.jit
    def kernel(out):
        tile = cuda.shared.array(4, np.int32)
        cuda.atomic.add(tile, -1, 1)
        out[0] = tile[3]

    with pytest.raises(Exception, match="ILLEGAL_ADDRESS"):
        kernel[1, 1](np.zeros(1, np.int32))


def test_mlir_quirk_a_graph_builder_is_no_stream():
    cuda = pytest.importorskip("numba_cuda_mlir.cuda")
    from cuda.core import Stream

    @cuda.jit
    def kernel(out):
        out[cuda.threadIdx.x] = 1

    on = cuda.stream()
    builder = Stream.from_handle(int(on)).create_graph_builder()
    kernel[1, 32, builder.stream]
    with pytest.raises(TypeError, match="Unsupported stream type"):
        kernel[1, 32, builder]
