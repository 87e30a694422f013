"""Kernels for notebooks that begin with what every notebook imports.

A reader's kernel is a new process, and imports for three seconds before it is of use. One of the tests is
a fork of one process that has imported the same, and has compiled and run nothing. Where there is no fork
that programs can rely on, it is a new process as ever.

Run as a script this is the process that is forked: it reads requests, one in a line, and answers in a line.
"""

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from pathlib import Path

IMPORTED = (
    "ipykernel.kernelapp",
    "ipykernel.ipkernel",
    "ipykernel.zmqshell",
    "cnn_numba",
    "numba.cuda",
    "matplotlib.pyplot",
    "matplotlib.backends.backend_agg",
    "matplotlib_inline.backend_inline",
    "cnn_course",
)


# --- In the process that is forked -------------------------------------------------------------------------


def serve():
    """Answer requests until there are no more."""
    # The kernels' own modules are looked for where a new process would look.
    sys.path.remove(os.path.dirname(os.path.abspath(__file__)))
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"  # as ipykernel has it
    for name in IMPORTED:
        __import__(name)
    prepare_to_compile()
    gc.freeze()  # what all share is not looked through in each, and stays shared
    gc.set_threshold(50_000)  # compiling makes small objects by the million, and keeps most
    requests, answers = (os.dup(number) for number in (0, 1))
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(2, 1)
    with open(requests) as lines, open(answers, "w", buffering=1) as output:
        for line in lines:
            what, *given = json.loads(line)
            answer = {"start": _start, "ended": _ended}[what](*given, own=(requests, answers))
            print(json.dumps(answer), file=output)


def prepare_to_compile():
    """Let Numba register what functions it knows, as it does before it compiles the first."""
    from numba.core.registry import cpu_target

    targets = [cpu_target]
    if os.environ.get("NUMBA_ENABLE_CUDASIM", "0") == "0":
        from numba.cuda.descriptor import cuda_target

        targets.append(cuda_target)
    for target in targets:
        target.typing_context.refresh()
        target.target_context.refresh()


def _start(arguments, environment, folder, own):
    """Become a kernel in a fork; return its number."""
    number = os.fork()
    if number:
        os.setpgid(number, number)  # whoever stops the kernel stops its group
        return number
    try:
        for descriptor in own:
            os.close(descriptor)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        # A kernel ends when its parent has; from the environment that is read at import.
        sys.argv[:] = ["ipykernel_launcher", *arguments, f"--IPKernelApp.parent_handle={os.getppid()}"]
        from ipykernel.kernelapp import launch_new_instance

        launch_new_instance()
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(1)


def _ended(number, own):
    """Return the exit status of a kernel that has ended and its processor time, None if it has not."""
    ended, status, usage = os.wait4(number, os.WNOHANG)
    if not ended:
        return None
    return os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime


# --- In the tests ------------------------------------------------------------------------------------------


class Kernel:
    """A kernel, as `jupyter_client` knows a `subprocess.Popen`."""

    stdin = stdout = stderr = None

    def __init__(self, forge, pid):
        self._forge, self.pid, self.returncode = forge, pid, None

    def poll(self):
        """Return the exit status, None as long as there is none."""
        if self.returncode is None:
            ended = self._forge.ask("ended", self.pid)
            if ended:
                self.returncode, seconds = ended
                self._forge.spent += seconds
        return self.returncode

    def wait(self, timeout=None):
        """Wait for the end; return the exit status."""
        pause = threading.Event()
        while self.poll() is None:
            pause.wait(0.02)
        return self.returncode

    def send_signal(self, number):
        """Send a signal, to a kernel that has not ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self):
        """Ask the kernel to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self):
        """End the kernel."""
        self.send_signal(signal.SIGKILL)


class Forge:
    """The process that is forked.

    Attributes
    ----------
    spent : float
        Processor time of the kernels that have ended.
    """

    def __init__(self, environment):
        self.spent = 0.0
        self._turn = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            start_new_session=True,  # Ctrl-C is for the tests
        )

    def ask(self, *request):
        """Send a request; return the answer."""
        with self._turn:
            print(json.dumps(request), file=self._process.stdin)
            return json.loads(self._process.stdout.readline())

    def launch_kernel(self, command, env=None, cwd=None, **options):
        """Start a kernel, as `jupyter_client.launcher.launch_kernel` does."""
        at = command.index("ipykernel_launcher")
        return Kernel(
            self, self.ask("start", command[at + 1 :], dict(env or os.environ), str(cwd or Path.cwd()))
        )

    def close(self):
        """End the process."""
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


if __name__ == "__main__":
    serve()
