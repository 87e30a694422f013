"""The list of numba-cuda's own tests that do not pass: well-formed, true of a sample, and of the page."""

import ast
import functools
import importlib.util
import re
import tomllib

import conformance
import pytest

from gpuless import emulator

pytestmark = pytest.mark.skipif(bool(emulator.problem()), reason=emulator.problem())
#: Modules that take little time; some of their tests are listed, and some are not.
SAMPLE = ["cudapy.test_ipc", "cudadrv.test_context_stack"]


def entries():
    return tomllib.loads(conformance.LIST.read_text(encoding="utf-8"))["reason"]


def test_each_entry_says_what_becomes_of_which_tests_and_why():
    for entry in entries():
        assert entry.keys() - {"may_pass"} == {"why", "outcome", "tests"}
        assert entry["outcome"] in ("failed", "skipped")
        assert len(entry["why"].split()) > 2
        assert entry["tests"] == sorted(entry["tests"])
        assert entry["tests"]


def test_no_test_is_listed_twice():
    tests = [test for entry in entries() for test in entry["tests"]]
    assert len(tests) == len(set(tests))


@functools.cache
def defined(package):
    """Return the names of all functions and classes in the modules of a package."""
    files = conformance._folder(package).glob("*.py")
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files]
    kinds = ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef
    return {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, kinds)}


def test_each_listed_test_is_there():
    modules = conformance.modules()
    for test in conformance.listed():
        package, module, *rest = re.sub(r"\[.*", "", test).split(".")
        assert f"{package}.{module}" in modules, test
        assert set(rest) <= defined(package), test


@pytest.mark.exhaustive("the tests of the emulator; `make conformance` runs all of numba-cuda's")
def test_the_outcome_of_a_sample_is_as_listed(tmp_path):
    for needed in ("filecheck", "ml_dtypes"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"numba-cuda's tests need {needed}: pip install filecheck ml-dtypes")
    found = conformance.run_all(SAMPLE, tmp_path, processes=1)
    assert conformance.differences(found, SAMPLE) == []
    assert sum(outcome == "passed" for outcome, _ in found.values()) >= 9


def test_what_differs_from_the_list_is_told(monkeypatch):
    known = {
        "cudapy.test_a.T.test_fails": ("failed", "why", False),
        "cudapy.test_a.T.test_may": ("skipped", "why", True),
        "cudapy.test_a.T.test_gone": ("failed", "why", False),
        "cudapy.test_b.T.test_elsewhere": ("failed", "why", False),
    }
    monkeypatch.setattr(conformance, "listed", lambda: known)
    found = {
        "cudapy.test_a.T.test_fails": ("passed", ""),
        "cudapy.test_a.T.test_may": ("passed", ""),
        "cudapy.test_a.T.test_new": ("failed", "first\nlast"),
    }
    assert conformance.differences(found, ["cudapy.test_a"]) == [
        "cudapy.test_a.T.test_fails: passed, listed as failed: ",
        "cudapy.test_a.T.test_new: failed, listed as passed: first",
        "cudapy.test_a.T.test_gone: listed, and there is no such test",
    ]


def test_tests_that_did_not_come_to_an_end_have_failed(tmp_path):
    stopped = "failed", "the process was stopped after 0.01 seconds"
    assert conformance.run("cudapy.test_array", tmp_path, limit=0.01) == {"cudapy.test_array": stopped}
    notes = tmp_path / "notes"
    records = ["one", "not run"], ["two", "not run"], ["one", "passed"], ["one", "failed"]
    notes.write_text("".join(f'{{"test": "{test}", "outcome": "{outcome}"}}\n' for test, outcome in records))
    found = conformance._read(notes, "module", "it crashed")
    assert found == {"one": ("failed", ""), "two": ("failed", "it crashed")}


def test_the_table_of_the_page_agrees_with_the_list():
    head, _, *rows = conformance.recorded().splitlines()
    assert head.split("|")[1].strip() == f"tests of numba-cuda {conformance.version()}"
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    counts = {what.split("`")[1]: [int(number) for number in numbers] for what, *numbers in cells}
    assert list(counts) == list(conformance.PACKAGES)
    for package, (_, *others) in counts.items():
        for outcome, count in zip(("failed", "skipped"), others, strict=True):
            may_pass = [
                entry[2]
                for test, entry in conformance.listed().items()
                if test.split(".")[0] == package and entry[0] == outcome
            ]
            assert may_pass.count(False) <= count <= len(may_pass), (package, outcome)
    assert counts["cudapy"][0] >= 0.95 * sum(counts["cudapy"])
