"""`exhaustive_unless` keeps the right cases, and `make test` counts what it leaves out."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from exhaustive import mark_repetitions
from fresh_python import run_pytest


class Item:
    """A collected test with one mark, as far as `mark_repetitions` needs it."""

    nodeid = "test_file.py::test"

    def __init__(self, mark, **params):
        self.marks, self.callspec = [mark.mark], SimpleNamespace(params=params)

    def get_closest_marker(self, name):
        return next((mark for mark in self.marks if mark.name == name), None)

    def add_marker(self, mark):
        self.marks.append(mark.mark)


EVEN = pytest.mark.exhaustive_unless(lambda number: number % 2 == 0, "even numbers")


def test_other_cases_are_exhaustive():
    items = [Item(EVEN, number=number, other="x") for number in range(3)]
    mark_repetitions(items)
    mark_repetitions(items)  # conftest.py of gpuless and that of the course both do
    assert [[mark.name for mark in item.marks[1:]] for item in items] == [[], ["exhaustive"], []]
    assert items[1].marks[1].args == ("even numbers",)


def test_an_unknown_parameter_name_is_an_error():
    with pytest.raises(pytest.UsageError, match=r"^test_file\.py::test: .* no parameter: \['number'\]$"):
        mark_repetitions([Item(EVEN, size=1)])


@pytest.mark.exhaustive_unless(lambda processes: processes == "1", "where another process counts them")
@pytest.mark.parametrize("processes", ["0", "1"])
def test_make_test_leaves_out_repetitions_and_counts_them(processes):
    chosen = "-k", "train_alike", "-m", "not exhaustive", "tests/ops/test_jit.py"
    run = run_pytest("-q", "-n", processes, *chosen, cwd=Path(__file__).parents[2])
    assert run.returncode == 5, run.stdout + run.stderr  # nothing is left
    assert "\n1 exhaustive tests, which repeat other proofs, are left to `make test-all`." in run.stdout
