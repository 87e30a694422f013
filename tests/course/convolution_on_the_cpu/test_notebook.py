"""Notebook 01: an animation with a still picture, and pictures of numbers."""

import io
import itertools

import numpy as np
from PIL import Image

from cnn_course.chapters.convolution_on_the_cpu import pictures as convolution
from cnn_course.engine import notebooks, plots
from cnn_numba import data
from cnn_numba.data.files import CHECKOUT
from cnn_numba.ops.conv.reference import conv_cpu

NOTEBOOK = CHECKOUT / "notebooks" / "01_convolution_on_the_cpu.ipynb"


def frames(png):
    image = Image.open(io.BytesIO(png))
    for k in range(image.n_frames):
        image.seek(k)
        yield np.array(image.convert("RGB")), image.info.get("duration")


def test_the_sliding_window_moves_and_its_still_picture_is_the_last_step():
    image, kernel = np.eye(4), np.array([[1.0, -1.0], [1.0, -1.0]])
    picture = convolution.sliding_window(image, kernel, conv_cpu(image, kernel))
    still, *steps = frames(picture.png)
    assert len(steps) == 9
    assert all((a[0] != b[0]).any() for a, b in itertools.pairwise(steps))
    np.testing.assert_array_equal(still[0], steps[-1][0])
    assert steps[-1][1] > steps[0][1]
    assert "9 positions" in picture.caption


def test_the_window_stands_where_its_output_is(monkeypatch):
    drawn = []
    monkeypatch.setattr(plots, "picture", lambda fig, *_: drawn.append(fig) or plots.Picture(b"", 1, "", ""))
    monkeypatch.setattr(convolution, "_animation", lambda figures, *_: drawn.extend(figures))
    image, kernel = np.arange(20.0).reshape(4, 5), np.ones((2, 3))
    convolution.sliding_window(image, kernel, conv_cpu(image, kernel))
    window, output = (ax.patches[0] for ax in drawn[5].axes[1:])  # output 5 of 3 x 3: row 1, column 2
    assert (window.get_xy(), window.get_width(), window.get_height()) == ((1.5, 0.5), 3, 2)
    assert output.get_xy() == (1.5, 0.5)


def test_modes_name_their_windows():
    sizes = {"valid": (3, 4), "same": (5, 6), "full": (7, 8)}
    assert "3 x 3 window on an image of 5 x 6" in convolution.modes_picture((5, 6), 3, sizes).caption


def test_an_echo_is_described_by_its_place():
    received = np.zeros(30)
    scores = np.arange(20.0) % 17
    assert "30 samples" in convolution.echo_picture(received, scores).alt
    assert "peak at 16" in convolution.echo_picture(received, scores, np.ones(11), hidden=16).alt
    assert "peak at 1016" in convolution.echo_picture(received, scores, first=1000).alt


def test_every_filter_but_the_blur_returns_zero_where_an_image_is_flat():
    cells = notebooks.read(NOTEBOOK).cells
    (source,) = (cell.source for cell in cells if cell.id == "filters-run")
    known = {"np": np, "data": data, "conv_cpu": conv_cpu}
    exec(source, known)
    flat = {name: conv_cpu(np.full((7, 7), 0.5), kernel) for name, kernel in known["filters"].items()}
    assert not any(flat[name].any() for name in flat if name != "blur")
    np.testing.assert_allclose(flat["blur"], 0.5)


def test_the_pulse_drowns_where_the_text_says():
    cells = {cell.id: cell.source for cell in notebooks.read(NOTEBOOK).cells}
    known = {"np": np}
    exec(cells["delay-signals"].partition("scores =")[0], known)
    energy = float((known["pulse"] ** 2).sum())
    largest = np.abs(np.random.default_rng(0).normal(size=(2000, 521)).max(axis=1)).mean()
    answer = cells["predict-noise"]
    assert f"add up to about {energy:.0f}:" in answer
    assert f"or {np.sqrt(energy):.0f} `s`" in answer
    assert round(largest) == 3
    assert "about three times" in answer
    assert f"meets {np.sqrt(energy) * largest:.0f} `s`" in answer
