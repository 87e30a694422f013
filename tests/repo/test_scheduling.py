import shutil
from pathlib import Path

from fresh_python import run_pytest
from helpers import PROGRAMS

FILES = {
    "test_bench.py": "def test_a(): pass",
    "test_start.py": "def test_a(): pass",
    "test_few.py": "def test_a(): pass",
    "test_many.py": "def test_a(): pass\ndef test_b(): pass",
    "test_notebooks.py": "import pytest\n@pytest.mark.slow\ndef test_z(): pass\ndef test_a(): pass",
    "test_slow.py": "import pytest\ndef test_b(): pass\n@pytest.mark.slow\ndef test_a(): pass",
}


def test_files_that_compile_for_others_and_slow_files_come_first(tmp_path):
    shutil.copy(PROGRAMS / "conftest_of_scheduling.py", tmp_path / "conftest.py")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow")
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    run = run_pytest("-v", "-n", "1", cwd=tmp_path, PYTHONPATH=str(Path(__file__).parents[1]))
    assert run.returncode == 0, run.stdout + run.stderr
    assert [line.split()[-1] for line in run.stdout.splitlines() if "PASSED" in line] == [
        "test_start.py::test_a",
        "test_bench.py::test_a",
        "test_slow.py::test_b",
        "test_slow.py::test_a",
        "test_notebooks.py::test_z",
        "test_many.py::test_a",
        "test_many.py::test_b",
        "test_few.py::test_a",
        "test_notebooks.py::test_a",
    ]


def test_a_test_that_crashes_its_process_is_not_run_again(tmp_path):
    shutil.copy(PROGRAMS / "conftest_of_scheduling.py", tmp_path / "conftest.py")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow")
    ends = "import os\ndef test_a(): pass\ndef test_b(): os._exit(1)\ndef test_c(): pass"
    for name, text in {"test_ends.py": ends, "test_more.py": "def test_a(): pass"}.items():
        (tmp_path / name).write_text(text)
    run = run_pytest("-n", "2", cwd=tmp_path, PYTHONPATH=str(Path(__file__).parents[1]))
    assert run.returncode == 1, run.stdout + run.stderr
    assert "FAILED test_ends.py::test_b" in run.stdout
    assert "1 failed, 3 passed" in run.stdout
