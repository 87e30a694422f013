"""Operations on named GPUs: the modelled time of each rung, and its share of the roof.

Nothing is measured. `gpuless.profile` models each kernel with cold caches. The roof is that of the data
sheet, with the share of the bandwidth that kernels reach. The largest cases are left out, as they have the
same kernels.
"""

from collections.abc import Sequence
from contextlib import suppress
from itertools import islice

import numpy as np

import gpuless
from benchmarks.cases import CASES, Case
from benchmarks.ops import bound, launches_of, rates
from benchmarks.records import new_record, text_table
from cnn_numba import device
from gpuless.profile.costs import STREAM_GAP
from gpuless.profile.launches import reports_within
from gpuless.profile.report import time
from gpuless.profile.watched import times_of

MODELLED = tuple(case for case in CASES if case.size != "large")


def bench_ops(gpus: Sequence[str], cases: Sequence[Case] = MODELLED) -> dict:
    """Model the time of each rung of the ladders on some GPUs.

    Parameters
    ----------
    gpus : sequence of str
        Names that `gpuless.profile` knows.
    cases : sequence of Case

    Returns
    -------
    dict
        The roof of each GPU, and for each case and GPU the microseconds of every contender with their range,
        its rates, and what limits its longest kernel.
    """
    gpus = [gpuless.profile.device(gpu) for gpu in gpus]
    roofs = {gpu.name: roof_of(gpu) for gpu in gpus}
    print("Modelled, not measured. Roofs:")
    for name, roof in roofs.items():
        peak, rate = roof["flops_per_second"] / 1e12, roof["bytes_per_second"] / 1e9
        print(f"  {name}: {peak:.1f} TFLOP/s in float32, {rate:.0f} GB/s")
    results = [_bench_case(case, gpus, roofs) for case in cases]
    return new_record("ops-modelled", modelled=True, roofs=roofs, results=results)


def roof_of(gpu) -> dict:
    """Return a GPU's highest rates: operations, two for a multiply-add, and bytes from memory."""
    lanes = 4 * 32 / gpu.fma  # four partitions, whose units a warp keeps busy for `fma` cycles
    return {
        "flops_per_second": 2 * lanes * gpu.sms * gpu.clock * 1e9,
        "bytes_per_second": gpu.dram * gpu.dram_share * 1e9,
    }


def _bench_case(case, gpus, roofs):
    print(f"{case.operation}, {case.text}:", flush=True)
    generator = np.random.default_rng(0)
    inputs = [device.to_device(generator.standard_normal(shape, np.float32)) for shape in case.inputs]
    out, found = device.empty(case.outputs[0]), {gpu.name: {} for gpu in gpus}
    launches = {}
    for who, function in case.contenders.items():
        with suppress(ValueError):  # the rung does not support this shape
            launches[who] = launches_of(case.ours(function, *inputs, out), run=False)
    every = [launch for own in launches.values() for launch in own]
    reports = iter(reports_within(lambda: [launch.run() for launch in every], gpus))
    for who, own in launches.items():
        for gpu, of_gpu in zip(gpus, zip(*islice(reports, len(own)), strict=True), strict=True):
            limit = bound(roofs[gpu.name], case.flops, case.bytes)
            found[gpu.name][who] = _figures(of_gpu) | rates(case, _microseconds(of_gpu) / 1e6, limit)
    _print(case, found)
    about = {"flops": case.flops, "bytes": case.bytes, "measure": case.measure, "gpus": found}
    return {"operation": case.operation, "size": case.size, "shape": case.text} | about


def _microseconds(reports, number=0):
    """Return the time of kernels one after the other: modelled, lowest or highest, by `number`."""
    return sum(times_of(report)[number] for report in reports) + STREAM_GAP * (len(reports) - 1)


def _figures(reports):
    longest = max(reports, key=lambda report: report.microseconds)
    names = ("microseconds", "low", "high")
    return {name: _microseconds(reports, i) for i, name in enumerate(names)} | {
        "kernels": [report.kernel for report in reports],
        "limited_by": longest.limiter,
        "busy": {unit: round(share, 4) for unit, share in longest.busy.items()},
    }


def _print(case, found):
    rows = [("", "rung", "time", "from", "to", case.measure, "of the roof", "limited by")]
    for gpu, contenders in found.items():
        for who, figures in contenders.items():
            times = (time(figures[name]) for name in ("microseconds", "low", "high"))
            shares = f"{figures[case.measure]:.0f}", f"{figures['share_of_roof']:.0%}"
            rows.append((gpu, who, *times, *shares, figures["limited_by"].split(":")[0].split(",")[0]))
    print(text_table(rows, left=2), flush=True)
