"""The lanes of a launch's warps: how many are active, where they diverge, which arithmetic they do."""

from collections import defaultdict
from typing import NamedTuple

from gpuless.emulator.analysis.lanes import WARP


class Lanes(NamedTuple):
    """Averages over the warps of a launch.

    `active`: active lanes of a PTX instruction; `flops`: floating point operations by type; `branches`: the
    divergent ones, by file and line.
    """

    active: float
    flops: dict
    branches: dict


class Branch(NamedTuple):
    """How often warps execute a branch, and how often their lanes diverge there."""

    executed: int
    parted: int


def lanes_of(recording):
    """Return the `Lanes` of a `Recording`."""
    instructions = lanes = 0
    flops, branches = defaultdict(float), defaultdict(lambda: Branch(0, 0))
    warps = recording.count * recording.warps
    rows = zip(
        recording.code.parts,
        recording.listings,
        recording.executed,
        recording.lanes,
        recording.parted,
        strict=True,
    )
    for part, listed, executed, active, parted in rows:
        instructions += executed * len(listed)
        lanes += active * len(listed)
        for type_, of_lane, of_warp in part.flops:
            flops[type_] += (of_lane * active + of_warp * executed) / warps
        if parted and listed:
            place = listed[-1].file, listed[-1].line
            before = branches[place]
            branches[place] = Branch(before.executed + executed, before.parted + parted)
    return Lanes(lanes / instructions if instructions else WARP, dict(flops), dict(branches))
