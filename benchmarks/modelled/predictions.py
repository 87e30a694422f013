"""Modelled times of published rows, and their errors."""

import functools
import time
from collections import Counter, defaultdict
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

import gpuless
from benchmarks.modelled.ablation import PARTS, without_parts
from gpuless.profile.devices import device

FACTOR = 1.5
_APART = 1.25  # the order of rows that differ by less does not count


class Predicted(NamedTuple):
    """A `Row` with its modelled time, its range, and the time without each of `ablation.PARTS`."""

    row: Any
    microseconds: float
    low: float
    high: float
    without: dict


def predict(rows: list, parts: bool = False, say=print) -> list:
    """Return each row as `Predicted`; rows with the same name are the same launches on several GPUs.

    `parts`: whether to model each row without each part as well; `say` gets a line of text for each row.
    """
    groups = defaultdict(list)
    for row in rows:
        groups[row.name].append(row)
    return [each for group in groups.values() for each in _predicted(group, parts, say)]


@functools.cache
def _known():
    """Return the number of published rows of each GPU."""
    from benchmarks.modelled.rows import published

    return Counter(row.device.name for row in published())


def _predicted(rows, parts, say):
    begin, launches = time.process_time(), rows[0].launches()
    sums = np.zeros((len(rows), 3 + len(PARTS)))
    # A report's range depends on the number of its GPU's rows; use the number that the record will have.
    devices = [device(row.device, rows=_known()[row.device.name]) for row in rows]
    for launch in {id(launch): launch for launch in launches}.values():
        kernel, grid, block, shared, arguments = launch
        reports = gpuless.profile(kernel[grid, block, 0, shared], devices)(*arguments)
        often = sum(each is launch for each in launches)
        for total, report in zip(sums, reports, strict=True):
            total[:3] += often * np.array([report.microseconds, report.low, report.high])
            if parts:
                total[3:] += often * np.array(list(without_parts(report).values()))
    seconds = time.process_time() - begin
    found = []
    for row, (us, low, high, *without) in zip(rows, sums.tolist(), strict=True):
        found.append(Predicted(row, us, low, high, dict(zip(PARTS, without, strict=True)) if parts else {}))
        times = f"{row.microseconds:11.1f} us published {us:11.1f} modelled {us / row.microseconds:5.2f}"
        say(f"{row.gpu:23}{times}  {seconds:5.1f} s  {row.name[:60]}")
    return found


def _names(row):
    """Return the groups of a row of the record."""
    large = ["A100 and H100"] if row["held out"] and row["device"].startswith(("A100", "H100")) else []
    return ["held out" if row["held out"] else "given", row["family"], row["device"], *large]


def summarised(rows: list, names=_names) -> dict:
    """Return the errors of all rows of a record, and of each group; `names` returns the groups of a row."""
    groups = defaultdict(list, {"all": rows})
    for row in rows:
        for name in names(row):
            groups[name].append(row)
    return {name: errors(own) for name, own in groups.items()}


def errors(rows: list) -> dict:
    """Return the errors of modelled times, and how often order and range are right."""
    ratios = np.array([row["modelled"] / row["published"] for row in rows])
    right = pairs = 0
    for a, b in combinations(rows, 2):
        slow, fast = (most([a["published"], b["published"]]) for most in (max, min))
        if (a["gpu"], a["family"]) == (b["gpu"], b["family"]) and slow > _APART * fast:
            pairs += 1
            right += (a["published"] - b["published"]) * (a["modelled"] - b["modelled"]) > 0
    numbers = {
        "rows": len(rows),
        "mean error": float(np.abs(ratios - 1).mean()),
        "median error": float(np.median(np.abs(ratios - 1))),
        f"within {FACTOR}": float(((ratios < FACTOR) & (ratios > 1 / FACTOR)).mean()),
        "in order": right / pairs if pairs else 1.0,
    }
    if "low" in rows[0]:
        numbers["in range"] = float(np.mean([row["low"] <= row["published"] <= row["high"] for row in rows]))
    return {name: round(number, 4) for name, number in numbers.items()}


def as_recorded(found: Predicted) -> dict:
    """Return a row as plain values for the record."""
    row = found.row
    return {
        "gpu": row.gpu,
        "device": row.device.name,
        "family": row.family,
        "name": row.name,
        "held out": row.held_out,
        "published": round(row.microseconds, 1),
        "modelled": round(found.microseconds, 1),
        "low": round(found.low, 1),
        "high": round(found.high, 1),
    }


def ablation(found: list) -> dict:
    """Return the errors of the whole model, and of the model without each part, for the rows given."""
    given = [each for each in found if not each.row.held_out]
    rows = [as_recorded(each) for each in given]
    without = {
        part: errors([row | {"modelled": each.without[part]} for row, each in zip(rows, given, strict=True)])
        for part in PARTS
    }
    return {"nothing": errors(rows)} | without
