"""docs/profiling.md: its blocks run in order, and it names what there is."""

import contextlib
import io
import linecache
import re
from itertools import pairwise
from pathlib import Path

import gpuless

# isort: split
import pytest

from gpuless.profile.command import parser
from gpuless.profile.stalls import REASONS

if not gpuless.select().emulated:
    pytest.skip("runs kernels on the emulated GPU", allow_module_level=True)
pytest.importorskip("scipy", reason="solves linear programs")

PAGE = Path(__file__).parents[3] / "docs" / "profiling.md"
TEXT = PAGE.read_text(encoding="utf-8")


def section(head):
    """Return what stands under a heading."""
    return re.search(rf"^## {head}\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)[1]


@pytest.fixture(scope="module")
def scope():
    """Run the page's Python blocks as cells of a notebook; return their names."""
    names = {"__name__": "__main__"}
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    for number, ((kind, source), (following, expected)) in enumerate(pairwise(blocks), 1):
        if kind != "python":
            continue
        file = f"<block {number} of {PAGE.name}>"
        linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(source, file, "exec"), names)
        assert printed.getvalue() == (expected if following == "text" else "")
    return names


def test_the_sample_is_what_a_report_says(scope):
    (sample,) = re.findall(r"^```\n(product\[.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    labels = [line[:12].strip() for line in sample.splitlines()[2:]]
    printed = [line[:12].strip() for line in str(scope["report"]).splitlines()[2:]]
    assert list(filter(None, labels)) == list(filter(None, printed))
    assert sample.splitlines()[0].split(":")[0] == str(scope["report"]).split(":")[0]


def test_it_names_each_metric(scope):
    stalled = "smsp__average_warps_issue_stalled_"
    metrics = {name for name in scope["report"].metrics if not name.startswith(stalled)}
    table = section("Nsight Compute's metrics").partition("What is left out")[0]
    named = set(re.findall(r"`(\w+__[\w.]+)`", table))
    assert {name for name in named if not name.startswith(stalled)} == metrics


def test_it_names_each_reason():
    assert re.findall(r"^\| (\w[\w ]+) \|", section("Stall reasons"), re.MULTILINE)[1:] == list(REASONS)


def test_it_names_each_option():
    options = {word for action in parser()._actions for word in action.option_strings} - {"-h", "--help"}
    assert set(re.findall(r"`(--?\w+)", section("The command line"))) == options


def test_it_names_each_attribute(scope):
    table = section("A report")
    for field in scope["report"].__dataclass_fields__:
        assert field in ("kernel", "grid", "block", "device", "modelled") or f"`{field}`" in table, field
