"""A window of a launch's blocks gives the report of the whole grid, for every GPU and number of workers."""

import math

import gpuless

# isort: split
import numpy as np
import pytest
from numba import cuda, float32, int32
from products import multiply, multiply_tiled, zeros

from gpuless.emulator.run import recording
from gpuless.emulator.run.launch import Workers
from gpuless.inspector.architectures import occupancy_on
from gpuless.profile import windows
from gpuless.profile.devices import DEVICES
from gpuless.profile.machine_code import all_machine_codes
from gpuless.profile.model import Shape, predict
from gpuless.profile.sass_counts import count_machine_code
from gpuless.profile.traffic import traffic_of
from gpuless.profile.windows import Sample, Window, sample_of, window_of

if not gpuless.select().emulated:
    pytest.skip("runs kernels on the emulated GPU", allow_module_level=True)
pytest.importorskip("scipy", reason="solves linear programs")

GPUS = "T4", "RTX 2080 Ti"  # of one architecture: one compilation
TOLERANCE = 0.03


def below(n, high):
    return cuda.to_device(np.random.default_rng(1).integers(0, high, n, np.int32))


@cuda.jit
def reduce(x, out):
    part = cuda.shared.array(0, float32)  # as large as the launch says
    t = cuda.threadIdx.x
    part[t] = x[cuda.grid(1)]
    cuda.syncthreads()
    width = cuda.blockDim.x // 2
    while width > 0:
        if t < width:
            part[t] += part[t + width]
        cuda.syncthreads()
        width //= 2
    if t == 0:
        cuda.atomic.add(out, 0, part[0])


@cuda.jit
def transpose(x, y):
    i, j = cuda.grid(2)
    y[i, j] = x[j, i]


@cuda.jit
def histogram(x, bins):
    cuda.atomic.add(bins, x[cuda.grid(1)], int32(1))


@cuda.jit
def convolve(x, weights, y):
    i = cuda.grid(1)
    total = float32(0)
    for k in range(weights.size):
        at = i + k - weights.size // 2
        if 0 <= at < x.size:
            total += x[at] * weights[k]
    y[i] = total


@cuda.jit
def rims(x, y):
    """Do more work at the edge of an image."""
    j, i = cuda.grid(2)
    rim = i < 16 or j < 16 or i >= x.shape[0] - 16 or j >= x.shape[1] - 16
    total = float32(0)
    for k in range(60 if rim else 10):
        total += x[i, (j + k * 32) % x.shape[1]]
    y[i, j] = total


@cuda.jit
def more_and_more(x, y):
    """Increase the work of each block by the same amount."""
    i, block = cuda.grid(1), cuda.blockIdx.x
    total = float32(0)
    for k in range(block * block // 20000):
        total += x[(i + k * 977) % x.size]
    y[i] = total


@cuda.jit
def diverge(times, x, y):
    i = cuda.grid(1)
    total = float32(0)
    for k in range(times[i]):
        total += x[(i + k * 131) % x.size]
    y[i] = total


@cuda.jit
def ends(x, y):
    """Give the first and the last block far more work than all others."""
    i, times = cuda.grid(1), 8
    if cuda.blockIdx.x == 0 or cuda.blockIdx.x == cuda.gridDim.x - 1:
        times = 2000
    total = float32(0)
    for k in range(times):
        total += x[(i + k * 256) % x.size]
    y[i] = total


@cuda.jit
def halves(x, y):
    """Give the two halves of the grid and the middle different work."""
    i, part = cuda.grid(1), cuda.blockIdx.x * 5 // cuda.gridDim.x
    if part < 2:
        y[i] = x[i]
    elif part > 2:
        y[i] = x[i * 33 % x.size] + x[i * 65 % x.size]
    else:
        y[i] = float32(1)


@cuda.jit
def few(x, y):
    i = cuda.grid(1)
    total = float32(0)
    for k in range(400):
        total += x[(i + k * 64) % x.size]
    y[i] = total


@cuda.jit
def gather(order, x, y):
    i = cuda.grid(1)
    y[i] = x[order[i]]


CASES = {
    "product": lambda: (multiply[(16, 16), (16, 16)], *(zeros(256, 256) for _ in "abc")),
    "tiled product": lambda: (multiply_tiled[(24, 24), (16, 16)], *(zeros(384, 384) for _ in "abc")),
    "reduction": lambda: (reduce[2000, 256, 0, 1024], zeros(2000 * 256), zeros(1)),
    "transpose": lambda: (transpose[(64, 32), (8, 16)], zeros(512, 512), zeros(512, 512)),
    "histogram": lambda: (histogram[3000, 128], below(3000 * 128, 300), below(300, 1)),
    "convolution": lambda: (convolve[1000, 256], zeros(256000), zeros(9), zeros(256000)),
    "rims": lambda: (rims[(32, 32), (16, 16)], zeros(512, 512), zeros(512, 512)),
    "more and more": lambda: (more_and_more[1200, 128], zeros(1200 * 128), zeros(1200 * 128)),
    "divergence": lambda: (diverge[1500, 128], below(1500 * 128, 30), zeros(1 << 16), zeros(1500 * 128)),
    "ends": lambda: (ends[2000, 128], zeros(1 << 16), zeros(2000 * 128)),
    "halves": lambda: (halves[4000, 128], zeros(4000 * 128), zeros(4000 * 128)),
    "few blocks": lambda: (few[24, 256], zeros(1 << 14), zeros(24 * 256)),
    "gather": lambda: (gather[3000, 128], below(3000 * 128, 1 << 18), zeros(1 << 18), zeros(3000 * 128)),
}


def taken(launch, *arguments):
    """Return the launch without running it."""
    found = []
    with recording.taken_launches(found.append):
        launch(*arguments)
    return found[0]


def microseconds(launch, device, code, sample, window=window_of):
    shared = code.shared + launch.shared
    resident = occupancy_on(device.sm, math.prod(launch.block), code.registers, shared).blocks
    counts = count_machine_code(code.code, sample)
    part = window(sample, device, resident)
    assert part.blocks < launch.blocks or window is every_block
    traffic = traffic_of(sample, device, part, shared)
    return predict(device, counts, traffic, Shape(launch.blocks, launch.warps, resident)).microseconds


def every_block(sample, device, resident):
    return Window(device.sms, resident, sample.blocks, 0, 1.0)


@pytest.fixture
def little(monkeypatch):
    """Make windows smaller than small grids."""
    for name in ("_EFFORT", "_INSTRUCTIONS", "_SPREAD"):
        monkeypatch.setattr(windows, name, getattr(windows, name) >> 3)


@pytest.mark.exhaustive_unless(
    lambda case: case not in ("product", "reduction", "transpose", "convolution", "gather"),
    "the other cases, of which two have blocks that are all alike too",
)
@pytest.mark.usefixtures("little")
@pytest.mark.parametrize("case", CASES)
def test_a_window_matches_the_whole_grid(case):
    launch, *arguments = CASES[case]()
    kernel = launch.dispatcher
    launch = taken(launch, *arguments)
    code = all_machine_codes([(kernel, launch)], {DEVICES[GPUS[0]].code: None})[0][DEVICES[GPUS[0]].code]
    whole, sample = Sample(launch, launch.record((0, launch.blocks)), [1.0]), sample_of(launch)
    for gpu in GPUS:
        expected = microseconds(launch, DEVICES[gpu], code, whole, every_block)
        assert microseconds(launch, DEVICES[gpu], code, sample) == pytest.approx(expected, rel=TOLERANCE), gpu


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize("case", ["tiled product", "halves"])
def test_a_gpu_has_the_same_report_alone_and_among_several(case):
    launch, *arguments = CASES[case]()
    together = gpuless.profile(launch, GPUS)(*arguments)
    for gpu, report in zip(GPUS, together, strict=True):
        alone = gpuless.profile(launch, gpu)(*arguments)
        assert (str(alone), alone.microseconds, alone.lines) == (
            str(report),
            report.microseconds,
            report.lines,
        )


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize("case", ["tiled product", "histogram", "ends"])
def test_one_worker_and_several_record_the_same(case):
    launch, *arguments = CASES[case]()
    kernel, device = launch.dispatcher, DEVICES[GPUS[0]]
    launch = taken(launch, *arguments)
    code = all_machine_codes([(kernel, launch)], {device.code: None})[0][device.code]
    found = []
    for workers in (1, 2, 5):
        launch.workers = Workers(launch.workers.arena, workers)
        sample = sample_of(launch)
        found.append((microseconds(launch, device, code, sample), sample.totals[4:], list(sample.requests)))
    assert found[0] == found[1] == found[2]


@cuda.jit
def fails_late(x, y, limit):
    i = cuda.grid(1)
    y[i] = x[i] + float32(1)
    if cuda.blockIdx.x >= limit:
        y[i + (1 << 30)] = float32(0)


def test_arrays_keep_their_values_if_the_kernel_fails():
    y = cuda.to_device(np.full(600 * 128, 7, np.float32))
    with pytest.raises(Exception, match="fails_late"):
        gpuless.profile(fails_late[600, 128], "T4")(zeros(600 * 128), y, 599)
    assert (y.copy_to_host() == 7).all()


@cuda.jit
def wait_for_all(x, y):
    i = cuda.grid(1)
    x[i] += float32(1)
    cuda.cg.this_grid().sync()
    y[i] = x[x.size - 1 - i]


def test_blocks_that_wait_for_each_other_run_together(capfd):
    x, y = zeros(48 * 64), zeros(48 * 64)
    report = gpuless.profile(wait_for_all[48, 64], "T4")(x, y)
    assert report.modelled.traffic.warps == 48 * 2
    assert capfd.readouterr().err == ""
    assert not x.copy_to_host().any()
    small = gpuless.profile.device("T4", sms=1, name="a little GPU")
    with pytest.raises(ValueError, match=r"a little GPU: its 48 blocks wait for each other.* room for 16"):
        gpuless.profile(wait_for_all[48, 64], small)(x, y)


@cuda.jit
def square(x):
    i = cuda.grid(1)
    x[i] = x[i] * x[i]


def test_kernels_that_numba_cannot_compile_with_lines_are_named():
    with pytest.raises(
        RuntimeError, match=r"lines of square are not known.*Numba cannot compile it with them"
    ):
        gpuless.profile(square[1, 32], "T4")(cuda.to_device(np.zeros(32, np.float16)))


@pytest.mark.parametrize("name", ["<ipython-input-3>", "<string>", "a file.py"])
def test_a_kernel_without_a_file_is_counted(name):
    source = """
@cuda.jit
def scale(x, n):
    i = cuda.grid(1)
    for _ in range(n):
        x[i] = x[i] * float32(0.5) + float32(1)
"""
    names = {"cuda": cuda, "float32": float32}
    exec(compile(source, name, "exec"), names)
    report = gpuless.profile(names["scale"][64, 64], "T4")(zeros(64 * 64), 100)
    counts, warps = report.modelled.counts, report.modelled.traffic.warps
    fused = [at for at, step in enumerate(counts.steps) if step.base == "FFMA"]
    assert counts.executed[fused].sum() == pytest.approx(100 * warps)


@cuda.jit
def nothing():
    pass


@cuda.jit
def leave(x):
    i = cuda.grid(1)
    if i >= x.size:
        return
    x[i] += 1


@pytest.mark.parametrize(
    ("launch", "arguments"),
    [
        (nothing[1, 1], ()),
        (nothing[1 << 20, 32], ()),
        (leave[3, 1024], (0,)),
        (leave[(2, 3, 4), (2, 4, 8)], (1,)),
        (leave[1 << 16, 64], (1,)),
    ],
)
def test_tiny_launches(launch, arguments):
    report = gpuless.profile(launch, "T4")(*(zeros(n) for n in arguments))
    assert 2 < report.microseconds < 2000
    assert all(0 <= share <= 1 for share in report.busy.values())
    assert str(report)


def test_windows_are_spread_over_the_grid():
    for many, first, last in ((14, 1, 100), (62, 1, 5000), (5, 0, 5)):
        places = windows.spread(many, first, last)
        assert len(set(places)) == many
        assert first <= min(places)
        assert max(places) < last
        assert max(np.diff([first, *places, last])) <= 2 * math.ceil((last - first) / many)
