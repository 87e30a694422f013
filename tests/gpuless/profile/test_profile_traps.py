"""Traps for a model that counts machine code."""

import gpuless

# isort: split
import numpy as np
import pytest
from inlined_functions import neighbours_sum
from numba import cuda, float32
from products import zeros

from gpuless.inspector.control import read_control
from gpuless.profile.devices import DEVICES, KB, MB
from gpuless.profile.flow import blocks_of

if not gpuless.select().emulated:
    pytest.skip("runs kernels on the emulated GPU", allow_module_level=True)
pytest.importorskip("scipy", reason="solves linear programs")


def powers(n):
    """Return a kernel; all from here have the same name."""

    @cuda.jit
    def power(x, y):
        i = cuda.grid(1)
        total = x[i]
        for _ in range(n):
            total = total * total + float32(1)
        y[i] = total

    return power


def test_kernels_with_the_same_name_are_kept_apart():
    def profiled(n):
        return gpuless.profile(powers(n)[40, 32], "T4")(zeros(1280), zeros(1280)).microseconds

    short, long = profiled(100), profiled(10_000)
    assert long > 20 * short
    assert (profiled(10_000), profiled(100)) == (long, short)


@cuda.jit
def add_neighbours(x, y):
    i = cuda.grid(1)
    y[i] = neighbours_sum(x, i, 50)


def test_code_inlined_from_another_file_is_counted_on_its_lines():
    report = gpuless.profile(add_neighbours[40, 64], "T4")(zeros(2560), zeros(2560))
    counts = report.modelled.counts
    barriers = sum(
        times for step, times in zip(counts.steps, counts.executed, strict=True) if step.base == "BAR"
    )
    assert not counts.missed
    assert barriers == 40 * 2 * 2 * 50


@cuda.jit
def divide(x, y, z):
    i = cuda.grid(1)
    z[i] = x[i] / y[i]


def test_a_subroutine_returns():
    one, zero = cuda.to_device(np.ones(1 << 16, np.float32)), zeros(1 << 16)
    for divisor in (one, zero):  # the quick way, and the subroutine
        report = gpuless.profile(divide[256, 256], "T4")(one, divisor, zeros(1 << 16))
        assert any(step.opcode.startswith("CALL.REL.NOINC") for step in report.modelled.counts.steps)
        assert not report.modelled.counts.missed


def test_a_call_without_increment_is_a_jump_that_may_return():
    code = read_control(
        """.text.kernel:
        /*0000*/   MOV R4, 0x20 ;                       /* 0x0000002000047802 */
                                                        /* 0x000fe40000000f00 */
        /*0010*/   CALL.REL.NOINC `(.L_x_1) ;           /* 0x0000000000007944 */
                                                        /* 0x000fea0003c00000 */
        /*0020*/   EXIT ;                               /* 0x000000000000794d */
                                                        /* 0x000fea0003800000 */
.L_x_1:
        /*0030*/   RET.REL.NODEC R4 `(kernel) ;         /* 0x0000000004007950 */
                                                        /* 0x000fea0003c3ffff */"""
    )
    assert [block.targets for block in blocks_of(code)] == [(2, 1), (), ()]


@cuda.jit
def first_warp(x, y):
    t = cuda.threadIdx.x
    if t >= 32:
        return
    total = x[t]
    for _ in range(2000):
        total = total * total + float32(1)
    y[t] = total


@cuda.jit
def some_elements(x):
    i = cuda.grid(1)
    if i < x.size:
        for _ in range(100):
            x[i] = x[i] * x[i] + float32(1)


def test_warps_that_end_at_once_do_not_slow_down_the_others():
    """One warp of a block works: alone, or beside seven that end at once."""
    alone, beside = (
        gpuless.profile(first_warp[40, threads], "T4")(zeros(32), zeros(32)).microseconds
        for threads in (32, 256)
    )
    assert beside == pytest.approx(alone, rel=0.05)


def test_blocks_that_end_at_once_are_not_waited_for():
    """Of 4000 blocks the first tenth has elements to copy."""
    few, many = (
        gpuless.profile(some_elements[blocks, 128], "T4")(zeros(51200)).microseconds for blocks in (400, 4000)
    )
    assert few <= many < 3 * few


def test_the_figures_of_each_gpu_are_plausible():
    for name, device in DEVICES.items():
        assert device.name == name
        assert device.sm.shared <= device.l1 <= 256 * KB
        assert 0.7 < device.dram_share < 1
        assert 0.5 < device.clock < 3
        assert 512 * KB <= device.l2 <= 128 * MB
        assert device.l1_latency < device.l2_latency < device.dram_latency
        assert device.shared_latency < device.l2_latency
        # On every GPU memory is slower than L2, and pages of 2 KB that are read in order do not slow it down.
        assert device.slices * device.slice_bytes * device.l2_share * device.clock > device.dram
        assert device.channels * 2048 / device.opening > device.dram


def test_the_requested_gpus():
    names = (
        "GTX 1650, T4, V100, RTX 2080 Ti, A10G, A100 PCIe, A100 SXM, RTX 3060, RTX 3080, RTX 3090, A6000, L4"
    )
    assert {*names.split(", "), "RTX 4090", "H100 PCIe", "H100 SXM", "H200", "B200"} <= {*DEVICES}
    h100, h200 = DEVICES["H100 SXM"], DEVICES["H200"]
    assert (h200.dram, h200.sms, h200.clock, h200.cc) == (4800, h100.sms, h100.clock, h100.cc)


@pytest.mark.parametrize("gpu", ["GTX 1650", "V100", "L4", "H200", "B200"])
def test_machine_code_of_each_architecture_is_understood(gpu):
    n = 1 << 18
    report = gpuless.profile(powers(50)[n // 256, 256], gpu)(zeros(n), zeros(n))
    assert not report.modelled.counts.missed
    device = DEVICES[gpu]
    least = n * 4 / device.dram / 1e3  # L2 may keep what is written
    assert report.microseconds > max(least, device.launch)


def test_a_clock_can_be_set():
    n, slow = 1 << 16, gpuless.profile.device("H100", clock=0.8775, name="half an H100")
    whole, half = gpuless.profile(powers(5000)[n // 256, 256], ["H100", slow])(zeros(n), zeros(n))
    assert half.microseconds == pytest.approx(2 * whole.microseconds, rel=0.05)
