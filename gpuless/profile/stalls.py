"""What a warp spends its time on, by the names that Nsight Compute gives to stall reasons.

A warp that is alone waits as the control codes of its instructions say: for a fixed number of cycles, or
until what another unit returns is there. Among others it takes longer, since it queues in front of the units:
the time in each queue goes to the reason that names such a queue.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from gpuless.profile import caches
from gpuless.profile.model import ALONE
from gpuless.profile.units import SHARED_UNITS, UNITS, of_memory

#: Reasons that the model knows, as ``smsp__average_warps_issue_stalled_..._per_issue_active`` has them.
REASONS = (*ALONE, "not selected", "math pipe throttle", "lg throttle", "mio throttle")
_ARITHMETIC = ("fma", "multiply", "alu", "float64")


class Stalls(NamedTuple):
    """What warps spend their time on.

    `shares`: of a warp's time, by reason, which sum to 1; `lines`: by file and line of the source, the part
    of that which is spent there; `cycles`: between a warp's first instruction and its last.
    """

    shares: dict
    lines: dict
    cycles: float


def stalls_of(device: Any, modelled: Any) -> Stalls:
    """Return the `Stalls` of a launch, of its `gpuless.profile.launches.Modelled`."""
    prediction, steps = modelled.prediction, modelled.counts.steps
    table = np.zeros((len(steps), len(REASONS)))  # cycles of a warp
    table[:, : len(ALONE)] = prediction.reasons
    alone = float(table.sum())
    # For so long the average warp has ended, and its block has not.
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


def at_once(device: Any, shape: Any) -> int:
    """Return how many blocks an SM has at a time."""
    return min(shape.resident, math.ceil(shape.blocks / device.sms))


def cycles_of(device: Any, prediction: Any) -> float:
    """Return the cycles of a launch, without what it takes to begin and to end."""
    return (prediction.microseconds - device.launch) * device.clock * 1e3


def resident_cycles(device: Any, modelled: Any) -> float:
    """Return how long a block stays on an SM: how many are there at once, by how many leave in a cycle."""
    shape, cycles = modelled.shape, cycles_of(device, modelled.prediction)
    blocks = shape.blocks / min(device.sms, shape.blocks)
    return min(cycles, cycles * at_once(device, shape) / blocks)


def _barriers(device, modelled, queued):
    """Return at which barriers a warp waits how long for others of its block that queue.

    All warps of a block queue at the same time then: on average one is half through when it has what it
    came for, and waits for the others during the other half.
    """
    prediction, counts = modelled.prediction, modelled.counts
    within = min(queued, prediction.alone - device.block_start - float(prediction.chain.sum()))
    found, before = [], 0.0
    asked = prediction.costs.demands * counts.executed[:, np.newaxis]
    asked = asked[:, asked.sum(0).argmax()]  # of the unit of an SM that works most
    for at, (step, amount) in enumerate(zip(counts.steps, asked.tolist(), strict=True)):
        before += amount
        if step.base == "BAR":
            found.append((at, before))
            before = 0.0
    whole = math.fsum([before, *(amount for _, amount in found)])  # after the last one nobody waits
    return [(at, within / 2 * amount / whole) for at, amount in found] if whole and within > 0 else []


def _queues(device, modelled, waited):
    """Return how many of the cycles that a warp waits in queues it does so in front of each unit.

    They are shared out as mean value analysis has them, with all warps of an SM as customers.
    """
    shape, prediction = modelled.shape, modelled.prediction
    of_sm = shape.warps * shape.blocks / min(device.sms, shape.blocks)
    demands = {unit: busy * cycles_of(device, prediction) / of_sm for unit, busy in prediction.busy.items()}
    each = np.array([*demands.values()])
    own = sum(cycles for unit, cycles in demands.items() if unit in UNITS)
    elsewhere, queues = max(0.0, prediction.alone - own), np.zeros(len(each))
    for n in range(1, at_once(device, shape) * shape.warps + 1):
        times = each * (1 + queues)
        queues = n / (elsewhere + times.sum()) * times
    shares = each * queues
    shares = shares / shares.sum() if shares.sum() > 0 else each / max(each.sum(), 1e-300)
    return dict(zip(demands, (waited * shares).tolist(), strict=True)) if waited > 0 else {}


def _spread(lines, unit, waited, modelled):
    """Share out among lines, by what they ask of a unit, the cycles that are waited in front of it."""
    asked = _of_sm(unit, modelled) if unit in UNITS else _of_memory(unit, modelled)
    whole = sum(amount for _, _, amount in asked)
    for place, reason, amount in asked:
        row = np.zeros(len(REASONS))
        row[REASONS.index(reason)] = waited * amount / whole
        _add(lines, place, row)


def _of_sm(unit, modelled):
    """Return what asks a unit of an SM for work: line, reason and amount."""
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
    """Return the same of what all SMs share.

    Nothing waits for what a store does: it is felt once the queue of requests is full.
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
