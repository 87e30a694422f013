"""Modelled times of published rows, and how far they are away."""

import time
from collections import defaultdict
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

import gpuless
from benchmarks.modelled.ablation import PARTS, without_parts

FACTOR = 1.5
_APART = 1.25  # rows that differ by less have no order


class Predicted(NamedTuple):
    """A `Row` with its modelled time, its range, and the time without each of `ablation.PARTS`."""

    row: Any
    microseconds: float
    low: float
    high: float
    without: dict


def predict(rows: list, parts: bool = False, say=print) -> list:
    """Return each row as `Predicted`; rows of one name are the same launches on several GPUs.

    `parts`: whether to leave parts out as well; `say`: takes a line of text for each row.
    """
    groups = defaultdict(list)
    for row in rows:
        groups[row.name].append(row)
    return [each for group in groups.values() for each in _predicted(group, parts, say)]


def _predicted(rows, parts, say):
    begin, launches = time.process_time(), rows[0].launches()
    sums = np.zeros((len(rows), 3 + len(PARTS)))
    for launch in {id(launch): launch for launch in launches}.values():
        kernel, grid, block, shared, arguments = launch
        reports = gpuless.profile(kernel[grid, block, 0, shared], [row.device for row in rows])(*arguments)
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


def summarised(found: list) -> dict:
    """Return errors of `Predicted` rows: of those given, of those held out, of each family and GPU."""
    groups = defaultdict(list, {"all": found})
    for each in found:
        row = each.row
        for name in ("held out" if row.held_out else "given", row.family, row.device.name):
            groups[name].append(each)
    return {name: errors(own) for name, own in groups.items()}


def errors(found: list) -> dict:
    """Return how far modelled times are from published ones, and how often order and range are right."""
    ratios = np.array([each.microseconds / each.row.microseconds for each in found])
    right = pairs = 0
    for a, b in combinations(found, 2):
        slow, fast = (f([a.row.microseconds, b.row.microseconds]) for f in (max, min))
        if (a.row.gpu, a.row.family) == (b.row.gpu, b.row.family) and slow > _APART * fast:
            pairs += 1
            right += (a.row.microseconds < b.row.microseconds) == (a.microseconds < b.microseconds)
    kept = [each.low <= each.row.microseconds <= each.high for each in found]
    numbers = {
        "rows": len(found),
        "mean error": float(np.abs(ratios - 1).mean()),
        "median error": float(np.median(np.abs(ratios - 1))),
        f"within {FACTOR}": float(((ratios < FACTOR) & (ratios > 1 / FACTOR)).mean()),
        "in range": float(np.mean(kept)),
        "in order": right / pairs if pairs else 1.0,
    }
    return {name: round(number, 4) for name, number in numbers.items()}


def ablation(found: list) -> dict:
    """Return errors of the whole model and of what is left without each part, for the rows given."""
    given = [each for each in found if not each.row.held_out]
    whole = {"nothing": errors(given)}
    return whole | {
        part: errors([each._replace(microseconds=each.without[part]) for each in given]) for part in PARTS
    }
