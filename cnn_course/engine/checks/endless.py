"""A limit for a learner's function that does not end: kernels have one of their own, Python has none."""

import contextlib
import signal
import sys
import threading
import time

from cnn_course.engine.checks import errors
from cnn_course.engine.checks.evidence import Wrong
from cnn_course.engine.checks.uninitialised import code_of

#: Seconds that a call may compute for: far more than any right answer takes.
LIMIT = 60.0


@contextlib.contextmanager
def limited(attempt):
    """End what goes on for too long, or what the learner stops, by a `Wrong` with the line that ran.

    The seconds are those of the main thread's own computing, on a busy machine too. Where there are no
    alarms, as on Windows, in a page, in another thread or beside a timer of others, there is no limit.
    """
    with_alarm = hasattr(signal, "setitimer") and sys.platform != "emscripten"
    with_alarm = with_alarm and threading.current_thread() is threading.main_thread()
    if not with_alarm or signal.getitimer(signal.ITIMER_REAL)[0]:
        yield
        return
    begin = time.thread_time()

    def stop(number, frame):
        if time.thread_time() - begin >= LIMIT:
            message = (
                f"Your function does not end: it was stopped after {LIMIT:g} seconds. Does each round of its "
                "loop change what the condition asks for?"
            )
            raise Wrong("does not end", message, *_line_of(frame, attempt))

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, LIMIT, LIMIT / 60)
    try:
        yield
    except KeyboardInterrupt as error:
        line = errors.line_of(error, attempt, "function")
        raise Wrong("stopped", "You stopped the check while it ran your function.", *line) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _line_of(frame, attempt):
    """Return the line of the attempt that runs, in a tuple; an empty one if it is not known."""
    code = code_of(attempt)
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return (errors.place_of(frame.f_lineno, code, "function"),) if frame else ()
