"""docs/gpuless.md: its blocks run in order, and print the output on the page."""

import contextlib
import io
import linecache
import re
from pathlib import Path

import matplotlib
import pytest

import gpuless
from gpuless.inspector import NoCompiler, inspect_kernel

PAGE = Path(__file__).parents[2] / "docs" / "gpuless.md"


def blocks():
    """Return the page's fenced blocks as pairs of language and text."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def snippets():
    """Return the Python blocks, each with the output below it, or None."""
    following = [*blocks()[1:], ("", "")]
    return [
        (source, expected if language == "text" else None)
        for (kind, source), (language, expected) in zip(blocks(), following, strict=True)
        if kind == "python"
    ]


def run(source, number, scope):
    """Run a block as a notebook cell: its lines are known, and count from 1. Return what it prints."""
    file = f"<block {number} of {PAGE.name}>"
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, file, "exec"), scope)
    return printed.getvalue()


def compiled(ask):
    """Return the result of `ask`; skip the test if there is no compiler."""
    try:
        return ask()
    except NoCompiler as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("page", sorted(PAGE.parent.glob("*.md")), ids=lambda page: page.name)
def test_links_are_valid(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for path, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", text):
        target = page.parent / path if path else page
        assert target.exists() or path.startswith("../benchmarks/"), path  # which a copy may leave behind
        if anchor:
            heads = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads]


def test_programs_named_on_a_page_exist():
    text = (PAGE.parent / "emulated-gpu.md").read_text(encoding="utf-8")
    programs = {*re.findall(r"examples/\w+\.py", text)}
    assert programs == {f"examples/{path.name}" for path in (PAGE.parents[1] / "examples").glob("*.py")}
    for program in programs:
        assert (PAGE.parents[1] / program).is_file()


def test_examples_of_the_page_run():
    matplotlib.use("agg")
    scope, compared = {"__name__": "__main__"}, 0
    for number, (source, expected) in enumerate(snippets(), 1):
        if "import count" in source and not gpuless.select().emulated:
            compared += 1
            continue
        printed = compiled(lambda: run(source, number, scope))  # noqa: B023 (called at once)
        assert stable(printed) == stable(expected or ""), f"block {number} of {PAGE.name}"
        compared += expected is not None
    assert compared == 9


def test_the_sample_of_the_inspector_is_of_the_kernel_above_it():
    (source,) = [text for kind, text in blocks() if kind == "python" and "def mean_kernel" in text]
    (command,) = [text for _, text in blocks() if text.startswith("cnn-numba inspect")]
    (sample,) = [text for kind, text in blocks() if kind == "" and text.startswith("mean_kernel")]
    signature, cc = re.search(r'--signature "(.*)" --cc (\S+)', command).groups()
    scope = {}
    run(source, 0, scope)
    report = str(compiled(lambda: inspect_kernel(scope["mean_kernel"], signature, cc)))
    # Registers and instructions change with the compiler; what to do about the kernel does not.
    assert stable(advice(sample)) == stable(advice(report))
    assert sample.splitlines()[:2] == report.splitlines()[:2]


def advice(report):
    return report.partition("\nadvice\n")[2].strip()


def stable(text):
    """Leave out the numbers that depend on the compiler's version and on whether there is a disassembler."""
    return re.sub(r"\d+ instructions", "some instructions", text)
