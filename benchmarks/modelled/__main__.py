"""Hold modelled times against published ones: ``python -m benchmarks.modelled [words of a row's name]``."""

import sys
import time
from collections import defaultdict
from itertools import combinations

import gpuless

gpuless.select()

import numpy as np  # noqa: E402

from benchmarks.modelled.rows import published  # noqa: E402
from gpuless.profile.launches import Profiled  # noqa: E402


def main(words):
    groups = defaultdict(list)
    for row in published():
        if all(word in f"{row.gpu} {row.family} {row.name}" for word in words):
            groups[row.name].append(row)
    found = []
    for name, rows in groups.items():
        kernel, grid, block, shared, arguments = rows[0].launch()
        begin = time.process_time()
        reports = Profiled(kernel[grid, block, 0, shared], [row.gpu for row in rows])(*arguments)
        seconds = time.process_time() - begin
        for row, report in zip(rows, reports, strict=True):
            found.append((row, report.microseconds))
            ratio = report.microseconds / row.microseconds
            print(f"{row.gpu:9} {row.microseconds:10.1f} {report.microseconds:10.1f} {ratio:5.2f} {seconds:5.1f}s {name[5:100]}", flush=True)
            if "-v" in sys.argv:
                print("    ", report)
    summary(found)


def summary(found):
    errors = np.array([abs(modelled / row.microseconds - 1) for row, modelled in found])
    ratios = np.array([modelled / row.microseconds for row, modelled in found])
    for what in ("family", "gpu"):
        for key in dict.fromkeys(getattr(row, what) for row, _ in found):
            own = np.array([getattr(row, what) == key for row, _ in found])
            print(f"{key:20} {own.sum():4} rows  mean error {errors[own].mean():5.1%}  median ratio {np.median(ratios[own]):.2f}")
    within = ((ratios < 1.5) & (ratios > 1 / 1.5)).mean()
    right, pairs = 0, 0
    for (a, x), (b, y) in combinations(found, 2):
        far = max(a.microseconds, b.microseconds) > 1.25 * min(a.microseconds, b.microseconds)
        if (a.gpu, a.family) == (b.gpu, b.family) and far:
            pairs += 1
            right += (a.microseconds < b.microseconds) == (x < y)
    print(f"all {len(found)} rows: mean {errors.mean():.1%}, median {np.median(errors):.1%}, within 1.5: {within:.1%}, order {right}/{pairs}")


if __name__ == "__main__":
    main([word for word in sys.argv[1:] if not word.startswith("-")])
