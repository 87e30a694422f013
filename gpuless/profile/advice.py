"""What to change about a launch, from what was counted of it."""

import linecache
import math

from gpuless.profile import caches
from gpuless.profile.sass_counts import width
from gpuless.profile.units import is_float64

_WASTED = 2.0  # times as many sectors as bytes need
_CONFLICTS = 1.5  # times as many deliveries as without conflicts
_SHARE = 0.05  # of a launch's requests: lines with less are left out
_BUSY, _FLOAT64 = 0.6, 0.3
_WAVES, _TAIL = 4, 0.5


def advise(device, compiled, modelled):
    """Return what would make a launch faster, the most important first: a tuple of texts."""
    found = [
        *_uncoalesced(modelled.traffic),
        *_conflicts(modelled),
        *_float64(modelled),
        *_latency(device, modelled),
        *_tail(device, modelled.shape),
    ]
    if compiled.spilled:
        found.append(f"a thread keeps {compiled.spilled} bytes in memory, since it has too few registers")
    return tuple(found)


def _code(file, line):
    text = linecache.getline(file, line).strip()
    return f"line {line}" + (f" (`{text}`)" if text else "")


def _uncoalesced(traffic):
    """Name lines whose requests move far more sectors than their lanes have bytes."""
    whole = traffic.totals[caches.SECTORS]
    for (what, file, line), row in sorted(traffic.lines.items(), key=lambda each: -each[1][caches.SECTORS]):
        requests, sectors = row[caches.ALL], row[caches.SECTORS]
        needed = traffic.needed.get((what, file, line), 0.0)
        if sectors > _SHARE * whole and needed and sectors > _WASTED * max(needed, requests):
            yield (
                f"{_code(file, line)}: a {what} moves {sectors / requests:.3g} sectors a request, "
                f"{max(needed / requests, 1):.3g} would do: "
                "let neighbouring threads use neighbouring elements"
            )


def _conflicts(modelled):
    """Name lines where banks of shared memory conflict."""
    seen = set()
    for step in modelled.counts.steps:
        what = {"LDS": "load", "STS": "store"}.get(step.base)
        delivered = modelled.traffic.shared.get((what, step.file, step.line)) if what else None
        if not delivered or (step.file, step.line, what) in seen:
            continue
        seen.add((step.file, step.line, what))
        least = max(1, width(step.opcode) // 4)
        times = delivered[{8: 1, 16: 2}.get(width(step.opcode), 0)]
        if times > _CONFLICTS * least:
            yield (
                f"{_code(step.file, step.line)}: a {what} of shared memory takes {times:.3g} wavefronts, "
                f"{least} would do: rows that are one element longer end in other banks"
            )


def _float64(modelled):
    if modelled.prediction.busy.get("float64", 0) < _FLOAT64:
        return
    lines = {(step.file, step.line) for step in modelled.counts.steps if is_float64(step) and step.line}
    places = ", ".join(_code(*place) for place in sorted(lines)[:3])
    yield f"float64 is slow on this GPU: {places}: write float32(...) around constants"


def _latency(device, modelled):
    """Say how many warps would hide latency where nothing else bounds a launch."""
    prediction, shape = modelled.prediction, modelled.shape
    if max(prediction.busy.values()) >= _BUSY:
        return
    per_sm = shape.blocks * shape.warps / device.sms
    have, most = min(modelled.occupancy.warps, math.ceil(per_sm)), device.sm.warps
    if per_sm < modelled.occupancy.warps:
        yield (
            f"the grid gives an SM {have} of the {modelled.occupancy.warps} warps that it has room for: "
            f"more, smaller blocks or more work at once would fill all {device.sms} SMs"
        )
    elif have < most:
        limits = " and ".join(modelled.occupancy.limited_by)
        yield f"{have} warps on an SM do not hide latency, {most} would hide more: {limits} keep them away"
    else:
        yield "an SM has all the warps it can have: let each thread load more before it uses what it loads"


def _tail(device, shape):
    """Say where the last wave of blocks leaves most SMs idle."""
    waves = shape.blocks / (device.sms * shape.resident)
    rest = waves - math.floor(waves)
    if 1 < waves < _WAVES and 0 < rest < _TAIL:
        yield (
            f"{waves:.2f} waves of blocks: in the last one {1 - rest:.0%} of the GPU has nothing to do; "
            "smaller blocks, or fewer that each do more, even that out"
        )
