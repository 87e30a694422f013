"""Each entry of the tiers' list is of a test that there is, and what `make test` leaves out is told."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tiers


@pytest.mark.parametrize("entry", tiers.REPETITIONS, ids=lambda entry: entry.test)
def test_an_entry_is_of_a_test(entry):
    assert f"\ndef {entry.test}(" in (tiers.FOLDER / entry.file).read_text()


def test_a_test_has_one_entry():
    assert len(tiers._BY_TEST) == len(tiers.REPETITIONS)


@pytest.mark.parametrize("processes", ["0", "1"])
def test_make_test_leaves_repetitions_out_and_says_how_many(processes):
    file = "tests/ops/test_jit.py"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        processes,
        "-k",
        "train_alike",
        "-p",
        "no:cacheprovider",
    ]
    run = subprocess.run(
        [*command, "-m", "not exhaustive", file],
        cwd=Path(__file__).parents[1],
        env=os.environ,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 5, run.stdout + run.stderr  # nothing is left
    assert "\n1 exhaustive tests, which repeat other proofs, are left to `make test-all`." in run.stdout
