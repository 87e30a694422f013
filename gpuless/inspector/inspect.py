"""Compile a kernel for a GPU, without having one, and report registers, memory, instructions and occupancy.

>>> from numba import cuda
>>> @cuda.jit
... def mean_kernel(x, out):
...     i = cuda.grid(1)
...     if i < out.size:
...         total = 0.0
...         for j in range(x.shape[1]):
...             total += x[i, j]
...         out[i] = total / x.shape[1]
>>> report = inspect_kernel(mean_kernel, "void(float32[:, ::1], float32[::1])", cc="8.6")  # doctest: +SKIP
>>> print(report.advice[0])  # doctest: +SKIP
line 5: `total = 0.0` is float64, which makes lines 7 and 8 float64 too: write `total = float32(0)`
"""

import inspect
import os
from collections.abc import Iterable
from typing import Any

from gpuless.compiler.jobs import (
    OPTIONS,
    InspectionError,
    Job,
    compile_jobs,
    decorator_options,
    python_function,
)
from gpuless.frontends import kernel_types
from gpuless.inspector.architectures import capability, occupancy
from gpuless.inspector.assembly import read_ptx, read_sass
from gpuless.inspector.report import KernelReport
from gpuless.inspector.scripts import load

__all__ = ["InspectionError", "KernelReport", "find_kernel", "inspect_kernel", "inspect_kernels"]

_DEFAULT_THREADS = 256


def inspect_kernel(
    kernel: Any,
    signature: Any,
    cc: str | tuple[int, int] = (9, 0),
    threads_per_block: int | None = None,
    dynamic_shared: int = 0,
    *,
    disassemble: bool = True,
    fastmath: bool | None = None,
    launch_bounds: Any = None,
    max_registers: int | None = None,
) -> KernelReport:
    r"""Compile a kernel for a GPU, without having one, and report the result.

    Parameters
    ----------
    kernel : kernel
        A function with ``@cuda.jit``, from a module or from a notebook, simulated or not.
    signature : str or tuple of numba types
        Such as "void(float32[:, ::1], float32[::1], int32)".
    cc : tuple of (int, int) or str
        Compute capability, one of `gpuless.inspector.ARCHITECTURES`.
    threads_per_block : int, optional
        Block size for the occupancy; by default 256, or `launch_bounds` if that is less.
    dynamic_shared : int
        Bytes of dynamic shared memory of the launch, in addition to the kernel's shared arrays.
    disassemble : bool
        Read the machine code (SASS). False reads PTX and is three times faster: registers, memory, occupancy
        and the lines of float64 are the same, but the other instructions aren't final. Without NVIDIA's
        disassembler, PTX is always read.
    fastmath, launch_bounds, max_registers : optional
        As in ``@cuda.jit``, whose values are the default.

    Returns
    -------
    KernelReport

    Raises
    ------
    InspectionError
        If the compiler rejects the kernel, or is not installed.
    ValueError
        If the architecture is unknown or no GPU allows such blocks.
    TypeError
        If `kernel` is not a kernel.

    Examples
    --------
    >>> from numba import cuda
    >>> @cuda.jit
    ... def scale_kernel(x, out):
    ...     i = cuda.grid(1)
    ...     if i < out.size:
    ...         out[i] = x[i] * 0.1
    >>> report = inspect_kernel(scale_kernel, "void(float32[::1], float32[::1])")  # doctest: +SKIP
    >>> print(*report.advice, sep="\n")  # doctest: +SKIP
    line 5: `x[i] * 0.1` is float64: write `x[i] * float32(0.1)`
    """
    options = {"fastmath": fastmath, "launch_bounds": launch_bounds, "max_registers": max_registers}
    options |= {"threads_per_block": threads_per_block, "dynamic_shared": dynamic_shared}
    return inspect_kernels([(kernel, signature, options)], [cc], disassemble=disassemble)[0]


def inspect_kernels(
    kernels: Iterable[tuple], ccs: Iterable[str | tuple[int, int]] = ((9, 0),), *, disassemble: bool = True
) -> list[KernelReport]:
    """Inspect several kernels for several architectures, which starts the compiler only once.

    Parameters
    ----------
    kernels : iterable of tuples
        (kernel, signature) or (kernel, signature, options); options is a dict of `inspect_kernel`'s arguments
        threads_per_block, dynamic_shared, fastmath, launch_bounds, max_registers.
    ccs : iterable
        Compute capabilities.
    disassemble : bool
        As in `inspect_kernel`.

    Returns
    -------
    list of KernelReport
        The first kernel for all architectures, then the second, and so on.

    Raises
    ------
    InspectionError
        If the compiler rejects kernels; it names all of them.

    Examples
    --------
    >>> inspect_kernels([])
    []
    """
    ccs = [capability(cc) for cc in ccs]
    requests = [_Request(*item) for item in kernels]
    jobs = [request.job(cc, disassemble) for request in requests for cc in ccs]
    results = compile_jobs(jobs)
    owners = [request for request in requests for _ in ccs]
    return [owner.report(job, result) for owner, job, result in zip(owners, jobs, results, strict=True)]


class _Request:
    """A kernel to inspect, with its options."""

    def __init__(self, kernel, signature, options=None):
        self.kernel, self.signature = kernel, signature
        options = dict(options or {})
        self.threads = options.pop("threads_per_block", None)
        self.dynamic_shared = options.pop("dynamic_shared", 0)
        self.compiler_options = tuple((name, options.pop(name, None)) for name in OPTIONS)
        if options:
            raise TypeError(f"unknown options {sorted(options)}")
        if self.threads is not None:
            occupancy((9, 0), self.threads, registers=1)  # refuses a wrong one before the compiler starts

    def job(self, cc, disassemble):
        return Job(self.kernel, self.signature, cc, self.compiler_options, "SASS" if disassemble else "PTX")

    def report(self, job, result):
        function = python_function(self.kernel)
        bounds = result["launch_bounds"]
        bounds = bounds[0] if isinstance(bounds, list) else bounds
        threads = self.threads or min(_DEFAULT_THREADS, bounds or _DEFAULT_THREADS)
        shared = result["shared"] + self.dynamic_shared
        names, types = function.__code__.co_varnames, result["arguments"]
        return KernelReport(
            name=function.__name__,
            signature=self.signature if isinstance(self.signature, str) else f"void({', '.join(types)})",
            cc=job.cc,
            registers=result["registers"],
            spill_bytes=result["spill_stores"],
            shared_bytes=result["shared"],
            dynamic_shared=self.dynamic_shared,
            local_bytes=result["local"],
            occupancy=occupancy(job.cc, threads, result["registers"], shared),
            instructions=tuple(read_sass(result["sass"]) if "sass" in result else read_ptx(result["ptx"])),
            language="SASS" if "sass" in result else "PTX",
            arguments=dict(zip(names, types, strict=False)),
            launch_bounds=bounds,
            file=os.path.normpath(function.__code__.co_filename),
            line=function.__code__.co_firstlineno,
        )


def find_kernel(name: str) -> tuple[Any, Any]:
    """Import a kernel by a name such as "package.module:kernel", and return it with its signature.

    Parameters
    ----------
    name : str
        The module may also be a file: "folder/my_kernels.py:kernel". Launches in the module are skipped. A
        kernel in a dict of the module is found by its function's name.

    Returns
    -------
    tuple of (kernel, signature)
        The signature comes from the module's dict `SIGNATURES`, or else from the attribute `signature` of the
        kernel's function, or else from ``@cuda.jit``; a list if there are several, None if there is none.

    Raises
    ------
    ValueError
        If the module or kernel does not exist.

    Examples
    --------
    >>> find_kernel("gpuless.inspector.inspect")
    Traceback (most recent call last):
        ...
    ValueError: write module:kernel or file.py:kernel, got 'gpuless.inspector.inspect'
    """
    place, _, kernel_name = name.rpartition(":")
    if not (place and kernel_name):
        raise ValueError(f"write module:kernel or file.py:kernel, got {name!r}")
    module, fault = load(place)
    kernels = {key: kernel for key, value in vars(module).items() if (kernel := _kernel(value))}
    for table in [value for value in vars(module).values() if isinstance(value, dict)]:
        found = filter(None, map(_kernel, table.values()))
        kernels = {python_function(kernel).__name__: kernel for kernel in found} | kernels
    if kernel_name not in kernels:
        own = [key for key, each in kernels.items() if not decorator_options(each).get("device")]
        others = f"; it has {', '.join(own)}" if own else ""
        raise ValueError(f"{place} has no kernel {kernel_name!r}{others}{fault and f'; {fault}'}")
    kernel = kernels[kernel_name]
    noted = getattr(python_function(kernel), "signature", None)
    decorated = getattr(kernel, "signatures", None) or None
    return kernel, getattr(module, "SIGNATURES", {}).get(kernel_name, noted or decorated)


def _kernel(value):
    """Return a kernel, also one inside a decorator such as a timer; None for anything else."""
    inner = inspect.unwrap(value, stop=_is_kernel) if callable(value) else None
    return inner if _is_kernel(inner) else None


def _is_kernel(value):
    return isinstance(value, kernel_types())
