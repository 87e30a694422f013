"""Processes that begin with what many programs import: forks of one that has, and has done nothing else.

Most programs of a test take a second for their imports, and a few hundredths for what they are about. Where
there is no fork that programs can rely on, each is run by a fresh interpreter.

Run as a script this is the process that is forked: it reads requests, one in a line, and answers in a line.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

#: What may be imported beforehand, by the value of ``GPULESS``: what programs on the emulated GPU need, and
#: what the compiler for real GPUs does.
IMPORTED = {
    "emulator": ("numpy", "numba.cuda", "cuda.bindings.driver", "gpuless.emulator.run.launch"),
    "hardware": ("numpy", "numba.cuda", "cuda.bindings.nvvm", "cuda.bindings.nvjitlink", "cuda.pathfinder"),
}


# --- In the process that is forked -------------------------------------------------------------------------


def serve():
    """Answer requests until there are no more; in a fork, return the program that it is to run."""
    sys.path.remove(os.path.dirname(os.path.abspath(__file__)))
    wanted = os.environ["GPULESS"]
    if wanted == "emulator":
        importlib.import_module("gpuless").select()
    for name in IMPORTED[wanted]:
        importlib.import_module(name)
    prepare_to_compile()
    gc.freeze()  # what all share is not looked through in each, and stays shared
    requests, answers = (os.dup(number) for number in (0, 1))
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(2, 1)
    with open(requests) as lines, open(answers, "w", buffering=1) as output:
        for line in lines:
            program, files, environment = json.loads(line)
            number = os.fork()
            if not number:
                break
            print(json.dumps(number), file=output)
            print(json.dumps(os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])), file=output)
        else:
            return None
    for number, (path, flags) in enumerate(zip(files, (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY), strict=True)):
        os.dup2(os.open(path, flags), number)
    os.environ.clear()
    os.environ.update(environment)
    return program


def prepare_to_compile():
    """Let Numba register what functions it knows, as it does before it compiles the first."""
    from numba.cuda.descriptor import cuda_target

    cuda_target.typing_context.refresh()
    cuda_target.target_context.refresh()


def run_program(options):
    """Run a program that is given as to Python: a file, ``-c`` and a text, or ``-m`` and a module."""
    kind, rest = options[0], options[1:]
    sys.argv[:] = options
    if kind == "-c":
        sys.argv[:] = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    elif kind == "-m":
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, os.path.dirname(kind))
        runpy.run_path(kind, run_name="__main__")


# --- In the tests ------------------------------------------------------------------------------------------


class WarmPython:
    """A process that is forked for each program.

    `environment`: its own, with ``GPULESS``, by which it knows what to import.
    """

    def __init__(self, environment):
        self._turn = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", __file__],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            start_new_session=True,  # Ctrl-C is for the tests
        )

    def run(self, program, environment, given=b"", timeout=300):
        """Run a program to its end; return the process, as `subprocess.run` does."""
        with tempfile.TemporaryDirectory() as folder, self._turn:
            files = [Path(folder, name) for name in ("input", "output", "errors")]
            for file, content in zip(files, (given, b"", b""), strict=True):
                file.write_bytes(content)
            options = [str(each) for each in program]
            print(json.dumps([options, [*map(str, files)], dict(environment)]), file=self._process.stdin)
            number = self._answer()
            late = threading.Timer(timeout, kill, [number])
            late.start()
            status = self._answer()
            late.cancel()
            if late.finished.is_set() and status == -signal.SIGKILL:
                raise subprocess.TimeoutExpired(options, timeout)
            return subprocess.CompletedProcess(options, status, *(file.read_bytes() for file in files[1:]))

    def _answer(self):
        return json.loads(self._process.stdout.readline())

    def close(self):
        """End the process."""
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


@functools.cache
def warm(wanted, path):
    """Return the process for programs with this ``GPULESS``, and ``PYTHONPATH``; it ends with this one."""
    environment = os.environ | {"GPULESS": wanted, "PYTHONPATH": path}
    environment.pop("NUMBA_ENABLE_CUDASIM", None)
    made = WarmPython(environment)
    atexit.register(made.close)
    return made


def kill(number):
    """End a process, if it has not ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(number, signal.SIGKILL)


if __name__ == "__main__" and (options := serve()):
    run_program(options)
