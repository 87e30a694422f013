"""One worker of a training run that fails or is stopped: ``one_of_many.py WHAT RANK STEP ARGUMENT ...``.

WHAT is the name of a signal that the worker with this rank sends itself before this step, or "error" for an
exception there; but not when torchrun has started it again. The arguments are those of ``cnn-numba``.
"""

import os
import signal
import sys

from cnn_numba.cli import main
from cnn_numba.train.step import HostSteps


def with_event(what, step):
    """Return the function for the steps of the training run, with the event at this step."""
    take, taken = HostSteps.take, 0

    def take_or_end(steps, *details):
        nonlocal taken
        taken += 1
        if taken == step and what == "error":
            raise ValueError("something is wrong here")
        if taken == step:
            os.kill(os.getpid(), getattr(signal, what))
        take(steps, *details)

    return take_or_end


if __name__ == "__main__":
    what, rank, step, *arguments = sys.argv[1:]
    if os.environ["RANK"] == rank and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0":
        HostSteps.take = with_event(what, int(step))
    main(arguments)
