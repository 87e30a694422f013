"""What a launch would have a GPU do, counted at full size: instructions, sectors, wavefronts, barriers.

Nothing that runs on a CPU can tell how long a kernel takes on a GPU. What the kernel asks of one it can: the
emulated GPU runs the compiled kernel, and `count` has it count meanwhile, in the words of Nsight Compute.

**Instructions** are those of PTX, what NVIDIA's compiler hands to the driver. A warp executes one if at least
one of its lanes does, whatever the number; a warp instruction of 20 active lanes is 20 thread instructions.
The last step, from PTX to machine code, is not there: it unrolls loops further, merges some instructions, and
makes several of a division or a sine. So ratios between two kernels say more than the numbers. Loads of
parameters and conversions of addresses count as moves, of which machine code has few.

**Global memory** moves in sectors of 32 bytes. A *request* is one instruction executed once by one warp. It
moves every sector in which a lane touches a byte, once: a warp that reads 32 neighbouring float32 asks for
128 bytes and moves 4 sectors; if each lies in a row of its own, 32. That is what passes between the cores and
L1; how much of it L1 and L2 have already, nobody knows here. What is known is the least that memory has to
move: the sectors that were read at all, and those that were written.

**Shared memory** has 32 banks that deliver a word of 4 bytes each at a time. A request takes as many
*wavefronts* as one bank has different words to deliver. What several lanes want of the same word is delivered
once, but for atomics, which are done one after the other. Of 8 bytes for each lane half a warp is served at
once, of 16 bytes a quarter. *Conflicts* are the wavefronts beyond those that this many bytes need anyhow.

**Divergence**: a branch is divergent if the lanes of a warp go both ways. Where they meet again is for the
hardware to choose; here it is where all ways lead.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gpuless import emulator, frontends
from gpuless.counts.numbers import Counts, GlobalTraffic, summed_up

__all__ = ["Counts", "GlobalTraffic", "count", "counting"]


def count(kernel: Any) -> Counted:
    """Return a kernel whose launch counts the work that a GPU would do.

    It needs the emulated GPU, on which the launch takes up to four times as long as otherwise.

    Parameters
    ----------
    kernel : kernel
        Made by `cuda.jit`.

    Returns
    -------
    object
        Launched like the kernel: ``count(kernel)[grid, block](*arguments)`` returns `Counts` and
        leaves in the arguments what the launch computes. A stream and the bytes of dynamic shared memory may
        follow the block, as in any launch.

    Raises
    ------
    RuntimeError
        Where kernels do not run on the emulated GPU.

    Examples
    --------
    >>> import gpuless
    >>> selection = gpuless.select()  # before numba.cuda is imported
    >>> import numpy as np
    >>> from numba import cuda
    >>> @cuda.jit
    ... def every_other(x, y):
    ...     i = cuda.grid(1)
    ...     if i < y.size:
    ...         y[i] = x[2 * i]
    >>> x, y = cuda.to_device(np.zeros(2000, np.float32)), cuda.device_array(1000, np.float32)
    >>> counts = count(every_other)[8, 128](x, y)
    >>> counts.global_loads.requests, counts.global_loads.sectors, counts.global_loads.sectors_per_request
    (32, 250, 7.8125)
    >>> counts.global_stores.bytes_asked, counts.global_stores.bytes_moved
    (4000, 4000)
    >>> counts.least_bytes, counts.branches, counts.divergent_branches
    (12000, 32, 1)
    """
    return Counted(kernel)


class Counted:
    """A kernel that counts what its launches do."""

    def __init__(self, kernel: Any) -> None:
        if not hasattr(kernel, "__getitem__") or not hasattr(kernel, "py_func"):
            raise TypeError(f"expected a kernel made by cuda.jit, got {reprlib.repr(kernel)}")
        self._kernel = kernel

    def __getitem__(self, configuration: tuple) -> Callable[..., Counts]:
        _need_emulator()
        launch = self._kernel[configuration]

        def run(*arguments):
            with counting() as counts:
                launch(*arguments)
            if not counts:
                raise RuntimeError("nothing was launched: its stream captures a graph, and counts nothing")
            return counts[-1]

        return run


@contextmanager
def counting() -> Iterator[list[Counts]]:
    """Count the work that a GPU would do for all launches within a block.

    Use it around functions that launch kernels; `count` is for a single kernel.

    Yields
    ------
    list of Counts
        One for each launch of this thread, in order; empty until the block ends without an error. In nested
        blocks, only the inner one gets the launches within it.

    Raises
    ------
    RuntimeError
        Where kernels do not run on the emulated GPU.

    Examples
    --------
    >>> import gpuless
    >>> selection = gpuless.select()  # before numba.cuda is imported
    >>> import numpy as np
    >>> from numba import cuda
    >>> @cuda.jit
    ... def double(x):
    ...     i = cuda.grid(1)
    ...     if i < x.size:
    ...         x[i] *= 2
    >>> x = cuda.to_device(np.ones(1000, np.float32))
    >>> with counting() as counts:
    ...     double[8, 128](x)
    ...     double[4, 128](x[:500])
    >>> [(each.kernel, each.blocks, each.bytes_moved) for each in counts]
    [('double', 8, 8000), ('double', 4, 4032)]
    """
    _need_emulator()
    counts: list[Counts] = []
    with emulator.count_launches() as tallies:
        yield counts
    counts += map(summed_up, tallies)


def _need_emulator():
    if not frontends.installed():
        raise RuntimeError(
            "count runs kernels on the emulated GPU, and here they run on something else: "
            "set GPULESS=emulator, and call gpuless.select() before anything is launched"
        )
