"""Kernels for a real GPU, sanitized as Python functions: those with bugs, and correct ones."""

import os

import gpuless

gpuless.select()

import numpy as np  # noqa: E402
import planted_bugs  # noqa: E402
import simulator_kernels as kernels  # noqa: E402

from gpuless import sanitize  # noqa: E402

every = int(os.environ["EVERY"])
for bug in planted_bugs.BUGS[::every]:
    arguments = [
        np.full(v.shape, np.nan if np.dtype(v.dtype).kind == "f" else -1, v.dtype)
        if isinstance(v, planted_bugs.New)
        else v
        for v in bug.arguments()
    ]
    report = sanitize(bug.kernel)[bug.grid, bug.block, 0, bug.dynamic](*arguments)
    if not bug.kinds & report.kinds:
        print(bug.name)
for case in kernels.CASES[::every]:
    given = case.arguments(np.random.default_rng(0))
    report = sanitize(case.kernel)[case.grid, case.block, 0, case.dynamic](*given)
    if not report.ok:
        print(report)
    expected = case.expected(*case.arguments(np.random.default_rng(0)))
    for position, value in expected.items():
        np.testing.assert_allclose(given[position], value, rtol=2e-5, atol=1e-5)
print(type(kernels.scale).__name__)
