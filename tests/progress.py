"""A heartbeat: `StillRunning` names long tests while they run."""

import os
import threading
import time


class StillRunning:
    """Name, repeatedly, each test that has been running for longer than `seconds`.

    A plugin for the process that prints; pytest-xdist informs it about the tests of the others.
    """

    def __init__(self, seconds=60):
        self._seconds = seconds
        self._started = {}
        self._ended = threading.Event()
        self._terminal = os.dup(1)  # pytest turns 1 away while a test runs in this process

    def pytest_sessionstart(self):
        threading.Thread(target=self._watch, daemon=True).start()

    def pytest_sessionfinish(self):
        self._ended.set()

    def pytest_runtest_logstart(self, location):
        self._started[location] = time.monotonic()

    def pytest_runtest_logfinish(self, location):
        self._started.pop(location, None)

    def _watch(self):
        while not self._ended.wait(self._seconds):
            for (path, _, name), start in self._started.copy().items():
                elapsed = time.monotonic() - start
                if elapsed > self._seconds:
                    line = f"\nrunning for {elapsed / 60:.0f} min: {path}::{name}\n"
                    os.write(self._terminal, line.encode())
