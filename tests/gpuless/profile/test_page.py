"""docs/profiling.md: its blocks run in order, and its lists are complete.

``python tests/gpuless/profile/test_page.py`` renews the samples on it.
"""

import contextlib
import io
import linecache
import re
import subprocess
import sys
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
    """Return the text under a heading."""
    return re.search(rf"^## {head}\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)[1]


def names_of_the_page():
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


@pytest.fixture(scope="module")
def scope():
    return names_of_the_page()


SAMPLE = r"^```\n({}.*?)^```$"


def test_the_sample_matches_a_report(scope):
    (sample,) = re.findall(SAMPLE.format(r"product\["), TEXT, re.MULTILINE | re.DOTALL)
    labels, printed = (
        [line[:12].strip() for line in text.splitlines()[2:]] for text in (sample, str(scope["report"]))
    )
    assert list(filter(None, labels)) == list(filter(None, printed))
    time = re.match(r"product\[\(64, 64\), \(16, 16\)\] on RTX 3080: (\d+) us modelled", sample)[1]
    assert float(time) == pytest.approx(scope["report"].microseconds, rel=0.1)  # or renew it


def test_it_names_each_metric(scope):
    stalled = "smsp__average_warps_issue_stalled_"
    metrics = {name for name in scope["report"].metrics if not name.startswith(stalled)}
    table = section("Nsight Compute's metrics").partition("Left out are")[0]
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


def renew():
    """Write the current output of a report and of the command into the page."""
    program = [
        "-W",
        "ignore",
        "-m",
        "gpuless",
        "profile",
        "--gpu",
        "T4",
        "examples/nbody.py",
        "--bodies",
        "2000",
    ]
    done = subprocess.run(
        [sys.executable, *program], cwd=PAGE.parents[1], capture_output=True, text=True, check=True
    )
    report, table = str(names_of_the_page()["report"]), done.stdout.partition("\n\nT4: ")[2].rstrip()
    text = TEXT
    for start, sample in ((r"product\[", report), ("T4: ", f"T4: {table}")):
        pattern = re.compile(SAMPLE.format(start), re.MULTILINE | re.DOTALL)
        text = pattern.sub(lambda _, sample=sample: f"```\n{sample}\n```", text)
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    renew()
