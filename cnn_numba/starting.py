"""Whether this process is the command line, and what Ctrl-C does to it while nothing can catch it.

The command line imports the package, which takes a second, before its `main` runs.
"""

import re
import signal
import sys
import threading
from pathlib import Path

_NAME = Path((sys.argv or [""])[0]).name
# Python imports a module's package before it sets the name of the program.
_IS_MODULE = _NAME == "-m" and re.search(r"(^| )-m ?cnn_numba( |$)", " ".join(sys.orig_argv)) is not None
COMMAND_LINE = _NAME in ("cnn-numba", "cnn-numba.exe") or _IS_MODULE


def interrupts(kill: bool) -> None:
    """Let Ctrl-C end the command line at once, without a traceback, or raise KeyboardInterrupt.

    Other programs, and a command line that ignores Ctrl-C, stay as they are.
    """
    handlers = signal.default_int_handler, signal.SIG_DFL
    before, after = handlers if kill else handlers[::-1]
    in_main_thread = threading.current_thread() is threading.main_thread()  # no other may set a handler
    if COMMAND_LINE and in_main_thread and signal.getsignal(signal.SIGINT) is before:
        signal.signal(signal.SIGINT, after)


interrupts(kill=True)
