"""The compiler for real GPUs in forks of one process, for all tests of a process."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
from warm_python import warm


@pytest.fixture(scope="session", autouse=True)
def warm_compiler():
    """Let the compiler for real GPUs run in forks of one process, where that can be done.

    A process of its own takes ten times as long to start as most kernels take to be compiled. Programs that
    tests run have it.
    """
    from gpuless.compiler import jobs

    with pytest.MonkeyPatch.context() as patch:
        if sys.platform.startswith("linux"):
            patch.setattr(jobs, "subprocess", SimpleNamespace(run=_run_warm))
        yield


@pytest.fixture
def cold_compiler(monkeypatch):
    """Let the compiler run as it does for users, in a process of its own."""
    from gpuless.compiler import jobs

    monkeypatch.setattr(jobs, "subprocess", subprocess)


def _run_warm(command, input, env, **options):
    # All kernels there are, for all GPUs, take longer than a program of a test may.
    return warm("hardware").run(command[1:], env, given=input, timeout=3600)
