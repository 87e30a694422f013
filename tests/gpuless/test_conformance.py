"""The lists of compilers' own tests that do not pass: well-formed, and right for a sample and the page."""

import ast
import functools
import importlib.util
import re
import shutil
import subprocess
import tomllib

import conformance
import pytest
from conformance import MLIR, NUMBA_CUDA
from fresh_python import PROGRAMS

from gpuless import emulator

pytestmark = pytest.mark.skipif(bool(emulator.problem()), reason=emulator.problem())
#: Quick modules; some of their tests are listed, and some are not.
SAMPLE = ["cudapy.test_ipc", "cudadrv.test_context_stack"]


both = pytest.mark.parametrize("suite", [NUMBA_CUDA, MLIR], ids=lambda suite: suite.compiler)


def entries(suite):
    return tomllib.loads(suite.list.read_text(encoding="utf-8"))["reason"]


@both
def test_each_entry_names_outcome_tests_and_reason(suite):
    for entry in entries(suite):
        assert entry.keys() - {"elsewhere"} == {"why", "outcome", "tests"}
        assert entry["outcome"] in ("failed", "skipped")
        assert entry.get("elsewhere") in {None, *conformance.OUTCOMES} - {entry["outcome"]}
        assert len(entry["why"].split()) > 2
        assert entry["tests"] == sorted(entry["tests"])
        assert entry["tests"]


@both
def test_no_test_is_listed_twice(suite):
    tests = [test for entry in entries(suite) for test in entry["tests"]]
    assert len(tests) == len(set(tests))


@functools.cache
def defined(package):
    """Return the names of all functions and classes in the modules of a package."""
    files = NUMBA_CUDA.folder(package).glob("*.py")
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files]
    kinds = ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef
    return {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, kinds)}


def test_each_listed_test_exists():
    modules = conformance.modules(NUMBA_CUDA)
    for test in conformance.listed(NUMBA_CUDA):
        package, module, *rest = re.sub(r"\[.*", "", test).split(".")
        assert f"{package}.{module}" in modules, test
        assert set(rest) <= defined(package), test


@pytest.mark.exhaustive("the tests of the emulator; `make conformance` runs all of numba-cuda's")
def test_the_outcome_of_a_sample_is_as_listed(tmp_path):
    for needed in ("filecheck", "ml_dtypes"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"numba-cuda's tests need {needed}: pip install filecheck ml-dtypes")
    found = conformance.run_all(NUMBA_CUDA, SAMPLE, tmp_path, processes=1)
    assert conformance.differences(NUMBA_CUDA, found, SAMPLE) == []
    assert sum(outcome == "passed" for outcome, _ in found.values()) >= 9


def test_differences_from_the_list_are_reported(monkeypatch):
    known = {
        "cudapy.test_a.T.test_fails": ("failed", "why", None),
        "cudapy.test_a.T.test_may": ("failed", "why", "skipped"),
        "cudapy.test_a.T.test_gone": ("failed", "why", None),
        "cudapy.test_b.T.test_elsewhere": ("failed", "why", None),
    }
    monkeypatch.setattr(conformance, "listed", lambda suite: known)
    found = {
        "cudapy.test_a.T.test_fails": ("passed", ""),
        "cudapy.test_a.T.test_may": ("skipped", ""),
        "cudapy.test_a.T.test_new": ("failed", "first\nlast"),
    }
    assert conformance.differences(NUMBA_CUDA, found, ["cudapy.test_a"]) == [
        "cudapy.test_a.T.test_fails: passed, listed as failed: ",
        "cudapy.test_a.T.test_new: failed, listed as passed: first",
        "cudapy.test_a.T.test_gone: listed, and there is no such test",
    ]


def test_unfinished_tests_count_as_failed(tmp_path):
    stopped = "failed", "the process was stopped after 0.01 seconds"
    found = conformance.run(NUMBA_CUDA, "cudapy.test_array", tmp_path, limit=0.01)
    assert found == {"cudapy.test_array": stopped}
    notes = tmp_path / "notes"
    records = ["one", "not run"], ["two", "not run"], ["one", "passed"], ["one", "failed"]
    notes.write_text("".join(f'{{"test": "{test}", "outcome": "{outcome}"}}\n' for test, outcome in records))
    found = conformance._read(notes, "module", "it crashed")
    assert found == {"one": ("failed", ""), "two": ("failed", "it crashed")}


def numbers(suite):
    """Return the header of the page's table, and the numbers of each package."""
    head, _, *rows = conformance.recorded(suite).splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return head.split("|")[1].strip(), {
        what.split("`")[1]: list(map(int, numbers)) for what, *numbers in cells
    }


@both
def test_the_table_of_the_page_agrees_with_the_list(suite):
    _, counts = numbers(suite)
    assert list(counts) == list(suite.packages)
    for package, (_, *others) in counts.items():
        for outcome, count in zip(("failed", "skipped"), others, strict=True):
            possible = [
                {expected, elsewhere or expected}
                for test, (expected, _, elsewhere) in conformance.listed(suite).items()
                if test.split(".")[0] == package.split("/")[-1]
            ]
            least, most = possible.count({outcome}), sum(outcome in each for each in possible)
            assert least <= count <= most, (package, outcome)
    most = max(counts.values())
    assert most[0] >= 0.95 * sum(most)


def test_the_table_names_the_installed_versions():
    assert numbers(NUMBA_CUDA)[0] == conformance.tested(NUMBA_CUDA)
    if importlib.util.find_spec("numba_cuda_mlir") is None:
        pytest.skip("numba-cuda-mlir is not installed")
    assert numbers(MLIR)[0].endswith(f", {conformance.tested(MLIR).removeprefix('tests of ')}")


@pytest.fixture
def clone(tmp_path):
    """Return a repository that looks like numba-cuda-mlir's, with a test that fails."""
    for package in MLIR.packages:
        (tmp_path / package).mkdir(parents=True, exist_ok=True)
        (tmp_path / package / "test_one.py").write_text("def test_passes():\n    pass\n")
    for name in ("conftest", "test_one"):
        shutil.copy(PROGRAMS / f"{name}_of_a_clone.py", tmp_path / "tests" / f"{name}.py")
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\naddopts = ['--unknown']\n")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "all"], ["tag", "-am", "one", "v1.2"]):
        subprocess.run([*git, *command], check=True)
    return tmp_path


def test_the_tests_of_a_clone_run_with_its_own_settings(clone, tmp_path, monkeypatch):
    pytest.importorskip("numba_cuda_mlir")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take longer than such a run
    suite = conformance.of_clone(clone)
    assert conformance.tested(suite).startswith("tests of v1.2-0-g")
    assert len(conformance.modules(suite)) == len(suite.packages)
    assert conformance.run(suite, "tests.test_one", tmp_path) == {
        "tests.test_one.test_runs_on_the_emulated_gpu": ("passed", ""),
        "tests.test_one.test_fails": ("failed", "assert False"),
    }


@pytest.mark.parametrize("missing", [".git", "pyproject.toml", "tests/infra/test_one.py"])
def test_other_folders_than_a_clone_are_rejected(clone, missing):
    (clone / missing).rename(clone / "away")
    with pytest.raises(SystemExit, match=re.escape(f"{clone} is no clone of https://github.com/NVIDIA/")):
        conformance.of_clone(clone)
