"""Hold modelled times against published ones: ``python -m benchmarks.modelled [--record] [words ...]``.

Words choose the rows whose GPU, family and name have all of them. `--record` writes what comes out to
``benchmarks/modelled/record.json``.
"""

import argparse
import json
import time
from collections import defaultdict
from itertools import combinations
from pathlib import Path

import numpy as np

import gpuless

_FACTOR = 1.5
_APART = 1.25  # rows that differ by less have no order
_RECORD = Path(__file__).with_name("record.json")


def main() -> None:
    """Predict the rows, print each and what they have in common."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--record", action="store_true", help="write record.json")
    chosen = parser.parse_args()
    gpuless.select()  # before `rows` imports numba.cuda
    from benchmarks.modelled.rows import published

    groups = defaultdict(list)
    for row in published():
        if all(word in f"{row.gpu} {row.family} {row.name}" for word in chosen.words):
            groups[row.name].append(row)
    if not groups:
        parser.error(f"no row has all of {' '.join(chosen.words)}")
    found = [each for rows in groups.values() for each in _predicted(rows)]
    summary = summarised(found)
    for name, numbers in summary.items():
        shown = ", ".join(f"{key} {value:.3g}" for key, value in numbers.items())
        print(f"{name:20} {shown}")
    if chosen.record:
        rows = [[row.gpu, row.family, row.name, row.microseconds, round(us, 1)] for row, us in found]
        _RECORD.write_text(json.dumps({"summary": summary, "rows": rows}, indent=1) + "\n")


def _predicted(rows):
    """Return each row of the same launches on several GPUs with its modelled microseconds."""
    begin, devices, sums = time.process_time(), [row.device for row in rows], np.zeros(len(rows))
    launches = rows[0].launches()
    for launch in {id(launch): launch for launch in launches}.values():
        kernel, grid, block, shared, arguments = launch
        reports = gpuless.profile(kernel[grid, block, 0, shared], devices)(*arguments)
        often = sum(each is launch for each in launches)
        sums += [often * report.microseconds for report in reports]
    seconds = time.process_time() - begin
    found = list(zip(rows, sums.tolist(), strict=True))
    for row, us in found:
        times = f"{row.microseconds:11.1f} us published {us:11.1f} modelled {us / row.microseconds:5.2f}"
        print(f"{row.gpu:23}{times}  {seconds:5.1f} s  {row.name[:60]}", flush=True)
    return found


def summarised(found: list) -> dict:
    """Return errors of (row, modelled microseconds): of each family, of each GPU, of all."""
    groups = {f"{row.family}": [] for row, _ in found} | {row.gpu: [] for row, _ in found} | {"all": found}
    for each in found:
        groups[each[0].family].append(each)
        groups[each[0].gpu].append(each)
    return {name: _errors(own) for name, own in groups.items()}


def _errors(found):
    ratios = np.array([modelled / row.microseconds for row, modelled in found])
    right = pairs = 0
    for (a, x), (b, y) in combinations(found, 2):
        slow, fast = max(a.microseconds, b.microseconds), min(a.microseconds, b.microseconds)
        if (a.gpu, a.family) == (b.gpu, b.family) and slow > _APART * fast:
            pairs += 1
            right += (a.microseconds < b.microseconds) == (x < y)
    numbers = {
        "rows": len(found),
        "mean error": float(np.abs(ratios - 1).mean()),
        "median error": float(np.median(np.abs(ratios - 1))),
        f"within {_FACTOR}": float(((ratios < _FACTOR) & (ratios > 1 / _FACTOR)).mean()),
        "in order": right / pairs if pairs else 1.0,
    }
    return {name: round(number, 4) for name, number in numbers.items()}


if __name__ == "__main__":
    main()
