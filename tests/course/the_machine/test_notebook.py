"""Notebook 10: the machine, its figures, waves, latency, and kernels that wait."""

import inspect
import linecache
import re
import textwrap
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.colors import to_hex
from numba import cuda, float32, uint32

import gpuless
from benchmarks.rungs.conv_naive import place
from cnn_course.chapters.the_machine import exercises as checks, films, pictures as machine
from cnn_course.chapters.the_machine.exercises import evidence, waiting
from cnn_course.engine import notebooks, plots
from cnn_numba.data.files import CHECKOUT
from gpuless.inspector import architectures

NOTEBOOK = notebooks.read(CHECKOUT / "notebooks" / "10_the_machine.ipynb")


@pytest.fixture
def drawn(monkeypatch):
    """Collect drawn figures instead of making pictures."""
    figures = []
    monkeypatch.setattr(plots, "picture", lambda fig, *_: figures.append(fig))
    return figures


@pytest.mark.parametrize(("gpu", "capability"), [(machine.T4, (7, 5)), (machine.H100, (9, 0))])
def test_the_limits_are_those_that_the_inspector_knows(gpu, capability):
    known = architectures.ARCHITECTURES[capability]
    assert (gpu.warps, gpu.blocks, gpu.shared) == (known.warps, known.blocks, known.shared)
    assert gpu.block_shared == known.shared - known.shared_reserved
    # A multiply-add is two operations.
    assert gpu.sms * gpu.lanes * 2 * gpu.clock == pytest.approx(gpu.flops, rel=0.01)


def test_every_figure_of_the_table_has_a_named_source():
    _, *rows = machine.figures_table().splitlines()
    letters = {letter for row in rows for letter in re.search(r"   ([A-Z](, [A-Z])*)$", row)[1].split(", ")}
    assert letters == set(machine.SOURCES)


def test_latency_grows_with_distance():
    for gpu in machine.GPUS:
        cycles = [gpu.latency[part] for part in machine.PARTS if part in gpu.latency]
        assert cycles == sorted(cycles)


@pytest.mark.parametrize("part", machine.PARTS)
def test_a_part_is_highlighted_and_no_other(part, drawn):
    machine.machine_picture(highlight=part)
    thick = [box for box in drawn[0].axes[0].patches if box.get_linewidth() > 2]
    of_a_quarter = part in ("scheduler", "registers", "float32 lanes", "Tensor Cores")
    assert len(thick) == (4 if of_a_quarter else 1)


def test_nothing_is_highlighted_unless_asked_for(drawn):
    machine.machine_picture()
    assert not [box for box in drawn[0].axes[0].patches if box.get_linewidth() > 2]
    with pytest.raises(ValueError, match="not 'bank'"):
        machine.machine_picture("bank")


def test_a_highlight_is_described_in_words():
    assert machine.machine_picture("L2 cache").alt.endswith("; L2 cache in orange, with a thick frame.")
    assert "orange" not in machine.machine_picture().alt


@pytest.mark.parametrize(
    ("blocks", "per_sm", "words"),
    [
        (80, 2, "80 blocks, places for 80: 1 wave. In the last one 80 places are taken; over all, 100% of"),
        (161, 2, "161 blocks, places for 80: 3 waves. In the last one 1 place is taken; over all, 67% of"),
        (1, 1, "1 block, places for 40: 1 wave. In the last one 1 place is taken; over all, 2% of"),
    ],
)
def test_waves_are_counted(blocks, per_sm, words):
    assert words in machine.waves_picture(blocks, per_sm).caption


def test_a_wave_gives_each_multiprocessor_a_block_before_any_gets_two(drawn):
    machine.waves_picture(5, 2, sms=4)
    taken = [
        box.get_xy()[0] for box in drawn[0].axes[0].patches if plots.PAPER == to_hex(box.get_edgecolor())
    ]
    assert taken == [0, 1, 2, 3, 0]


def test_the_places_of_a_picture_are_distinguishable(drawn):
    """Every place is a square with an edge, however many there are."""
    for blocks, per_sm in ((401, 8), (401, 1), (161, 4)):
        machine.waves_picture(blocks, per_sm)
        fig = drawn.pop()
        fig.draw_without_rendering()
        heights = {round(box.get_window_extent().height / fig.dpi, 2) for box in fig.axes[0].patches}
        assert min(heights) > 0.08


@pytest.mark.parametrize(("warps", "busy"), [(1, 4), (4, 16), (12, 48), (16, 48)])
def test_a_scheduler_is_busy_as_often_as_a_warp_is_ready(warps, busy, drawn):
    machine.waiting_picture(warps)
    chart = np.asarray(drawn[0].axes[0].images[0].get_array())
    assert (chart[-1] > 0).sum() == busy
    assert (chart[:-1].sum(axis=0) <= 1).all()


def report(flops, dram_bytes, microseconds):
    return SimpleNamespace(
        flops={"f32": flops},
        dram_bytes=dram_bytes,
        microseconds=microseconds,
        low=0.6 * microseconds,
        high=2.5 * microseconds,
    )


REPORTS = {"idle": report(0.0, 1.0, 5.0), "left": report(4e6, 4e6, 50.0), "right": report(4e8, 4e6, 100.0)}


def test_kernels_are_drawn_where_the_reader_places_them():
    picture = machine.roofline_picture(REPORTS, machine.placed)
    assert "left at 1, with 80 GFLOP/s, 25% of the roof; right at 100, with 4e+03 GFLOP/s, 49%" in picture.alt
    assert "as your function places them" in picture.caption
    assert "idle" not in picture.alt
    wrong = machine.roofline_picture(REPORTS, lambda flops, *others: (flops, 2.0, 0.5))
    assert "left at 4e+06, with 1 GFLOP/s" in wrong.alt


@pytest.mark.parametrize("place", [lambda *kernel: ..., lambda *kernel: 1 / 0, lambda *kernel: (1.0, 2.0)])
def test_until_it_is_solved_the_kernels_are_pale(place, drawn):
    machine.roofline_picture(REPORTS, place)
    marks = [line for line in drawn[0].axes[0].lines if line.get_marker() not in ("None", "")]
    assert {mark.get_alpha() for mark in marks} == {0.3}
    places = [(mark.get_xdata()[0], mark.get_ydata()[0]) for mark in marks]
    np.testing.assert_allclose(places, [(1, 80), (100, 4000)])


def test_without_a_report_there_is_no_roofline():
    assert machine.roofline_picture({}, machine.placed) is None


def cell(name):
    return next(cell.source for cell in NOTEBOOK.cells if cell.id == name)


def test_the_check_models_the_kernel_that_the_reader_sees():
    shown = cell("window-kernel").strip()
    assert textwrap.dedent(inspect.getsource(evidence.window_kernel.py_func)).strip() == shown


@pytest.mark.gpu
def test_neighbouring_stores_move_a_fifteenth_of_the_bytes():
    namespace = {"cuda": cuda, "float32": float32, "uint32": uint32, "place": place}
    source = cell("dealt-kernel").split("\n\n\n")[0], cell("bias-relu-kernel-solution").split("```")[1][7:]
    x, out = (cuda.to_device(np.zeros((64, 32, 26, 26), np.float32)) for _ in "xo")
    moved = []
    for number, text in enumerate(source):
        name = f"<fifteenth {number}>"
        linecache.cache[name] = len(text), None, text.splitlines(True), name
        exec(compile(text, name, "exec"), namespace)
        kernel = namespace[("bias_relu_dealt_kernel", "bias_relu_kernel")[number]]
        report = gpuless.profile(kernel[x.size // 128, 128], "T4")(x, cuda.device_array(32, np.float32), out)
        moved.append(report.dram_bytes)
    assert round(moved[0] / moved[1]) == 15


def test_films_show_sectors_and_lanes():
    film = films.coalescing_film()
    assert "stride 1: 4 sectors; stride 2: 8 sectors; stride 4: 16 sectors; stride 8: 32 sectors" in film.alt
    assert len(film.png) + len(film.still.png) < 60_000


def test_the_text_matches_the_exercise():
    (solution,) = (cell.source for cell in NOTEBOOK.cells if cell.id == "warps-needed-solution")
    known = {
        (gpu.name, size): waiting._warps(
            gpu.latency["global memory"], gpu.bandwidth / 1e9, gpu.clock / 1e9, gpu.sms, size
        )
        for gpu in machine.GPUS
        for size in (4, 16)
    }
    said = [int(number) for number in re.findall(r"(?:comes|and) to (\d+) (?:of|with)", solution)]
    assert said == [known["T4", 4], known["H100 PCIe", 4], known["H100 PCIe", 16]]


def test_the_head_says_how_many_threads_a_t4_holds_and_runs():
    text, t4 = NOTEBOOK.cells[0].source, machine.T4
    assert f"a step for at most {t4.sms * machine.SCHEDULERS * 32} threads" in text
    assert f"it holds {t4.sms * t4.warps * 32:,}" in text


def test_the_checks_launch_few_threads_and_several_warps():
    cases = checks.warp_sums_kernel.inputs()
    assert sum(case.grid * case.block for case in cases) < 5000
    assert {case.block // 32 for case in cases} == {1, 2}


def test_sectors_per_request_matter_and_not_the_number_of_stores():
    @cuda.jit
    def stores_twice(x, bias, out):
        i = cuda.grid(1)
        if i < out.size:
            n, c, h, w = place(i, x.shape)
            out[n, c, h, w] = x[n, c, h, w] + bias[c]
            if out[n, c, h, w] < float32(0):
                out[n, c, h, w] = float32(0)

    assert checks.bias_relu_kernel(stores_twice).status == "solved"
