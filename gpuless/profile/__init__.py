"""Model how long a launch takes on a named GPU, what limits it and what would help.

The emulated GPU runs some of the launch's blocks and records each warp's instructions and the memory sectors
that it requests (`gpuless.emulator.run.recording`). NVIDIA's compiler makes the GPU's machine code, whose
instructions are counted by matching them with the recording (`sass_counts`). A simulation of the caches
(`caches`) and a queueing model of an SM's units and of memory (`model`) give a time with a range (`report`).

Nothing is measured, except on a real GPU (`hardware`). Four of five published times lie between 0.85 and 1.5
times the modelled ones. If two modelled times differ by more than a quarter, their order is nearly always
right: see ``docs/modelled-times.md``.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuless.profile.devices import Device
    from gpuless.profile.launches import Profiled

__all__ = ["profile", "profiling"]


def profiling(
    gpu: str | Device | Iterable[str | Device], samples: int | None = 3
) -> AbstractContextManager[Any]:
    """Profile all GPU work within a block: launches, graphs and copies, in any stream.

    The program runs as usual on the emulated GPU; the model works on copies. If the branches and addresses of
    a kernel do not depend on values in memory, a launch with the same shapes and layouts as an earlier one
    reuses its report. For other kernels only the first launches of a kind are modelled, and the times of the
    others are reported as unsure.

    Parameters
    ----------
    gpu : str, Device or several of these
        As for `gpuless.profile`.
    samples : int, optional
        How many launches of a kind to model if the kernel depends on values in memory; None models all.

    Yields
    ------
    Timeline, or list of Timeline
        The work of this thread, filled in when the block ends without an error; a list for several GPUs.

    Raises
    ------
    ValueError
        If a GPU is unknown, or a block does not fit on it; if `samples` is not positive.
    RuntimeError
        If kernels do not run on the emulated GPU; at the end of the block, if a kernel's source lines are
        unknown.

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
    >>> with gpuless.profiling("T4") as timeline:  # doctest: +SKIP
    ...     x = cuda.to_device(np.ones(1 << 20, np.float32))
    ...     double[4096, 256](x)
    ...     host = x.copy_to_host()
    >>> [(row.name, row.calls) for row in timeline.rows("copy")]  # doctest: +SKIP
    [('device to host', 1), ('host to device', 1)]
    """
    from gpuless.profile.timeline import profiled

    return profiled(gpu, samples)


class Profile:
    """The type of `gpuless.profile`: callable, with methods for the GPUs."""

    __name__ = "profile"

    def __call__(self, launch: Any, gpu: str | Device | Iterable[str | Device]) -> Profiled:
        """Return a launch that, called with its arguments, reports how long it would take on a GPU.

        It needs the emulated GPU, NVIDIA's compiler and disassembler (``gpuless[cu13]`` or ``gpuless[cu12]``)
        and SciPy (``gpuless[profile]``). The launch does not take place, so the arguments keep their values.
        If kernels run on a real GPU, another process models the launch and the GPU measures it on copies of
        the arguments; the report contains both times.

        Parameters
        ----------
        launch : kernel[grid, block]
            A kernel made by `cuda.jit` with its launch configuration, optionally with a stream and the bytes
            of dynamic shared memory.
        gpu : str, Device or several of these
            Names such as "T4", "RTX 3090", "A100", "H100"; `device` makes variants of these.

        Returns
        -------
        Profiled
            ``profile(kernel[grid, block], gpu)(*arguments)`` returns a `gpuless.profile.report.Report`, or a
            `gpuless.profile.report.Comparison` if several GPUs are named.

        Raises
        ------
        ValueError
            If a GPU is unknown, or a block does not fit on it.
        TypeError
            If `launch` is not a kernel with its launch configuration.
        RuntimeError
            If kernels run in the simulator, or the kernel's source lines are unknown.

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
        >>> x = cuda.to_device(np.ones(1 << 20, np.float32))
        >>> report = gpuless.profile(double[4096, 256], gpu="T4")(x)  # doctest: +SKIP
        >>> report.limiter  # doctest: +SKIP
        'DRAM: 8.4 MB, most of it for line 5'
        """
        from gpuless.profile.launches import Profiled

        return Profiled(launch, gpu)

    def device(self, name: str | Device, /, **changes: Any) -> Device:
        """Return a modelled GPU, or a variant of one: see `gpuless.profile.devices.device`."""
        from gpuless.profile.devices import device

        return device(name, **changes)

    def devices(self) -> list[str]:
        """Return the names of the modelled GPUs."""
        from gpuless.profile.devices import DEVICES

        return list(DEVICES)


#: The only `Profile`. Here it hides the package; ``import gpuless.profile.report`` still works.
profile = Profile()
