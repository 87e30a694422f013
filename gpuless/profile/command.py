"""The command ``python -m gpuless profile``: runs a program and models how long it would take on a GPU."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from gpuless.profile.devices import DEVICES, device
from gpuless.profile.files import write_whole
from gpuless.profile.metrics import telling
from gpuless.running import inherit, program_of
from gpuless.wrapping import aligned

NAME = "python -m gpuless profile"
_USAGE = f"{NAME} --gpu GPU[,GPU] [options] [script.py | -m module | -c code | -] ..."
_DESCRIPTION = """Run a program that uses Numba-CUDA on the emulated GPU, and say how long its kernels, copies
and gaps would take on GPUs that are not here: all times are modelled. What the program prints, and how it
ends, stays as it is."""
_STDOUT = "-"
_WITH_VALUE = ("--gpu", "--kernel", "--launch", "--trace")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's arguments."""
    found = argparse.ArgumentParser(NAME, usage=_USAGE, description=_DESCRIPTION, allow_abbrev=False)
    found.add_argument("--gpu", type=_devices, help=f"one or several of {', '.join(DEVICES)}")
    found.add_argument("--kernel", metavar="NAME", help="print the report of one launch of this kernel")
    found.add_argument("--launch", metavar="N", type=_positive, help="which of its launches, 1 unless given")
    found.add_argument(
        "--all", action="store_true", help="with all of Nsight Compute's metrics that are modelled"
    )
    found.add_argument(
        "--json",
        metavar="FILE.json",
        help="write the same as JSON; without a file, or with -, to standard output: "
        "what the program prints goes to standard error then",
    )
    found.add_argument(
        "--trace", metavar="FILE", help="write the timeline as a trace: ui.perfetto.dev opens it"
    )
    rest: dict[str, Any] = {"nargs": argparse.REMAINDER, "help": argparse.SUPPRESS}
    found.add_argument("-m", dest="module", **rest)
    found.add_argument("-c", dest="code", **rest)
    found.add_argument("script", **rest)
    return found


def _devices(text):
    try:
        return [device(name.strip()) for name in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _positive(text):
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a number from 1, got {text!r}")
    return int(text)


def main(arguments: list[str]) -> None:
    """Run the command."""
    parse = parser()
    options = parse.parse_args(_with_file(arguments))
    program = program_of(options)
    if problem := _problem(options, program):
        parse.error(problem)
    try:
        inherit("emulator")
    except (RuntimeError, ValueError) as error:
        parse.error(str(error))
    timelines, ended, failed = _profiled(program, options)
    sys.stdout.flush()
    try:
        if failed is not None:
            raise failed
        if ended is None or any(timeline.events for timeline in timelines):
            _write(timelines, options)
    except (RuntimeError, ValueError, ImportError, MemoryError, OSError) as error:
        reason = str(error)
        if isinstance(error, OSError) and error.filename and error.strerror:
            reason = f"{error.filename}: {error.strerror}"
        print(f"{NAME}: {reason}", file=sys.stderr)
        ended = ended or SystemExit(1)
    if ended is not None:
        raise ended


def _problem(options, program):
    """Return an error message if the options are wrong, "" otherwise."""
    if options.gpu is None:
        return "name the GPU, before the program: --gpu T4, or --gpu T4,H100"
    if program is None:
        return "name the program to run: script.py, -m module, -c code or -"
    if options.launch and not options.kernel:
        return "--launch is one of a kernel's launches: it needs --kernel"
    if options.all and not options.kernel:
        return "--all prints all metrics of a kernel: it needs --kernel"
    if options.trace and len(options.gpu) > 1:
        return "--trace is of one GPU"
    return ""


def _with_file(arguments):
    """Return the arguments with a file after ``--json``: - unless one is given."""
    at = 0
    while arguments[at : at + 1] and arguments[at].startswith("--"):
        if arguments[at] == "--json":
            following = arguments[at + 1 : at + 2]
            given = following and (following[0] == _STDOUT or following[0].endswith(".json"))
            return arguments if given else [*arguments[: at + 1], _STDOUT, *arguments[at + 1 :]]
        at += 2 if arguments[at] in _WITH_VALUE else 1
    return arguments  # the program and its arguments follow


def _profiled(program, options):
    """Run a program; return its `Timeline` on each GPU, its exception and that of the model, or None."""
    from gpuless.profile import profiling

    ended, timelines = None, []
    try:
        with _elsewhere(options.json == _STDOUT), profiling(options.gpu) as timelines:
            ended = _ending(program)
    except Exception as error:  # the model's: `_ending` has caught the program's
        return timelines, ended, error
    return timelines, ended, None


def _ending(program: Callable) -> BaseException | None:
    """Run a program; return the exception that ends it, None if there is none."""
    try:
        program()
    except BaseException as error:
        return error
    return None


@contextlib.contextmanager
def _elsewhere(wanted: bool) -> Iterator[None]:
    """Redirect standard output to standard error, also for child processes."""
    if not wanted:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
        sys.stdout.flush()
    finally:
        os.dup2(kept, 1)
        os.close(kept)


# --- Output -------------------------------------------------------------------------------------------------


def _write(timelines, options):
    if options.trace:
        timelines[0].save(options.trace)
    if options.kernel:
        number = (options.launch or 1) - 1
        launches = [_launches(timeline, options.kernel) for timeline in timelines]
        if number >= len(launches[0]):
            raise ValueError(f"{options.kernel} is launched {_times(len(launches[0]))}, not {number + 1}")
        text = _text_of_kernel(launches, number, options.all)
        found: Any = {"kernel": options.kernel, "launches": len(launches[0]), "launch": number + 1}
        found["reports"] = [each[number].to_dict() for each in launches]
    else:
        text = "\n\n".join(map(str, timelines))
        found = {"timelines": [_plain(timeline) for timeline in timelines]}
    if not options.json:
        print("", text, sep="\n", flush=True)
        return
    written = json.dumps({"modelled": True} | found, indent=1, ensure_ascii=False) + "\n"
    if options.json == _STDOUT:
        print(written, end="", flush=True)
    else:
        write_whole(options.json, written)


def _times(number):
    return "once" if number == 1 else f"{number} times"


def _launches(timeline, kernel):
    """Return the reports of a kernel's launches, in order; raise if there are none."""
    reports = [event.report for event in timeline.events if event.report is not None]
    found = [report for report in reports if report.kernel == kernel]
    if not found:
        known = ", ".join(dict.fromkeys(report.kernel for report in reports)) or "none"
        raise ValueError(f"no kernel is called {kernel}; launched are: {known}")
    return found


def _text_of_kernel(launches, number, with_all):
    """Return the reports of a launch, each in words and then as metrics, as ``ncu`` prints them."""
    kernel, count = launches[0][number].kernel, len(launches[0])
    text = [f"{kernel}: launch {number + 1} of {count}" if count > 1 else f"{kernel}: its only launch"]
    for each in launches:
        report = each[number]
        shown, title = report.metrics, "Nsight Compute's metrics, modelled"
        if not with_all:
            shown = telling(report.metrics, report.bound)
            title += f"; --all prints all {len(report.metrics)}"
        metrics = [(name, f"{value:,.6g}") for name, value in shown.items()]
        text += ["", str(report), "", title, *aligned(metrics)]
    return "\n".join(text)


def _plain(timeline):
    """Return a timeline as JSON values, with the report of each kernel's first launch."""
    rows = {
        kind: [row._asdict() | {"mean": row.mean} for row in timeline.rows(kind)]
        for kind in ("kernel", "copy", "set")
    }
    for row in rows["kernel"]:
        row["report"] = _launches(timeline, row["name"])[0].to_dict()
    same = {name: getattr(timeline, name) for name in ("microseconds", "low", "high", "unsure")}
    return {"gpu": timeline.device.name} | same | {"gaps": timeline.gaps._asdict()} | rows
