"""A pool of threads that run kernels; waiting for them can be interrupted at any moment."""

import _thread
import threading
import time
from queue import SimpleQueue


class Task:
    """A call in another thread; waiting for it can be interrupted at any moment.

    If a wait for a `concurrent.futures.Future` is interrupted at a bad moment, a lock stays held, and the
    other thread waits for it forever. The same is true of joining a `threading.Thread`.

    `done`: whether the call is over.
    """

    def __init__(self, function, arguments):
        self.done, self._function, self._arguments = False, function, arguments
        self._result = self._error = None
        self._running = threading.Lock()  # released when the call is over; not used after that
        self._running.acquire()
        self._taken = {}

    def run(self):
        """Make the call, unless it was withdrawn."""
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
        """Cancel the call if it has not begun; return whether that succeeded."""
        return self._take("nobody")

    def _take(self, taker):
        return self._taken.setdefault("by", taker) == taker  # atomic

    def end(self):
        """Mark the call as over."""
        self.done = True
        self._running.release()

    def wait(self, seconds):
        """Wait at most so many seconds; return whether the call is over.

        One of several waiters is notified at once, the others when their time is over.
        """
        if not self.done:
            self._running.acquire(timeout=max(0.0, seconds))
        return self.done

    def result(self):
        """Return the result of the call, or raise its exception."""
        if self._error is not None:
            raise self._error
        return self._result


def all_done(tasks, seconds):
    """Wait for tasks at most so many seconds; return whether all are over."""
    end = time.monotonic() + seconds
    return all(task.wait(end - time.monotonic()) for task in tasks)


class Pool:
    """At most `most` threads, started on demand, that end with the process whatever they do.

    Those of `concurrent.futures` keep the process alive until their kernels end, and accept no work after the
    main thread has ended.
    """

    def __init__(self, most):
        self._most, self._lock = most, threading.Lock()
        self._tasks, self._count, self._free, self._behind = SimpleQueue(), 0, 0, 0
        self.closed = False

    def submit(self, function, *arguments):
        """Let a thread call a function; return the `Task`.

        Raises MemoryError if a thread is needed and cannot be started.
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
            _thread.start_new_thread(self._run, ())  # atomic, unlike `threading.Thread.start`
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
        while self.closed:  # the process is ending: report nothing
            threading.Event().wait()
        task.end()
