"""One worker of a ring: a process, which `cnn_course.chapters.many_gpus.ring` starts.

It runs as a program, imports NumPy and nothing of the package, and so is there within a blink. What it is to
do comes to it as source.
"""

import os
import sys
import time
import traceback
from multiprocessing.connection import Client, Listener

# A program's folder is where it looks for modules first; this one has names such as `network`.
sys.path.pop(0)

import numpy as np


def join(listener, right, rank, key):
    """Return the connections to the right and from the left neighbour."""
    # A call waits until it is answered: if all called first, none would answer.
    if rank % 2 == 0:
        to_right = Client(right, authkey=key)
        return to_right, listener.accept()
    from_left = listener.accept()
    return Client(right, authkey=key), from_left


def ends_of(array, to_right, from_left, sent):
    """Return `send` and `receive`; what is sent is noted in `sent` as start, bytes, begin and end."""
    base = array.__array_interface__["data"][0]

    def send(chunk):
        begin = time.monotonic()
        to_right.send(np.array(chunk))
        to_right.recv_bytes()  # the neighbour has taken it
        place = np.asarray(chunk).__array_interface__["data"][0] - base
        start = place // array.itemsize if 0 <= place <= array.nbytes else None
        sent.append((start, np.asarray(chunk).nbytes, begin, time.monotonic()))

    def receive():
        chunk = from_left.recv()
        from_left.send_bytes(b"taken")
        return chunk

    return send, receive


def work(parent, listener, rank, key):
    """Do what the parent says; return the array and what was sent."""
    parent.send(listener.address)
    job = parent.recv()
    to_right, from_left = join(listener, job["right"], rank, key)
    namespace, array, sent = {"__name__": "worker"}, job["array"], []
    exec(compile(job["source"], "<ring>", "exec"), namespace)
    parent.send("ready")
    parent.recv()
    send, receive = ends_of(array, to_right, from_left, sent)
    namespace[job["name"]](rank, job["size"], array, send, receive)
    return array, sent


def main():
    """Work for the parent whose address stands in the arguments, and report what came of it."""
    address, rank = sys.argv[1], int(sys.argv[2])
    key = bytes.fromhex(os.environ["CNN_NUMBA_RING_KEY"])
    with Client(address, authkey=key) as parent, Listener(authkey=key) as listener:
        parent.send(rank)
        try:
            parent.send((os.getpid(), *work(parent, listener, rank, key)))
        except (EOFError, OSError):
            pass  # a neighbour has gone: the parent hears of that from itself
        except Exception:
            parent.send(traceback.format_exc(limit=-1))
        parent.recv()  # until all are done, so that no neighbour leaves early


if __name__ == "__main__":
    main()
