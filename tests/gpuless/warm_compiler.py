"""The compiler for real GPUs in forks of one process, for all tests of a process."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
from warm_python import warm


@pytest.fixture(scope="session", autouse=True)
def warm_compiler():
    """Run the compiler for real GPUs in forks of one process, if possible.

    Starting a process takes ten times as long as compiling most kernels. Programs that
    tests run still do so.
    """
    from gpuless.compiler import jobs

    with pytest.MonkeyPatch.context() as patch:
        if sys.platform.startswith("linux"):
            patch.setattr(jobs, "subprocess", SimpleNamespace(run=_run_warm))
        yield


@pytest.fixture
def cold_compiler(monkeypatch):
    """Run the compiler as for users, in its own process."""
    from gpuless.compiler import jobs

    monkeypatch.setattr(jobs, "subprocess", subprocess)


def _run_warm(command, input, env, **options):
    # All kernels for all GPUs take longer than the limit for a program of a test.
    return warm("hardware").run(command[1:], env, given=input, timeout=3600)
