"""Calls that can wait without being generators: each runs in its own thread.

This is slower than a generator and needs an operating system with threads, so it is only for functions that
cannot be rewritten as generators, such as a kernel without source.
"""

import contextvars
import sys
import threading
import types


def suspended_frames(generator):
    """Return the frames of a suspended generator and those that it delegates to, the innermost first."""
    frames = []
    while getattr(generator, "gi_frame", None) is not None:
        frames.append(generator.gi_frame)
        generator = generator.gi_yieldfrom
    return frames[::-1]


class Coroutine:
    """A call that waits for its caller; like a generator, it has `send` and `close`.

    It runs in its own thread, but only while `send` waits for it, and in the caller's context.

    Parameters
    ----------
    function : callable
    *arguments
        The function's arguments.

    Examples
    --------
    >>> def ask(names):
    ...     for name in names:
    ...         print(name, coroutine.wait("how much?"))
    >>> coroutine = Coroutine(ask, ["a", "b"])
    >>> coroutine.send(None)
    'how much?'
    >>> coroutine.send(3)
    a 3
    'how much?'
    >>> coroutine.close()
    """

    def __init__(self, function, *arguments):
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._sent = self._came = self._error = None
        self._runs = self._closed = False
        # While the call waits: its innermost frame, and the generator that waits, if one does.
        self._frame = self._suspended = None
        work = self._run, sys.gettrace(), function, arguments
        self._thread = threading.Thread(target=contextvars.copy_context().run, args=work, daemon=True)
        self._thread.start()

    def send(self, value):
        """Resume the call with a value; return the value that it waits with. At the end: StopIteration."""
        self._sent, self._runs = value, True
        self._go.release()
        self._back.acquire()
        self._runs = False
        if self._error is not None:
            raise self._error
        return self._came

    def wait(self, value, generator=None):
        """Within the call: hand a value to the caller, and return the value that it sends."""
        self._came, self._frame, self._suspended = value, sys._getframe(1), generator
        self._back.release()
        self._go.acquire()
        if self._closed:
            sys.settrace(None)
            raise GeneratorExit
        self._frame = self._suspended = None
        return self._sent

    def run(self, generator):
        """Within the call: wait whenever a generator yields; return its result."""
        result = None
        while True:
            try:
                wait = generator.send(result)
            except StopIteration as end:
                return end.value
            result = self.wait(wait, generator)

    @property
    def frames(self):
        """The frames of the call while it waits, the innermost first."""
        frames, frame = suspended_frames(self._suspended), self._frame
        while frame is not None and frame.f_code is not Coroutine._run.__code__:
            frames.append(frame)
            frame = frame.f_back
        return frames

    def close(self):
        """End the call where it waits."""
        self._closed = True
        self._go.release()
        if not self._runs:  # it still runs if `send` was interrupted
            self._thread.join()

    def _run(self, tracer, function, arguments):
        sys.settrace(tracer)
        self._go.acquire()
        try:
            result = None if self._closed else function(*arguments)
            if isinstance(result, types.GeneratorType):
                self.run(result)
            self._error = StopIteration()
        except BaseException as error:
            self._error = error
        finally:
            function = arguments = result = None
            self._back.release()
