"""Reports: metrics by hand, stall reasons, and advice only where there is a fault."""

import json
import math
import re
import runpy
from pathlib import Path

import gpuless

# isort: split
import numpy as np
import pytest
from numba import cuda, float32, int32
from products import zeros
from test_running import PLAIN, call

from gpuless.profile.metrics import telling
from gpuless.profile.stalls import REASONS
from gpuless.profile.units import SHARED_UNITS, UNITS

if not gpuless.select().emulated:
    pytest.skip("runs kernels on the emulated GPU", allow_module_level=True)
pytest.importorskip("scipy", reason="solves linear programs")

PROGRAM = Path(__file__).with_name("report_program.py")


@cuda.jit
def copy(x, y):
    i = cuda.grid(1)
    if i < y.size:
        y[i] = x[i]


@cuda.jit
def transpose(x, y, tile_width):
    tile = cuda.shared.array(0, float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    row, col = cuda.blockIdx.y * 32, cuda.blockIdx.x * 32
    tile[ty * tile_width + tx] = x[row + ty, col + tx]
    cuda.syncthreads()
    y[col + ty, row + tx] = tile[tx * tile_width + ty]


@cuda.jit
def alternate(x, y, n, together):
    i = cuda.grid(1)
    value = x[i]
    if i // together % 2:
        for k in range(n):
            value = value * value + x[k]
    else:
        for k in range(n):
            value = value / (value + x[k])
    y[i] = value


@cuda.jit
def histogram(x, bins):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(bins, x[i], 1)


@cuda.jit
def root(x, y, n, one):
    i = cuda.grid(1)
    value = x[i] * one
    for _ in range(n):
        value = value * value + one
    y[i] = value


@cuda.jit
def chased(x, y, n):
    i = cuda.grid(1)
    at = x[i]
    for _ in range(n):
        at = x[at]
    y[i] = at


@cuda.jit
def uneven(x, y, threads):
    tile = cuda.shared.array(256, int32)
    t = cuda.threadIdx.x
    at = 0
    if t < threads:
        at = x[x[x[x[x[x[x[x[t]]]]]]]]
    tile[t] = at
    cuda.syncthreads()
    y[cuda.grid(1)] = tile[255 - t]


def copied(gpu="T4", n=1 << 20, threads=256):
    return gpuless.profile(copy[n // threads, threads], gpu)(zeros(n), zeros(n))


# --- Metrics ------------------------------------------------------------------------------------------------


def test_metrics_of_a_copy_by_hand():
    n = 1 << 20
    report = copied(n=n)
    metrics, sectors = report.metrics, 4 * n // 32
    assert metrics["gpu__time_duration.sum"] == pytest.approx(1000 * report.microseconds)
    assert metrics["launch__grid_size"] == n // 256
    assert metrics["launch__block_size"] == 256
    assert metrics["launch__waves_per_multiprocessor"] == pytest.approx(n / 256 / (40 * 4))
    assert metrics["launch__occupancy_limit_warps"] == 4
    assert metrics["sm__maximum_warps_per_active_cycle_pct"] == 100
    assert metrics["sm__warps_active.avg.pct_of_peak_sustained_active"] == pytest.approx(100, rel=0.01)
    for operation in ("ld", "st"):
        assert metrics[f"l1tex__t_sectors_pipe_lsu_mem_global_op_{operation}.sum"] == pytest.approx(sectors)
    assert metrics["lts__t_sectors_srcunit_tex_op_read.sum"] == pytest.approx(sectors)
    assert metrics["lts__t_sectors_srcunit_tex_op_write.sum"] == pytest.approx(sectors)
    assert metrics["l1tex__t_sector_pipe_lsu_mem_global_op_ld_hit_rate.pct"] == 0
    assert metrics["dram__bytes_read.sum"] == pytest.approx(4 * n, rel=0.02)
    assert metrics["dram__bytes.sum"] == pytest.approx(report.dram_bytes)
    instructions = report.modelled.counts.executed.sum() / report.modelled.traffic.warps * n / 32
    assert metrics["smsp__inst_executed.sum"] == pytest.approx(instructions)
    assert metrics["smsp__thread_inst_executed_per_inst_executed.ratio"] == 32


def test_shared_memory_takes_wavefronts_as_banks_conflict():
    def wavefronts(width):
        launch = transpose[(32, 32), (32, 32), 0, 4 * 33 * 32]
        metrics = gpuless.profile(launch, "T4")(zeros(1024, 1024), zeros(1024, 1024), width).metrics
        return [metrics[f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum"] for op in ("ld", "st")]

    warps = 1024 * 1024 / 32
    assert wavefronts(32) == pytest.approx([32 * warps, warps])
    assert wavefronts(33) == pytest.approx([warps, warps])


def test_metrics_have_the_names_of_nsight_compute():
    metrics = copied("RTX 3080").metrics
    form = re.compile(r"(gpu|sm|smsp|l1tex|lts|dram)__\w+\.\w[\w.]*|launch__\w+|sm__maximum_warps_\w+_pct")
    assert [name for name in metrics if not form.fullmatch(name)] == []
    assert all(math.isfinite(value) and value >= 0 for value in metrics.values())
    assert all(value <= 100.000001 for name, value in metrics.items() if "pct" in name)


def test_metrics_that_support_each_verdict():
    metrics = copied().metrics
    for bound in (*UNITS, *SHARED_UNITS, "latency"):
        found = telling(metrics, bound)
        assert found.items() <= metrics.items()
        assert 5 < len(found) <= 12, bound
    assert copied().bound == "DRAM"
    assert gpuless.profile(chased[4, 32], "T4")(*[zeros(128, dtype=np.int32)] * 2, 500).bound == "latency"
    assert "launch__waves_per_multiprocessor" in telling(metrics, "latency")
    assert "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum" in telling(metrics, "L1")


def test_floating_point_operations_by_hand():
    report = gpuless.profile(root[64, 128], "T4")(zeros(64 * 128), zeros(64 * 128), 100, np.float32(1))
    assert report.flops == pytest.approx({"f32": 64 * 128 * (1 + 2 * 100)})


# --- What warps spend their time on ------------------------------------------------------------------------


@pytest.mark.exhaustive_unless(lambda gpu: gpu == "T4", "the same sums of another GPU's reports")
@pytest.mark.parametrize("gpu", ["T4", "A100"])
def test_stall_reasons_sum_to_one(gpu):
    launch = transpose[(32, 32), (32, 32), 0, 4 * 33 * 32]
    for report in (copied(gpu), gpuless.profile(launch, gpu)(zeros(1024, 1024), zeros(1024, 1024), 32)):
        assert set(report.stalls) <= set(REASONS)
        assert sum(report.stalls.values()) == pytest.approx(1, abs=1e-12)
        assert sum(report.lines.values()) == pytest.approx(1, abs=1e-12)
        latency = report.metrics["smsp__average_warp_latency_per_inst_issued.ratio"]
        ratios = [value for name, value in report.metrics.items() if "_issue_stalled_" in name]
        assert sum(ratios) == pytest.approx(latency)
        selected = report.metrics["smsp__average_warps_issue_stalled_selected_per_issue_active.ratio"]
        assert selected == pytest.approx(1)  # an instruction is issued in one cycle


def most(report):
    return max(report.stalls, key=report.stalls.get)


def test_stall_reasons():
    n = 1 << 16
    scattered = cuda.to_device(((np.arange(1 << 20) * 7919 + 100_003) % (1 << 20)).astype(np.int32))
    chase = gpuless.profile(chased[4, 32], "T4")(scattered, zeros(128, dtype=np.int32), 500)
    assert most(chase) == "long scoreboard"
    assert chase.stalls["long scoreboard"] > 0.7
    launch = root[n // 256, 256]
    assert most(gpuless.profile(launch, "T4")(zeros(n), zeros(n), 1000, 1.0)) == "math pipe throttle"
    launch = gpuless.profile(transpose[(32, 32), (32, 32), 0, 4 * 33 * 32], "T4")
    conflicts, none = (launch(zeros(1024, 1024), zeros(1024, 1024), width).stalls for width in (32, 33))
    assert conflicts["mio throttle"] > 2 * none["mio throttle"]
    assert none["barrier"] > 0
    assert "barrier" not in copied().stalls


def test_warps_wait_at_a_barrier_for_the_slowest_one():
    n = 1 << 14
    x, y = (zeros(n, dtype=np.int32) for _ in "xy")
    shares = []
    for threads in (32, 256):
        report = gpuless.profile(uneven[n // 256, 256], "A100")(x, y, threads)
        waited = {line: each["barrier"] for (_, line), each in report.line_stalls.items() if each["barrier"]}
        assert set(waited) <= {uneven.py_func.__code__.co_firstlineno + 8}
        shares.append(sum(waited.values()))
    assert shares[0] > 0.4 > 0.2 > shares[1]  # seven of eight warps do nothing else, or none


def test_the_line_that_waits_takes_the_time():
    report = copied()
    (file, line), share = max(report.lines.items(), key=lambda place: place[1])
    assert file == __file__
    assert line == copy.py_func.__code__.co_firstlineno + 4
    assert share > 0.8


# --- Advice ------------------------------------------------------------------------------------------------


def said(report, words):
    found = [text for text in report.advice if words in text]
    assert len(found) < 2
    return found[0] if found else ""


def test_diverging_lanes():
    n = 1 << 16
    parted, together = (
        gpuless.profile(alternate[n // 256, 256], "T4")(zeros(n), zeros(n), 100, threads)
        for threads in (1, 32)
    )
    line = alternate.py_func.__code__.co_firstlineno + 4
    assert said(parted, "go different ways").startswith(f"line {line} (`if i // together % 2:`)")
    assert "100% of the times" in said(parted, "go different ways")
    assert "16 of 32 work" in said(parted, "go different ways")
    assert not said(together, "go different ways")


def test_lanes_without_a_thread():
    assert "have a multiple of 32 threads, not 48" in said(copied(n=48 * 1000, threads=48), "no thread")
    assert not said(copied(n=96 * 1000, threads=96), "no thread")


def test_atomic_operations_that_wait_for_each_other():
    n = 1 << 18
    one = gpuless.profile(histogram[n // 256, 256], "T4")(zeros(n, dtype=np.int32), zeros(8, dtype=np.int32))
    line = histogram.py_func.__code__.co_firstlineno + 4
    advice = said(one, "atomic operations")
    assert advice.startswith(f"line {line} (`cuda.atomic.add(bins, x[i], 1)`): 2.62e+05 atomic operations")
    assert "1 sector does one after the other" in advice
    spread = cuda.to_device(np.arange(n, dtype=np.int32))
    few = gpuless.profile(histogram[n // 256, 256], "T4")(spread, zeros(n, dtype=np.int32))
    assert not said(few, "one after the other")


def test_float64_and_where():
    n = 1 << 14
    slow = gpuless.profile(root[n // 256, 256], "T4")(zeros(n), zeros(n), 100, 1.0)
    line = root.py_func.__code__.co_firstlineno + 5
    assert f"line {line} (`value = value * value + one`)" in said(slow, "float64 is slow")
    fast = gpuless.profile(root[n // 256, 256], "T4")(zeros(n), zeros(n), 100, np.float32(1))
    assert not said(fast, "float64")


def test_too_few_warps_and_how_many_would_do():
    x, y = zeros(1 << 16, dtype=np.int32), zeros(1 << 16, dtype=np.int32)
    few = gpuless.profile(chased[20, 32], "T4")(x, y, 100)
    assert "20 blocks leave 20 of 40 SMs without work: let a launch do more work" in said(few, "SMs")
    split = gpuless.profile(chased[10, 64], "T4")(x, y, 100)
    assert "10 blocks leave 30 of 40 SMs without work: let more, smaller blocks" in said(split, "SMs")
    some = gpuless.profile(chased[160, 32], "T4")(x, y, 100)
    assert said(some, "gives an SM 4 of the 16 warps that it has room for")
    spacious = chased[320, 64, 0, 30_000]
    held_back = gpuless.profile(spacious, "T4")(x, y, 100)
    assert "4 warps on an SM do not hide latency, " in said(held_back, "shared memory keep them away")
    assert not any("hide" in text or "SMs" in text for text in copied("RTX 3080").advice)


def test_a_nearly_empty_last_wave():
    n = 256 * (40 * 4 + 8)
    tail = gpuless.profile(root[n // 256, 256], "T4")(zeros(n), zeros(n), 500, np.float32(1))
    assert said(tail, "waves of blocks").startswith("1.05 waves of blocks: in the last one 95% of the GPU")
    n = 256 * 40 * 4
    whole = gpuless.profile(root[n // 256, 256], "T4")(zeros(n), zeros(n), 500, np.float32(1))
    assert not said(whole, "waves")


def test_code_without_a_file():
    names = {"cuda": cuda}
    source = "@cuda.jit\ndef copy(x, y):\n    i = cuda.grid(1)\n    y[i] = x[i]\n"
    exec(compile(source, "<a cell>", "exec"), names)
    report = gpuless.profile(names["copy"][256, 256], "RTX 3080")(zeros(1 << 16), zeros(1 << 16))
    assert not report.unsure
    assert max(report.lines, key=report.lines.get) == ("<a cell>", 4)


# --- The report as a whole ----------------------------------------------------------------------------------


def test_a_gpu_says_how_well_it_is_known():
    device = gpuless.profile.device
    known = {"none": {"rows": 0}, "few": {"rows": 3, "error": 0.05}, "far": {"rows": 50, "error": 0.4}}
    known |= {"well": {"rows": 50, "error": 0.1}}
    for name, changes in known.items():
        report = copied(device("T4", name=name, **changes))
        wide = report.high > 2 * report.microseconds
        assert wide == bool(report.unsure) == (name != "well"), name
        assert name != "far" or "50 published times on the far the model is 40% off" in report.unsure[0]


def test_a_report_is_plain_values():
    report = copied()
    known = json.loads(json.dumps(report.to_dict()))
    assert known["modelled"] is True
    assert known["gpu"] == "T4"
    assert known["microseconds"] == report.microseconds
    assert known["metrics"] == report.metrics
    assert known["lines"][0]["text"] == "y[i] = x[i]"
    assert known["occupancy"]["limited_by"] == ["warps"]


def test_a_report_is_drawn():
    pytest.importorskip("matplotlib")
    n = 1 << 14
    computing = gpuless.profile(root[n // 256, 256], "T4")(zeros(n), zeros(n), 100, np.float32(1))
    for report, words in ((computing, "Gflop/s"), (copied(), "no floating point operations")):
        figure = report.plot()
        figure.canvas.draw()
        busy, roofline, lines = figure.axes
        assert " modelled, " in figure.get_suptitle()
        units = [label.get_text() for label in busy.get_yticklabels()]
        assert units == [unit for unit, share in report.busy.items() if share >= 0.005]
        assert any(words in text.get_text() for text in roofline.texts)
        assert re.search(r"y\[i\] = |for _ in", lines.get_yticklabels()[0].get_text())
        widths = sum(patch.get_width() for patch in lines.patches)
        assert widths == pytest.approx(100, abs=1.5)


def test_two_processes_print_the_same(capsys):
    """This process, and one with other hashes and one thread for blocks."""
    runpy.run_path(str(PROGRAM), run_name="__main__")
    printed = capsys.readouterr().out
    status, other, error = call(*PLAIN, str(PROGRAM), PYTHONHASHSEED="1", GPULESS_THREADS="1")
    assert status == 0, error
    assert len(printed) > 10_000
    assert printed == other
