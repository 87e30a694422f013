"""From counts to time: warps are customers, the units of an SM and the memory behind them are stations.

A warp alone takes as long as its control codes and the latencies of its loads say. Several warps overlap,
until a unit is busy all the time. In between they queue, which *mean value analysis* describes: what a
customer finds at a station is what is there on average with one customer less. Where a block has barriers its
warps first queue with each other, phase by phase, and then blocks do.
"""

import math
from typing import NamedTuple

import numpy as np

from gpuless.inspector.control import NO_SCOREBOARD, SCOREBOARDS
from gpuless.profile import caches
from gpuless.profile.flow import loops_of, nest_of
from gpuless.profile.units import SHARED_UNITS, UNITS, Costs, of_memory

# Slices of L2 take this many times as long for a sector that is written in part: V, see `devices`.
_PARTIAL = 4.8
_FILL = 64  # bytes that L1 takes from L2 in a cycle: W
_OPERANDS_READ = 20  # cycles until a request has read its operands
_ONCE = 1e-3  # as close as this to as often as there are warps
# Sectors of a piece, and slices of L2 that keep one. A slice serves one atomic operation at a time, or those
# on neighbours in a sector: V, the RTX 3080's histogram in shared memory with blocks of 32 threads.
_PIECE, _SLICES_OF_PIECE = 64, 4
#: What a warp alone does at an instruction: it issues it, waits for a fixed time, for what memory or another
#: unit returns, and for the slowest warp of its block.
ALONE = ("selected", "wait", "long scoreboard", "short scoreboard", "barrier")


class Shape(NamedTuple):
    """A launch, as far as time depends on it."""

    blocks: int
    warps: int  # of a block
    resident: int  # blocks that an SM has room for


class Prediction(NamedTuple):
    """What the model says of a launch.

    `busy`: by unit, how much of the time it works; `bound`: the one that works most; `alone`: cycles of a
    block that has an SM for itself; `needed`: how many warps an SM would have to have for that unit to work
    all the time; `costs`: of each instruction; `chain`: how many cycles of a warp that is alone are spent at
    each, the slowest of its block; `reasons`: those of an average warp by what it does, in the order of
    `ALONE`.
    """

    microseconds: float
    busy: dict
    bound: str
    alone: float
    needed: float
    costs: Costs
    chain: np.ndarray
    reasons: np.ndarray


def throughput(customers, demands, elsewhere):
    """Return how many customers are served in a cycle, by mean value analysis.

    `demands`: cycles that one takes of each station; `elsewhere`: cycles that it spends at none.

    >>> throughput(1, [2.0], 8.0), throughput(100, [2.0], 8.0)
    (0.1, 0.5)
    """
    demands = np.asarray(demands, float)
    queues, served = np.zeros(len(demands)), 0.0
    for n in range(1, max(1, int(customers)) + 1):
        times = demands * (1 + queues)
        served = n / (elsewhere + times.sum())
        queues = served * times
    return float(served)


def predict(device, counts, traffic, shape):
    """Return the `Prediction` of a launch: `counts` and `traffic` are those of the blocks recorded."""
    costs, blocks = Costs(device, counts, traffic), shape.blocks
    shape, warps = _at_work(counts, traffic, shape)
    # What every warp runs once, those that end at once run as well.
    once = np.abs(counts.executed - traffic.warps) < _ONCE * traffic.warps
    per_warp = np.where(once, 1.0, counts.executed / warps)
    phases = _phases(counts, costs, per_warp, shape)
    memory = _memory_demands(device, traffic, shape, warps)
    totals = dict(zip(UNITS, per_warp @ costs.demands, strict=True)) | memory
    totals = {unit: float(cycles) for unit, cycles in totals.items() if cycles > 0}
    own = {unit: cycles for unit, cycles in totals.items() if unit in UNITS or unit == "fill"}
    whole = math.ceil(shape.blocks / device.sms)
    rate, alone = _rate(phases, totals, memory, counts, device, shape)
    bound = max(totals, key=totals.get)
    # The busiest SM ends last. Where SMs wait for what they share, one that has less to do waits less.
    count = whole if bound in own else shape.blocks / min(device.sms, shape.blocks)
    cycles = max(count / rate, alone)
    if bound not in own:
        cycles = max(cycles, whole / _rate(phases, own, {}, counts, device, shape)[0])
    # Blocks that end at once take as long as it takes to start them.
    cycles += (blocks - shape.blocks) / device.sms * device.block_start / shape.resident
    busy = {unit: min(1.0, cycles_ * shape.warps * count / cycles) for unit, cycles_ in totals.items()}
    chain, reasons = np.zeros(len(counts.steps)), np.zeros((len(counts.steps), len(ALONE)))
    for phase in phases:
        chain[phase.at] += phase.chains
        reasons[phase.at] += phase.reasons
    needed, time = alone / totals[bound], cycles / device.clock / 1e3 + device.launch
    return Prediction(time, busy, bound, alone, needed, costs, chain, reasons)


def _at_work(counts, traffic, shape):
    """Return the `Shape` without blocks and warps that end at once, and how many of those recorded do not.

    An average over all warps would be that of none. Where there are barriers nobody ends before.
    """
    if any(step.base == "BAR" for step in counts.steps):
        return shape, traffic.warps
    blocks, warps = traffic.at_work
    return (
        shape._replace(blocks=max(1, round(shape.blocks * blocks)), warps=shape.warps * warps),
        traffic.warps * blocks * warps,
    )


def _rate(phases, demands, memory, counts, device, shape):
    """Return how many blocks an SM ends in a cycle, and how long one takes that has it for itself.

    `demands`: by unit, cycles that a warp takes of it; `memory`: those of units that all SMs share.
    """
    at_once, warps = min(shape.resident, math.ceil(shape.blocks / device.sms)), shape.warps
    # Nobody waits for atomic operations, so they bound what blocks end and do not hold up others.
    atomics = demands.get("atomics", 0.0) * warps
    bound = 1 / atomics if atomics else math.inf
    waited = {unit: cycles for unit, cycles in demands.items() if unit != "atomics"}
    if any(step.base == "BAR" for step in counts.steps):
        alone = device.block_start + _block_alone(phases, memory, warps)
        most = max(waited.values()) * warps
        return min(bound, throughput(at_once, [most], max(0.0, alone - most))), alone
    alone = device.block_start + sum(phase.chain for phase in phases)
    own = [cycles for unit, cycles in waited.items() if unit not in memory]
    rate = throughput(at_once * warps, list(waited.values()), max(0.0, alone - sum(own))) / warps
    # A place on an SM is free for another block when all warps of one have ended.
    most = max(own)
    block = warps / throughput(warps, [most], max(0.0, alone - most))
    most *= warps
    return min(bound, rate, throughput(at_once, [most], max(0.0, block - most))), alone


# --- Phases between barriers --------------------------------------------------------------------------------


class _Phase(NamedTuple):
    """What a warp does between two barriers.

    `at`: its instructions; `demands`: cycles of each of `UNITS`; `chains`: cycles that a warp alone spends at
    each instruction, the slowest of its block; `reasons`: those of an average warp by what it does, as in
    `ALONE`; `together`: cycles of the block's units if its warps run through each piece of code at the same
    time; `loads`: how often global memory is accessed.
    """

    at: np.ndarray
    demands: np.ndarray
    chains: np.ndarray
    reasons: np.ndarray
    together: float
    loads: float

    @property
    def chain(self):
        """Cycles of a warp alone."""
        return float(self.chains.sum())


def _phases(counts, costs, per_warp, shape):
    loops = loops_of(counts.blocks)
    pieces, current = [], []
    for number, block in enumerate(counts.blocks):
        if per_warp[block.first] <= 0:
            continue
        current.append((block, bool(nest_of(loops, number))))
        if counts.steps[block.last - 1].base == "BAR":
            pieces.append(current)
            current = []
    pieces += [current] if current else []
    barriers = any(step.base == "BAR" for step in counts.steps)
    return [_phase(piece, counts, costs, per_warp, shape, barriers) for piece in pieces]


def _phase(piece, counts, costs, per_warp, shape, barriers):
    blocks = [block for block, _ in piece]
    at = np.concatenate([np.arange(block.first, block.last) for block in blocks])
    often, demands = per_warp[at], costs.demands[at]
    (once, again), reasons = _alone([counts.steps[i] for i in at], costs.latencies[at], often > 1)
    slowest = often
    if barriers:  # the block goes on when its last warp has come
        ends = [i for i in at if counts.steps[i].base == "BAR"]
        passes = max((per_warp[i] for i in ends), default=0.0) or 1.0
        times = np.concatenate(
            [np.full(block.last - block.first, passes if loop else 1.0) for block, loop in piece]
        )
        slowest = np.maximum(often, np.minimum(times, often * shape.warps))
    mean, own = (_mean(often, *each) for each in ((once, again), reasons))
    own *= often[:, np.newaxis]
    if counts.steps[at[-1]].base == "BAR":  # after the last one a warp waits for no other
        own[-1, ALONE.index("barrier")] += float(((slowest - often) * mean).sum())
    together = sum(
        (per_warp[block.first : block.last] @ costs.demands[block.first : block.last]).max()
        for block in blocks
    )
    accesses = [i for i in at if counts.steps[i].base in ("LDG", "LD", "STG", "RED", "ATOMG")]
    loads = len(accesses) * float(often.max())
    return _Phase(at, often @ demands, slowest * mean, own, float(together), loads)


def _mean(often, once, again):
    """Return what an instruction takes on average that runs so often, the first time and then in a loop."""
    often = often.reshape(-1, *[1] * (once.ndim - 1))
    return np.where(often <= 1, once, (once + (often - 1) * again) / np.maximum(often, 1e-300))


def _alone(steps, latencies, repeated):
    """Return the cycles each instruction takes a warp that is alone: the first time, and in a loop.

    Then the same by what the warp does in them. In a loop there are only those `repeated`: what was loaded
    before it has come.
    """
    (at,) = np.nonzero(repeated)
    order, n = [*range(len(steps)), *at], len(steps)
    found = []
    for each in _replay([steps[i] for i in order], [latencies[i] for i in order]):
        again = np.zeros_like(each[:n])
        again[at] = each[n:]
        found.append((each[:n], again))
    return found


def _replay(steps, latencies):
    """Return how many cycles go by at each instruction, by its control codes, and what is done in them."""
    now, ready, costs, reasons = 0.0, [0.0] * SCOREBOARDS, [], []
    owners = [""] * SCOREBOARDS
    for step, latency in zip(steps, latencies, strict=True):
        begin, reason = now, dict.fromkeys(ALONE, 0.0)
        for board in range(SCOREBOARDS):
            if step.waits >> board & 1 and ready[board] > now:
                reason[owners[board]] += ready[board] - now
                now = ready[board]
        for board in (step.sets, step.frees):
            if board < SCOREBOARDS:
                owners[board] = "long scoreboard" if of_memory(step) else "short scoreboard"
        if step.sets < SCOREBOARDS:
            ready[step.sets] = now + latency
        if step.frees != NO_SCOREBOARD and step.frees < SCOREBOARDS:
            ready[step.frees] = now + min(latency, _OPERANDS_READ)
        now += max(1, step.stall)
        reason |= {"selected": 1.0, "wait": max(1, step.stall) - 1.0}
        costs.append(now - begin)
        reasons.append([*reason.values()])
    return np.array(costs), np.array(reasons)


def _block_alone(phases, memory, warps):
    """Return how many cycles a block takes whose warps wait for each other, with an SM for itself."""
    loads = sum(phase.loads for phase in phases) or 1.0
    most = max((cycles for unit, cycles in memory.items() if unit != "atomics"), default=0.0)
    cycles = 0.0
    for phase in phases:
        demand = max(phase.together, most * phase.loads / loads)
        cycles += warps / throughput(warps, [demand], max(0.0, phase.chain - demand))
    return cycles


# --- What SMs share -----------------------------------------------------------------------------------------


def _memory_demands(device, traffic, shape, warps):
    """Return how many cycles of an SM one warp takes of each of `SHARED_UNITS`.

    As many SMs as are at work share these, so a byte of one keeps it busy as long as a byte of each.
    """
    active, totals = min(device.sms, shape.blocks), traffic.totals
    whole = totals[caches.L2_LOADS] + totals[caches.STORED] - traffic.partial
    slices = device.slices * device.slice_bytes
    sector = caches.SECTOR
    l2 = whole * sector / (slices * device.l2_share) + traffic.partial * _PARTIAL * sector / slices
    bytes_ = (totals[caches.DRAM] + traffic.written * device.writing) * sector
    opened = (totals[caches.PAGES] + traffic.opened) * device.opening / device.channels
    dram = max(bytes_ / (device.dram * device.dram_share), opened) * device.clock
    found = dict.fromkeys(SHARED_UNITS, 0.0)
    found |= {"L2": l2 * active, "DRAM": dram * active}
    found["fill"] = (totals[caches.L2_LOADS] - totals[caches.ATOMIC_SECTORS]) * sector / _FILL
    if totals[caches.ATOMIC_TURNS]:
        slices = min(device.slices, traffic.places, math.ceil(traffic.places / _PIECE) * _SLICES_OF_PIECE)
        found["atomics"] = totals[caches.ATOMIC_TURNS] / max(1.0, slices * device.l2_share) * active
    return {unit: cycles / warps for unit, cycles in found.items() if cycles}
