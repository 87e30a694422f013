"""The command line: ``cnn-numba train | predict | sample | export | bench | inspect | doctor``.

A thin layer, with a file for each group of commands: it turns arguments into calls, and errors into one line.
Commands import slow modules only when they need them.
"""

import contextlib
import difflib
import errno
import io
import os
import sys
from typing import Annotated

import typer

from cnn_numba.arguments import shown
from cnn_numba.cli import bench, doctor, inspect, train, use
from cnn_numba.cli.shared import OPTIONS, CliError, complain
from cnn_numba.data import DataError
from cnn_numba.device import UnusableGpu
from cnn_numba.extras import MissingPackage
from cnn_numba.starting import interrupts
from gpuless.nvidia import installed

app = typer.Typer(help="Train, use, measure and check the course's networks.", **OPTIONS)
for _group in (train, use, inspect, doctor):  # in the order of the help
    app.add_typer(_group.commands)
app.add_typer(bench.commands, name="bench")

# Typer has its own copy of click or, in older versions, uses click: this is the class of either.
_UsageError = typer.BadParameter.__bases__[0]


def main(arguments=None):
    """Run the command line and exit: 0 done, 1 failed, 2 wrong arguments, 130 interrupted.

    Parameters
    ----------
    arguments : list of str, optional
        By default those of the process.

    Examples
    --------
    >>> main(["train", "--epochs", "0"])
    Traceback (most recent call last):
        ...
    SystemExit: 2
    """
    _prepare_streams()
    interrupts(kill=False)
    try:
        status = _run(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
    except OSError as error:
        if error.errno not in _NOT_WRITTEN:
            raise
        status = _not_written(error)
    try:
        sys.stderr.flush()
    except OSError:
        _silence(sys.stderr)
    interrupts(kill=True)  # Python prints a traceback of one at its exit
    sys.exit(status if isinstance(status, int) else 0)


def _run(arguments):
    """Run the command line; return its result, or print the error and return the exit code."""
    try:
        return app(arguments or ["--help"], prog_name="cnn-numba", standalone_mode=False)
    except _UsageError as error:
        # Under torchrun the first worker of this machine prints it for all.
        if "TORCHELASTIC_RUN_ID" not in os.environ or os.environ.get("LOCAL_RANK", "0") == "0":
            complain(_wrong_argument(error))
        return 2
    except CliError as error:
        if str(error):
            complain(error)
        if error.at_once:
            with contextlib.suppress(OSError):
                sys.stdout.flush()
            os._exit(error.status)
        return error.status
    except (DataError, MissingPackage, UnusableGpu, MemoryError) as error:
        complain(f"not enough memory: {error}" if isinstance(error, MemoryError) else error)
        return 1
    except (typer.Abort, KeyboardInterrupt):
        return 130


# The errors of a full disk, and of a pipe without a reader.
_NOT_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE)


def _prepare_streams():
    """Redirect closed standard streams to the null device: a file opened later would get their output.

    Characters that stdout's encoding lacks, such as those of a file's name, are printed as escapes.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def _not_written(error):
    """Print what could not be written, unless the pipe has no reader; return the exit code."""
    if error.filename is not None:
        complain(error)
        return 1
    if error.errno != errno.EPIPE:
        complain(f"could not print everything: {error.strerror}")
    _silence(sys.stdout)
    return 1


def _silence(stream):
    """Discard unwritten output: Python would try again at exit, and print a traceback."""
    with contextlib.suppress(OSError), open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


def _wrong_argument(error):
    """Return the error message for an argument, with its value, and what it may have been meant to be.

    Newer versions of Typer use Pydantic's messages, which call every value "Input". They also propose the
    command that was meant.
    """
    near = getattr(error, "possibilities", None) or []  # options
    message = error.message if near else error.format_message().replace(": Value error, ", ": ", 1)
    for detail in getattr(error.__cause__, "errors", list)():
        message = message.replace(": Input should", f": {shown(detail['input'])} should", 1)
        choices = [completion.value for completion in error.param.shell_complete(error.ctx, "")]
        near = difflib.get_close_matches(str(detail["input"]), choices, 1)
    of_a_value = isinstance(error, typer.BadParameter) and not message.startswith("Missing")
    further = [f"Did you mean {shown(near[0])}?"] if near else []
    further += [f"See {error.ctx.command_path} --help"] if error.ctx and not of_a_value else []
    if further and not message.endswith((".", "?")):
        message += "."
    return " ".join([message, *further])


def _version(wanted):
    if wanted:
        print("cnn-numba", installed("cnn-numba"))
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version.")
    ] = False,
):
    pass  # the help is in `app`
