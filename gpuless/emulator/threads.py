"""Threads that run kernels."""

import contextlib
import threading
from concurrent.futures import Future
from queue import SimpleQueue


class Pool:
    """Threads that end with the process, whatever they do.

    Those of `concurrent.futures` would keep it alive until a kernel has come to its end, and take no more
    work when the main thread has.

    Parameters
    ----------
    most : int
        How many there are at most; they are started when they are needed.
    name : str
    """

    def __init__(self, most, name):
        self._most, self._name, self._lock = most, name, threading.Lock()
        self._tasks, self._count, self._free, self._behind = SimpleQueue(), 0, 0, 0
        self.closed = False

    def submit(self, function, *arguments):
        """Let a thread call a function; return its `Future`.

        Raises
        ------
        MemoryError
            If there is no thread for it, and none can be started.
        """
        if self.closed:
            raise RuntimeError("the process is at its end, and runs no more kernels")
        future = Future()
        with self._lock:
            if self._free:
                self._free -= 1
            elif self._count < self._most:
                self._start()
                self._count += 1
            else:
                self._behind += 1
            self._tasks.put((future, function, arguments))
        return future

    def _start(self):
        name = f"{self._name}_{self._count + 1}"
        try:
            threading.Thread(target=self._run, name=name, daemon=True).start()
        except RuntimeError as error:
            raise MemoryError(f"the operating system starts no more than {self._count} threads") from error

    def _run(self):
        while True:
            self._do(*self._tasks.get())
            with self._lock:
                if self._behind:
                    self._behind -= 1
                else:
                    self._free += 1

    def _do(self, future, function, arguments):
        try:
            result, error = function(*arguments), None
        except BaseException as raised:
            result, error = None, raised
        while self.closed:  # the process ends, and nobody is to hear of it
            threading.Event().wait()
        with contextlib.suppress(Exception):
            future.set_result(result) if error is None else future.set_exception(error)
