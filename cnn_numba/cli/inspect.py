"""The command ``inspect``."""

import sys
from typing import Annotated

import typer

from cnn_numba.cli.shared import OPTIONS, CliError, flag, wrong

commands = typer.Typer(**OPTIONS)


def _known(ccs):
    """Return compute capabilities as pairs; BadParameter, which names the option, for one that is unknown."""
    from gpuless.inspector import capability

    try:
        return [capability(cc) for cc in ccs]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


@commands.command(short_help="Show what the compiler makes of a kernel; no GPU is needed.")
def inspect(
    kernel: Annotated[
        str, typer.Argument(metavar="MODULE:KERNEL", help="Where the kernel is; the module may be a file.")
    ],
    signature: Annotated[
        str | None,
        typer.Option(
            metavar="TYPES",
            help="Its argument types; else those in the module's SIGNATURES, or in its decorators.",
        ),
    ] = None,
    cc: Annotated[
        list[str],
        typer.Option(
            metavar="X.Y", help="Compute capability of the GPU; may be given more than once.", callback=_known
        ),
    ] = ["9.0"],  # noqa: B006 (typer never changes it)
    threads: Annotated[
        int | None,
        typer.Option(min=1, max=1024, metavar="N", help="Threads per block, for the occupancy; else 256."),
    ] = None,
    dynamic_shared: Annotated[
        int, typer.Option(min=0, metavar="N", help="Bytes of dynamic shared memory of the launch.")
    ] = 0,
    source: Annotated[bool, flag("source", "Show each source line's instructions.")] = False,
    assembly: Annotated[bool, flag("assembly", "Show the assembly.")] = False,
):
    """Show what the compiler makes of a kernel for a GPU: registers, memory, instructions, what to change.

    \b
    Examples, in a clone; a module is named with dots, as package.module:kernel:
      cnn-numba inspect examples/life.py:step_kernel --signature "void(uint8[:, ::1], uint8[:, ::1])"
      ... --cc 7.5 --cc 9.0 --threads 128 --source
    """
    from gpuless.inspector import InspectionError, find_kernel, inspect_kernels

    sys.path.insert(0, "")  # modules of the current folder
    try:
        found, known = find_kernel(kernel)
        signatures = signature or known
        if not signatures:
            such = "'void(float32[:, ::1], int32)'"
            raise wrong("signature", f"the module has none for {kernel}; write one such as {such}.")
        signatures = signatures if isinstance(signatures, list) else [signatures]
        options = {"threads_per_block": threads, "dynamic_shared": dynamic_shared}
        reports = inspect_kernels([(found, each, options) for each in signatures], cc)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="'MODULE:KERNEL'") from None
    except InspectionError as error:
        raise CliError(error) from None
    for report in reports:
        print(report)
        if source:
            print(report.annotated())
        if assembly:
            print(report.listing())
