"""One worker of a training, to whom something happens: ``one_of_many.py WHAT RANK STEP ARGUMENT ...``.

WHAT is the name of a signal that the worker with this rank sends itself before this step, or "error" for an
exception there; but not when torchrun has started it again. The arguments are those of ``cnn-numba``.
"""

import os
import signal
import sys

from cnn_numba.cli import main
from cnn_numba.train.steps import HostSteps

what, rank, step, *arguments = sys.argv[1:]
taken = 0
take = HostSteps.take


def fateful(steps, *details):
    global taken
    taken += 1
    if taken == int(step) and os.environ["RANK"] == rank:
        if what == "error":
            raise ValueError("something is wrong here")
        os.kill(os.getpid(), getattr(signal, what))
    take(steps, *details)


if os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0":
    HostSteps.take = fateful
main(arguments)
