"""Programs in forks of a process with their imports: they run and end as in a new process."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import warm_python
from warm_python import warm

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is no fork to rely on")
HERE = Path(__file__).parent
#: That of gpuless, and that of the project around it, if there is one.
CONFTESTS = [path for path in (HERE / "conftest.py", HERE.parent / "conftest.py") if path.exists()]


def run(*program, **options):
    """Run a program in a fork; return its status and output."""
    done = warm("hardware").run(program, os.environ | {"GPULESS_OF_THIS": "one"}, **options)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_a_program_has_its_arguments_its_input_and_its_environment():
    lines = "import os, sys; print(sys.argv, __name__, sys.stdin.read(), os.environ['GPULESS_OF_THIS'])"
    assert run("-c", lines, "a", given=b"b") == (0, "['-c', 'a'] __main__ b one\n", "")


def test_a_program_ends_with_its_status_after_its_exit_handlers():
    assert run("-c", "import atexit; atexit.register(print, 'end'); exit(3)") == (3, "end\n", "")
    status, _, errors = run("-c", "raise KeyError('why')")
    assert (status, errors.splitlines()[-1]) == (1, "KeyError: 'why'")
    assert run("-c", "import os; os.abort()")[0] < 0


def test_a_program_does_not_affect_the_next_one(tmp_path):
    path = tmp_path / "program.py"
    path.write_text("import numpy, sys; print(hasattr(numpy, 'mine'), sys.argv[1:]); numpy.mine = 1")
    assert [run(str(path), "x")[1] for _ in range(2)] == ["False ['x']\n"] * 2


def test_a_program_that_takes_too_long_is_stopped():
    with pytest.raises(subprocess.TimeoutExpired):
        run("-c", "import time; time.sleep(600)", timeout=1)
    assert run("-c", "print(1)") == (0, "1\n", "")


@pytest.mark.parametrize("conftest", CONFTESTS, ids=lambda path: path.parent.name)
def test_interrupts_reach_the_programs_of_a_run_in_the_background(conftest):
    """A shell lets such a run ignore them; endless kernels would run until their test's limit."""
    lines = f"import runpy, signal; signal.signal(2, signal.SIG_IGN); runpy.run_path({str(conftest)!r});"
    lines += "print(signal.getsignal(2) is signal.default_int_handler)"
    done = warm("hardware").run(["-c", lines], os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    assert (done.stdout, done.stderr) == (b"True\n", b"")


def test_threads_that_ask_at_once_share_one_process(monkeypatch):
    def made(*arguments):
        time.sleep(0.1)
        return SimpleNamespace(close=lambda: None)

    monkeypatch.setattr(warm_python, "WarmPython", made)
    monkeypatch.setitem(warm_python.IMPORTED, "two threads", ())
    with ThreadPoolExecutor(2) as threads:
        one, other = threads.map(warm, ["two threads"] * 2)
    assert one is other
