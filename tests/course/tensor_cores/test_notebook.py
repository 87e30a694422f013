"""Notebook 17: which lane holds what, banks, errors, and the counts in the text."""

import re

import numpy as np
import pytest
from numba import cuda, float32
from solutions import solution_of

from cnn_course.chapters.tensor_cores import exercises as checks, pictures
from cnn_course.engine import notebooks, plots
from cnn_numba.data.files import CHECKOUT
from cnn_numba.ops.shared.tensor_cores import multiply_tf32
from gpuless.simulator import judge

NOTEBOOK = notebooks.read(CHECKOUT / "notebooks" / "17_tensor_cores.ipynb")


@pytest.fixture
def drawn(monkeypatch):
    """Collect drawn figures instead of making pictures."""
    figures, picture = [], plots.picture
    monkeypatch.setattr(plots, "picture", lambda fig, *texts: figures.append(fig) or picture(fig, *texts))
    return figures


def test_the_lanes_of_the_picture_match_the_exercise():
    for lane in range(32):
        for register in range(4):
            place = pictures._left(lane, register)
            assert checks.held_by.reference(*place) == (lane, register)


@pytest.mark.parametrize("title", pictures.FRAGMENTS)
def test_every_element_is_held_once(title):
    place, shape, registers = pictures.FRAGMENTS[title]
    held = {place(lane, register) for lane in range(32) for register in range(registers)}
    assert held == set(np.ndindex(shape))
    assert len(held) == 32 * registers


def test_a_lane_is_framed_in_all_three(drawn):
    caption = pictures.fragments_picture(31).caption
    assert [len(ax.patches) for ax in drawn[0].axes] == [4, 2, 4]
    assert "left (7, 3), (15, 3), (7, 7), (15, 7); right (3, 7), (7, 7); sums (7, 6), (7, 7), (15" in caption


def test_the_banks_are_counted(drawn):
    pitches = (8, 16, 32, 20, 36)
    caption = pictures.banks_picture(*pitches).caption
    assert "pitch 8: 2; pitch 16: 4; pitch 32: 8; pitch 20: 1; pitch 36: 1." in caption
    assert len(drawn[0].axes) == len(pitches)
    assert len(pictures.banks_picture(8).alt) > 40


def test_the_swizzle_of_the_text_has_no_conflicts():
    """At pitch 16, for any group of four words of eight rows."""
    for group in range(4):
        places = [(16 * row + 4 * (group ^ (row // 2 % 4))) % 32 for row in range(8)]
        assert sorted(places) == list(range(0, 32, 4))
    source = next(cell.source for cell in NOTEBOOK.cells if cell.id == "padding-after")
    assert "`g ^ (r // 2 % 4)`" in source
    assert pictures.turns(16) == 4


def test_the_turns_of_the_text_are_counted():
    source = next(cell.source for cell in NOTEBOOK.cells if cell.id == "predict-turns")
    assert (pictures.turns(8), pictures.turns(12)) == (2, 1)
    assert "two turns, eight for four matrices" in source
    assert "one turn, four for four matrices" in source


def test_the_text_about_modelled_products():
    """The A100 takes two thirds as long for 3xTF32; by the data sheet the unit alone takes less."""
    (shown,) = next(cell.outputs for cell in NOTEBOOK.cells if cell.id == "modelled")
    rows = re.findall(r"^(\S.*?)  +([\d.]+) us .*?  +([\d.]+) us \(", shown.data["text/plain"], re.MULTILINE)
    a100, h100 = ({name: float(row[i]) for name, *row in rows} for i in (0, 1))
    assert 0.6 < a100["3xTF32"] / a100["vectorised, FFMA"] < 0.72
    assert h100["3xTF32"] < h100["vectorised, FFMA"]
    flops = 2 * 1024**3
    least = {"3xTF32": 3 * flops / 156e6, "tf32": flops / 156e6, "float16": flops / 312e6}
    text = next(cell.source for cell in NOTEBOOK.cells if cell.id == "climb-after")
    said = "at least {:.0f} µs for 3xTF32, {:.0f} for tf32 and {:.0f} for float16"
    assert said.format(*least.values()) in text
    assert all(least[name] < a100[name] for name in least)


@pytest.mark.gpu
def test_the_compiler_is_not_asked_about_tensor_core_stand_ins(monkeypatch):
    """Asking would take a process for every answer."""
    asked = []
    monkeypatch.setattr(judge, "_ask", lambda *question: asked.append(question))
    kernel = solution_of("tensor_cores", "warp_product_kernel")
    assert checks.warp_product_kernel(kernel).status == "solved"
    assert not asked


def test_errors_are_described_in_words(drawn):
    picture = pictures.errors_picture({"FFMA": 1e-6, "tf32": 3e-4})
    assert "FFMA 1.0e-06; tf32 3.0e-04" in picture.caption
    assert len(drawn[0].axes[0].patches) == 2


@cuda.jit
def multiplies_in_half_a_warp(a, b, out):
    sums = float32(0), float32(0), float32(0), float32(0)
    if cuda.threadIdx.x < 16:
        sums = multiply_tf32((a[0, 0], a[0, 0], a[0, 0], a[0, 0]), (b[0, 0], b[0, 0]), sums)
    out[0, 0] = sums[0]


def test_an_instruction_that_some_lanes_bypass_has_its_name_in_the_kernel():
    verdict = checks.warp_product_kernel(multiplies_in_half_a_warp)
    assert verdict.mistake == "divergent warp"
    assert verdict.message.startswith(
        "Every lane of a warp has to reach `multiply_tf32`, and here some do not"
    )
    assert "Thread 0 of block 0 calls multiply_tf32 with mask 0xffffffff" in verdict.details[0]
    assert verdict.details[1].startswith("In `multiply_tf32`, called in line 5 of your kernel: ")
