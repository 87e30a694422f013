"""Heartbeats: which workers are alive, and why the others ended."""

import threading
import time
from contextlib import suppress

#: Seconds that the store's host waits for the others to read why it ends.
LINGER = 3.0
#: Seconds without a round after which a worker was stopped itself, and can't judge the others.
STOPPED = 5.0


class Watch:
    """Heartbeats: a thread sends this worker's, and on request reads those of the others.

    The store's host may have ended or been stopped. Only this thread uses the store, so only this thread
    waits then. `left` says why workers have ended, by rank.
    """

    def __init__(self, connect, rank, size):
        self.connect, self.rank, self.size = connect, rank, size
        self.left, self.beats, self.heard = {}, {}, None
        self.rounds, self.wanted, self.reason, self.hosts_store = 0, False, None, False
        self.wake, self.news = threading.Event(), threading.Condition()
        self.thread = threading.Thread(target=self._run, daemon=True, name="heartbeat")
        self.thread.start()

    def _run(self):
        with suppress(RuntimeError):
            store = self.connect()
            while self.reason is None:
                self.wake.clear()
                self._round(store)
                with self.news:
                    self.rounds += 1
                    self.news.notify_all()
                self.wake.wait(1.0)
            store.set(f"left/{self.rank}", self.reason)
            everyone = [f"left/{rank}" for rank in range(self.size)]
            deadline = time.monotonic() + LINGER * self.hosts_store
            while time.monotonic() < deadline and not store.check(everyone):
                time.sleep(0.05)

    def _round(self, store):
        store.set(f"beat/{self.rank}", str(self.rounds))
        if not self.wanted:
            return
        if self.heard is not None and time.monotonic() - self.heard > STOPPED:
            self.beats.clear()  # this process was stopped itself, and missed the others' heartbeats
        for rank in range(self.size):
            if store.check([f"left/{rank}"]):
                self.left[rank] = store.get(f"left/{rank}").decode()
            beat = store.get(f"beat/{rank}") if store.check([f"beat/{rank}"]) else b""
            if self.beats.get(rank, (None,))[0] != beat:
                self.beats[rank] = beat, time.monotonic()
        self.heard = time.monotonic()

    def ask(self):
        """Read the heartbeats of the others from now on."""
        if not self.wanted:
            self.wanted, self.heard = True, time.monotonic()

    def refresh(self):
        """Wait for a new round of heartbeats, as long as the thread makes progress."""
        self.wanted = True
        with self.news:
            # A round under way may have read the store before this call: wait for the one after it.
            rounds = self.rounds + 2
            self.wake.set()
            while self.rounds < rounds and self.thread.is_alive() and self.news.wait(1.0):
                self.wake.set()

    def silence(self, rank=None):
        """Return for how many seconds a worker, or the store, has shown nothing new."""
        now = time.monotonic()
        if rank is not None:
            # Don't blame a worker for a store that doesn't answer.
            return (self.heard or now) - self.beats.get(rank, (b"", now))[1]
        return now - (self.heard or now)

    def end(self, reason="", hosts_store=False):
        """Announce that this worker ends, and why; send no more heartbeats.

        With `hosts_store` the thread waits a few seconds for the others to read the reason.
        """
        self.hosts_store, self.reason = hosts_store, reason
        self.wake.set()
        self.thread.join(LINGER + 2)
