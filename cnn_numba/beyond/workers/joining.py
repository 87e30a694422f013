"""Joining the workers: reading torchrun's environment, and ending together."""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from cnn_numba import device
from cnn_numba.arguments import shown
from cnn_numba.beyond.workers.process_group import ProcessGroup, WorkersError
from cnn_numba.beyond.workers.workers import Workers
from cnn_numba.extras import need
from cnn_numba.train.single_process import SingleProcess

#: Seconds without a heartbeat after which a worker counts as lost.
TIMEOUT = 30.0


@contextmanager
def join(timeout: float = TIMEOUT) -> Iterator[SingleProcess]:
    """Join the workers that torchrun's environment names.

    Parameters
    ----------
    timeout : float
        Seconds without a heartbeat after which another worker counts as lost. For one that is alive and busy,
        compiling or loading, the limit is twenty times as long.

    Yields
    ------
    SingleProcess
        `Workers`, if there are several; a single one needs no torch.

    Raises
    ------
    WorkersError
        If the environment is wrong, or not all workers arrive.
    """
    env = environment()
    if env is None or env.size == 1:
        single = SingleProcess()
        if env is not None and "TORCHELASTIC_RUN_ID" in os.environ:
            # The parent is torchrun, which outlives the restarts.
            single.run_id = f"{os.environ['TORCHELASTIC_RUN_ID']}, {socket.gethostname()}, {os.getppid()}"
            single.restarted = env.restarts > 0
        yield single
        return
    need("torch", f"Training with {env.size} workers")
    device.share_threads(env.local_size)
    group = ProcessGroup(env, timeout)
    workers = Workers(env.rank, env.size, group)
    try:
        with _asked_to_end(workers):
            workers.insist_equal(group.versions())
            workers.run_id, workers.restarted = group.run, env.restarts > 0
            yield workers
            group.close()
    except BaseException as error:
        group.leave(_reason(workers, error))
        raise


def _reason(workers, error):
    """Return why a worker ends, for the others to read; empty if nothing is wrong."""
    if isinstance(error, WorkersError):
        return error.reason
    if any(isinstance(each, (KeyboardInterrupt, SystemExit)) for each in (error, error.__context__)):
        return ""
    text = " ".join(str(error).split())
    if type(error).__module__ == "builtins":  # our own are sentences
        text = f"{type(error).__name__}: {text}"
    return f"worker {workers.rank} of {workers.size} has ended: {text}"


@contextmanager
def _asked_to_end(workers):
    """Treat SIGTERM, which torchrun sends when a worker has failed, as a request; report that worker."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def note(number, frame):
        workers.asked_to_end = True
        workers.group.look()

    before = signal.signal(signal.SIGTERM, note)
    try:
        yield
    except BaseException:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # this one is ending already, with its own message
        raise
    signal.signal(signal.SIGTERM, before)


class Environment:
    """A worker's rank among all, and among those on this machine, from torchrun's environment.

    The workers meet at `address` and `port`, and have been restarted `restarts` times.
    """

    def __init__(self, values: dict[str, str]) -> None:
        self.rank, self.size = _rank_and_size(values)
        self.local_rank, self.local_size = _rank_and_size(values, "LOCAL_", self.rank, self.size)
        self.restarts = _whole(values, "TORCHELASTIC_RESTART_COUNT", 0)
        if self.size > 1:
            self.address, self.port = values.get("MASTER_ADDR", ""), _whole(values, "MASTER_PORT")
            if not self.address:
                raise WorkersError("MASTER_ADDR, the machine of worker 0, is not set: start with torchrun")
            if not 0 < self.port < 65536:
                raise WorkersError(f"MASTER_PORT must lie in 1..65535, got {self.port}")
        # Whether torchrun itself hosts the store at that port.
        self.torchrun_hosts_store = values.get("TORCHELASTIC_USE_AGENT_STORE") == str(True)


def environment(values: dict[str, str] | None = None) -> Environment | None:
    """Read torchrun's environment variables; return None if there are none.

    Examples
    --------
    >>> environment({"HOME": "/home/ada"})
    >>> environment({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "ada", "MASTER_PORT": "29500"}).rank
    1
    """
    values = dict(os.environ) if values is None else values
    if "RANK" not in values and "WORLD_SIZE" not in values:
        return None
    return Environment(values)


def _rank_and_size(values, local="", usual_rank=None, usual_size=None):
    """Return a rank, and how many workers there are, of all or of this machine's ("LOCAL_")."""
    names = f"{local}RANK", f"{local}WORLD_SIZE"
    rank, size = _whole(values, names[0], usual_rank), _whole(values, names[1], usual_size)
    if rank >= size:
        raise WorkersError(f"{names[0]} must be below {names[1]}, got {names[0]}={rank}, {names[1]}={size}")
    return rank, size


def _whole(values, name, usual=None):
    """Return a whole number of the environment; `usual` is for a variable that may be missing."""
    text = values.get(name, usual)
    if text is None:
        raise WorkersError(f"{name} is not set, but other variables of torchrun are: start with torchrun")
    if not str(text).isdecimal():
        raise WorkersError(f"{name} must be a whole number, got {shown(text)}")
    return int(text)
