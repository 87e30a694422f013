"""Processes that start with the imports of many programs: forks of a process that did only these imports.

Most programs of a test take a second for their imports, and a few hundredths for their work; a
kernel for a notebook takes three. On systems without a reliable fork each is run by a fresh
interpreter.

As a script this is the forked process: it reads requests and answers them, one per line.
"""

import atexit
import contextlib
import functools
import gc
import importlib.util
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

#: Imports, if installed, by the value of ``GPULESS``: those of programs on the
#: emulated GPU and of models of their launches, and those of the compiler for real GPUs, which looks for a
#: kernel in the module of its test, which imports pytest and what it tests.
IMPORTED = {
    "emulator": (
        *("numpy", "numba.cuda", "cuda.bindings.driver", "gpuless.emulator.run.launch"),
        *("scipy.optimize", "gpuless.profile.command", "gpuless.profile.watched", "pytest"),
    ),
    "hardware": (
        *("numpy", "numba.cuda", "cuda.bindings.nvvm", "cuda.bindings.nvjitlink", "cuda.pathfinder"),
        *("gpuless.compiler.worker", "gpuless.emulator.run.recording", "gpuless.profile.report", "pytest"),
    ),
}


# --- In the process that is forked -------------------------------------------------------------------------


def serve(imported):
    """Answer requests until there are no more; in a fork, return the program to run."""
    # Imports use the path of a new process.
    sys.path.remove(os.path.dirname(os.path.abspath(__file__)))
    if os.environ.get("GPULESS") == "emulator":
        importlib.import_module("gpuless").select()
    for name in imported:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)
    prepare_to_compile()
    gc.freeze()  # shared objects are not garbage-collected, and stay shared
    gc.set_threshold(50_000)  # compiling makes small objects by the million, and keeps most
    requests, answers = (os.dup(number) for number in (0, 1))
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(2, 1)
    with open(requests) as lines, open(answers, "w", buffering=1) as output:
        for line in lines:
            what, *given = json.loads(line)
            if what == "ended":
                answer = ended(*given)
            elif answer := os.fork():
                os.setpgid(answer, answer)  # a kernel is stopped with its group
            else:
                break
            print(json.dumps(answer), file=output)
        else:
            return None
    return become(*given)


def prepare_to_compile():
    """Make Numba register its functions, as before its first compilation."""
    from numba.core.registry import cpu_target

    targets = [cpu_target]
    if os.environ.get("NUMBA_ENABLE_CUDASIM", "0") == "0":
        from numba.cuda.descriptor import cuda_target

        targets.append(cuda_target)
    for target in targets:
        target.typing_context.refresh()
        target.target_context.refresh()


def ended(number, wait):
    """Return the exit status of a fork that has ended and its processor time, None if it has not."""
    number, status, usage = os.wait4(number, 0 if wait else os.WNOHANG)
    return (os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime) if number else None


def become(program, environment, folder, files):
    """Set up the inputs of a program; return the program."""
    for number, path in enumerate(files):
        os.dup2(os.open(path, os.O_WRONLY if number else os.O_RDONLY), number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    given = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:0] = [place for place in given if place not in sys.path]
    return program


def run_program(options):
    """Run a program with Python's arguments: a file, ``-c`` and a text, or ``-m`` and a module."""
    kind, rest = options[0], options[1:]
    sys.argv[:] = options
    if kind == "-c":
        sys.argv[:] = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    elif kind == "-m":
        sys.argv[:] = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, os.path.dirname(kind))
        runpy.run_path(kind, run_name="__main__")


def end():
    """End as a process does, without clearing up what it shares: that takes longer than most programs.

    The program's own objects are gone by now.
    """
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)


# --- In the tests ------------------------------------------------------------------------------------------


class WarmPython:
    """A process that is forked for each program.

    `environment` is its own, `imported` names its imports.
    """

    def __init__(self, environment, imported):
        self._turn = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, __file__, *imported],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            start_new_session=True,  # Ctrl-C is for the tests
        )
        self.pid = self._process.pid

    def _ask(self, *request):
        with self._turn:
            print(json.dumps(request), file=self._process.stdin)
            return json.loads(self._process.stdout.readline())

    def start(self, program, environment, folder=None, files=()):
        """Start a program; return the number of its process.

        `files` are its streams; without them it reads nothing, and prints only errors.
        """
        program = [str(each) for each in program]
        return self._ask("start", program, dict(environment), str(folder or Path.cwd()), [*map(str, files)])

    def ended(self, number, wait=False):
        """Return the exit status of a program and its processor time, None before its end."""
        return self._ask("ended", number, wait)

    def run(self, program, environment, given=b"", timeout=300, folder=None):
        """Run a program to its end; return the process, as `subprocess.run` does."""
        with tempfile.TemporaryDirectory() as streams:
            files = [Path(streams, name) for name in ("input", "output", "errors")]
            for file, content in zip(files, (given, b"", b""), strict=True):
                file.write_bytes(content)
            number = self.start(program, environment, folder, files)
            late = threading.Timer(timeout, kill, [number])
            late.start()
            status, _ = self.ended(number, wait=True)
            late.cancel()
            if late.finished.is_set() and status == -signal.SIGKILL:
                raise subprocess.TimeoutExpired(program, timeout)
            return subprocess.CompletedProcess(program, status, *(file.read_bytes() for file in files[1:]))

    def close(self):
        """End the process."""
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def warm(wanted):
    """Return the process for programs with this ``GPULESS``; it ends with this one."""
    with _STARTING:  # threads that ask at once would each start one
        return _warm(wanted)


_STARTING = threading.Lock()


@functools.cache
def _warm(wanted):
    path = str(Path(importlib.util.find_spec("gpuless").origin).parents[1])
    environment = os.environ | {"GPULESS": wanted, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore"}
    environment.pop("NUMBA_ENABLE_CUDASIM", None)
    made = WarmPython(environment, IMPORTED[wanted])
    atexit.register(made.close)
    return made


def kill(number):
    """End a process, if it has not ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(number, signal.SIGKILL)


if __name__ == "__main__" and (options := serve(sys.argv[1:])):
    run_program(options)
    end()
