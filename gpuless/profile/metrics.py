"""The modelled values of Nsight Compute's metrics, under their names there.

As ``ncu`` prints them, percentages are from 0 to 100, times are in nanoseconds, and metrics of the whole GPU
are sums. Metrics that would have another meaning here, or none, are left out: docs/profiling.md lists them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuless.profile import caches
from gpuless.profile.model import ALONE
from gpuless.profile.sass_counts import width
from gpuless.profile.stalls import Stalls, cycles_of, resident_cycles
from gpuless.profile.units import COLUMN_OF_WIDTH, UNITS

_PIPES = {"alu": "alu", "float64": "fp64", "special": "xu"}
_OPS = {"load": "ld", "store": "st"}

_ALWAYS = (
    "gpu__time_duration.sum",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
)
_STALLED = "_issue_stalled_"
_OF_INSTRUCTIONS = "smsp__inst_executed.sum", "smsp__thread_inst_executed_per_inst_executed.ratio"
_OF_L2 = "lts__t_sectors_srcunit_tex_op_", "lts__t_sector_op_read_hit_rate.pct"
# Prefixes of the metrics that support a verdict, by what bounds the launch.
_TELLING = {
    "latency": (
        "launch__registers_per_thread",
        "launch__waves_per_multiprocessor",
        "sm__maximum_warps_per_active_cycle_pct",
        "smsp__average_warp_latency_per_inst_issued.ratio",
    ),
    "issue": ("sm__inst_executed.avg", *_OF_INSTRUCTIONS),
    "fma": ("sm__inst_executed_pipe_fma", *_OF_INSTRUCTIONS),
    "multiply": ("sm__inst_executed_pipe_fma", *_OF_INSTRUCTIONS),
    "alu": ("sm__inst_executed_pipe_alu", *_OF_INSTRUCTIONS),
    "float64": ("sm__inst_executed_pipe_fp64", *_OF_INSTRUCTIONS),
    "special": ("sm__inst_executed_pipe_xu", *_OF_INSTRUCTIONS),
    "L1": ("l1tex__",),
    "fill": ("l1tex__t_sector_pipe_lsu_mem_global_op_ld_hit_rate.pct", *_OF_L2),
    "L2": _OF_L2,
    "atomics": _OF_L2,
    "DRAM": ("lts__t_sector_op_read_hit_rate.pct", "dram__"),
}


def telling(metrics: dict, bound: str) -> dict:
    """Return the metrics that support a verdict, and the largest stall reason.

    Parameters
    ----------
    metrics : dict
        All metrics of a launch.
    bound : str
        What bounds it: the name of a unit, or "latency".
    """
    stalls = [
        name for name in metrics if _STALLED in name and not name.endswith("_selected_per_issue_active.ratio")
    ]
    largest = max(stalls, key=metrics.__getitem__, default="")
    begin = (*_ALWAYS, *_TELLING[bound])
    return {name: value for name, value in metrics.items() if name.startswith(begin) or name == largest}


def metrics_of(device: Any, taken: Any, compiled: Any, modelled: Any, stalls: Stalls) -> dict:
    """Return the metrics of a launch by name, in a fixed order."""
    shape, traffic = modelled.shape, modelled.traffic
    whole = shape.blocks * shape.warps / traffic.warps  # the launch, as a multiple of the sample
    elapsed = modelled.prediction.microseconds * device.clock * 1e3
    return (
        {"gpu__time_duration.sum": modelled.prediction.microseconds * 1e3}
        | _launch(device, taken, compiled, shape)
        | _occupancy(device, modelled)
        | _work(device, modelled, whole, elapsed)
        | _global_memory(traffic, whole)
        | _shared_memory(modelled, whole)
        | _dram(device, modelled, whole)
        | _warps(modelled, stalls)
    )


def _launch(device, taken, compiled, shape):
    return {
        "launch__grid_size": shape.blocks,
        "launch__block_size": int(np.prod(taken.block)),
        "launch__thread_count": shape.blocks * int(np.prod(taken.block)),
        "launch__registers_per_thread": compiled.registers,
        "launch__shared_mem_per_block_static": compiled.shared,
        "launch__shared_mem_per_block_dynamic": taken.shared,
        "launch__waves_per_multiprocessor": shape.waves(device),
    }


def _occupancy(device, modelled):
    found, shape = modelled.occupancy, modelled.shape
    limits = {
        f"launch__occupancy_limit_{name.replace('shared memory', 'shared_mem')}": limit
        for name, limit in found.limits.items()
    }
    stay = resident_cycles(device, modelled) / cycles_of(device, modelled.prediction)
    active = shape.per_sm(device) * shape.warps * stay / device.sm.warps
    return limits | {
        "sm__maximum_warps_per_active_cycle_pct": 100 * found.fraction,
        "sm__warps_active.avg.pct_of_peak_sustained_active": 100 * active,
    }


def _work(device, modelled, whole, elapsed):
    """Return the metrics of what SMs execute; percentages are means over all SMs."""
    counts, costs = modelled.counts, modelled.prediction.costs
    cycles = counts.executed @ costs.demands * (whole / device.sms)
    busy = dict(zip(UNITS, (100 * cycles / elapsed).tolist(), strict=True))
    instructions = float(counts.executed.sum()) * whole
    pipes = {name: busy[unit] for unit, name in _PIPES.items()}
    # An integer multiplication counts as much as a multiply-add, though only half of the pipe executes it.
    pipes["fma"] = busy["fma"] + busy["multiply"] * device.fma / device.multiply
    return {
        "sm__throughput.avg.pct_of_peak_sustained_elapsed": max(busy["issue"], *pipes.values()),
        "smsp__inst_executed.sum": instructions,
        "sm__inst_executed.avg.per_cycle_elapsed": instructions / device.sms / elapsed,
    } | {
        f"sm__inst_executed_pipe_{name}.avg.pct_of_peak_sustained_elapsed": share
        for name, share in sorted(pipes.items())
    }


def _global_memory(traffic, whole):
    sums = {what: np.zeros(len(caches.COLUMNS)) for what in _OPS}
    for (what, *_), row in traffic.lines.items():
        if what in sums:
            sums[what] += row * whole
    loads, stores = sums["load"], sums["store"]
    found = {
        f"l1tex__t_sectors_pipe_lsu_mem_global_op_{_OPS[what]}.sum": float(row[caches.SECTORS])
        for what, row in sums.items()
    }
    found["l1tex__t_sector_pipe_lsu_mem_global_op_ld_hit_rate.pct"] = 100 * _share(
        loads[caches.L1_HITS], loads[caches.SECTORS]
    )
    return found | {
        "lts__t_sectors_srcunit_tex_op_read.sum": float(loads[caches.L2_LOADS]),
        "lts__t_sectors_srcunit_tex_op_write.sum": float(stores[caches.STORED]),
        "lts__t_sector_op_read_hit_rate.pct": 100 * _share(loads[caches.L2_HITS], loads[caches.L2_LOADS]),
    }


def _share(part, whole):
    return float(part / whole) if whole else 0.0


def _shared_memory(modelled, whole):
    """Return the wavefronts of loads and stores in shared memory."""
    sums = dict.fromkeys(_OPS, 0.0)
    for step, often in zip(modelled.counts.steps, modelled.counts.executed.tolist(), strict=True):
        what = {"LDS": "load", "STS": "store"}.get(step.base)
        if what and (delivered := modelled.traffic.shared.get((what, step.file, step.line))):
            sums[what] += often * whole * delivered[COLUMN_OF_WIDTH.get(width(step.opcode), 2)]
    return {
        f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{_OPS[what]}.sum": sum_ for what, sum_ in sums.items()
    }


def _dram(device, modelled, whole):
    traffic, seconds = modelled.traffic, modelled.prediction.microseconds / 1e6
    read = float(traffic.totals[caches.DRAM]) * caches.SECTOR * whole
    written = float(traffic.written) * caches.SECTOR * whole
    per_second = (read + written) / seconds
    return {
        "dram__bytes_read.sum": read,
        "dram__bytes_write.sum": written,
        "dram__bytes.sum": read + written,
        "dram__bytes.sum.per_second": per_second,
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": 100 * per_second / (device.dram * 1e9),
    }


def _warps(modelled, stalls):
    """Return how many cycles pass between two instructions of a warp, and what it waits for meanwhile."""
    instructions = float(modelled.prediction.reasons[:, ALONE.index("selected")].sum())
    latency = stalls.cycles / instructions if instructions else 0.0
    stalled = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
    return {
        "smsp__thread_inst_executed_per_inst_executed.ratio": modelled.lanes.active,
        "smsp__average_warp_latency_per_inst_issued.ratio": latency,
    } | {stalled.format(reason.replace(" ", "_")): share * latency for reason, share in stalls.shares.items()}
