"""Whether this process is the command line, and what Ctrl-C does to it while nothing can catch it.

The command line imports the package, which takes a second, before its `main` runs.
"""

import signal
import sys
from pathlib import Path

_NAME = Path((sys.argv or [""])[0]).stem
# -m: Python imports a module's package before it sets the name of the program.
_AS_MODULE = _NAME == "-m" and not {"cnn_numba", "-mcnn_numba"}.isdisjoint(sys.orig_argv)
COMMAND_LINE = _NAME == "cnn-numba" or _AS_MODULE


def interrupts(kill: bool) -> None:
    """Let Ctrl-C end the command line at once, without a traceback, or raise KeyboardInterrupt.

    Other programs, and a command line that ignores Ctrl-C, stay as they are.
    """
    handlers = signal.default_int_handler, signal.SIG_DFL
    before, after = handlers if kill else handlers[::-1]
    if COMMAND_LINE and signal.getsignal(signal.SIGINT) is before:
        signal.signal(signal.SIGINT, after)


interrupts(kill=True)
