"""Advice on how to make a launch faster, from its counts."""

from __future__ import annotations

import linecache
import math
from collections.abc import Iterator
from typing import Any

from gpuless.limits import WARP
from gpuless.profile import caches
from gpuless.profile.devices import Device
from gpuless.profile.sass_counts import width
from gpuless.profile.units import COLUMN_OF_WIDTH, is_float64

_WASTED = 2.0  # times as many sectors as the bytes need
_CONFLICTS = 1.5  # times as many wavefronts as without conflicts
_ROW = 8  # elements: rows of tiles mostly have at least as many, strides within a row are mostly shorter
_SHARE = 0.05  # of a launch's sectors: lines with fewer are left out
_BUSY, _FLOAT64 = 0.6, 0.3
_WAVES, _TAIL = 4, 0.5
_ATOMICS, _PER_SECTOR = 0.3, 32  # of the time; lanes whose atomic operations go to the same sector
_LANES = 0.75  # of the lanes that have a thread
_DIVERGED = 0.1  # of a branch's executions


def advise(device: Device, compiled: Any, modelled: Any) -> tuple:
    """Return texts on what would make a launch faster, the most important first."""
    found = [
        *_uncoalesced(modelled.traffic),
        *_conflicts(modelled),
        *_atomics(modelled),
        *_divergence(modelled),
        *_float64(modelled),
        *_latency(device, modelled),
        *_tail(device, modelled.shape),
    ]
    if compiled.spilled:
        found.append(f"a thread keeps {compiled.spilled} bytes in memory, since it has too few registers")
    return tuple(found)


def _code(file: str, line: int) -> str:
    text = linecache.getline(file, line).strip()
    return f"line {line}" + (f" (`{text}`)" if text else "")


def _uncoalesced(traffic: Any) -> Iterator[str]:
    """Name lines whose requests move far more sectors than their bytes need."""
    whole = traffic.totals[caches.SECTORS]
    for (what, file, line), row in sorted(traffic.lines.items(), key=lambda each: -each[1][caches.SECTORS]):
        requests, sectors = row[caches.ALL], row[caches.SECTORS]
        needed = traffic.needed.get((what, file, line), 0.0)
        if sectors > _SHARE * whole and needed and sectors > _WASTED * max(needed, requests):
            yield (
                f"{_code(file, line)}: a {what} moves {sectors / requests:.3g} sectors per request, "
                f"{max(needed / requests, 1):.3g} would do: "
                "let neighbouring threads use neighbouring elements"
            )


def _conflicts(modelled: Any) -> Iterator[str]:
    """Name lines with bank conflicts in shared memory."""
    seen = set()
    for step in modelled.counts.steps:
        what = {"LDS": "load", "STS": "store"}.get(step.base)
        place = what, step.file, step.line
        delivered = modelled.traffic.shared.get(place) if what else None
        if not delivered or place in seen:
            continue
        seen.add(place)
        least = max(1, width(step.opcode) // 4)
        times = delivered[COLUMN_OF_WIDTH.get(width(step.opcode), 2)]
        if times > _CONFLICTS * least:
            yield (
                f"{_code(step.file, step.line)}: a {what} of shared memory takes {times:.3g} wavefronts, "
                f"{least} would do: {_against_conflicts(modelled.traffic.steps.get(place, 0))}"
            )


def _against_conflicts(apart: int) -> str:
    """Say what to do if neighbouring lanes are `apart` elements apart, within a row or down a column."""
    longer = "rows that are one element longer end in other banks"
    nearer = "let neighbouring threads use neighbouring elements"
    if not apart:
        return f"lanes want different words of one bank; down a column, {longer}, and elsewhere {nearer}"
    seen = f"neighbouring threads are {apart} elements apart"
    return f"{seen}: {nearer}" if apart < _ROW else f"{seen}, as down a column: {longer}"


def _float64(modelled: Any) -> Iterator[str]:
    if modelled.prediction.busy.get("float64", 0) < _FLOAT64:
        return
    lines = {(step.file, step.line) for step in modelled.counts.steps if is_float64(step) and step.line}
    places = ", ".join(_code(*place) for place in sorted(lines)[:3])
    yield f"float64 is slow on this GPU: {places}: write float32(...) around constants"


def _atomics(modelled: Any) -> Iterator[str]:
    """Name the line whose atomic operations wait for each other in L2, if many go to the same sectors."""
    traffic, shape = modelled.traffic, modelled.shape
    if modelled.prediction.busy.get("atomics", 0) < _ATOMICS:
        return
    requests = {place: float(row[caches.ALL]) for place, row in traffic.lines.items() if place[0] == "atomic"}
    _, file, line = place = max(sorted(requests), key=requests.__getitem__)
    lanes = requests[place] * modelled.lanes.active
    if lanes < _PER_SECTOR * traffic.places:
        return
    operations = lanes * shape.blocks * shape.warps / traffic.warps
    where = "1 sector does" if traffic.places == 1 else f"some {traffic.places} sectors of memory do"
    yield (
        f"{_code(file, line)}: {operations:.3g} atomic operations, which {where} one after the other: sum up "
        "within a block first, in shared memory or by shuffles, and add once for each block"
    )


def _divergence(modelled: Any) -> Iterator[str]:
    """Report lanes without a thread, and the branch that diverges most if many lanes are idle."""
    lanes, shape = modelled.lanes, modelled.shape
    threads = modelled.occupancy.threads_per_block
    used = threads / shape.warps
    if used <= _LANES * WARP:
        idle = shape.warps * WARP - threads
        yield (
            f"of the {shape.warps * WARP} lanes of a block's warps {idle} have no thread: "
            f"let blocks have a multiple of {WARP} threads, not {threads}"
        )
    branches = {place: branch for place, branch in lanes.branches.items() if place[1]}
    if lanes.active >= _LANES * used or not branches:
        return
    place = max(sorted(branches), key=lambda each: branches[each].parted)
    executed, parted = branches[place]
    if parted > _DIVERGED * executed:
        yield (
            f"{_code(*place)}: lanes of a warp go different ways {parted / executed:.0%} of the times, and "
            f"on average {lanes.active:.0f} of {used:.0f} work: let the threads of a warp go the same way"
        )


def _latency(device: Device, modelled: Any) -> Iterator[str]:
    """Say how many warps would hide latency, if nothing else bounds the launch."""
    prediction, shape, found = modelled.prediction, modelled.shape, modelled.occupancy
    if max(prediction.busy.values()) >= _BUSY:
        return
    per_sm = shape.blocks * shape.warps / device.sms
    have, most = min(found.warps, math.ceil(per_sm)), device.sm.warps
    enough = math.ceil(prediction.needed / shape.warps) * shape.warps  # whole blocks
    if shape.blocks < device.sms:
        share = "let more, smaller blocks share it" if shape.warps > 1 else "let a launch do more work"
        idle = f"{device.sms - shape.blocks} of {device.sms} SMs without work"
        yield f"{shape.blocks} blocks leave {idle}: {share}"
    elif per_sm < found.warps:
        would = f"{enough} would keep {prediction.bound} busy" if enough <= found.warps else "that hides more"
        yield (
            f"the grid gives an SM {have} of the {found.warps} warps that it has room for, and {would}: "
            f"more, smaller blocks or more work at once would fill all {device.sms} SMs"
        )
    elif have < most:
        would = f"{enough} would" if have < enough <= most else f"{most} would hide more"
        limits = " and ".join(found.limited_by)
        yield f"{have} warps on an SM do not hide latency, {would}: {limits} keep them away"
    else:
        yield "an SM has all the warps it can have: let each thread load more before it uses what it loads"


def _tail(device: Device, shape: Any) -> Iterator[str]:
    """Report a last wave of blocks that leaves most SMs idle."""
    waves = shape.waves(device)
    rest = waves - math.floor(waves)
    if 1 < waves < _WAVES and 0 < rest < _TAIL:
        yield (
            f"{waves:.2f} waves of blocks: in the last one {1 - rest:.0%} of the GPU has nothing to do; "
            "smaller blocks, or fewer that each do more, even that out"
        )
