"""What notebook 10 draws and claims: the machine, its figures, waves, waiting, and kernels that wait."""

import re

import numpy as np
import pytest
from numba import cuda, float32

from cnn_course.chapters.the_machine import exercises as checks, pictures as machine
from cnn_course.engine import notebooks, plots
from cnn_numba.data.files import CHECKOUT
from cnn_numba.ops.conv.gpu_naive import place
from gpuless.inspector import architectures

NOTEBOOK = notebooks.read(CHECKOUT / "notebooks" / "10_the_machine.ipynb")


@pytest.fixture
def drawn(monkeypatch):
    """Collect the figures that are drawn instead of making pictures of them."""
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


def test_every_figure_of_the_table_has_a_source_that_is_named():
    _, *rows = machine.figures_table().splitlines()
    letters = {letter for row in rows for letter in re.search(r"   ([A-Z](, [A-Z])*)$", row)[1].split(", ")}
    assert letters == set(machine.SOURCES)


def test_the_further_something_lies_the_longer_it_takes():
    for gpu in machine.GPUS:
        cycles = [gpu.latency[part] for part in machine.PARTS if part in gpu.latency]
        assert cycles == sorted(cycles)


@pytest.mark.parametrize("part", machine.PARTS)
def test_a_part_is_highlighted_and_no_other(part, drawn):
    machine.machine_picture(highlight=part)
    thick = [box for box in drawn[0].axes[0].patches if box.get_linewidth() > 2]
    assert len(thick) == (4 if part in ("scheduler", "registers") else 1)


def test_nothing_is_highlighted_unless_asked_for(drawn):
    machine.machine_picture()
    assert not [box for box in drawn[0].axes[0].patches if box.get_linewidth() > 2]
    with pytest.raises(ValueError, match="not 'bank'"):
        machine.machine_picture("bank")


def test_a_highlight_is_told_in_words():
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
    shade = drawn[0].axes[0].images[0].get_array()
    # A multiprocessor's two places lie together.
    assert (np.asarray(shade)[:, 0] > 0).tolist() == [True, True, True, False, True, False, True, False]


@pytest.mark.parametrize(("warps", "busy"), [(1, 4), (4, 16), (12, 48), (16, 48)])
def test_a_scheduler_is_busy_as_often_as_a_warp_is_ready(warps, busy, drawn):
    machine.waiting_picture(warps)
    chart = np.asarray(drawn[0].axes[0].images[0].get_array())
    assert (chart[-1] > 0).sum() == busy
    assert (chart[:-1].sum(axis=0) <= 1).all()


@pytest.mark.parametrize(("compulsory", "tflops"), [(10.0, 51.0), (1000.0, 2.0)])
def test_a_computation_stands_on_the_roofline(compulsory, tflops, drawn):
    machine.roofline_picture(1000.0, compulsory)
    place = drawn[0].axes[0].lines[-1]
    assert (place.get_xdata()[0], place.get_ydata()[0]) == (1000.0 / compulsory, tflops)


@pytest.mark.parametrize(("compulsory", "limit"), [(10.0, "arithmetic"), (1000.0, "memory")])
def test_the_roofline_says_what_the_limit_is(compulsory, limit):
    assert machine.roofline_picture(1000.0, compulsory).caption.endswith(f": {limit} is the limit.")


def test_the_text_says_what_the_exercise_computes():
    (solution,) = (cell.source for cell in NOTEBOOK.cells if cell.id == "warps-needed-solution")
    known = {
        (gpu.name, size): checks._warps(
            gpu.latency["global memory"], gpu.bandwidth / 1e9, gpu.clock / 1e9, gpu.sms, size
        )
        for gpu in machine.GPUS
        for size in (4, 16)
    }
    said = [int(number) for number in re.findall(r"(?:comes|and) to (\d+) (?:of|with)", solution)]
    assert said == [known["T4", 4], known["H100 PCIe", 4], known["H100 PCIe", 16]]


def test_the_head_says_how_many_threads_a_t4_holds_and_runs():
    text, t4 = NOTEBOOK.cells[0].source, machine.T4
    assert f"a step for {t4.sms * machine.SCHEDULERS * 32:,} threads" in text
    assert f"holds {t4.sms * t4.warps * 32:,}" in text


def test_the_checks_launch_few_threads_and_several_warps():
    cases = checks.warp_sums_kernel.inputs()
    assert sum(case.grid * case.block for case in cases) < 5000
    assert {case.block // 32 for case in cases} == {1, 2}


def test_what_counts_is_sectors_a_request_and_not_how_often_is_stored():
    @cuda.jit
    def stores_twice(x, bias, out):
        i = cuda.grid(1)
        if i < out.size:
            n, c, h, w = place(i, x.shape)
            out[n, c, h, w] = x[n, c, h, w] + bias[c]
            if out[n, c, h, w] < float32(0):
                out[n, c, h, w] = float32(0)

    assert checks.bias_relu_kernel(stores_twice).status == "solved"
