"""Kernels for notebooks that start with every notebook's imports: see `warm_python`."""

import os
import signal
import threading

from warm_python import WarmPython

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


class Kernel:
    """A kernel, as `jupyter_client` knows a `subprocess.Popen`."""

    stdin = stdout = stderr = None

    def __init__(self, forge, pid):
        self._forge, self.pid, self.returncode = forge, pid, None

    def poll(self):
        """Return the exit status, None before the end."""
        if self.returncode is None and (ended := self._forge.ended(self.pid)):
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


class Forge(WarmPython):
    """The process that is forked.

    Attributes
    ----------
    spent : float
        Processor time of the kernels that have ended.
    """

    def __init__(self, environment):
        self.spent = 0.0
        inline = "module://matplotlib_inline.backend_inline"  # as ipykernel has it
        super().__init__(environment | {"MPLBACKEND": inline}, IMPORTED)

    def launch_kernel(self, command, env=None, cwd=None, **options):
        """Start a kernel, as `jupyter_client.launcher.launch_kernel` does."""
        program = command[command.index("ipykernel_launcher") - 1 :]
        # A kernel ends with its parent; this environment variable is read at import.
        program.append(f"--IPKernelApp.parent_handle={self.pid}")
        return Kernel(self, self.start(program, env or os.environ, cwd))
