"""Budgets of modelled times for tests: the fixture `modelled_time` of ``pytest -p gpuless``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuless.profile.files import write_whole
from gpuless.profile.texts import time

if TYPE_CHECKING:
    from gpuless.profile.devices import Device
    from gpuless.profile.launches import Profiled
    from gpuless.profile.report import Report

#: With this option tests record modelled times instead of checking them.
OPTION = "--record-modelled-times"


class OverBudget(AssertionError):
    """A launch is modelled to take longer than allowed, or has no recorded time."""


class ModelledTime:
    """The fixture `modelled_time`: models launches and compares their times with recorded ones.

    Parameters
    ----------
    test : str
        The test's name, with its parameters: the key in the record.
    file : Path
        The file of the record, beside the test's.
    recorded : dict, optional
        Collects new times, by file and test; without it times are compared.
    """

    def __init__(self, test: str, file: Path, recorded: dict | None = None) -> None:
        self.test, self.file, self._recorded = test, file, recorded
        self._seen: set[str] = set()

    def __call__(self, launch: Any, gpu: str | Device | Iterable[str | Device] = "T4") -> Profiled:
        """Return a launch that, called with its arguments, returns its report: see `gpuless.profile`.

        Parameters
        ----------
        launch : kernel[grid, block]
        gpu : str, Device or several of these
        """
        from gpuless.profile import profile

        return profile(launch, gpu)

    def check(self, report: Report | Iterable[Report], name: str = "", factor: float = 1.1) -> None:
        """Fail if the modelled time of a launch exceeds its recorded time, multiplied by a factor.

        Parameters
        ----------
        report : Report, or several of different GPUs
        name : str
            Distinguishes the launches that a test checks.
        factor : float
            The allowed multiple of the recorded time.

        Raises
        ------
        OverBudget
            If it takes longer, or if nothing is recorded.
        ValueError
            If `factor` is not positive, if there is no report, or if the test has already used `name`.
        """
        if not factor > 0:
            raise ValueError(f"factor must be positive, got {factor!r}")
        reports = list(report) if isinstance(report, Iterable) else [report]
        if not reports:
            raise ValueError("there is no report to check")
        for each in reports:
            key = f"{self.test}: {name}" if name else self.test
            self._check(each, key, factor)

    def _check(self, report, key, factor):
        gpu = report.device.name
        if (key, gpu) in self._seen:
            raise ValueError(f"{key} is checked twice on the {gpu}: give each check of a test a name")
        self._seen.add((key, gpu))
        if self._recorded is not None:
            times = self._recorded.setdefault(str(self.file), {}).setdefault(key, {})
            times[gpu] = {"microseconds": round(report.microseconds, 4), "limiter": report.limiter}
            return
        known = read_record(self.file).get(key, {}).get(gpu)
        if known is None:
            raise OverBudget(
                f"no modelled time of {key} on the {gpu} is recorded in {self.file.name}: "
                f"look at it, and run pytest with {OPTION}\n\n{report}"
            )
        allowed = known["microseconds"]
        if report.microseconds > factor * allowed:
            times = report.microseconds / allowed
            raise OverBudget(
                f"{key} on the {gpu}: {time(report.microseconds)} modelled, {times:.2f} times "
                f"the {time(allowed)} recorded in {self.file.name}; "
                f"{factor:g} times is allowed (if it is to be so, run pytest with {OPTION})\n"
                f"recorded   {known['limiter']}\nnow        {report.limiter}\n\n{report}"
            )


def record_of(test_file: Path) -> Path:
    """Return the record of a test file: ``test_it.modelled.json`` beside ``test_it.py``."""
    return test_file.with_suffix(".modelled.json")


def read_record(file: Path) -> dict:
    """Return a record by test and GPU; empty if there is no file.

    Raises
    ------
    ValueError
        If the file was not written by `write_records`.
    """
    try:
        found = json.loads(file.read_text(encoding="utf-8"))["modelled times"]
        for test, by_gpu in found.items():
            for gpu, known in by_gpu.items():
                if not (known["microseconds"] > 0 and isinstance(known["limiter"], str)):
                    raise ValueError(f"{test} on the {gpu}: {known}")
        return found
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{file} holds no modelled times ({error!r}): remove it, and record again") from None


def write_records(recorded: dict) -> None:
    """Add new times to the records, and keep those of other tests."""
    for name, times in sorted(recorded.items()):
        file = Path(name)
        known = read_record(file)
        for key, by_gpu in times.items():
            known[key] = known.get(key, {}) | by_gpu
        text = json.dumps({"modelled times": known}, indent=1, sort_keys=True, ensure_ascii=False)
        write_whole(file, text + "\n")
