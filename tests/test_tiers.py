"""Each entry of the tiers' list is of a test that there is, and what `make test` leaves out is told."""

from pathlib import Path

import pytest
import tiers
from fresh_python import run_pytest


@pytest.mark.parametrize("entry", tiers.REPETITIONS, ids=lambda entry: entry.test)
def test_an_entry_is_of_a_test(entry):
    assert f"\ndef {entry.test}(" in (tiers.FOLDER / entry.file).read_text()


def test_a_test_has_one_entry():
    assert len(tiers._BY_TEST) == len(tiers.REPETITIONS)


@pytest.mark.parametrize("processes", ["0", "1"])
def test_make_test_leaves_repetitions_out_and_says_how_many(processes):
    chosen = "-k", "train_alike", "-m", "not exhaustive", "tests/ops/test_jit.py"
    run = run_pytest("-q", "-n", processes, *chosen, cwd=Path(__file__).parents[1])
    assert run.returncode == 5, run.stdout + run.stderr  # nothing is left
    assert "\n1 exhaustive tests, which repeat other proofs, are left to `make test-all`." in run.stdout
