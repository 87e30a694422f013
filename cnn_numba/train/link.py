"""What carries numbers and words between workers: torch.distributed, watched.

Sums go through gloo on the host and NCCL on GPUs; words go through the store at MASTER_PORT. A sum waits for
the slowest worker, and a dead or stopped one takes for ever. So every worker gives a sign of life once a
second, and who waits looks at those of the others: a busy worker is waited for, a silent one is named.

Only `parallel.join` imports this, where there is more than one worker: it needs torch.
"""

import json
import os
import socket
import sys
import threading
import time
import uuid
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

# Before torch is imported: what it has to say of a lost connection is a page, and here it becomes a line.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

import torch
import torch.distributed as dist

from cnn_numba import device
from cnn_numba.train.parallel import WorkersError
from gpuless import nvidia

#: Timeouts that a worker is waited for which is alive.
PATIENCE = 20
#: Seconds within which all have to arrive, at least: to import torch takes its time.
ARRIVAL = 60.0


class Link:
    """One worker's connection to the others.

    Parameters
    ----------
    place : parallel.Place
    timeout : float
        Seconds without a sign of life after which a worker is given up.

    Attributes
    ----------
    run : str
        The same for all workers and restarts of one start.
    """

    def __init__(self, place, timeout):
        self.rank, self.size, self.timeout, self.place = place.rank, place.size, timeout, place
        self.spoken, self.beats, self.ended = 0, {}, threading.Event()
        if place.local_size == place.size and sys.platform == "linux":
            # All on this machine: no name need be looked up, and no firewall is in the way.
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        self._open_store()
        self.peers = self._arrive()
        threading.Thread(target=self._beat, daemon=True, name="sign of life").start()
        self._start_group()

    # --- Words ---------------------------------------------------------------------------------------------

    def _connect(self, master=False):
        return dist.TCPStore(
            *(
                self.place.address,
                self.place.port,
                None,
                master,
                timedelta(seconds=max(self.timeout, ARRIVAL)),
            ),
            wait_for_workers=False,
        )

    def _open_store(self):
        """Open the store: torchrun's, or the first worker's own."""
        where = f"{self.place.address}:{self.place.port}"
        try:
            whole = self._connect(master=self.rank == 0 and not self.place.store_there)
        except (RuntimeError, ValueError) as error:
            if "EADDRINUSE" in str(error):
                raise WorkersError(f"the port of {where} (MASTER_PORT) is in use: choose another") from None
            raise WorkersError(
                f"nobody answers at {where}, where worker 0 should be: {_first_line(error)}"
            ) from None
        # Kept by torchrun through its restarts, in which the first worker finds it.
        self.run = whole.compare_set("cnn-numba/run", "", uuid.uuid4().hex).decode()
        self.whole = whole
        self.store = dist.PrefixStore(f"cnn-numba/{self.place.restarts}", whole)

    def _arrive(self):
        """Tell the others of this worker, and wait for all; return what each says of itself."""
        if self.store.add(f"rank/{self.rank}", 1) > 1:
            raise WorkersError(f"two workers have RANK={self.rank}")
        about = {"host": socket.gethostname(), "pid": os.getpid()}
        self.store.set(f"about/{self.rank}", json.dumps(about))
        limit = max(self.timeout, ARRIVAL)
        deadline = time.monotonic() + limit
        while missing := [rank for rank in range(self.size) if not self.store.check([f"about/{rank}"])]:
            if time.monotonic() > deadline:
                raise WorkersError(
                    f"{self.size - len(missing)} of {self.size} workers (WORLD_SIZE={self.size}) arrived "
                    f"within {limit:g} s: missing {', '.join(map(str, missing))}"
                )
            time.sleep(0.02)
        peers = [json.loads(self.store.get(f"about/{rank}")) for rank in range(self.size)]
        for peer in peers:
            # From within a container the processes of the next one cannot be seen.
            peer["visible"] = peer["host"] == about["host"] and _runs(peer["pid"])
        return peers

    def versions(self):
        """Return what has to be the same wherever a worker is."""
        return {
            "Python": sys.version.split()[0],
            **{name: nvidia.installed(name) for name in ("cnn-numba", "numpy", "numba", "torch")},
        }

    def exchange(self, text):
        """Return what every worker says here."""
        self.spoken += 1
        keys = [f"said/{self.spoken}/{rank}" for rank in range(self.size)]
        try:
            self.store.set(keys[self.rank], text)
            begun = looked = time.monotonic()
            while not self.store.check(keys):
                time.sleep(0.005)
                if time.monotonic() - looked > 1:
                    self._look_while_waiting(begun)
                    looked = time.monotonic()
            return [self.store.get(key).decode() for key in keys]
        except RuntimeError as error:
            if isinstance(error, WorkersError):
                raise
            raise self._lost() from None

    # --- Numbers -------------------------------------------------------------------------------------------

    def _start_group(self):
        backend = "gloo"
        if device.hardware():
            backend = "cpu:gloo,cuda:nccl"
            self._take_gpu()
        try:
            dist.init_process_group(
                backend,
                store=self.store,
                rank=self.rank,
                world_size=self.size,
                timeout=timedelta(seconds=2 * PATIENCE * self.timeout),
            )
        except RuntimeError:
            raise self._lost() from None

    def _take_gpu(self):
        """Take the GPU with the number of this worker among those of its machine, where there is one."""
        self.has_gpu = device.use_gpu(self.place.local_rank)
        if self.has_gpu:
            torch.cuda.set_device(self.place.local_rank)

    def start(self, array, done=None):
        """Begin to add an array of the host up, in place; return what waits for the sum."""
        try:
            work = dist.all_reduce(torch.from_numpy(array), async_op=True)
        except RuntimeError:
            raise self._lost() from None
        if done is not None:
            work.get_future().then(lambda future: done())
        return lambda: self._wait(work)

    def start_on_device(self, array):
        """Begin to add an array of the GPU up, in place, after what the current stream was given before.

        What waits for the sum is the stream and not the host. (Not yet run on a GPU.)
        """
        if not self.has_gpu:
            raise WorkersError(
                f"worker {self.rank} has no GPU of its own (LOCAL_RANK={self.place.local_rank}, this machine "
                f"has {len(nvidia.driver().gpus)}): start fewer workers on it, or train with --device cpu"
            )
        stream = torch.cuda.ExternalStream(int(device.current_stream()))
        with torch.cuda.stream(stream):
            work = dist.all_reduce(torch.as_tensor(array, device="cuda"), async_op=True)

        def wait():
            with torch.cuda.stream(stream):
                work.wait()

        return wait

    def broadcast(self, array):
        """Give all workers the values of the first one's array."""
        self._wait(dist.broadcast(torch.from_numpy(array), 0, async_op=True))

    def _wait(self, work):
        begun = time.monotonic()
        while True:
            over = work.is_completed()
            try:
                work.wait(timedelta(seconds=1))
                return
            except RuntimeError:
                # A second is over, or the collective has failed: then `work` is completed, and says so again.
                if over:
                    raise self._lost() from None
            self._look_while_waiting(begun)

    # --- Who is still there --------------------------------------------------------------------------------

    def _beat(self):
        """Give a sign of life once a second."""
        with suppress(RuntimeError):
            store = dist.PrefixStore(f"cnn-numba/{self.place.restarts}", self._connect())
            count = 0
            while not self.ended.wait(1.0):
                count += 1
                store.set(f"beat/{self.rank}", str(count))

    def _look_while_waiting(self, begun):
        self.look(self.timeout)
        if (waited := time.monotonic() - begun) > PATIENCE * self.timeout:
            raise WorkersError(
                f"worker {self.rank} has waited {waited:.0f} s for the others, which are alive: they hang "
                "(a longer --timeout waits longer)"
            )

    def look(self, silence):
        """Raise WorkersError if a worker has ended, or given no sign of life for so long (0: do not ask)."""
        if found := self._culprit(silence):
            raise WorkersError(found)

    def _lost(self):
        """Return the error for a connection that broke, naming whose it was as soon as that shows."""
        found, deadline = None, time.monotonic() + 6
        while not found and time.monotonic() < deadline:
            with suppress(RuntimeError):
                found = self._culprit(silence=4)
            if not found:
                time.sleep(0.1)
        return WorkersError(found or "the connection to a worker broke, and none is known to have ended")

    def _culprit(self, silence):
        """Return which worker has ended, and how; None if all are there, or ended because another had."""
        others = [rank for rank in range(self.size) if rank != self.rank]
        try:
            left = {rank: self._get(f"left/{rank}") for rank in others}
        except RuntimeError:
            if self.place.store_there:
                return "torchrun, which keeps the workers together, has ended or does not answer"
            return "worker 0, at whose port the workers meet, has ended or does not answer"
        for rank, why in left.items():
            if why:
                return f"worker {rank} of {self.size} has ended: {why}"
        for rank in [rank for rank in others if left[rank] is None]:
            peer = self.peers[rank]
            if peer["visible"] and not _runs(peer["pid"]) and self._get(f"left/{rank}") is None:
                return f"worker {rank} of {self.size} was killed (process {peer['pid']})"
            if silence and self._silence(rank) > silence:
                return (
                    f"worker {rank} of {self.size} has given no sign of life for {self._silence(rank):.0f} s "
                    f"(process {peer['pid']} on {peer['host']})"
                )
        return None

    def _silence(self, rank):
        """Return for how many seconds a worker's sign of life has not changed, as far as was looked."""
        now, beat = time.monotonic(), self._get(f"beat/{rank}")
        before, since = self.beats.get(rank, (None, now))
        if beat != before or rank not in self.beats:
            since = now
        self.beats[rank] = beat, since
        return now - since

    def _get(self, key):
        """Return what the store has under a key, None if nothing."""
        return self.store.get(key).decode() if self.store.check([key]) else None

    # --- The end -------------------------------------------------------------------------------------------

    def part(self):
        """Wait until all are done; then the connection may go."""
        self.exchange("done")
        if not self.place.store_there:
            self._close_store()
        self.ended.set()
        dist.destroy_process_group()

    def _close_store(self):
        """Keep the store, if it is this worker's, until all others have read from it."""
        if self.rank:
            self.store.add("closed", 1)
            return
        deadline = time.monotonic() + 10
        while self.store.add("closed", 0) < self.size - 1 and time.monotonic() < deadline:
            time.sleep(0.01)

    def leave(self, why):
        """Tell the others that this worker ends, and why."""
        self.ended.set()
        with suppress(RuntimeError):
            self.store.set(f"left/{self.rank}", why)


def _runs(pid):
    """Return whether a process of this machine runs: one that has ended may still have its number."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except ProcessLookupError:
        return False
    except OSError:
        return True  # somebody else's, or a system without /proc


def _first_line(error):
    return str(error).partition("\n")[0]
