"""The README: its moving picture is true, its links are valid and its commands run."""

import importlib.util
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import typer
from PIL import Image

from cnn_numba.cli import app, main
from cnn_numba.ops.conv.reference import conv_cpu

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"


@pytest.fixture(scope="module")
def front():
    spec = importlib.util.spec_from_file_location("front", IMAGES / "front.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def facts(front):
    return front.gather()


@pytest.mark.gpu
def test_the_kernel_computes_the_shown_image(facts):
    np.testing.assert_allclose(facts.out, conv_cpu(facts.image, facts.weight), atol=1e-6)
    assert len(facts.written) == 16
    assert {place for block in facts.written for place in block} == set(np.ndindex(26, 26))


@pytest.mark.gpu
def test_the_digit_is_read(facts):
    assert (facts.chances.argmax(), round(facts.chances.sum(), 5)) == (3, 1)
    assert 0.99 < facts.accuracy < 1


def test_the_race_loses_updates_and_its_repair_does_not():
    record = json.loads((IMAGES / "front.json").read_text())
    assert record["mended"] == record["pixels"] == 60_000 * 28 * 28
    assert len(set(record["runs"])) == 3
    assert max(record["runs"]) < record["pixels"]


def apart(stored, page):
    """Return how far two pages are apart in each square of 40 by 40; versions of Pillow differ by shades."""
    difference = np.abs(np.int16(stored) - np.int16(page)).mean(axis=2)
    height, width = difference.shape
    squares = difference[: height // 40 * 40].reshape(height // 40, 40, width // 40, 40)
    return squares.mean(axis=(1, 3))


@pytest.mark.gpu
def test_the_stored_images_show_all_this(front, facts):
    assert "lost update" in facts.words
    assert facts.words.endswith("use cuda.atomic")
    film, still = Image.open(IMAGES / "front.gif"), Image.open(IMAGES / "front.png").convert("RGB")
    record, frame = json.loads(front.RECORD.read_text()), -1
    last = [
        front.kernel_page(facts, front.source(front.conv_kernel), facts.out, None),
        front.race_page(record, 4, facts.words),
        front.digit_page(facts, 1, 5),
    ]
    for number, (page, frames) in enumerate(zip(last, (18, 6, 15), strict=True)):
        frame += frames
        film.seek(frame)
        part = still.crop((0, number * front.HEIGHT, front.WIDTH, (number + 1) * front.HEIGHT))
        for stored in (film.convert("RGB"), part):
            assert np.max(apart(stored, page)) < 16, number
    assert film.n_frames == frame + 1


def test_the_film_is_small_and_neither_hasty_nor_long():
    film = Image.open(IMAGES / "front.gif")
    stays = []
    for frame in range(film.n_frames):
        film.seek(frame)
        stays.append(film.info["duration"] / 1000)
    assert 12 < sum(stays) <= 21
    assert min(stays) >= 0.1
    assert (IMAGES / "front.gif").stat().st_size < 1.5e6


@pytest.mark.parametrize("page", ["README.md", "docs/book/pages/index.md"])
def test_the_pages_describe_the_film_and_have_a_still_picture(page):
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    record = json.loads((IMAGES / "front.json").read_text())
    first, second, third = (f"{run / 1e6:.1f}" for run in record["runs"])
    assert f"counts {record['pixels']:,} pixels counts {first}, {second} and {third} million in three" in text
    assert "prefers-reduced-motion: reduce" in text
    assert "docs/images/front.png" in text


README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_links_of_the_readme_exist():
    links = re.findall(r'(?:\]\(|src="|srcset=")([^)"#]+)', README)
    local = [link for link in links if not link.startswith("https://")]
    assert len(local) > 20
    assert [link for link in local if not (ROOT / link).exists()] == []


def test_the_readme_is_a_front_page():
    assert len(README.encode()) <= 9000, "what is not for newcomers has a page in docs/"


def test_the_readmes_commands_run_as_they_stand(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    commands = [
        shlex.split(line, comments=True)[1:] for line in re.findall("^cnn-numba .*", README, re.MULTILINE)
    ]
    program = typer.main.get_command(app)
    for name, *options in commands:
        program.commands[name].make_context(name, options)  # raises if one is wrong
    (predict,) = (command for command in commands if command[0] == "predict")
    with pytest.raises(SystemExit, match=r"^0$"):
        main(predict)
    assert capsys.readouterr().out.startswith("docs/images/seven.jpg: 7 (")


def test_the_readmes_figures_match_the_page():
    page = (ROOT / "docs" / "figures.md").read_text(encoding="utf-8")
    figures = re.findall(r"\d+\.\d+ ?(?:s|%)", README[README.index("## Figures") :])
    assert len(figures) >= 5
    assert [figure for figure in figures if figure not in page] == []
