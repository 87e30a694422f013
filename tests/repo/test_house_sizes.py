"""Code that is too large is on a list that only shrinks: `house.json`, see `house.py`."""

import ast
import re
import tomllib
from fnmatch import fnmatch

import pytest
from house import MEASURES, ROOT, budget, circles, is_kernel

NEW = "what is new here stays within the limits (CONTRIBUTING.md)"
GONE = "run `python tests/house.py`, which takes them off the list"


@pytest.mark.parametrize("name", MEASURES)
def test_nothing_else_is_too_large_and_nothing_grows(name):
    allowed, found = budget()[name], MEASURES[name]()
    assert {each: by for each, by in found.items() if by > allowed.get(each, 0)} == {}, NEW
    assert allowed.keys() - found.keys() == set(), GONE


def test_no_file_is_exempt_from_a_limit_without_need():
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"]["lint"]
    over = [re.split(": ", each)[::2] for each in budget()["ruff"]]
    for pattern, codes in lint["per-file-ignores"].items():
        if not pattern.startswith(("tests/", "notebooks/")):
            for code in (code for code in codes if code.startswith(("C90", "PLR"))):
                assert any(fnmatch(path, pattern) and code == rule for path, rule in over), (pattern, code)


def test_import_cycles_are_found():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": {"e"}, "e": {"f"}, "f": {"d"}, "g": {"a"}}
    assert sorted(map(sorted, circles(graph))) == [["b", "c"], ["d", "e", "f"]]


@pytest.mark.parametrize(
    ("decorator", "compiled"), [("cuda.jit", True), ("njit(fastmath=True)", True), ("functools.cache", False)]
)
def test_kernels_may_be_longer(decorator, compiled):
    (function,) = ast.parse(f"@{decorator}\ndef f():\n    pass").body
    assert is_kernel(function) == compiled
