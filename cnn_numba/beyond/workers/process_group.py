"""Communication between workers: torch.distributed, with heartbeats.

Sums go through gloo on the host and NCCL on GPUs; text goes through the store at MASTER_PORT. A sum waits for
the slowest worker, and forever for a dead or stopped one. So every worker sends a heartbeat once a second,
and a waiting one looks at the others' heartbeats: it waits for a busy worker, and reports a silent one.

torch is imported when a `ProcessGroup` is made: a single worker needs none.
"""

import errno
import ipaddress
import json
import math
import os
import platform
import socket
import sys
import threading
import time
import uuid
from datetime import timedelta
from pathlib import Path

from cnn_numba import device
from cnn_numba.beyond.workers.watch import Watch
from gpuless import nvidia

#: How many timeouts to wait for a worker that is alive.
PATIENCE = 20
#: Seconds within which all workers have to arrive, at least: importing torch takes time.
ARRIVAL = 60.0


class WorkersError(RuntimeError):
    """Why the workers can't begin or can't continue, in one line for the user.

    The other workers read `reason`. `saved` says whether this training run has a checkpoint to continue from.
    """

    def __init__(self, message: str, reason: str = "", saved: bool = False) -> None:
        super().__init__(message)
        self.reason, self.saved = reason or message, saved


class ProcessGroup:
    """One worker's connection to the others: torch's process group, and a watch for workers that end.

    `run` is the same for all workers and all restarts of one start. After `timeout` seconds without a
    heartbeat a worker counts as lost.
    """

    def __init__(self, env, timeout):
        # torch prints a page about a lost connection; here it becomes a line.
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        import torch

        self.torch, self.dist = torch, torch.distributed
        self.rank, self.size, self.timeout, self.env = env.rank, env.size, timeout, env
        self.arrival = max(timeout, ARRIVAL)
        self.hosts_store = self.rank == 0 and not env.torchrun_hosts_store
        if env.local_size == env.size and sys.platform == "linux":
            # All workers are on this machine: this needs no look-up of a name, and passes firewalls.
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        store = self._open_store()
        # torchrun keeps this through its restarts.
        self.run = store.compare_set("cnn-numba/run", "", uuid.uuid4().hex).decode()
        store = self._prefixed(store)
        self.peers = self._arrive(store)
        self.watch = Watch(lambda: self._prefixed(self._connect()), self.rank, self.size)
        try:
            self._start_group(store)
        except BaseException as error:
            self.leave(f"worker {self.rank} of {self.size} has ended: {' '.join(str(error).split())}")
            raise

    # --- Meeting -------------------------------------------------------------------------------------------

    def _connect(self, host=False):
        where, limit = (self.env.address, self.env.port), timedelta(seconds=self.arrival)
        listening = self._listening() if host else None
        return self.dist.TCPStore(
            *where, None, host, limit, wait_for_workers=False, master_listen_fd=listening
        )

    def _listening(self):
        """Return a socket that only this machine reaches, if all workers are on it; None for torch's own."""
        family, where = self._family_and_address()
        if not ipaddress.ip_address(where[0]).is_loopback:
            return None
        return socket.create_server(where[:2], family=family).detach()

    def _family_and_address(self):
        found = socket.getaddrinfo(self.env.address, self.env.port, type=socket.SOCK_STREAM)
        return found[0][0], found[0][4]

    def _port_is_taken(self):
        """Return whether another program listens at the port on this machine."""
        try:
            socket.create_server(("", self.env.port), family=self._family_and_address()[0]).close()
        except OSError as error:
            return error.errno == errno.EADDRINUSE
        return False

    def _prefixed(self, store):
        """Return a store with a prefix to all keys: those of an earlier start of the workers stay apart."""
        return self.dist.PrefixStore(f"cnn-numba/{self.env.restarts}", store)

    def _open_store(self):
        """Open the store, which torchrun or the first worker hosts."""
        where = f"{self.env.address}:{self.env.port}"
        try:
            self._await_name()
            return self._connect(self.hosts_store)
        except (OSError, RuntimeError, ValueError) as error:
            if self.hosts_store and self._port_is_taken():  # torch's error says so only in its text
                raise WorkersError(f"the port of {where} (MASTER_PORT) is in use: choose another") from None
            reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
            raise WorkersError(f"nobody answers at {where}, where worker 0 should be: {reason}") from None

    def _await_name(self):
        """Wait until the name of worker 0's machine is known; torch would wait longer, and print a page."""
        deadline = time.monotonic() + self.arrival
        while True:
            try:
                socket.getaddrinfo(self.env.address, self.env.port)
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.5)

    def _arrive(self, store):
        """Announce this worker, and wait for all others; return host, pid and size of each."""
        about = {"host": socket.gethostname(), "pid": os.getpid(), "size": self.size}
        missing, deadline = range(self.size), time.monotonic() + self.arrival
        try:
            if store.add(f"rank/{self.rank}", 1) > 1:
                raise WorkersError(f"two workers have RANK={self.rank}")
            store.set(f"about/{self.rank}", json.dumps(about))
            while True:
                there = [rank for rank in range(self.size) if store.check([f"about/{rank}"])]
                peers = {rank: json.loads(store.get(f"about/{rank}")) for rank in there}
                self._insist_on_size(peers)
                if not (missing := [rank for rank in range(self.size) if rank not in peers]):
                    break
                if time.monotonic() > deadline:
                    raise WorkersError(self._who_arrived(missing, f"within {self.arrival:g} s"))
                time.sleep(0.02)
        except self.dist.DistError:
            raise WorkersError(self._who_arrived(missing, "before worker 0 ended")) from None
        for peer in peers.values():
            # A container doesn't see the processes of another one.
            peer["visible"] = peer["host"] == about["host"] and _runs(peer["pid"])
        return peers

    def _insist_on_size(self, peers):
        """Raise WorkersError if a worker was started with another WORLD_SIZE."""
        for rank, peer in peers.items():
            if peer["size"] != self.size:
                if self.hosts_store:
                    time.sleep(1.0)  # the store ends with this worker: let the others read it first
                sizes = sorted([(self.rank, self.size), (rank, peer["size"])])
                all_sizes = ", but ".join(f"{size} on worker {number}" for number, size in sizes)
                raise WorkersError(f"the workers differ: WORLD_SIZE is {all_sizes}")

    def _who_arrived(self, missing, when):
        return (
            f"{self.size - len(missing)} of {self.size} workers (WORLD_SIZE={self.size}) arrived {when}: "
            f"missing {', '.join(map(str, missing))}"
        )

    def versions(self):
        """Return the versions that must be the same for all workers."""
        installed = {name: nvidia.installed(name) for name in ("cnn-numba", "numpy", "numba", "torch")}
        return {"Python": platform.python_version(), **installed}

    def _start_group(self, store):
        backend = "gloo"
        if device.hardware():
            backend = "cpu:gloo,cuda:nccl"
            self.has_gpu = device.use_gpu(self.env.local_rank)
            if self.has_gpu:
                self.torch.cuda.set_device(self.env.local_rank)
        limit, failed = timedelta(seconds=2 * PATIENCE * self.timeout), []

        def start():
            try:
                self.dist.init_process_group(
                    backend, store=store, rank=self.rank, world_size=self.size, timeout=limit
                )
            except RuntimeError as error:
                failed.append(error)

        # The call waits for the others without noticing that they have ended.
        thread = threading.Thread(target=start, daemon=True, name="start of the group")
        thread.start()
        while thread.is_alive():
            thread.join(1.0)
            self.look()
        if failed:
            raise self._lost()

    # --- Collectives ---------------------------------------------------------------------------------------

    def start(self, array, done=None):
        """Start to sum an array on the host, in place; return a function that waits for the sum."""
        work = self._begun(self.dist.all_reduce, self.torch.from_numpy(array))
        if done is not None:
            work.get_future().then(lambda future: done())
        return lambda: self._wait(work)

    def start_on_device(self, array):
        """Start to sum an array on the GPU, in place; the current stream waits. Not yet run on a GPU."""
        if not self.has_gpu:
            raise WorkersError(
                f"worker {self.rank} has no GPU of its own (LOCAL_RANK={self.env.local_rank}, this machine "
                f"has {len(nvidia.driver().gpus)}): start fewer workers on it, or train with --device cpu"
            )
        stream = self.torch.cuda.ExternalStream(int(device.current_stream()))
        with self.torch.cuda.stream(stream):
            work = self._begun(self.dist.all_reduce, self.torch.as_tensor(array, device="cuda"))

        def wait():
            with self.torch.cuda.stream(stream):
                work.wait()

        return wait

    def broadcast(self, array):
        """Give all workers the values of the first one's array."""
        self._wait(self._begun(self.dist.broadcast, self.torch.from_numpy(array), 0))

    def exchange(self, text):
        """Return the text that each worker passes here, by rank."""
        mine = self.torch.frombuffer(bytearray(text.encode()), dtype=self.torch.uint8)
        sizes = [self.torch.zeros(1, dtype=self.torch.int64) for _ in range(self.size)]
        self._wait(self._begun(self.dist.all_gather, sizes, self.torch.tensor([len(mine)])))
        longest = max(map(int, sizes))
        texts = [self.torch.zeros(longest, dtype=self.torch.uint8) for _ in range(self.size)]
        padded = self.torch.nn.functional.pad(mine, (0, longest - len(mine)))
        self._wait(self._begun(self.dist.all_gather, texts, padded))
        return [bytes(text[: int(size)].numpy()).decode() for text, size in zip(texts, sizes, strict=True)]

    def _begun(self, collective, *arguments):
        try:
            return collective(*arguments, async_op=True)
        except RuntimeError:
            raise self._lost() from None

    def _wait(self, work):
        begun = time.monotonic()
        while True:
            over = work.is_completed()
            try:
                work.wait(timedelta(seconds=1))
                return
            except RuntimeError:
                # Either a second is over, or the collective has failed: then `work` is completed.
                if over:
                    raise self._lost() from None
            self.look()
            if (waited := time.monotonic() - begun) > PATIENCE * self.timeout:
                raise WorkersError(
                    f"worker {self.rank} of {self.size} has waited {waited:.0f} s for the others, which are "
                    "alive: they hang, or need a longer --timeout"
                )

    # --- Which workers are alive ---------------------------------------------------------------------------

    def look(self):
        """Raise WorkersError if a worker has ended or been silent for too long."""
        if found := self._culprit(self.timeout):
            raise WorkersError(found)

    def _lost(self):
        """Return the error for a broken connection; wait a few seconds for the name of the lost worker."""
        found, deadline = None, time.monotonic() + 6
        while not found and time.monotonic() < deadline:
            self.watch.refresh()
            # A silent one doesn't count yet: on a busy machine a killed process takes a while to end.
            found = self._culprit(silence=math.inf)
            time.sleep(0.1)
        found = found or self._culprit(silence=4)
        return WorkersError(found or "the connection to a worker broke, but no worker is known to have ended")

    def _culprit(self, silence):
        """Return which worker is lost, and how; None if all are alive or ended normally."""
        others = [rank for rank in range(self.size) if rank != self.rank]
        gone = [rank for rank in others if self.peers[rank]["visible"] and not _runs(self.peers[rank]["pid"])]
        self.watch.ask()
        if gone or self.watch.silence() > silence:
            self.watch.refresh()  # for the reasons
        if reason := next(filter(None, self.watch.left.values()), None):
            return reason
        for rank in gone:
            if rank not in self.watch.left:
                return f"worker {rank} of {self.size} was killed (process {self.peers[rank]['pid']})"
        for rank in others:
            if rank not in self.watch.left and (seconds := self.watch.silence(rank)) > silence:
                where = f"process {self.peers[rank]['pid']} on {self.peers[rank]['host']}"
                return f"worker {rank} of {self.size} has sent no heartbeat for {seconds:.0f} s ({where})"
        if self.watch.silence() > silence:
            host = "torchrun" if self.env.torchrun_hosts_store else f"worker 0 of {self.size}"
            return f"{host}, which hosts the workers' store, has ended or doesn't answer"
        return None

    def close(self):
        """Wait until all are done, and close the connection."""
        self.exchange("done")
        self.watch.end()
        self.dist.destroy_process_group()

    def leave(self, reason):
        """Tell the others that this worker ends, and why if something is wrong."""
        self.watch.end(reason, self.hosts_store)


def _runs(pid):
    """Return whether a process of this machine runs; a zombie doesn't."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except ProcessLookupError:
        return False
    except OSError:
        return True  # another user's process, or a system without /proc
