"""The modelled time of a step, combined from its parts; `gpuless.profiling` models each call once.

A swap changes one part, so only that part is modelled again. The launches of all parts are then scheduled as
in `gpuless.profiling` of a whole step; a test compares the two. All times are modelled.
"""

import hashlib
import json
import zlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

import gpuless
from cnn_course.chapters.capstone.first_launchers import fingerprint
from cnn_course.chapters.capstone.parts import PARTS, STEP, calls_of
from cnn_course.engine import workbook
from cnn_course.engine.checks.launches import _fresh, is_result
from cnn_course.engine.history import Step
from cnn_numba import device
from cnn_numba.whole_files import written_whole
from gpuless import frontends
from gpuless.profile import costs
from gpuless.profile.schedule import HIGH, KERNEL, LAUNCH, LOW, MODELLED, Asked, Lane, schedule
from gpuless.profile.watched import times_of

GPUS = ("T4", "A100", "H100")
NAMES = ("T4", "A100 SXM", "H100 SXM")
#: The modelled times of the course's own launchers, by fingerprint; `record` writes the file.
RECORDED = Path(__file__).with_name("modelled.json")
_LANE = Lane("default stream", legacy=True, blocking=False)


class Launch(NamedTuple):
    """A launch: the kernel, the host's microseconds, and those of each GPU with their range."""

    kernel: str
    host: float
    times: tuple

    def asked(self, number):
        """Return the launch on the GPU with this number, as an argument of `schedule`."""
        duration, low, high = self.times[number]
        return Asked(KERNEL, self.kernel, _LANE, self.host, duration, low, high)


class Modelled(NamedTuple):
    """A part: the launches of each of its calls in a step, and the results at full size if it ran."""

    launches: tuple
    results: tuple | None = None

    def microseconds(self, number=0):
        """Return the microseconds of all calls on the GPU with this number."""
        return sum(launch.times[number][0] for call in self.launches for launch in call)


def can_model() -> bool:
    """Return whether steps can be modelled here: on the emulated GPU."""
    return frontends.installed()


def arguments_of(call):
    """Return random arguments of a call of the step, from `Part.draw`; the same every time."""
    seed = zlib.crc32(f"{call.part} {call.layer}".encode())
    return PARTS[call.part].draw(np.random.default_rng(seed), *call.size)


def on_device(drawn):
    """Return fresh arguments for a launcher: arrays on the device, outputs filled with poison values."""
    return [device.to_device(a) if isinstance(a, np.ndarray) else a for a in map(_fresh, drawn)]


def results_of(drawn, given):
    """Return copies on the host of the arrays that a launcher fills or changes."""
    return [device.to_host(a) for a, one in zip(given, drawn, strict=True) if is_result(one)]


def model_part(name: str, launcher) -> Modelled:
    """Model the calls of a part in a step: run them at full size, and keep their results."""
    launches, results = [], []
    for call in calls_of(name):
        drawn = arguments_of(call)
        given = on_device(drawn)
        with gpuless.profiling(GPUS) as timelines:
            launcher(*given)
        launches.append(_launches(timelines))
        results.append(results_of(drawn, given))
    return Modelled(tuple(launches), tuple(results))


def reports_of(call, launcher, gpu: str = "T4") -> list:
    """Return the report of each launch of a call of the step on a GPU; empty if nothing can be modelled."""
    if not can_model():
        return []
    with gpuless.profiling(gpu) as timeline:
        launcher(*on_device(arguments_of(call)))
    return [event.report for event in timeline.events if event.kind == KERNEL]


def _launches(timelines):
    """Return the launches in the timelines, each with its times on all GPUs."""
    kernels = [[event for event in timeline.events if event.kind == KERNEL] for timeline in timelines]
    host = [event.duration for event in timelines[0].events if event.kind == LAUNCH]
    return tuple(
        Launch(events[0].name, round(asked, 4), tuple(_rounded(times_of(event.report)) for event in events))
        for asked, *events in zip(host, *kernels, strict=True)
    )


def _rounded(times):
    return tuple(round(time, 4) for time in times)


# --- What is known already ----------------------------------------------------------------------------------


_known = {}
_MOST = 200  # parts beside the workbook


def known(name: str, launcher) -> Modelled:
    """Return a part modelled before (in this process, on record, beside the workbook), or model it now."""
    mark = fingerprint_of(launcher)
    key = f"{name} {mark}"
    if not mark:
        return model_part(name, launcher)._replace(results=None)
    if key not in _known and (found := recorded().get(key) or kept().get(key)):
        _known[key] = found
    if key not in _known:
        note(name, launcher, model_part(name, launcher))
    return _known[key]


def note(name: str, launcher, found: Modelled) -> None:
    """Keep a launcher's modelled times: for this process, and beside the workbook."""
    if not (mark := fingerprint_of(launcher)):
        return
    key = f"{name} {mark}"
    _known[key] = found._replace(results=None)
    if key in recorded() or kept().get(key) == _known[key]:
        return
    newest = dict([*kept().items(), (key, _known[key])][-_MOST:])
    plain = {"course": _course(), "parts": {key: one.launches for key, one in newest.items()}}
    _path().parent.mkdir(parents=True, exist_ok=True)
    with written_whole(_path()) as file:
        file.write(json.dumps(plain).encode())


def kept() -> dict:
    """Return the modelled times beside the workbook, by part and fingerprint; only those of this model."""
    try:
        plain = json.loads(_path().read_bytes())
        if plain["course"] != _course():
            return {}
        return {key: _checked(key.split()[0], calls) for key, calls in plain["parts"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError):
        return {}


def _checked(name, calls):
    """Return a part read from a file; raise an error of some type if it isn't valid."""
    found = Modelled(_from_plain(calls))
    launches = [launch for call in found.launches for launch in call]
    numbers = np.array([[launch.host, *sum(launch.times, ())] for launch in launches], float)
    if len(found.launches) != len(calls_of(name)) or numbers.shape[1] != 1 + 3 * len(GPUS):
        raise ValueError(name)
    if not ((numbers > 0) & (numbers < 1e9)).all():
        raise ValueError(name)
    return found


def _path():
    return workbook.folder() / "modelled.json"


@cache
def _course():
    """Return a hash of the course's record, which changes with the model."""
    return hashlib.sha256(RECORDED.read_bytes()).hexdigest()[:16] if RECORDED.is_file() else ""


def fingerprint_of(launcher) -> str:
    """Return a hash of a launcher's source, and of everything it uses; empty if unknown."""
    mark = getattr(launcher, "fingerprint", None)
    return fingerprint(launcher) if mark is None else mark


@cache
def recorded() -> dict:
    """Return the course's record, by part and fingerprint."""
    if not RECORDED.is_file():
        return {}
    plain = json.loads(RECORDED.read_text(encoding="utf-8"))
    return {key: Modelled(_from_plain(calls)) for key, calls in plain.items()}


def _from_plain(calls):
    return tuple(
        tuple(Launch(kernel, host, tuple(map(tuple, times))) for kernel, host, times in call)
        for call in calls
    )


def record(launchers) -> None:
    """Model launchers, given as pairs of a part's name and a launcher, and write the record."""
    plain = {f"{name} {fingerprint_of(one)}": model_part(name, one).launches for name, one in launchers}
    RECORDED.write_text(json.dumps(plain, indent=None, separators=(",", ":")) + "\n", encoding="utf-8")


# --- The step -----------------------------------------------------------------------------------------------


class StepTime(NamedTuple):
    """A step on one GPU, in microseconds: launched kernel by kernel, and as one CUDA graph.

    `busy`: the time in which the GPU works; `slowest` and `share`: the part that takes most of it.
    """

    gpu: str
    microseconds: float
    low: float
    high: float
    busy: float
    graph: float
    slowest: str
    share: float

    @property
    def step(self) -> Step:
        """The step as an entry of the history."""
        return Step(self.gpu, self.microseconds, self.low, self.high, self.slowest, self.share)


def step_times(parts: dict) -> tuple:
    """Return a `StepTime` for each GPU.

    Parameters
    ----------
    parts : dict of str to Modelled
        All parts of a step.
    """
    waiting = {name: iter(modelled.launches) for name, modelled in parts.items()}
    launches = [launch for call in STEP for launch in next(waiting[call.part])]
    found = []
    for number, name in enumerate(NAMES):
        asked = [launch.asked(number) for launch in launches]
        middle, low, high = (schedule(asked, way)[1] for way in (MODELLED, LOW, HIGH))
        nodes = tuple(one._replace(after=(k - 1,) if k else ()) for k, one in enumerate(asked))
        graph = schedule([Asked("graph", "step", _LANE, costs.GRAPH_LAUNCH, nodes=nodes)])[1]
        busy = sum(one.duration for one in asked)
        slowest = max(parts, key=lambda part: parts[part].microseconds(number))
        share = parts[slowest].microseconds(number) / busy
        found.append(StepTime(name, middle, low, high, busy, graph, slowest, share))
    return tuple(found)
