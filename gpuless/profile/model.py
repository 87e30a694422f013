"""A queueing model that turns counts into time: warps are customers, units of SMs and memory are stations.

A single warp takes as long as its control codes and the latencies of its loads say. Several warps overlap
until a unit is always busy; in between they queue. *Mean value analysis* describes the queues: a customer
finds the average queue of a system with one customer fewer. If a block has barriers, first its warps queue,
phase by phase, and then blocks do.
"""

import math
from typing import NamedTuple

import numpy as np

from gpuless.inspector.control import NO_SCOREBOARD, SCOREBOARDS
from gpuless.profile import caches
from gpuless.profile.flow import loops_of, nest_of
from gpuless.profile.units import SHARED_UNITS, UNITS, Costs, of_memory

# L2's time for a partially written sector, as a multiple of that for a full one: V, see `devices`.
_PARTIAL = 4.8
_FILL = 64  # bytes that L1 gets from L2 in a cycle: W
_OPERANDS_READ = 20  # cycles until a request has read its operands
_ONCE = 1e-3  # tolerance for "once per warp"
# Sectors of a piece, and L2 slices that hold a piece. A slice serves one atomic operation at a time, or
# several on neighbours in a sector: V, the RTX 3080's histogram in shared memory with blocks of 32 threads.
_PIECE, _SLICES_OF_PIECE = 64, 4
#: What a single warp does at an instruction: issue it; wait for a fixed time, for the result of memory or of
#: another unit, for the slowest warp of its block.
ALONE = ("selected", "wait", "long scoreboard", "short scoreboard", "barrier")


class Shape(NamedTuple):
    """The shape of a launch."""

    blocks: int
    warps: int  # of a block
    resident: int  # blocks that fit on an SM

    def per_sm(self, device):
        """Return the mean number of blocks of the SMs that have any."""
        return self.blocks / min(device.sms, self.blocks)

    def at_once(self, device):
        """Return how many blocks an SM runs at a time."""
        return min(self.resident, math.ceil(self.blocks / device.sms))

    def waves(self, device):
        """Return how many times the blocks fill the GPU."""
        return self.blocks / (device.sms * self.resident)


class Prediction(NamedTuple):
    """The model's results for a launch.

    `busy`: share of the time for which each unit works; `bound`: the busiest unit; `alone`: cycles of a block
    that has an SM to itself; `needed`: warps on an SM that would keep `bound` always busy; `costs`: of each
    instruction; `chain`: cycles of a single warp at each instruction, the slowest of its block; `reasons`:
    those of an average warp by what it does, in the order of `ALONE`.
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
    """Return how many customers are served per cycle, by mean value analysis.

    `demands`: a customer's cycles at each station; `elsewhere`: its cycles at none.

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
    """Return the `Prediction` of a launch; `counts` and `traffic` are those of the recorded blocks."""
    costs, blocks = Costs(device, counts, traffic), shape.blocks
    shape, warps = _at_work(counts, traffic, shape)
    # Instructions that run once per warp are also run by warps that exit at once.
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
    # The busiest SM ends last. If shared units are the bound, SMs with less work wait less.
    count = whole if bound in own else shape.per_sm(device)
    cycles = max(count / rate, alone)
    if bound not in own:
        cycles = max(cycles, whole / _rate(phases, own, {}, counts, device, shape)[0])
    # Blocks that exit at once only take the time to start them.
    cycles += (blocks - shape.blocks) / device.sms * device.block_start / shape.resident
    busy = {unit: min(1.0, cycles_ * shape.warps * count / cycles) for unit, cycles_ in totals.items()}
    chain, reasons = np.zeros(len(counts.steps)), np.zeros((len(counts.steps), len(ALONE)))
    for phase in phases:
        chain[phase.at] += phase.chains
        reasons[phase.at] += phase.reasons
    needed, time = alone / totals[bound], cycles / device.clock / 1e3 + device.launch
    return Prediction(time, busy, bound, alone, needed, costs, chain, reasons)


def _at_work(counts, traffic, shape):
    """Return the `Shape` without blocks and warps that exit at once, and the recorded warps without these.

    Otherwise the average warp would resemble neither kind. With barriers no warp exits early.
    """
    if counts.has_barriers:
        return shape, traffic.warps
    blocks, warps = traffic.at_work
    return (
        shape._replace(blocks=max(1, round(shape.blocks * blocks)), warps=shape.warps * warps),
        traffic.warps * blocks * warps,
    )


def _rate(phases, demands, memory, counts, device, shape):
    """Return how many blocks an SM completes per cycle, and how long a block takes that has it to itself.

    `demands`: a warp's cycles at each unit; `memory`: those at units that all SMs share.
    """
    at_once, warps = shape.at_once(device), shape.warps
    # Warps don't wait for atomic operations: these limit the rate of blocks, but delay no other request.
    atomics = demands.get("atomics", 0.0) * warps
    bound = 1 / atomics if atomics else math.inf
    waited = {unit: cycles for unit, cycles in demands.items() if unit != "atomics"}
    if counts.has_barriers:
        alone = device.block_start + _block_alone(phases, memory, warps)
        most = max(waited.values()) * warps
        return min(bound, throughput(at_once, [most], max(0.0, alone - most))), alone
    alone = device.block_start + sum(phase.chain for phase in phases)
    own = [cycles for unit, cycles in waited.items() if unit not in memory]
    rate = throughput(at_once * warps, list(waited.values()), max(0.0, alone - sum(own))) / warps
    # Another block can start only when all warps of one have ended.
    most = max(own)
    block = warps / throughput(warps, [most], max(0.0, alone - most))
    most *= warps
    return min(bound, rate, throughput(at_once, [most], max(0.0, block - most))), alone


# --- Phases between barriers --------------------------------------------------------------------------------


class _Phase(NamedTuple):
    """A warp's work between two barriers.

    `at`: its instructions; `demands`: cycles at each of `UNITS`; `chains`: cycles of a single warp at each
    instruction, the slowest of its block; `reasons`: those of an average warp by what it does, as in `ALONE`;
    `together`: cycles at each basic block's busiest unit, summed, if all warps run it at the same time;
    `loads`: number of accesses to global memory.
    """

    at: np.ndarray
    demands: np.ndarray
    chains: np.ndarray
    reasons: np.ndarray
    together: float
    loads: float

    @property
    def chain(self):
        """Cycles of a single warp."""
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
    return [_phase(piece, counts, costs, per_warp, shape) for piece in pieces]


def _phase(piece, counts, costs, per_warp, shape):
    blocks = [block for block, _ in piece]
    at = np.concatenate([np.arange(block.first, block.last) for block in blocks])
    often, demands = per_warp[at], costs.demands[at]
    (once, again), reasons = _alone([counts.steps[i] for i in at], costs.latencies[at], often > 1)
    slowest = often
    if counts.has_barriers:  # the block goes on when its last warp has arrived
        ends = [i for i in at if counts.steps[i].base == "BAR"]
        passes = max((per_warp[i] for i in ends), default=0.0) or 1.0
        times = np.concatenate(
            [np.full(block.last - block.first, passes if loop else 1.0) for block, loop in piece]
        )
        slowest = np.maximum(often, np.minimum(times, often * shape.warps))
    mean, own = (_mean(often, *each) for each in ((once, again), reasons))
    own *= often[:, np.newaxis]
    if counts.steps[at[-1]].base == "BAR":  # after the last barrier, warps don't wait for each other
        own[-1, ALONE.index("barrier")] += float(((slowest - often) * mean).sum())
    together = sum(
        (per_warp[block.first : block.last] @ costs.demands[block.first : block.last]).max()
        for block in blocks
    )
    accesses = [i for i in at if counts.steps[i].base in ("LDG", "LD", "STG", "RED", "ATOMG")]
    loads = len(accesses) * float(often.max())
    return _Phase(at, often @ demands, slowest * mean, own, float(together), loads)


def _mean(often, once, again):
    """Return the mean over an instruction's executions: `once` for the first, `again` for the others."""
    often = often.reshape(-1, *[1] * (once.ndim - 1))
    return np.where(often <= 1, once, (once + (often - 1) * again) / np.maximum(often, 1e-300))


def _alone(steps, latencies, repeated):
    """Return a single warp's cycles at each instruction, the first time and in a loop; then both by `ALONE`.

    A loop has only the instructions `repeated`: the results of earlier loads have arrived.
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
    """Return the cycles that pass at each instruction, by its control codes, in total and by `ALONE`."""
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
    """Return the cycles of a block with barriers that has an SM to itself."""
    loads = sum(phase.loads for phase in phases) or 1.0
    most = max((cycles for unit, cycles in memory.items() if unit != "atomics"), default=0.0)
    cycles = 0.0
    for phase in phases:
        demand = max(phase.together, most * phase.loads / loads)
        cycles += warps / throughput(warps, [demand], max(0.0, phase.chain - demand))
    return cycles


# --- What SMs share -----------------------------------------------------------------------------------------


def _memory_demands(device, traffic, shape, warps):
    """Return a warp's cycles at each of `SHARED_UNITS`.

    All active SMs share these, so each SM sees them busy for its own requests times the number of SMs.
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
