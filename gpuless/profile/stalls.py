"""What a warp spends its time on, by Nsight Compute's stall reasons.

A single warp waits as the control codes of its instructions say: for a fixed number of cycles, or for another
unit's result. Among others it takes longer, since it queues for the units: the time in each queue is assigned
to the reason that stands for it.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from gpuless.profile import caches
from gpuless.profile.model import ALONE
from gpuless.profile.units import SHARED_UNITS, UNITS, of_memory

#: The modelled reasons, named as in ``smsp__average_warps_issue_stalled_..._per_issue_active``.
REASONS = (*ALONE, "not selected", "math pipe throttle", "lg throttle", "mio throttle")
_ARITHMETIC = ("fma", "multiply", "alu", "float64")


class Stalls(NamedTuple):
    """What warps spend their time on.

    `shares`: of a warp's time, by reason, which sum to 1; `lines`: the same by file and line, which sum to
    `shares`; `cycles`: between a warp's first and last instruction.
    """

    shares: dict
    lines: dict
    cycles: float


def stalls_of(device: Any, modelled: Any) -> Stalls:
    """Return the `Stalls` of a launch, from its `gpuless.profile.launches.Modelled`."""
    prediction, steps = modelled.prediction, modelled.counts.steps
    table = np.zeros((len(steps), len(REASONS)))  # cycles of a warp
    table[:, : len(ALONE)] = prediction.reasons
    alone = float(table.sum())
    # The time between the end of the average warp and that of its block.
    gone = max(0.0, float(prediction.chain.sum()) - alone)
    cycles = max(alone, resident_cycles(device, modelled) - device.block_start - gone)
    at_barriers = _barriers(device, modelled, cycles - alone)
    for at, waited in at_barriers:
        table[at, REASONS.index("barrier")] += waited
    lines: dict = {}
    for step, row in zip(steps, table, strict=True):
        _add(lines, (step.file, step.line), row)
    queued = cycles - alone - math.fsum(waited for _, waited in at_barriers)
    for unit, waited in _queues(device, modelled, queued).items():
        _spread(lines, unit, waited, modelled)
    whole = sum(lines.values()).sum() or 1.0
    rows = {place: dict(zip(REASONS, (row / whole).tolist(), strict=True)) for place, row in lines.items()}
    sums = {reason: math.fsum(row[reason] for row in rows.values()) for reason in REASONS}
    return Stalls({reason: share for reason, share in sums.items() if share}, rows, cycles)


def _add(lines, place, row):
    lines[place] = lines.get(place, 0.0) + row


# --- Queues -------------------------------------------------------------------------------------------------


def cycles_of(device: Any, prediction: Any) -> float:
    """Return the cycles of a launch, without those before its first block and after its last."""
    return (prediction.microseconds - device.launch) * device.clock * 1e3


def resident_cycles(device: Any, modelled: Any) -> float:
    """Return how many cycles a block stays on an SM: blocks there at once / blocks that end per cycle."""
    shape, cycles = modelled.shape, cycles_of(device, modelled.prediction)
    return min(cycles, cycles * shape.at_once(device) / shape.per_sm(device))


def _barriers(device, modelled, queued):
    """Return pairs of a barrier and the cycles that a warp waits there for queueing warps of its block.

    All warps of a block queue at the same time: on average, a warp is served after half of that time, and
    waits for the others during the other half.
    """
    prediction, counts = modelled.prediction, modelled.counts
    within = min(queued, prediction.alone - device.block_start - float(prediction.chain.sum()))
    found, before = [], 0.0
    asked = prediction.costs.demands * counts.executed[:, np.newaxis]
    asked = asked[:, asked.sum(0).argmax()]  # of the SM's busiest unit
    for at, (step, amount) in enumerate(zip(counts.steps, asked.tolist(), strict=True)):
        before += amount
        if step.base == "BAR":
            found.append((at, before))
            before = 0.0
    whole = math.fsum([before, *(amount for _, amount in found)])  # after the last barrier no warp waits
    return [(at, within / 2 * amount / whole) for at, amount in found] if whole and within > 0 else []


def _queues(device, modelled, waited):
    """Divide the cycles that a warp waits in queues among the units.

    The proportions are those of mean value analysis with all warps of an SM as customers.
    """
    shape, prediction = modelled.shape, modelled.prediction
    of_sm = shape.warps * shape.blocks / min(device.sms, shape.blocks)
    demands = {unit: busy * cycles_of(device, prediction) / of_sm for unit, busy in prediction.busy.items()}
    each = np.array([*demands.values()])
    own = sum(cycles for unit, cycles in demands.items() if unit in UNITS)
    elsewhere, queues = max(0.0, prediction.alone - own), np.zeros(len(each))
    for n in range(1, shape.at_once(device) * shape.warps + 1):
        times = each * (1 + queues)
        queues = n / (elsewhere + times.sum()) * times
    shares = each * queues
    shares = shares / shares.sum() if shares.sum() > 0 else each / max(each.sum(), 1e-300)
    return dict(zip(demands, (waited * shares).tolist(), strict=True)) if waited > 0 else {}


def _spread(lines, unit, waited, modelled):
    """Divide the cycles waited for a unit among lines, in proportion to their use of it."""
    asked = _of_sm(unit, modelled) if unit in UNITS else _of_memory(unit, modelled)
    whole = sum(amount for _, _, amount in asked)
    for place, reason, amount in asked:
        row = np.zeros(len(REASONS))
        row[REASONS.index(reason)] = waited * amount / whole
        _add(lines, place, row)


def _of_sm(unit, modelled):
    """Return what uses a unit of an SM: line, reason and amount."""
    counts = modelled.counts
    demands = modelled.prediction.costs.demands[:, UNITS.index(unit)] * counts.executed
    found = []
    for step, amount in zip(counts.steps, demands.tolist(), strict=True):
        if amount <= 0:
            continue
        reason = "math pipe throttle" if unit in _ARITHMETIC else "mio throttle"
        if unit == "issue":
            reason = "not selected"
        elif unit == "L1" and of_memory(step):
            reason = "lg throttle"
        found.append(((step.file, step.line), reason, amount))
    return found


def _of_memory(unit, modelled):
    """Return the same for a unit that all SMs share.

    No warp waits for a store itself: stores delay warps once the queue of requests is full.
    """
    assert unit in SHARED_UNITS
    found = []
    for (what, file, line), row in modelled.traffic.lines.items():
        loaded = row[caches.DRAM if unit == "DRAM" else caches.L2_LOADS]
        amount = row[caches.ATOMIC_SECTORS] if unit == "atomics" else loaded
        reason = "long scoreboard" if what == "load" else "lg throttle"
        found += [((file, line), reason, float(amount))]
        if unit in ("L2", "DRAM"):
            found += [((file, line), "lg throttle", float(row[caches.STORED]))]
    return [one for one in found if one[2] > 0]
