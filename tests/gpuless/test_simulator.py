"""The simulator's own tests, in a process that has it where kernels run on something else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import gpuless

HERE = Path(__file__).parent
FILES = [*sorted(HERE.glob("test_simulator_*.py")), HERE / "test_sanitizer.py", HERE / "test_access.py"]


@pytest.mark.slow
@pytest.mark.skipif(gpuless.select().simulated, reason="they run by themselves")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_in_a_process_with_the_simulator(file, request):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(file)],
        env=os.environ | {"GPULESS": "simulator"},
        cwd=request.config.rootpath,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    summary = done.stdout.splitlines()[-1]
    assert "passed" in summary
    assert "skipped" not in summary
