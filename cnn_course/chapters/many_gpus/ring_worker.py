"""One worker of a ring: a process, which `cnn_course.chapters.many_gpus.ring` starts.

It runs as a program and imports only NumPy, nothing of the package, so it starts fast. It receives its job as
source.
"""

import os
import sys
import time
import traceback
from multiprocessing.connection import Client, Listener

# Python looks for modules in a program's folder first; this folder has modules such as `network`.
sys.path.pop(0)

import numpy as np


def join(listener, right, rank, key):
    """Return the connections to the right and from the left neighbour."""
    # A connection waits until it's accepted: if all connected first, none would accept.
    if rank % 2 == 0:
        to_right = Client(right, authkey=key)
        return to_right, listener.accept()
    from_left = listener.accept()
    return Client(right, authkey=key), from_left


def ends_of(array, to_right, from_left, sent):
    """Return `send` and `receive`; `send` records start, bytes, begin and end in `sent`."""
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
    """Do the parent's job; return the array and the record of sends."""
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
    """Work for the parent whose address is in the arguments, and report the result."""
    address, rank = sys.argv[1], int(sys.argv[2])
    key = bytes.fromhex(os.environ["CNN_NUMBA_RING_KEY"])
    with Client(address, authkey=key) as parent, Listener(authkey=key) as listener:
        parent.send(rank)
        try:
            parent.send((os.getpid(), *work(parent, listener, rank, key)))
        except (EOFError, OSError):
            pass  # a neighbour has gone: it reports that to the parent itself
        except Exception:
            parent.send({"failed": traceback.format_exc(limit=-1).strip().splitlines()[-1]})
        parent.recv()  # until all are done, so that no neighbour leaves early


if __name__ == "__main__":
    main()
