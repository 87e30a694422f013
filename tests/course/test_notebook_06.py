"""What notebook 06 draws, and that its checks see more than one block and every tail."""

from pathlib import Path

import numpy as np
import pytest

from cnn_numba.bench.cases import CASES
from cnn_numba.course import notebooks
from cnn_numba.course.exercises import dense_is_matmul
from cnn_numba.course.pictures import matmul as matmul_pictures
from cnn_numba.course.pictures.matmul import im2col_picture, ladder_picture, loads_picture, product_picture

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "06_dense_is_matmul.ipynb"


@pytest.fixture
def drawn(monkeypatch):
    """Return the list of figures that are handed to `plots.picture`."""
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
    """Return which squares of a drawn matrix are not in the colour of nothing."""
    image = ax.images[0].get_array()
    return ~np.isclose(image, matmul_pictures._NOTHING).all(axis=-1)


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
    dark = np.isclose(drawn[0].axes[2].images[0].get_array(), matmul_pictures._DARK).all(axis=-1)
    assert dark[:2].tolist() == [[False] * 8 + [True] * 2] * 2


def test_im2col_picture_names_the_pixels_of_a_column(drawn):
    picture = im2col_picture(2, 3, 4, 2, position=4)
    assert "Position 4, row 1 and column 1 of the output" in picture.caption
    assert "24 pixels have become 48 numbers" in picture.caption
    assert "its framed column holds 5, 6, 9, 10, 17, 18, 21, 22." in picture.alt
    matrix = [int(text.get_text()) for text in drawn[0].axes[-1].texts]
    image = np.arange(24).reshape(2, 3, 4)
    columns = dense_is_matmul.im2col_kernel.reference(image, 2)
    assert matrix == columns.ravel().tolist()


@pytest.mark.parametrize("position", [-1, 6])
def test_a_position_that_is_not_there_is_refused(position):
    with pytest.raises(ValueError, match=f"there are 6 positions, counted from 0; got {position}"):
        im2col_picture(2, 3, 4, 2, position)


def test_loads_picture_tells_its_numbers():
    assert "tiled: 0.0625 and 2." in loads_picture({"naive": (2, 0), "tiled": (1 / 16, 2)}, "Loads.").alt


def test_ladder_picture_tells_the_share_of_the_library():
    """Of a made-up record: the naive kernel a tenth as fast as PyTorch, one rung refused."""
    results = []
    for case in [case for case in CASES if case.operation == "matmul"]:
        rates = {rung: 10.0 * (place + 1) for place, rung in enumerate(case.rungs)}
        rates |= {"PyTorch": 100.0, "PyTorch, TF32": 400.0}
        contenders = {who: {"median": 1.0, "GFLOP/s": rate} for who, rate in rates.items()}
        contenders["split"] = {"refused": "too large"}
        results.append(
            {"operation": "matmul", "size": case.size, "shape": case.text, "measure": "GFLOP/s"}
            | {"contenders": contenders}
        )
    machine = {"gpu": {"name": "Made-up GPU"}}
    record = {"benchmark": "ops", "date": "2001-02-03", "machine": machine, "results": results}
    picture = ladder_picture(record)
    assert "on Made-up GPU, 2001-02-03" in picture.caption
    shares = "naive 10%, tiled 20%, register_tiled 30%, vectorised 40%"
    assert picture.caption.count(shares) == len(results)
    assert "split" not in picture.caption


@pytest.mark.parametrize("name", ["matmul_tiled_kernel", "matmul_2x2_kernel"])
def test_tiled_checks_have_several_blocks_and_all_kinds_of_tails(name):
    cases = getattr(dense_is_matmul, name).inputs()
    depths = [case.arguments[0].shape[1] for case in cases]
    tile = dense_is_matmul.TILE
    assert any(depth < tile for depth in depths)
    assert any(depth % tile == 0 for depth in depths)
    assert any(depth > tile and depth % tile for depth in depths)
    assert any(np.prod(case.grid) >= 4 for case in cases)
    assert all(case.arguments[2].shape[0] != case.arguments[2].shape[1] for case in cases)


def test_the_notebook_and_its_checks_have_the_same_tiles():
    """The constants that a learner's kernel finds in the notebook fit the grids of the checks."""
    (sizes,) = (cell.source for cell in notebooks.read(NOTEBOOK).cells if cell.id == "sizes")
    assert f"TILE = {dense_is_matmul.TILE}" in sizes
    assert "WIDE = 2 * TILE" in sizes
