"""The work of a launch on a GPU, counted at full size: instructions, sectors, wavefronts, barriers.

A CPU cannot measure how long a kernel takes on a GPU, but it can count what the kernel asks of one: `count`
counts while the emulated GPU runs the compiled kernel. The terms are those of Nsight Compute.

**Instructions** are those of PTX, which NVIDIA's compiler hands to the driver. A warp executes an instruction
if at least one of its lanes does; with 20 active lanes it counts as one warp instruction and 20 thread
instructions. The driver's step from PTX to machine code is missing: it unrolls more loops, merges some
instructions, and splits a division or a sine into several. Ratios between two kernels therefore say more than
the numbers. Loads of parameters and conversions of addresses count as moves, of which machine code has few.

**Global memory** moves in sectors of 32 bytes. A *request* is one instruction executed once by one warp. It
moves every sector in which a lane touches a byte, once: a warp that reads 32 neighbouring float32 asks for
128 bytes and moves 4 sectors; if they lie in 32 different rows, it moves 32. This is the traffic between the
cores and L1; how much of it L1 and L2 can serve is not modelled here. What is known is the least that memory
has to move: the sectors read at least once, and those written at least once.

**Shared memory** has 32 banks, each of which delivers a word of 4 bytes at a time. A request takes as many
*wavefronts* as its busiest bank has different words to deliver. Lanes that read the same word share one
delivery; atomics on one word run one after the other. With 8 bytes for each lane, half a warp is served at
once, with 16 bytes a quarter. *Conflicts* are the wavefronts beyond the fewest that move this many bytes.

**Divergence**: a branch is divergent if the lanes of a warp go both ways. Hardware chooses where they meet
again; here they meet where all paths join.
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

    This needs the emulated GPU, where counting makes the launch up to four times slower.

    Parameters
    ----------
    kernel : kernel
        Made by `cuda.jit`.

    Returns
    -------
    object
        Launched like the kernel, with the same results: ``count(kernel)[grid, block](*arguments)`` returns
        `Counts`. A stream and the bytes of dynamic shared memory may follow the block, as in any launch.

    Raises
    ------
    RuntimeError
        If kernels don't run on the emulated GPU.

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
    """Count the work that a GPU would do for all launches within a ``with`` block.

    Use it around functions that launch kernels; `count` is for a single kernel.

    Yields
    ------
    list of Counts
        One for each launch of this thread, in order; filled when the block ends without an error. A nested
        block keeps its launches from the outer one.

    Raises
    ------
    RuntimeError
        If kernels don't run on the emulated GPU.

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
