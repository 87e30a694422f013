"""A time limit for a learner's function; kernels have a limit anyway."""

import contextlib
import signal
import sys
import threading
import time

from cnn_course.engine.checks import errors
from cnn_course.engine.checks.evidence import Wrong
from cnn_course.engine.checks.uninitialised import code_of

#: The most seconds of computing for the calls of a check: far more than right answers take.
LIMIT = 60.0


@contextlib.contextmanager
def limited(attempt):
    """Raise `Wrong`, with the line that runs, in code that computes for too long.

    Only the main thread's own computing counts, so a busy machine does not matter. There is no limit without
    alarms (on Windows and in a page), in other threads, and if other code uses the timer.
    """
    if not _has_alarm():
        yield
        return
    begin, is_over = time.thread_time(), False

    def stop(number, frame):
        if not is_over and time.thread_time() - begin >= LIMIT:
            message = (
                f"Your function was stopped after {LIMIT:g} seconds of computing. Is there an endless loop? "
                "Does each round change what its condition tests?"
            )
            raise Wrong("does not end", message, *_line_of(frame, attempt))

    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, LIMIT, LIMIT / 60)
        yield
    finally:
        is_over = True
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _has_alarm():
    """Return whether this thread can set an alarm that nothing else uses."""
    if not hasattr(signal, "setitimer") or sys.platform == "emscripten":
        return False
    is_main = threading.current_thread() is threading.main_thread()
    is_free = signal.getsignal(signal.SIGALRM) is not None and not signal.getitimer(signal.ITIMER_REAL)[0]
    return is_main and is_free


def _line_of(frame, attempt):
    """Return the line of the attempt that runs, in a tuple; an empty one if it is not known."""
    code = code_of(attempt)
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return (errors.place_of(frame.f_lineno, code, "function"),) if frame else ()
