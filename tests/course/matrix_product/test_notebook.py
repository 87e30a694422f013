"""Notebook 13: its pictures, and that its checks cover several blocks and every tail."""

import re
from pathlib import Path

import numpy as np
import pytest
from solutions import solution_of

from benchmarks.rungs import matmul
from cnn_course.chapters.matrix_product import exercises as matrix_product, pictures as matmul_pictures
from cnn_course.chapters.matrix_product.pictures import (
    product_picture,
    request_picture,
    rungs_picture,
    tails_picture,
)
from cnn_course.engine import notebooks
from cnn_course.engine.ladders import modelled
from cnn_numba import device

NOTEBOOK = Path(__file__).parents[3] / "notebooks" / "13_matrix_product.ipynb"


@pytest.fixture
def drawn(monkeypatch):
    """Return the list of figures passed to `plots.picture`."""
    figures, picture = [], matmul_pictures.plots.picture
    monkeypatch.setattr(
        matmul_pictures.plots, "picture", lambda fig, *text: (figures.append(fig), picture(fig, *text))[1]
    )
    return figures


@pytest.mark.parametrize(
    ("tile", "words"),
    [
        ((1, 1), "1 result of 6 products each: 6 multiply-adds. 1 row of a and 1 column of b are 12 numbers"),
        ((2, 4), "48 multiply-adds. 2 rows of a and 4 columns of b are 36 numbers (dark): 0.75 for each"),
        ((8, 12), "8 rows of a and 12 columns of b are 120 numbers (dark): 0.208 for each multiply-add."),
    ],
)
def test_product_picture_counts_what_a_tile_reads(tile, words):
    assert words in product_picture((8, 6, 12), tile).caption


def marked(ax):
    """Return which squares of a drawn matrix are coloured."""
    image = ax.images[0].get_array()
    return ~np.isclose(image, matmul_pictures.NOTHING).all(axis=-1)


def test_product_picture_marks_rows_of_a_and_columns_of_b(drawn):
    product_picture((4, 3, 5), (2, 1))
    _, b, a, out = drawn[0].axes
    expected = np.zeros((4, 3), bool), np.zeros((3, 5), bool), np.zeros((4, 5), bool)
    expected[0][:2], expected[1][:, :1], expected[2][:2, :1] = True, True, True
    for ax, wanted in zip((a, b, out), expected, strict=True):
        np.testing.assert_array_equal(marked(ax), wanted)


def test_product_picture_shows_one_step(drawn):
    picture = product_picture((4, 10, 4), (2, 2), step=2, depth=4)
    assert picture.caption.startswith("Step 3 of 3: ")
    assert "each of the 4 results adds up 2 of its 10 products" in picture.caption
    dark = np.isclose(drawn[0].axes[2].images[0].get_array(), matmul_pictures.DARK).all(axis=-1)
    assert dark[:2].tolist() == [[False] * 8 + [True] * 2] * 2


def test_request_picture_counts_sectors(drawn):
    assert "1 number of a in 1 sector, 32 numbers of b in 4 sectors" in request_picture().caption
    assert (
        "1 number of a in 1 sector, 32 numbers of b in 32 sectors"
        in request_picture(transpose_b=True).caption
    )
    wanted = np.isclose(drawn[1].axes[1].images[0].get_array(), matmul_pictures.DARK).all(axis=-1)
    assert wanted.sum(axis=0).tolist() == [0] * 5 + [32] + [0] * 10


@pytest.mark.parametrize(
    ("block", "step", "words"),
    [
        ((0, 0), 0, "of 64 threads 64 copy a number of a, 64 one of b, and 64 have a result"),
        ((1, 1), 1, "of 64 threads 6 copy a number of a, 15 one of b, and 10 have a result"),
        ((0, 1), 0, "of 64 threads 64 copy a number of a, 40 one of b, and 40 have a result"),
    ],
)
def test_tails_picture_counts_threads(drawn, block, step, words):
    assert words in tails_picture((10, 11, 13), 8, block, step).caption
    zeros = [text.get_text() for ax in drawn[0].axes for text in ax.texts]
    in_a, in_b, results = map(int, re.findall(r"\b(\d+) (?:copy|one|have)", words))
    assert zeros.count("0") == 128 - in_a - in_b
    assert zeros.count("-") == 64 - results


def test_rungs_picture_shows_the_reads_of_each_rung(drawn):
    picture = rungs_picture([(1, 1), (2, 2), (4, 4)], 8, 8)
    assert picture.caption.endswith("1 x 1: 2 and 0.25; 2 x 2: 1 and 0.125; 4 x 4: 0.5 and 0.0625.")
    for ax, results in zip(drawn[0].axes, (1, 4, 16), strict=True):
        assert np.isclose(ax.images[0].get_array(), matmul_pictures._MINE).all(axis=-1).sum() == results


@pytest.mark.parametrize("name", ["matmul_tiled_kernel", "matmul_2x2_kernel"])
def test_tiled_checks_have_several_blocks_and_all_kinds_of_tails(name):
    cases = getattr(matrix_product, name).inputs()
    depths = [case.arguments[0].shape[1] for case in cases]
    tile = matrix_product.TILE
    assert any(depth < tile for depth in depths)
    assert any(depth % tile == 0 for depth in depths)
    assert any(depth > tile and depth % tile for depth in depths)
    assert any(np.prod(case.grid) >= 4 for case in cases)
    assert all(case.arguments[2].shape[0] != case.arguments[2].shape[1] for case in cases)


def test_the_notebook_and_its_checks_have_the_same_tiles():
    """The constants that a learner's kernel finds in the notebook fit the grids of the checks."""
    (sizes,) = (cell.source for cell in notebooks.read(NOTEBOOK).cells if cell.id == "sizes")
    assert f"TILE = {matrix_product.TILE}" in sizes
    assert "WIDE = 2 * TILE" in sizes


def test_the_tiles_of_the_register_tiled_product_have_the_size_in_the_text():
    (text,) = (
        cell.source for cell in notebooks.read(NOTEBOOK).cells if "`BLOCK_DEPTH` is only" in cell.source
    )
    kilobytes = 2 * matmul.BLOCK_LINES * matmul.BLOCK_DEPTH * 4 // 1024
    assert f"`BLOCK_DEPTH` is only {matmul.BLOCK_DEPTH}:" in text
    assert f"The two tiles take {kilobytes} KB of the 48 KB" in text


def stored(name):
    """Return the printed output of a cell."""
    (cell,) = (cell for cell in notebooks.read(NOTEBOOK).cells if cell.id == name)
    return "".join(output.get("data", {}).get("text/plain", "") for output in cell.outputs)


def text_of(name):
    (text,) = (cell.source for cell in notebooks.read(NOTEBOOK).cells if cell.id == name)
    return text


def modelled_in(printed, rung):
    """Return the modelled milliseconds of a rung on T4, A100 and H100, as a cell prints them."""
    (line,) = re.findall(rf"^{re.escape(rung)}\S* .* [mu]s \(.*$", printed, re.MULTILINE)
    times = re.findall(r"([\d.]+) (ms|us) \(", line)
    return [float(value) / {"ms": 1, "us": 1000}[unit] for value, unit in times]


def test_the_ladder_has_the_order_and_the_factors_of_the_text():
    naive, tiled, register = (
        modelled_in(stored("modelled"), rung) for rung in ("naive", "tiled", "register")
    )
    assert all(a > 1.25 * b > 1.25**2 * c for a, b, c in zip(naive, tiled, register, strict=True))
    assert "14 to 15 times as fast" in text_of("modelled-after")
    assert all(14 <= a / c <= 15 for a, c in zip(naive, register, strict=True))


def test_two_results_per_thread_are_slower_on_the_gpus_in_the_text():
    one, two = (modelled_in(stored("yours"), rung) for rung in ("8 x 8, no tails", "1 x 2"))
    assert [b > 1.25 * a for a, b in zip(one, two, strict=True)] == [False, True, True]
    assert "on A100 and H100 by more than the error of the model" in text_of("yours-after")


def test_register_tiles_are_the_slowest_rung_of_the_layer():
    rungs = {name: modelled_in(stored("ladder-layer"), name) for name in ("naive", "tiled", "register-tiled")}
    assert all(max(times) == times[2] for times in zip(*rungs.values(), strict=True))


@pytest.mark.skipif(not device.SELECTION.emulated, reason="modelled on the emulated GPU")
@pytest.mark.exhaustive("test_modelled_ladders.py: modelled times of other kernels")
def test_the_text_gives_the_modelled_times_of_the_solution():
    kernel, (large, wide) = solution_of("matrix_product", "matmul_2x2_kernel"), (2048, matrix_product.WIDE)
    a, b, out = (device.zeros((large, large)) for _ in "abc")
    side = large // wide
    (times,) = modelled({"2 x 2": (kernel, (side, side), (8, 8), (a, b, out))}).times.values()
    said = "{:.3g} ms on a T4, {:.3g} ms on an A100 and {:.3g} ms on an H100 (modelled)"
    assert said.format(*(time.microseconds / 1e3 for time in times.values())) in text_of("yours-after")
