"""Moving pictures: their frames, and the still picture below."""

import functools
import io
import itertools

import numpy as np
import pytest
from PIL import Image

from cnn_course.chapters.attention.films import online_film
from cnn_course.chapters.backward_kernels import films as backward
from cnn_course.chapters.convolution_as_matmul import films as convolution_films
from cnn_course.chapters.reductions import pictures as reductions
from cnn_course.chapters.shared_memory_and_tiling import films
from cnn_course.chapters.the_machine import films as machine
from cnn_course.engine import plots


def online():
    """Draw a row of four scores, one of which raises the maximum."""
    return online_film([0.5, 0.0, 1.5, 1.0], np.eye(4), np.zeros(4))


FILMS = {
    "halo": (films.halo_film, 6),
    "barrier": (films.barrier_film, 6),
    "tree": (reductions.tree_film, 4),
    "coalescing": (machine.coalescing_film, 4),
    "divergence": (machine.divergence_film, 4),
    "buffers": (convolution_films.buffers_film, 12),
    "scatter": (backward.scatter_film, 7),
    "window": (backward.window_film, 10),
    "online": (online, 5),
}


@functools.cache
def drawn(draw):
    """Return a film for several tests."""
    return draw()


def frames(film):
    image = Image.open(io.BytesIO(film.png))
    for number in range(image.n_frames):
        image.seek(number)
        yield np.asarray(image.convert("RGB"))


@pytest.mark.exhaustive_unless(
    lambda draw: draw in (films.barrier_film, machine.coalescing_film, online),
    "a film of lines, of memory, and of a row; the others are put together by the same functions",
)
@pytest.mark.parametrize(("draw", "count"), FILMS.values(), ids=FILMS)
def test_a_film_has_frames_that_differ_and_stays_small(draw, count):
    film = drawn(draw)
    shown = list(frames(film))
    assert len(shown) == count
    assert all((a != b).any() for a, b in itertools.pairwise(shown))
    assert len(film.png) + len(film.still.png) < 120_000


@pytest.mark.parametrize("draw", [films.barrier_film, online])
def test_the_still_picture_below_a_film_is_its_end(draw):
    film = drawn(draw)
    last = np.asarray(list(frames(film))[-1], np.int16)
    still = np.asarray(Image.open(io.BytesIO(film.still.png)).convert("RGB"), np.int16)
    assert abs(last - still).mean() < 1  # except for the palettes


@pytest.fixture
def handed_over(monkeypatch):
    """Return a list of the parts of films: drawing all frames of one takes seconds."""
    made = []
    monkeypatch.setattr(plots, "film", lambda *parts, **options: made.append(parts))
    return made


@pytest.mark.parametrize(
    "draw",
    [reductions.tree_film, convolution_films.buffers_film, backward.scatter_film, machine.divergence_film],
)
def test_the_last_frame_is_the_still_picture_below(draw, handed_over):
    draw()
    ((parts, still, *_),) = handed_over
    last, still = (plots.picture(each, "Drawn.", "Alike.").png for each in (list(parts)[-1], still))
    assert last == still


def test_both_pictures_are_described_and_the_still_one_is_folded():
    film = drawn(films.barrier_film)
    text = film._repr_html_()
    assert text.count(f'alt="{film.alt}"') == 2
    assert text.index("<figcaption") < text.index("<details>") < text.rindex("<img")
    assert repr(film) == f"Figure. {film.caption}\n[{film.alt}]"


def test_the_halo_is_loaded_in_rounds(handed_over):
    films.halo_film((8, 4), 3)
    ((_, _, caption, _),) = handed_over
    assert caption.startswith("A block of 8 x 4 threads loads 60 pixels.")


def test_frames_last_and_the_film_begins_again():
    figures = [plots.figure(size=(1, 1))[0] for _ in range(3)]
    figures[1].axes[0].plot([0, 1])
    film = plots.film(figures[:2], figures[2], "Two frames.", "Empty axes, then a line.", seconds=0.5)
    image = Image.open(io.BytesIO(film.png))
    assert image.info["loop"] == 0
    image.seek(1)
    assert image.info["duration"] == 1000
