import shutil
from pathlib import Path

import pytest
from fresh_python import run_pytest
from helpers import PROGRAMS


@pytest.mark.exhaustive_unless(lambda options: "-n" in options, "where the tests run in other processes")
@pytest.mark.parametrize(
    "options", [["-p", "no:xdist"], ["-n", "1", "--dist", "loadgroup"]], ids=["alone", "xdist"]
)
def test_a_long_test_is_named_while_it_runs(tmp_path, options):
    shutil.copy(PROGRAMS / "conftest_of_progress.py", tmp_path / "conftest.py")
    shutil.copy(PROGRAMS / "suite_that_sleeps.py", tmp_path / "test_sleep.py")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    run = run_pytest("-q", *options, cwd=tmp_path, PYTHONPATH=str(Path(__file__).parents[1]))
    assert run.returncode == 0, run.stdout + run.stderr
    assert "\nrunning for 0 min: test_sleep.py::test_slow\n" in run.stdout
