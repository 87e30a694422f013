"""Notebook 02: pictures of threads, sliders, and their stored still pictures."""

import nbformat
import numpy as np
import pytest
from numba import cuda

from cnn_course.chapters.first_cuda_kernels import (
    exercises as first_cuda_kernels,
    pictures as thread_pictures,
)
from cnn_course.chapters.first_cuda_kernels.pictures import (
    grid_picture,
    memories_picture,
    row_picture,
    writers_of,
)
from cnn_course.engine import notebooks, plots
from cnn_course.engine.explorer import explore


@pytest.mark.parametrize(
    ("height", "width", "block", "words"),
    [
        (28, 28, (16, 16), "4 blocks of 16 x 16 threads over 28 x 28 pixels: of 1024 threads 784 have"),
        (
            5,
            7,
            (4, 2),
            "6 blocks of 4 x 2 threads over 5 x 7 pixels: of 48 threads 35 have a pixel, 13 (pale)",
        ),
        (3, 9, (16, 4), "1 block of 16 x 4 threads over 3 x 9 pixels: of 64 threads 27 have a pixel, 37"),
        (4, 8, (4, 2), "of 32 threads 32 have a pixel, none is idle."),
    ],
)
def test_grid_picture_counts_blocks_and_idle_threads(height, width, block, words):
    assert words in grid_picture(height, width, block).caption


def test_grid_picture_shows_where_x_and_y_go(monkeypatch):
    """A wide image of one row of blocks: the second block stands to the right of the first."""
    drawn = []
    monkeypatch.setattr(thread_pictures.plots, "picture", lambda fig, *_: drawn.append(fig))
    grid_picture(2, 8, (4, 2))
    texts = {text.get_text(): text.get_position() for text in drawn[0].axes[0].texts}
    assert texts == {"(0, 0)": (1.5, 0.5), "(1, 0)": (5.5, 0.5)}


def test_labels_of_blocks_keep_clear_of_the_frame(monkeypatch):
    """The image's edge cuts blocks; their numbers are in the larger part, or not drawn."""
    drawn = []
    monkeypatch.setattr(thread_pictures.plots, "picture", lambda fig, *_: drawn.append(fig))
    grid_picture(26, 26, (16, 16))
    texts = {text.get_text(): text.get_position() for text in drawn[0].axes[0].texts}
    assert texts["(1, 1)"] == (20.5, 20.5)
    grid_picture(26, 26, (8, 8))
    texts = {text.get_text(): text.get_position() for text in drawn[1].axes[0].texts}
    assert texts["(3, 0)"] == (28.5, 3.5)
    grid_picture(26, 26, (4, 4))
    assert "(6, 0)" not in {text.get_text() for text in drawn[2].axes[0].texts}


def test_too_many_threads_raise():
    with pytest.raises(ValueError, match="10000 threads are too many"):
        grid_picture(100, 100, (10, 10))


@cuda.jit
def pairs_kernel(x):
    for i in range(2 * cuda.grid(1), min(2 * cuda.grid(1) + 2, x.size)):
        x[i] = 0


def test_writers_are_taken_from_the_accesses():
    assert writers_of(pairs_kernel, 2, 2, cuda.device_array(7)).tolist() == [0, 0, 1, 1, 2, 2, 3]
    assert writers_of(pairs_kernel, 1, 2, cuda.device_array(7)).tolist() == [0, 0, 1, 1, -1, -1, -1]


def test_row_picture_names_the_writer_of_each_element():
    x = cuda.device_array(7)
    picture = row_picture({"pairs": (pairs_kernel, 2, 2, (x,)), "by hand": np.arange(7) % 3}, "Who.")
    assert "pairs: 0, 0, 1, 1, 2, 2, 3" in picture.alt
    assert "by hand: 0, 1, 2, 0, 1, 2, 0" in picture.alt


def test_memories_picture_names_the_copies():
    assert "to_device" in memories_picture().alt


# --- the explorer ------------------------------------------------------------------------------------------


def draw(size, name):
    fig, ax = plots.figure(size=(2, 1))
    ax.set_title(name)
    return plots.picture(fig, f"{size} {name}.", "A small picture with a title.")


def test_sliders_redraw():
    explorer = explore(draw, size=[(2, 3), (4, 5)], name=["dogs", "cats"])
    assert explorer.picture.caption == "(2, 3) dogs."
    explorer.sliders["size"].value = (4, 5)
    explorer.sliders["name"].value = "cats"
    assert explorer.picture.caption == "(4, 5) cats."
    assert explorer.widget.children[-1].value == plots.in_widget(explorer.picture)


def test_each_position_is_drawn_once():
    calls = []

    def counted(size):
        calls.append(size)
        return draw(size, "cats")

    explorer = explore(counted, size=[1, 2])
    for value in (2, 1, 2):
        explorer.sliders["size"].value = value
    assert calls == [1, 2]


def test_a_choice_without_values_raises():
    with pytest.raises(ValueError, match="the choice name has no values"):
        explore(draw, size=[1], name=[])


def test_without_a_kernel_there_is_a_picture_with_its_caption():
    bundle = explore(draw, size=[1], name=["cats"])._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert "<figcaption" in bundle["text/html"]
    assert 'alt="A small picture' in bundle["text/html"]


def test_widgets_are_not_stored_and_their_pictures_are():
    data = {"application/vnd.jupyter.widget-view+json": {"model_id": "1"}, "text/html": "<figure>"}
    cell = nbformat.v4.new_code_cell("explore()", id="explore")
    cell.outputs = [nbformat.v4.new_output("display_data", data)]
    stored = notebooks.canonical(nbformat.v4.new_notebook(cells=[cell]))
    assert "widget-view" not in stored
    assert "<figure>" in stored


# --- the checks --------------------------------------------------------------------------------------------


def test_the_checks_launch_few_threads():
    """A simulated thread takes about 20 us: a check should answer at once."""
    for name in ("axpy_kernel", "autocorrelation_kernel", "relu_stride_kernel", "mirror_kernel"):
        cases = getattr(first_cuda_kernels, name).inputs()
        assert sum(int(np.prod(case.grid) * np.prod(case.block)) for case in cases) < 5000


@pytest.mark.parametrize("name", ["axpy_kernel", "autocorrelation_kernel", "mirror_kernel"])
def test_the_checks_have_spare_threads_and_several_blocks(name):
    cases = getattr(first_cuda_kernels, name).inputs()
    sizes = [int(np.prod(case.arguments[-1].shape)) for case in cases]
    threads = [int(np.prod(case.grid) * np.prod(case.block)) for case in cases]
    assert all(have >= need for have, need in zip(threads, sizes, strict=True))
    assert any(have > need for have, need in zip(threads, sizes, strict=True))
    assert any(np.prod(case.grid) > 2 for case in cases)
