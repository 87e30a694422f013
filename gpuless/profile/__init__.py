"""Model how long a launch takes on a named GPU, what limits it and what would help.

The emulated GPU runs a window of the launch's blocks and records each warp's instructions and the sectors of
memory that it requests (`gpuless.emulator.run.recording`). NVIDIA's compiler makes the GPU's machine code,
whose instructions are counted and matched with the recording (`sass_counts`). A simulation of the caches
(`caches`) and a queueing model of an SM's units and of memory (`model`) give a time with a range (`report`).

Nothing here is measured, except on a real GPU (`hardware`). Four of five published times lie between 0.85 and
1.5 times the modelled ones, and if two modelled times are more than a quarter apart, their order is nearly
always right: see ``docs/modelled-times.md``.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuless.profile.devices import Device
    from gpuless.profile.launches import Profiled

__all__ = ["profile", "profiling"]


def profiling(
    gpu: str | Device | Iterable[str | Device], samples: int | None = 3
) -> AbstractContextManager[Any]:
    """Profile all GPU work within a block: launches, graphs and copies, in any stream.

    The program runs as usual on the emulated GPU; the model works on copies. If neither the branches nor the
    addresses of a kernel depend on values in memory, a launch with the same shapes and layouts as an earlier
    one gets that one's report. For other kernels only the first launches of a kind are modelled, and the
    times of the others are reported as unsure.

    Parameters
    ----------
    gpu : str, Device or several of these
        As for `gpuless.profile`.
    samples : int, optional
        How many launches of a kind are modelled if the kernel depends on values in memory; None: all.

    Yields
    ------
    Timeline, or list of Timeline
        The work of this thread; filled when the block ends without an error. A list for several GPUs.

    Raises
    ------
    ValueError
        If a GPU is not known, or has no room for a block; if `samples` is not positive.
    RuntimeError
        Where kernels do not run on the emulated GPU, or the lines of a kernel are not known. It is raised at
        the end of the block.

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
    """What `gpuless.profile` is: it can be called, and knows the GPUs."""

    __name__ = "profile"

    def __call__(self, launch: Any, gpu: str | Device | Iterable[str | Device]) -> Profiled:
        """Return a launch that, called with its arguments, says how long it would take on a GPU.

        It needs the emulated GPU, NVIDIA's compiler and disassembler (``gpuless[cu13]`` or ``gpuless[cu12]``)
        and SciPy (``gpuless[profile]``). The arguments keep what they hold: the launch does not take place.
        Where kernels run on a real GPU, another process models the launch, and the GPU measures it on copies
        of the arguments; a report then has both.

        Parameters
        ----------
        launch : kernel[grid, block]
            A kernel made by `cuda.jit` with its launch configuration. A stream and the bytes of dynamic
            shared memory may follow the block, as in any launch.
        gpu : str, Device or several of these
            Names such as "T4", "RTX 3090", "A100", "H100"; `device` returns GPUs that differ from these.

        Returns
        -------
        Profiled
            ``profile(kernel[grid, block], gpu)(*arguments)`` returns a `gpuless.profile.report.Report`, or a
            `gpuless.profile.report.Comparison` if several GPUs are named.

        Raises
        ------
        ValueError
            If a GPU is not known, or has no room for a block.
        TypeError
            If `launch` is no kernel with its launch configuration.
        RuntimeError
            Where kernels run in the simulator, or the lines of the kernel are not known.

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

        if isinstance(gpu, Iterable) and not isinstance(gpu, str):
            return Profiled(launch, list(gpu))
        return Profiled(launch, [gpu], several=False)

    def device(self, name: str | Device, /, **changes: Any) -> Device:
        """Return a GPU that is modelled, or one that differs from it: `gpuless.profile.devices.device`."""
        from gpuless.profile.devices import device

        return device(name, **changes)

    def devices(self) -> list[str]:
        """Return the names of the GPUs that are modelled."""
        from gpuless.profile.devices import DEVICES

        return list(DEVICES)


#: What programs call, the only `Profile`. It has the name of the package, whose files keep their own names.
profile = Profile()
