"""Notebook 00: the race that a reader sees, and pictures with descriptions."""

import base64
import re

import numpy as np
import pytest
from numba import cuda

from cnn_course.chapters.start_here import exercises as checks, pictures as start
from cnn_course.engine import notebooks, plots
from cnn_course.engine.outline import NOTEBOOKS as OUTLINE, PARTS
from cnn_numba import device
from cnn_numba.data.files import CHECKOUT

NOTEBOOK = notebooks.read(CHECKOUT / "notebooks" / "00_start_here.ipynb")
CODE = [cell for cell in NOTEBOOK.cells if cell.cell_type == "code"]


@pytest.fixture
def drawn(monkeypatch):
    """Collect drawn figures instead of making pictures."""
    figures = []
    monkeypatch.setattr(plots, "picture", lambda fig, *_: figures.append(fig))
    return figures


def test_the_first_kernel_comes_after_few_words():
    place = [cell.id for cell in NOTEBOOK.cells].index("first-kernel")
    words = " ".join(cell.source for cell in NOTEBOOK.cells[:place] if cell.cell_type == "markdown").split()
    assert len(words) < 500
    assert [cell.id for cell in CODE[:4]] == ["colab", "setup", "destination", "first-kernel"]


def test_the_kernel_of_the_race_is_the_one_to_repair():
    sources = {cell.id: cell.source for cell in CODE}
    racing, stub = (
        [line.split("#")[0].rstrip() for line in sources[name].split("\n\n\n")[0].splitlines()[-4:]]
        for name in ("race-kernel", "count-kernel-stub")
    )
    assert racing == stub


@pytest.mark.skipif(device.simulated(), reason="the simulator runs one thread after the other")
def test_the_race_loses_pixels_and_the_repair_none(rng):
    digits = rng.integers(0, 256, (50, 28, 28), dtype=np.uint8)
    right = np.bincount(digits.ravel() // 16, minlength=16)
    counted = []
    for kernel in (checks._losing_kernel, _repaired_kernel):
        counts = cuda.to_device(np.zeros(16, np.int32))
        kernel[(1, 1, 50), (32, 32, 1)](cuda.to_device(digits), counts)
        counted.append(counts.copy_to_host())
    assert (counted[0] < right).all()
    assert (counted[1] == right).all()


@cuda.jit
def _repaired_kernel(digits, counts):
    column, row, n = cuda.grid(3)
    if row < digits.shape[1] and column < digits.shape[2]:
        cuda.atomic.add(counts, digits[n, row, column] // 16, 1)


def test_the_checks_see_pixels_that_overflow_and_pixels_that_do_not():
    values = np.concatenate([case.args[0].ravel() for case in checks.brighten_kernel.inputs()])
    assert {0, 127, 128, 255} <= set(values.tolist())


def test_each_digit_gets_its_answer(drawn):
    start.answers_picture(np.zeros((2, 28, 28)), np.eye(10)[[3, 8]])
    assert [ax.get_title() for ax in drawn[0].axes[:2]] == ["reads 3", "reads 8"]


def test_both_images_are_drawn_on_the_scale_of_bytes(drawn):
    start.before_after_picture(np.full((2, 2), 100), np.full((2, 2), 50))
    assert [ax.images[0].get_clim() for ax in drawn[0].axes] == [(0, 255), (0, 255)]


def test_counts_are_drawn_in_front_of_the_true_numbers(drawn):
    right = np.arange(16) * 1_000_000
    start.counts_picture(right, {"run 1": right // 2, "run 2": right}, "Counts.")
    outlined, filled = drawn[0].axes[0].containers
    assert [bar.get_height() for bar in outlined] == list(range(1, 16))
    assert filled[3].get_height() == 2
    assert [ax.get_title() for ax in drawn[0].axes] == [
        f"run {k}: {million}.00 of 120.00 million" for k, million in ((1, 60), (2, 120))
    ]


def test_the_way_of_a_digit_has_labels_a_key_and_its_answer(drawn):
    maps = [np.random.default_rng(0).normal(size=(5, 6, 6)), np.ones((3, 4, 4))]
    start.stages_picture(np.zeros((9, 9)), maps, ["one", "two"], np.eye(10)[7])
    texts = [ax.get_title() for ax in drawn[0].axes]
    answer = "the dense layers' answer: 100% a 7"
    assert {"image, 9 x 9", answer, "one\n5 maps,\n6 x 6", "two\n3 maps,\n4 x 4"} <= set(texts)
    (bars,) = [ax for ax in drawn[0].axes if ax.get_title() == answer]
    assert [label.get_text() for label in bars.get_xticklabels()] == list("0123456789")
    assert [ax.get_ylabel() for ax in drawn[0].axes if ax.get_ylabel()] == ["busiest map", "second", "third"]
    keys = [label.get_text() for label in drawn[0].axes[-1].get_xticklabels()]
    assert keys == ["below zero (red)", "0", "above zero (blue)"]
    letters = [text for ax in drawn[0].axes for text in (ax.title, ax.yaxis.label, *ax.get_xticklabels())]
    assert min(text.get_fontsize() for text in letters) >= 13, "the README shows it on telephones"


def test_the_readme_shows_the_picture_of_the_notebook():
    (cell,) = [cell for cell in CODE if cell.id == "stages-picture"]
    stored = re.search('base64,([^"]+)', cell.outputs[0].data["text/html"])[1]
    picture = CHECKOUT / "docs" / "images" / "feature_maps.png"
    assert base64.b64decode(stored) == picture.read_bytes(), "run docs/images/front.py"


def test_without_the_limit_a_pixel_wraps_as_the_solution_says():
    (solution,) = (cell.source for cell in NOTEBOOK.cells if cell.id == "brighten-kernel-solution")
    doubled = (2 * np.arange(256)).astype(np.uint8).astype(int)
    assert np.flatnonzero(np.diff(doubled) < 0).tolist() == [127]
    assert f" 256 = {doubled[150]}. From 128 on" in solution
    assert f"2 · 255 = 510 leaves {doubled[255]}." in solution


def test_the_course_takes_the_hours_that_its_maps_say():
    hours = {part: sum(n.minutes for n in OUTLINE if n.part == part) / 60 for part in PARTS}
    text = (CHECKOUT / "notebooks" / "README.md").read_text(encoding="utf-8")
    (routes,) = (cell.source for cell in NOTEBOOK.cells if cell.id == "map-text")
    readme = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    assert f"about {sum(hours.values()):.0f} hours" in text
    (own,) = re.findall(r"About ([\d.]+) hours\.", routes)
    assert abs(float(own) - hours["your_network"]) <= 0.25
    for title, part in (("I: your network", "your_network"), ("II: make it fast", "make_it_fast")):
        said = re.search(rf"\*\*{title}\*\* \| about ([\d.]+) ", readme)[1]
        assert abs(float(said) - hours[part]) <= 0.25
