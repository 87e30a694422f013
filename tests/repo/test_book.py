"""The pages of the book, as far as they can be checked before the build; `make book` fails on warnings."""

import ast
import importlib.util
import re
from pathlib import Path

import pytest

from cnn_course.engine.outline import NOTEBOOKS

ROOT = Path(__file__).parents[2]


def module(name):
    """Return a module of the book, which are in no package."""
    spec = importlib.util.spec_from_file_location(f"book_{name}", ROOT / "docs" / "book" / f"{name}.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


reference, course_map, commands = module("reference"), module("course_map"), module("commands")


@pytest.fixture(scope="module")
def pages():
    return reference.pages()


def names_of(path):
    """Return the public functions and classes of a file, found without the book's tools."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = ast.FunctionDef, ast.ClassDef
    return [node.name for node in tree.body if isinstance(node, kinds) and ast.get_docstring(node)]


def described(pages):
    """Return the names in the reference, as (module, name)."""
    found, current = set(), ""
    for text in pages.values():
        for line in text.splitlines():
            if match := re.match(r"\.\. py:module:: (\S+)", line):
                current = match[1]
            elif match := re.match(r"\.\. py:(?:function|class|data):: (\w+)", line):
                found.add((current, match[1]))
    return found


def test_every_public_name_is_in_the_reference(pages):
    wanted = set()
    for path in (path for package in reference.PACKAGES for path in ROOT.glob(f"{package}/**/*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if not name.startswith(reference.COMMANDS) and not re.search(r"\._", name):
            wanted |= {(name, each) for each in names_of(path) if not each.startswith("_")}
    assert len(wanted) > 1000
    assert not wanted - described(pages)


@pytest.mark.parametrize("package", ["cnn_numba", "gpuless"])
def test_public_names_of_a_package_are_described_where_they_are_defined(package, pages):
    offered = [
        name for name in importlib.import_module(package).__all__ if name not in ("device", "DATASETS")
    ]
    names = {name for _, name in described(pages)}
    assert [name for name in offered if name not in names] == []


def test_operations_are_a_table_of_backends(pages):
    rows = re.findall(r"\* - :doc:`(\w+) <", pages["operations"])
    folders = {path.parent.name for path in ROOT.glob("cnn_numba/*/*/reference.py")}
    assert set(rows) == folders
    for backend in reference.BACKENDS:
        assert pages["operations"].count(f":py:mod:`{backend} <") == len(folders)


def test_an_operation_s_backends_come_first_and_its_checks_last(pages):
    order = re.findall(r"py:module:: cnn_numba\.ops\.conv\.(\w+)", pages["cnn_numba.ops.conv"])
    assert order[:3] == ["reference", "cpu", "gpu"]
    assert order[-1] == "checks"


def helped(capsys, path):
    """Return the help of a command."""
    from cnn_numba.cli import main

    with pytest.raises(SystemExit):
        main([*path, "--help"])
    return capsys.readouterr().out


def test_every_command_and_option_is_in_the_reference(capsys):
    page = re.sub(r"\s+", " ", commands.page().replace("``", "").replace("\\", ""))
    waiting, options, examples = [()], 0, 0
    while waiting:
        path = waiting.pop()
        text = helped(capsys, path)
        below = re.findall(r"^  ([a-z]+)  ", text.partition("Commands:\n")[2], re.MULTILINE)
        waiting += [(*path, name) for name in below]
        section = page.partition(f".. program:: {' '.join(['cnn-numba', *path])} ")[2]
        assert section, path
        section = section.partition(".. program::")[0]
        for option in re.findall(r"^  (--(?!help)[a-z-]+)", text, re.MULTILINE):
            assert f".. option:: {option}" in section, (path, option)
            options += 1
        for example in re.findall(r"^    (cnn-numba .+)$", text, re.MULTILINE):
            assert " ".join(example.split()) in section, example
            examples += 1
    assert options > 50
    assert examples > 25
    assert "--gpu {emulator,simulator,hardware}" in page


def test_map_is_a_list_on_phones():
    text = course_map.listed()
    assert re.findall(r'href="notebooks/(\w+)\.html"', text) == [notebook.stem for notebook in NOTEBOOKS]
    assert "after 03</small>" in text
    assert "after 05 and 11</small>" in text


def test_map_has_every_notebook_below_its_prerequisites():
    known = course_map.stops()
    assert list(known) == [notebook.number for notebook in NOTEBOOKS]
    found, width, height = course_map.places(known)
    for before, after in course_map.arrows(known):
        assert found[before][1] < found[after][1]
    assert len(set(found.values())) == len(known)
    assert all(0 < x < width and 0 < y < height for x, y in found.values())
    svg = course_map.draw()
    assert all(f'href="notebooks/{notebook.stem}.html"' in svg for notebook in NOTEBOOKS)


def test_titles_fit_their_boxes_on_the_map():
    boxes = re.findall(r"<a .*?</a>", course_map.draw())
    assert len(boxes) == len(NOTEBOOKS)
    for box in boxes:
        lines = re.findall(r"<text [^>]*>([^<]*)</text>", box)
        assert max(map(len, lines)) * 8 <= course_map.WIDTH, lines  # a letter is narrower than 8
        assert (len(lines) + 0.5) * course_map.LINE <= course_map.HEIGHT, lines


def test_map_s_arrows_match_the_table():
    known = course_map.stops()
    arrows = course_map.arrows(known)

    def above(number):
        direct = {before for before, after in arrows if after == number}
        return direct.union(*map(above, direct))

    assert all(set(stop.before) <= above(stop.number) for stop in known.values())


def test_every_notebook_is_in_the_book_s_contents():
    index = (ROOT / "docs" / "book" / "pages" / "index.md").read_text()
    assert re.findall(r"^notebooks/(\d\w+)$", index, re.MULTILINE) == [
        notebook.stem for notebook in NOTEBOOKS
    ]
