"""`gpuless.profile`: counts that can be worked out by hand, and times that follow from them."""

import linecache
import re
from dataclasses import replace

import gpuless

# isort: split
import numpy as np
import pytest
from numba import cuda, float32
from products import multiply, multiply_tiled, zeros

from gpuless.emulator.run import recording
from gpuless.profile import sass_counts
from gpuless.profile.devices import DEVICES, Device
from gpuless.profile.held_against import HELD_AGAINST
from gpuless.profile.model import throughput
from gpuless.profile.report import Comparison

if not gpuless.select().emulated:
    pytest.skip("runs kernels on the emulated GPU", allow_module_level=True)
pytest.importorskip("scipy", reason="solves linear programs")


@cuda.jit
def copy(x, y):
    i = cuda.grid(1)
    if i < y.size:
        y[i] = x[i]


@cuda.jit
def copy_columns(x, y):
    i, j = cuda.grid(2)
    if i < y.shape[0] and j < y.shape[1]:
        y[i, j] = x[i, j]


@cuda.jit
def polynomial(x, y, n):
    i = cuda.grid(1)
    total, value = float32(0), x[i]
    for _ in range(n):
        total = total * value + float32(1)
    y[i] = total


@cuda.jit
def multiply_register_tiled(a, b, c):
    """Tiles of 64 by 64; each thread computes four by four."""
    tile_a, tile_b = cuda.shared.array((16, 64), float32), cuda.shared.array((16, 64), float32)
    sums = cuda.local.array((4, 4), float32)
    t = cuda.threadIdx.x
    tx, ty = t % 16, t // 16
    row, col = cuda.blockIdx.y * 64, cuda.blockIdx.x * 64
    for i in range(4):
        for j in range(4):
            sums[i, j] = float32(0)
    for start in range(0, a.shape[1], 16):
        for more in range(4):
            tile_a[tx, ty + 16 * more] = a[row + ty + 16 * more, start + tx]
            tile_b[t // 64 + 4 * more, t % 64] = b[start + t // 64 + 4 * more, col + t % 64]
        cuda.syncthreads()
        for k in range(16):
            for i in range(4):
                for j in range(4):
                    sums[i, j] += tile_a[k, ty + 16 * i] * tile_b[k, tx + 16 * j]
        cuda.syncthreads()
    for i in range(4):
        for j in range(4):
            c[row + ty + 16 * i, col + tx + 16 * j] = sums[i, j]


def test_a_copy_takes_as_long_as_memory_does():
    n = 1 << 23
    report = gpuless.profile(copy[n // 256, 256], "T4")(zeros(n), zeros(n))
    device = report.device
    least = 4 * n * (1 + device.writing) / (device.dram * device.dram_share) / 1e3
    assert report.microseconds == pytest.approx(least + device.launch, rel=0.08)
    assert report.low < report.microseconds < report.high
    assert report.dram_bytes == pytest.approx(8 * n, rel=0.08)  # not all written data leaves L2
    assert report.limiter.startswith("DRAM")
    assert report.occupancy.warps == 32
    assert report.l1_hit_rate == 0


def test_multiply_adds_are_counted():
    n = 50
    report = gpuless.profile(polynomial[64, 128], "T4")(zeros(64 * 128), zeros(64 * 128), n)
    counts = report.modelled.counts
    fused = [at for at, step in enumerate(counts.steps) if step.base == "FFMA"]
    assert counts.executed[fused].sum() == pytest.approx(n * report.modelled.traffic.warps)
    assert not counts.missed
    stores = [at for at, step in enumerate(counts.steps) if step.base == "STG"]
    assert counts.executed[stores].sum() == pytest.approx(report.modelled.traffic.warps)


def test_a_lone_warp_waits_once_for_loads_before_a_loop():
    """A round takes as long as on an H100: benchmarks/modelled/gaps-h100.json."""
    few, many = (
        gpuless.profile(polynomial[132, 128], "H100")(zeros(132 * 128), zeros(132 * 128), n)
        for n in (1000, 4000)
    )
    assert many.microseconds - few.microseconds == pytest.approx(42.59 - 11.57, rel=0.2)


def test_uncoalesced_accesses_are_slower_and_named():
    x, y = zeros(2048, 2048), zeros(2048, 2048)
    report = gpuless.profile(copy_columns[(64, 256), (32, 8)], "T4")(x, y)
    row_by_row = gpuless.profile(copy[1 << 14, 256], "T4")(zeros(1 << 22), zeros(1 << 22))
    assert report.microseconds > 2 * row_by_row.microseconds
    assert any("32 sectors per request, 4 would do" in text for text in report.advice)
    assert not any("sectors per request" in text for text in row_by_row.advice)


def advice_about_a_tile(index, block=(32, 32)):
    """Return the advice about the line that reads a tile of 32 by 64 with such an index."""
    program = f"""
def turned(x, y):
    tile = cuda.shared.array((32, 64), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    for r in range(ty, 32, cuda.blockDim.y):
        tile[r, tx], tile[r, tx + 32] = x[r, tx], x[r, tx + 32]
    cuda.syncthreads()
    y[ty, tx] = tile[{index}]
"""
    names = {"cuda": cuda, "float32": float32}
    linecache.cache["<turned>"] = len(program), None, program.splitlines(keepends=True), "<turned>"
    exec(compile(program, "<turned>", "exec"), names)
    report = gpuless.profile(cuda.jit(names["turned"])[40, block], "RTX 3080")(zeros(32, 64), zeros(32, 64))
    return [text for text in report.advice if "wavefronts" in text]


def test_longer_rows_are_advised_for_column_accesses():
    (text,) = advice_about_a_tile("tx, ty")
    assert "`y[ty, tx] = tile[tx, ty]`): a load of shared memory takes 32 wavefronts, 1 would do" in text
    assert "64 elements apart, as down a column: rows that are one element longer" in text


@pytest.mark.parametrize(("index", "block"), [("ty, 2 * tx", (32, 32)), ("ty, 2 * tx + 1", (16, 16))])
def test_neighbouring_elements_are_advised_for_a_stride(index, block):
    (text,) = advice_about_a_tile(index, block)
    assert (
        "takes 2 wavefronts, 1 would do: neighbouring threads are 2 elements apart: let neighbouring" in text
    )
    assert "longer" not in text


def test_both_are_advised_for_scattered_lanes():
    (text,) = advice_about_a_tile("ty, 2 * (tx * tx % 32)")
    assert "lanes want different words of one bank; down a column" in text
    assert text.endswith("and elsewhere let neighbouring threads use neighbouring elements")


def test_repeated_loads_hit_in_caches():
    @cuda.jit
    def same(x, y):
        total = float32(0)
        for i in range(64):
            total += x[i]
        y[cuda.grid(1)] = total

    report = gpuless.profile(same[400, 128], "T4")(zeros(64), zeros(400 * 128))
    sectors = 64 * 4 // 32
    # Each SM loads the array once; all other requests hit in L1.
    assert report.l1_hit_rate > 1 - sectors * 2 / (64 * 4)


@pytest.mark.exhaustive_unless(lambda gpu: gpu == "T4", "the same model with another GPU's numbers")
@pytest.mark.parametrize("gpu", ["T4", "A100", "H100"])
def test_each_rung_of_the_product_is_faster(gpu):
    a, b, c = (zeros(2048, 2048) for _ in "abc")
    rungs = [(multiply, (128, 128), (16, 16)), (multiply_tiled, (128, 128), (16, 16))]
    rungs += [(multiply_register_tiled, (32, 32), 256)]
    times = [gpuless.profile(k[grid, block], gpu)(a, b, c).microseconds for k, grid, block in rungs]
    assert times[0] > times[1] > times[2]
    least = 2 * 2048**3 / (DEVICES["H100 SXM"].sms * 128 * 2 * 1.755e3)
    assert times[2] > least


def test_the_same_launch_takes_the_same_time():
    def profiled():
        return gpuless.profile(multiply_tiled[(20, 20), (16, 16)], ["T4", "RTX 3090"])(
            *(zeros(320, 320) for _ in "abc")
        )

    first, again = profiled(), profiled()
    assert [report.microseconds for report in first] == [report.microseconds for report in again]
    assert str(first) == str(again)
    assert [str(report) for report in first] == [str(report) for report in again]


def test_arrays_keep_their_values(rng):
    host = rng.random(1000).astype(np.float32)
    x, y = host.copy(), rng.random(1000).astype(np.float32)
    kept = y.copy()
    with pytest.warns(match="Host array"):
        gpuless.profile(copy[8, 128], "T4")(x, y)
    np.testing.assert_array_equal(y, kept)
    np.testing.assert_array_equal(x, host)
    on_device = cuda.to_device(kept)
    gpuless.profile(copy[8, 128], "T4")(cuda.to_device(host), on_device)
    np.testing.assert_array_equal(on_device.copy_to_host(), kept)


def test_several_gpus_are_compared_side_by_side():
    n = 1 << 16
    compared = gpuless.profile(copy[n // 256, 256], gpu=["T4", "A100"])(zeros(n), zeros(n))
    assert isinstance(compared, Comparison)
    assert [report.device.name for report in compared] == ["T4", "A100 SXM"]
    text = str(compared)
    assert "modelled" in text.splitlines()[2]
    assert all(len(line) <= 90 for line in text.splitlines())


def test_a_report_says_that_it_is_modelled():
    n = 1 << 16
    report = gpuless.profile(copy[n // 256, 256], "H100")(zeros(n), zeros(n))
    text = str(report)
    assert text.startswith("copy[256, 256] on H100 SXM: ")
    assert text.splitlines()[0].endswith(" modelled")
    assert re.search(r"^range       [\d.]+ us to [\d.]+ us, four times out of five$", text, re.MULTILINE)
    assert report.unsure  # no published times
    # A window of JupyterLab breaks longer lines within a word, and the name of a kernel is soon long.
    long = replace(report, kernel="conv2d_pool_backward_weight_sparse_kernel", grid=(1000, 1000, 60))
    assert all(len(line) <= 90 for line in f"{text}\n{long}".splitlines())
    assert all(len(line) <= 90 for line in str(Comparison([long])).splitlines())


def test_a_custom_gpu():
    slow = gpuless.profile.device("T4", clock=0.675, name="half a T4")
    assert isinstance(slow, Device)
    n = 1 << 16
    whole, half = gpuless.profile(polynomial[n // 256, 256], ["T4", slow])(zeros(n), zeros(n), 2000)
    assert (half.microseconds - 2.5) / (whole.microseconds - 2.5) == pytest.approx(2, rel=0.05)


def test_other_hardware_was_compared_with_nothing():
    device = gpuless.profile.device
    known = device("RTX 4090")
    assert (known.rows, known.error) == HELD_AGAINST["RTX 4090"]
    other = device("RTX 4090", name="RTX 4070", sms=46, dram=504)
    assert (other.rows, other.error) == (0, 0.0)
    n = 1 << 10
    report = gpuless.profile(copy[n // 256, 256], other)(zeros(n), zeros(n))
    assert report.unsure == ("the model of the RTX 4070 was held against no published times",)
    # The same GPU with another name or clock, and a count that is given
    for same in (device(known, name="mine", clock=2.2, nvlink=50), device(known, sms=known.sms)):
        assert (same.rows, same.error) == (known.rows, known.error)
    given = device(known, sms=46, rows=12)
    assert (given.rows, given.error) == (12, 0.0)


def test_unknown_gpus_and_parameters_are_named():
    with pytest.raises(ValueError, match=r"gpu 'RTX 3081' is not known.*did you mean 'RTX 3080'"):
        gpuless.profile(copy[1, 32], "RTX 3081")
    with pytest.raises(TypeError, match="a device has no sm"):
        gpuless.profile.device("T4", sm=3)
    with pytest.raises(ValueError, match=r"positive numbers, got clock=-1, sms=0"):
        gpuless.profile.device("T4", sms=0, clock=-1, l2_latency=300)
    with pytest.raises(TypeError, match=r"got copy without one: write copy\[grid, block\]"):
        gpuless.profile(copy, "T4")
    with pytest.raises(ValueError, match="no GPU"):
        gpuless.profile(copy[1, 32], [])


def test_without_lines_there_is_no_time(monkeypatch):
    @cuda.jit
    def nameless(x, y):
        y[0] = x[0]

    forgetful = lambda self, module: vars(self).update(module=module)  # noqa: E731
    monkeypatch.setattr(recording.lines.Origin, "__init__", forgetful)
    with pytest.raises(RuntimeError, match="lines of nameless are not known"):
        gpuless.profile(nameless[1, 32], "T4")(zeros(4), zeros(4))


def test_without_a_solver_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "scipy.optimize", None)
    with pytest.raises(sass_counts.NoSolver, match=r"pip install gpuless\[profile\]"):
        gpuless.profile(copy[1, 32], "T4")(zeros(32), zeros(32))


def test_customers_queue():
    assert throughput(1, [2.0, 3.0], 5.0) == pytest.approx(0.1)
    for customers in (1, 3, 10, 100):
        served = throughput(customers, [2.0, 3.0], 50.0)
        assert served <= min(1 / 3, customers / 55) + 1e-12
        assert served > 0.7 * min(1 / 3, customers / 55)


def test_the_function_has_the_name_of_the_package():
    import gpuless.profile.devices

    assert callable(gpuless.profile)
    assert "T4" in gpuless.profile.devices()
