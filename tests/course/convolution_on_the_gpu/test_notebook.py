"""Notebook 03: its pictures of accesses, and the sizes of its checks' launches."""

import math

import numpy as np
import pytest
from numba import cuda
from solutions import solution_of

from cnn_course.chapters.convolution_on_the_gpu import exercises as convolution_on_the_gpu, shrinking
from cnn_course.chapters.convolution_on_the_gpu.exercises.shrink import shrunk
from cnn_course.engine import access as access_pictures, notebooks
from cnn_course.engine.access import footprint_picture, sector_picture
from cnn_course.engine.checks.kernels import KernelExercise
from cnn_numba.data.files import CHECKOUT
from cnn_numba.ops.conv import reference
from cnn_numba.pretrained import MNIST_CNN
from cnn_numba.train.checkpoint import load_model
from gpuless import access_map, frontends

NOTEBOOK = notebooks.read(CHECKOUT / "notebooks" / "03_convolution_on_the_gpu.ipynb")
CHECKS = [value for value in vars(convolution_on_the_gpu).values() if isinstance(value, KernelExercise)]


@cuda.jit
def window_kernel(x, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = x[row, column] + x[row, column + 1]


@cuda.jit
def every_kernel(x, out, step):
    out[cuda.grid(1)] = x[cuda.grid(1) * step]


@pytest.fixture
def window():
    x, out = cuda.to_device(np.ones((2, 7), np.float32)), cuda.device_array((2, 6), np.float32)
    return access_map(window_kernel)[(2, 2), (4, 1)](x, out)


@pytest.fixture
def drawn(monkeypatch):
    figures = []
    monkeypatch.setattr(access_pictures.plots, "picture", lambda fig, *_: figures.append(fig))
    return figures


def test_footprint_counts_reads_and_shared_elements(window):
    caption = footprint_picture(window, "x", "out").caption
    assert caption.startswith("4 blocks of 4 x 1 threads read 14 elements of x 24 times: 1.7 times each")
    assert caption.endswith("at most twice; 2 by two blocks or more.")


def test_footprint_is_grey_where_blocks_meet(window, drawn):
    footprint_picture(window, "x", "out")
    read, written = (ax.images[0].get_array() for ax in drawn[0].axes)
    first, second = written[0, 0], written[0, 4]
    assert not np.allclose(first, second)
    np.testing.assert_allclose(read[0], [*[first] * 4, access_pictures._SHARED[0], *[second] * 2])
    assert [text.get_text() for text in drawn[0].axes[0].texts] == [*"1222221"] * 2


def test_footprint_gives_each_of_six_blocks_a_colour(drawn):
    x, out = cuda.to_device(np.ones((3, 7), np.float32)), cuda.device_array((3, 6), np.float32)
    footprint_picture(access_map(window_kernel)[(2, 3), (4, 1)](x, out), "x", "out")
    written = drawn[0].axes[1].images[0].get_array()
    assert len({tuple(colour) for colour in written.reshape(-1, 3)}) == 6


def test_footprint_leaves_unread_elements_grey(drawn):
    x, out = cuda.to_device(np.ones((3, 4), np.float32)), cuda.device_array((1, 2), np.float32)
    footprint_picture(access_map(window_kernel)[1, 2](x, out), "x", "out")
    image = drawn[0].axes[0].images[0].get_array()
    assert len({tuple(colour) for colour in image[1:].reshape(-1, 3)}) == 1
    assert tuple(image[0, 0]) != tuple(image[2, 3])


@pytest.mark.parametrize(
    ("step", "words"), [(1, "4 sectors, 32 of 32 numbers used"), (3, "12 sectors, 32 of 96 numbers used")]
)
def test_sectors_are_those_of_the_first_request(step, words):
    x, out = cuda.to_device(np.ones(192, np.float32)), cuda.device_array(64, np.float32)
    access = access_map(every_kernel)[1, 64](x, out, step)
    assert access.total("x").sectors_per_request == int(words.split()[0])
    assert f"every: {words}." in sector_picture({"every": (access, "x")}, 32, "A caption.").alt


def test_sectors_are_counted_from_where_the_array_begins(drawn):
    """A view that begins within a sector: its first sector is cut off."""
    x, out = cuda.to_device(np.ones(40, np.float32))[4:], cuda.device_array(2, np.float32)
    sector_picture({"two": (access_map(every_kernel)[1, 2](x, out, 2), "x")}, 8, "A caption.")
    colours = drawn[0].axes[0].images[0].get_array().reshape(-1, 3)
    kinds = [tuple(colour) for colour in colours[:8]]
    asked, moved, left = kinds[0], kinds[1], kinds[4]
    assert len({asked, moved, left}) == 3
    assert kinds == [asked, moved, asked, moved, *[left] * 4]


@pytest.mark.parametrize("check", CHECKS, ids=[check.name for check in CHECKS])
def test_the_checks_launch_few_threads_in_several_blocks_with_spare_threads(check):
    cases = check.inputs()
    threads = [int(np.prod(case.grid) * np.prod(case.block)) for case in cases]
    sizes = [int(np.prod(case.arguments[-1].shape)) for case in cases]
    assert sum(threads) < 5000
    assert all(have >= need for have, need in zip(threads, sizes, strict=True))
    assert any(have > need for have, need in zip(threads, sizes, strict=True))
    assert any(np.prod(case.grid) > 2 for case in cases)


def test_a_corner_is_in_fewer_windows_than_the_middle():
    windows = reference.conv2d_backward_input(
        np.ones((1, 1, 7, 7)), np.ones((1, 1, 3, 3)), (1, 1, 7, 7), padding=1
    )
    (text,) = (cell.source for cell in NOTEBOOK.cells if cell.id == "padding-text")
    corner, middle = int(windows[0, 0, 0, 0]), int(windows[0, 0, 3, 3])
    assert f"a corner lies in {corner} instead of 1, though still not in {middle}" in text


def test_the_layers_have_the_work_that_the_text_says():
    (text,) = (cell.source for cell in NOTEBOOK.cells if cell.id == "predict-work")
    model = load_model(MNIST_CNN, batch_size=1)
    outputs = [math.prod(shape[1:]) for shape in (model.shapes[1], model.shapes[3])]
    products = [layer.weight[0].size for layer in (model.layers[0], model.layers[2])]
    for number in (*outputs, *products):
        assert f"= {number}".replace("21632", "21,632") in text
    assert 1 / 4 < outputs[1] / outputs[0] < 3 / 8
    assert round(outputs[1] * products[1] / (outputs[0] * products[0])) == 11


# --- The open exercise -------------------------------------------------------------------------------------


def test_shrinking_is_a_convolution_with_edge_padding(rng):
    images = rng.normal(size=(2, 7, 10)).astype(np.float32)
    continued = np.pad(images, ((0, 0), (1, 1), (1, 1)), mode="edge")[:, None]
    weight = np.outer([1, 2, 1], [1, 2, 1])[None, None] / 16
    expected = reference.conv2d_forward(continued, weight, stride=2)[:, 0]
    np.testing.assert_allclose(shrunk(images), expected, atol=1e-6)
    np.testing.assert_allclose(shrunk(images.transpose(0, 2, 1)), expected.transpose(0, 2, 1), atol=1e-6)


def test_the_text_matches_the_exercise():
    (text,) = (cell.source for cell in NOTEBOOK.cells if cell.id == "shrink-text")
    check = convolution_on_the_gpu.shrink
    largest = max(len(images) for (images,) in check.large(check.generator()))
    assert f"A batch can have {largest:,} images" in text
    assert largest > 65535  # the blocks that a grid has along z


def test_without_a_blur_shrunk_rings_alias_and_with_it_they_are_grey():
    image = shrinking.rings()
    corner = (slice(None), slice(-10, None), slice(-10, None))
    assert np.ptp(shrunk(image[None])[corner]) < 0.2 < 0.9 < np.ptp(image[None, ::2, ::2][corner])


def test_until_the_exercise_is_solved_the_rings_are_pale(monkeypatch):
    alphas = []
    monkeypatch.setattr(
        shrinking.plots, "picture", lambda fig, *_: alphas.append(fig.axes[2].images[0].get_alpha())
    )
    shrinking.rings_picture()
    shrinking.rings_picture(shrunk)
    assert alphas == [0.3, None]


@pytest.mark.skipif(not frontends.installed(), reason="models launches of the emulated GPU")
@pytest.mark.slow
def test_the_solution_takes_what_the_notebook_says():
    text = str(shrinking.modelled(solution_of("convolution_on_the_gpu", "shrink")))
    solution, yours = text.splitlines()[1:]
    assert solution.split()[3:] == yours.split()[1:]


def test_without_an_answer_the_solution_alone_is_shown():
    title, solution, note = str(shrinking.modelled()).splitlines()
    assert "modelled" in title
    assert f"{shrinking.SOLUTION.kernels:.2g} us" in solution
    assert note.endswith("when the check is green.")
