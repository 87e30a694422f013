"""Cells run as in a page of the book: with NumPy alone, the archive gives the verdicts of a notebook."""

import functools
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from helpers import PROGRAMS
from test_exercises import FOUND, first_of_its_notebook
from wrong_answers import changed

from cnn_course.engine.in_page import Absent, Cell, Notebook

ROOT = Path(__file__).parents[2]
STEM = "00_start_here"
#: Exercises whose check needs SciPy, threads or a compiler. All others run in a page.
ELSEWHERE = {
    *("conv_fft", "ring_all_reduce", "nearest_tf32", "new_last_layer"),
    *("filter_gradient_kernel", "forward_maps_kernel", "your_swaps", "your_layer"),
    *("block_sums_source", "standardise_rows", "pooling_program"),
}


sys.path.insert(0, str(ROOT / "docs" / "book"))  # its modules are in no package
try:
    import archive
    import first_page
    import live
finally:
    sys.path.pop(0)


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """Return the archive."""
    return archive.write(tmp_path_factory.mktemp("archive"))


@pytest.fixture(scope="module")
def judged(packed, tmp_path_factory):
    """Return a function that judges answers with NumPy alone: status, mistake and words of each."""
    folders = live.unpack(packed, tmp_path_factory.mktemp("course"))

    return functools.partial(judged_alone, folders)


def judged_alone(folders, answers):
    """Return status, mistake and words for each answer, by a Python with the unpacked archive and NumPy."""
    command = [sys.executable, "-I", "-S", PROGRAMS / "judges_alone.py", *folders]
    done = subprocess.run(
        command, input=json.dumps(answers), capture_output=True, text=True, timeout=3000, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def answers_of(found):
    """Return the sources of the stub, the solution, and of all wrong and all unusual answers."""
    wrong = [found.source_of(each) for each in found.wrong]
    right = [changed(found.cells.solution, change) for change in found.right.values()]
    return list(dict.fromkeys([found.cells.stub, found.cells.solution, *wrong, *right]))


def asked(found, source):
    return [found.path.stem, f"{found.cells.name.replace('_', '-')}-stub", source]


#: Mistakes that only compiled kernels show, or show in other words: a page may see none.
OF_COMPILED = {"float64", "wrong when large"}
#: Answers with such a difference, and its cause.
DIFFERENT = {
    ("shrink", "never written"): "only where the launches are large",
    ("matmul_1x4_kernel", "raises"): "the compiler refuses what the simulator computes, in float64",
    ("smooth_any_kernel", "fixed block"): "the compiled kernel reads past the edge, and nothing stops it",
    ("relu_on_gpu", "fraction of a block"): "numba-cuda and the simulator refuse it in words of their own",
    ("matmul_kernel", "raises"): "the compiler refuses whole rows, the simulator misses an index",
    ("centre_kernel", "wrong with several blocks"): "the simulator runs one block after the other",
    ("channel_sums", "not faster"): "no time is modelled",
    ("edge_maps", "grid and block exchanged"): "only where the launches are large",
    ("edge_maps", "raises"): "the name that it uses is defined in another cell, which a page runs first",
}


def compared(judged, pairs):
    """Return the differences between a page and a notebook, for pairs of an exercise and an answer.

    Exercises that need a compiler, SciPy or PyTorch are left out; a page says that it measures no times.
    """
    there = judged([asked(*pair) for pair in pairs])
    differing = []
    for (found, source), (status, mistake, text) in zip(pairs, there, strict=True):
        verdict = found.check(found.run(source))
        by_compiler = verdict.mistake in OF_COMPILED or (found.cells.name, verdict.mistake) in DIFFERENT
        if by_compiler and (status == "solved" or mistake in {"float64", verdict.mistake}):
            continue
        if re.search(r"No module named \\?'(scipy|torch)", text):
            continue
        if ("No time was modelled" in text or "(modelled)" in str(verdict)) and status == verdict.status:
            continue
        if (status, mistake, without_workbook(text)) != (
            verdict.status,
            verdict.mistake,
            without_workbook(str(verdict)),
        ):
            differing.append((found.cells.name, source, text, str(verdict)))
    return differing


def without_workbook(text):
    return [line for line in text.splitlines() if "our workbook" not in line]


def in_page():
    return [found for found in FOUND if found.cells.name not in ELSEWHERE]


def test_the_archive_is_named_after_its_contents_and_has_no_compiler(packed, tmp_path):
    assert archive.write(tmp_path).name == packed.name
    assert packed.stat().st_size < 2_600_000
    with zipfile.ZipFile(packed) as file:
        names = set(file.namelist())
    assert {"gpuless/simulator/scheduler.py", "cnn_course/chapters/start_here/exercises.py"} <= names
    assert not [name for name in names if name.startswith(("gpuless/emulator/driver", "cnn_numba/cli"))]


def test_the_first_images_of_mnist_are_included(packed):
    from cnn_numba import load

    images = load("mnist").train_images
    with zipfile.ZipFile(packed) as file:
        content = file.read("data/mnist/train-images-idx3-ubyte")
    found = np.frombuffer(content[16:], np.uint8).reshape(-1, 1, 28, 28)
    assert len(found) == int.from_bytes(content[4:8], "big") == archive.IMAGES
    assert (found == images[: len(found)]).all()


@pytest.mark.exhaustive(
    "docs/book/live.py finds the same when pages are built; a few answers are compared below"
)
def test_solutions_that_need_only_numpy_are_judged_right(judged):
    verdicts = judged([asked(found, found.cells.solution) for found in FOUND])
    pairs = zip(FOUND, verdicts, strict=True)
    unsolved = [(found.cells.name, verdict) for found, verdict in pairs if verdict[0] != "solved"]
    assert {name for name, _ in unsolved} == ELSEWHERE, unsolved


def kept_by(digits):
    """Return how many pixels are counted if the lanes of a warp, a row of an image, store together."""
    return sum(len(np.unique(row // 16)) for image in digits for row in image)


@pytest.mark.slow
def test_the_races_of_the_first_notebook_and_page_lose_counts(judged):
    from cnn_numba import load

    mnist = load("mnist")
    digits, few = mnist.train_images[:20, 0], mnist.test_images[:4, 0]
    (*_, run), (*_, show) = judged([[STEM, "race-run", ""], ["try", "count-kernel-show", ""]])
    assert f"run 3: {kept_by(digits):,} of {digits.size:,} pixels counted" in run
    assert f"{kept_by(few):,} of {few.size:,} pixels are counted" in show
    assert kept_by(few) < few.size / 3


def test_the_first_page_has_the_stubs_of_the_first_notebook():
    stubs = {cell: source for cell, kind, source in first_page.cells() if kind == "stub"}
    assert [found.cells.stub for found in FOUND if found.path.stem == "00_start_here"] == [*stubs.values()]


@pytest.mark.slow
def test_verdicts_match_those_of_a_notebook(judged):
    sample = [found for found in in_page() if found is first_of_its_notebook(found)][:6]
    assert compared(judged, [(found, answers_of(found)[k]) for found in sample for k in (1, 2)]) == []


@pytest.mark.exhaustive("test_verdicts_match_those_of_a_notebook, with two answers of few exercises")
@pytest.mark.usefixtures("quickly_compiled")
@pytest.mark.parametrize("notebook", sorted({found.path.stem for found in in_page()}))
def test_verdicts_match_those_of_a_notebook_for_all_answers(judged, notebook):
    found = [each for each in in_page() if each.path.stem == notebook]
    assert compared(judged, [(each, source) for each in found for source in answers_of(each)]) == []


# --- Cells --------------------------------------------------------------------------------------------------


def run(cells, cell, sources=None):
    """Run a cell in a new notebook; return its outputs."""
    outputs = []
    Notebook([Cell(*each) for each in cells], lambda *output: outputs.append(output)).run(cell, sources)
    return outputs


def test_only_the_cells_above_that_a_cell_needs_are_run():
    cells = [
        ("a", "code", "print('a')\nx = 1"),
        ("b", "code", "print('b')"),
        ("c", "code", "print('c')\ny = x + 1"),
        ("d", "code", "def f():\n    return y\nf()"),
    ]
    assert [text for _, text in run(cells, "d") if text.strip()] == ["a", "c", "2"]


def test_a_cell_is_run_again_only_if_it_was_changed():
    outputs = []
    cells = [Cell("a", "stub", "print('run')\nx = 1"), Cell("b", "code", "x")]
    notebook = Notebook(cells, lambda *output: outputs.append(output))
    notebook.run("b")
    notebook.run("b")
    notebook.run("b", {"a": "x = 5"})
    assert [text for _, text in outputs if text.strip()] == ["run", "1", "1", "5"]


def test_local_names_and_names_that_a_cell_binds_need_no_cell_above():
    cells = [
        ("a", "code", "print('a')\ni = total = 1"),
        (
            "b",
            "code",
            "def f(x):\n    total = 0\n    for i in x: total += i\n    return total\nf([2, 3])",
        ),
    ]
    assert run(cells, "b") == [("text", "5")]


def test_the_last_cell_above_that_defines_a_name_counts():
    cells = [
        ("a", "code", "print('a')\nx = 1"),
        ("b", "code", "x = 2"),
        ("c", "code", "x"),
        ("d", "code", "x = 3"),
    ]
    assert run(cells, "c") == [("text", "2")]


def test_storing_into_an_object_needs_its_definition():
    cells = [("a", "code", "x = [1, 2]"), ("b", "code", "x[0] = 7"), ("c", "code", "x")]
    assert run(cells, "c") == [("text", "[7, 2]")]


def test_a_missing_package_stops_only_cells_that_use_it():
    setup = "import no_such_package as gone\nfrom math import pi, tau\nfrom no_such_package.more import thing"
    cells = [("s", "setup", setup), ("a", "code", "round(pi)"), ("b", "code", "thing.of(1)")]
    assert run(cells, "a") == [("text", "3")]
    missing, error = run(cells, "b")
    assert missing == ("missing", "no_such_package")
    assert error[1].splitlines()[0] == "ModuleNotFoundError: No module named 'no_such_package'"
    with pytest.raises(ImportError):
        Absent(ImportError("x"))()


def test_only_the_needed_statements_of_a_setup_cell_are_run():
    setup = "x = 1 / 0\n@staticmethod\ndef f():\n    return 2\nn = 3"
    assert run([("s", "setup", setup), ("a", "code", "f() + n")], "a") == [("text", "5")]


def test_errors_name_their_lines():
    cells = [("a", "code", "def f():\n    return 1 / 0"), ("b", "code", "1\nf()"), ("c", "code", "x = (")]
    ((kind, text),) = run(cells, "b")
    assert (kind, text.splitlines()) == (
        "error",
        ["ZeroDivisionError: division by zero", "  line 2 of b: f()", "  line 2 of a: return 1 / 0"],
    )
    ((_, text),) = run(cells, "c")
    assert text.startswith("SyntaxError: '(' was never closed\n  line 1: x = (")


def test_an_exercise_is_run_with_its_check_and_its_display():
    cells = [("x-stub", "stub", "x = 1"), ("x-check", "check", "x + 1"), ("x-show", "code", "print(x)")]
    assert [text for _, text in run(cells, "x-stub", {"x-stub": "x = 4"})] == ["5", "4", "\n"]
