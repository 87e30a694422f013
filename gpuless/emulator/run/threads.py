"""Threads that run kernels."""

import _thread
import threading
import time
from queue import SimpleQueue


class Task:
    """A call that a thread makes for another, which may be interrupted at any moment while it waits.

    A `concurrent.futures.Future` is left with a lock held if that comes at a bad one, and the thread that has
    made the call waits for that lock for ever. So is the one of a `threading.Thread` that is joined.

    `done`: whether the call is over.
    """

    def __init__(self, function, arguments):
        self.done, self._function, self._arguments = False, function, arguments
        self._result = self._error = None
        self._running = threading.Lock()  # released when it is over, and of no use from then on
        self._running.acquire()
        self._taken = {}

    def run(self):
        """Make the call, if nobody has withdrawn it."""
        if not self._take("thread"):
            return
        try:
            self._result = self._function(*self._arguments)
        except BaseException as raised:
            self._error = raised

    @property
    def begun(self):
        """Whether the call has begun."""
        return self._taken.get("by") == "thread"

    def withdraw(self):
        """Let the call not be made, if it has not begun; return whether that is so."""
        return self._take("nobody")

    def _take(self, taker):
        return self._taken.setdefault("by", taker) == taker  # in one step, which nothing interrupts

    def end(self):
        """Let the call be over."""
        self.done = True
        self._running.release()

    def wait(self, seconds):
        """Wait for the end, for so long at most; return whether it has come.

        One of several waiters is notified at once, the others when their time is over.
        """
        if not self.done:
            self._running.acquire(timeout=max(0.0, seconds))
        return self.done

    def result(self):
        """Return what the call has returned, or raise what it has raised."""
        if self._error is not None:
            raise self._error
        return self._result


def all_done(tasks, seconds):
    """Wait for tasks, at most this many seconds; return whether all are over."""
    end = time.monotonic() + seconds
    return all(task.wait(end - time.monotonic()) for task in tasks)


class Pool:
    """Threads that end with the process, whatever they do.

    Those of `concurrent.futures` would keep it alive until a kernel has come to its end, and take no more
    work when the main thread has.

    `most`: how many there are at most; they are started when they are needed.
    """

    def __init__(self, most):
        self._most, self._lock = most, threading.Lock()
        self._tasks, self._count, self._free, self._behind = SimpleQueue(), 0, 0, 0
        self.closed = False

    def submit(self, function, *arguments):
        """Let a thread call a function; return the `Task`.

        Raises MemoryError if there is no thread for it, and none can be started.
        """
        if self.closed:
            raise RuntimeError("the process is at its end, and runs no more kernels")
        task = Task(function, arguments)
        with self._lock:
            if self._free:
                self._free -= 1
            elif self._count < self._most:
                self._start()
                self._count += 1
            else:
                self._behind += 1
            self._tasks.put(task)
        return task

    def _start(self):
        try:
            _thread.start_new_thread(self._run, ())  # in one step, unlike `threading.Thread.start`
        except RuntimeError as error:
            raise MemoryError(f"the operating system starts no more than {self._count} threads") from error

    def _run(self):
        while True:
            self._do(self._tasks.get())
            with self._lock:
                if self._behind:
                    self._behind -= 1
                else:
                    self._free += 1

    def _do(self, task):
        task.run()
        while self.closed:  # the process ends, and nobody is to hear of it
            threading.Event().wait()
        task.end()
