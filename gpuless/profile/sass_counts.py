"""How often each instruction of the machine code ran, from what the emulator has counted of PTX.

The machine code is another program than the PTX: loops are unrolled, loads merged, branches gone. But both
come from the same lines of the source, and on each line both move the same bytes, do the same multiply-adds,
meet the same barriers. So the counts of basic blocks are what fits these *anchors* best and what
control flow allows: a linear program.
"""

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from gpuless.compiler.jobs import InspectionError
from gpuless.profile.flow import blocks_of, loops_of, nest_of

#: Anchors that are further off than this share count as not met.
TOLERANCE = 0.05
# What the linear program pays for an instruction, for lanes that go both ways at a branch and for an anchor
# that is not met.
_INSTRUCTION, _PARTING, _ANCHOR, _WEAK_ANCHOR = 1e-3, 0.5, 10.0, 1.0
_ROUNDING = 0.999  # what one loop does exactly as often as another


class Anchor(NamedTuple):
    """What machine code and PTX have in common: what is done, and on which line."""

    what: str
    file: str
    line: int


class SassCounts(NamedTuple):
    """How often warps ran the machine code.

    `steps`: its instructions; `executed`: how often warps ran each; `blocks`: the basic blocks; `shares`: by
    anchor, how often predicated instructions took place of how often they were issued; `missed`: by
    anchor, what PTX has and what the machine code is taken to have, where that differs.
    """

    steps: list
    executed: np.ndarray
    blocks: list
    shares: dict
    missed: dict


class NoSolver(ImportError):
    """There is no solver for linear programs."""


_WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}
_MOVED = {"LDG": "global load", "LD": "global load", "STG": "global store", "ST": "global store"}
_MOVED |= {"LDS": "shared load", "STS": "shared store"}
_DONE = {"ATOM": "global atomic", "ATOMG": "global atomic", "RED": "global atomic", "REDG": "global atomic"}
_DONE |= {"ATOMS": "shared atomic", "BAR": "barrier", "FFMA": "fma", "DFMA": "double fma", "SHFL": "shuffle"}
_DONE |= {
    "FADD": "add",
    "FMUL": "multiply",
    "DADD": "double add",
    "DMUL": "double multiply",
    "MUFU": "special",
}
#: What the assembler may make more or less of: it counts less, and is not missed.
_WEAK = {"add", "multiply", "double add", "double multiply", "special"}
_ARITHMETIC = {("fma", "f32"): "fma", ("fma", "f64"): "double fma", ("add", "f64"): "double add"}
_ARITHMETIC |= {("mul", "f64"): "double multiply", ("add", "f32"): "add", ("sub", "f32"): "add"}
_ARITHMETIC |= {("mul", "f32"): "multiply", ("sub", "f64"): "double add"}
# Instructions of PTX that become several, which have arithmetic that PTX has not, and begin with MUFU.
_FLOAT32 = {"fma", "add", "multiply"}
_ROUNDED = {"div", "sqrt", "rsqrt", "rcp", "rem", "sin", "cos", "ex2", "lg2", "tanh"}


def width(opcode):
    """Return how many bytes of a lane a load or store moves.

    >>> width("LDG.E.128.SYS"), width("STS"), width("LDG.E.U8")
    (16, 4, 1)
    """
    return next((_WIDTHS[part] for part in opcode.split(".")[1:] if part in _WIDTHS), 4)


def anchor_of(step):
    """Return the `Anchor` of an instruction of machine code and how much of it that is, or None."""
    if step.base in _MOVED:
        return Anchor(_MOVED[step.base], step.file, step.line), width(step.opcode)
    if step.base in _DONE:
        return Anchor(_DONE[step.base], step.file, step.line), 1
    return None


def _anchor_of_ptx(listed):
    name, *parts = listed.opcode.split(".")
    shared = any(part.startswith("shared") for part in parts)
    space = "shared" if shared else "global"
    what, amount = None, 1
    if name in ("ld", "ldu", "st") and (shared or not {"param", "local", "const"} & {*parts}):
        what, amount = f"{space} {'store' if name == 'st' else 'load'}", listed.size
    elif name in ("atom", "red"):
        what = f"{space} atomic"
    elif name in ("bar", "barrier") and "warp" not in parts:
        what = "barrier"
    elif parts and (name, parts[-1]) in _ARITHMETIC:
        what = _ARITHMETIC[name, parts[-1]]
    elif name in _ROUNDED and parts[-1] in ("f32", "u32", "s32"):
        what = "special"
    elif name == "shfl":
        what = "shuffle"
    return (Anchor(what, listed.file, listed.line), amount) if what else None


def count_machine_code(code, recording):
    """Return the `SassCounts` of the blocks that were recorded.

    `code`: a `MachineCode`; `recording`: the emulator's.
    """
    blocks = blocks_of(code)
    wanted = _counted(recording)
    offered, predicated = _offered(code, blocks)
    files, others = ({anchor.file for anchor in each if anchor.file} for each in (wanted, offered))
    if files and others and files.isdisjoint(others):
        raise InspectionError(
            f"the machine code cannot be counted: its lines are of {', '.join(sorted(others))}, and what was "
            f"run has lines of {', '.join(sorted(files))}"
        )
    rounded = {
        (one.file, one.line) for part in recording.listings for one in part if _name(one.opcode) in _ROUNDED
    }
    anchors = [
        anchor
        for anchor in sorted({*wanted, *offered})
        if anchor in offered
        and not (anchor.what in _FLOAT32 and (anchor[1:] in rounded or not wanted.get(anchor)))
    ]
    counts, over, under = _solve(blocks, anchors, wanted, offered, predicated, recording)
    executed = np.zeros(len(code.steps))
    for block, count in zip(blocks, counts, strict=True):
        executed[block.first : block.last] = count
    shares, missed = {}, {}
    for anchor, more, less in zip(anchors, over, under, strict=True):
        want = wanted.get(anchor, 0.0)
        have = want + more - less
        if anchor in predicated and have > 0:
            shares[anchor] = min(1.0, want / have)
        allowed = anchor.what in _WEAK or (anchor in predicated and more > less)
        if more + less > TOLERANCE * max(want, 1.0) and not allowed:
            missed[anchor] = want, have
    return SassCounts(code.steps, executed, blocks, shares, missed)


def _name(opcode):
    return opcode.partition(".")[0]


def _counted(recording):
    """Return by anchor what PTX has of it."""
    found = defaultdict(float)
    for warps, part in zip(recording.executed, recording.listings, strict=True):
        for listed in part:
            if warps and (anchor := _anchor_of_ptx(listed)):
                found[anchor[0]] += anchor[1] * warps
    return found


def _offered(code, blocks):
    """Return by anchor how much of it one run of each block is, and the anchors that have predicates."""
    found, predicated = defaultdict(lambda: defaultdict(float)), set()
    for number, block in enumerate(blocks):
        for step in code.steps[block.first : block.last]:
            if anchor := anchor_of(step):
                found[anchor[0]][number] += anchor[1]
                if step.predicate:
                    predicated.add(anchor[0])
    return found, predicated


def _most_a_trip(recording, predicated):
    """Return by anchor how much of it a warp does at most each time it comes into a loop around it.

    A list: in loops that are in no other, in loops in these, and so on. Where several loops have the anchor,
    as an unrolled one and what is left of it, warps come into them together. What stands under a condition in
    PTX is issued each time round if it is predicated in the machine code.
    """
    found, rounds = defaultdict(list), defaultdict(int)
    nests = recording.code.nests
    for nest, warps in zip(nests, recording.executed, strict=True):
        if nest:
            rounds[nest[-1]] = max(rounds[nest[-1]], warps)
    for nest, entered, warps, part in zip(
        nests, recording.entered, recording.executed, recording.listings, strict=True
    ):
        for anchor, amount in filter(None, map(_anchor_of_ptx, part)):
            levels = found[anchor]
            levels += [[0.0, 1] for _ in range(len(nest) - len(levels))]
            times = rounds[nest[-1]] if nest and anchor in predicated else warps
            for level, entries in zip(levels, entered, strict=False):
                level[0] += amount * times
                level[1] = max(level[1], entries)
    return {
        anchor: [done / entries for done, entries in levels] for anchor, levels in found.items() if levels
    }


def _solve(blocks, anchors, wanted, offered, predicated, recording):
    """Return how often each block ran, and by how much each anchor has too much and too little.

    A loop that nothing enters would fit control flow as well: what PTX's loops do each time they are entered
    says how often those of the machine code are. Where their loops are too different that is left out.
    """
    entries = recording.count * recording.warps
    program = _Program(blocks, anchors, wanted, offered, predicated, entries)
    plain = program.solve()
    found = program.solve(program.trips(_most_a_trip(recording, predicated)))
    if found is None or found.missed > plain.missed + TOLERANCE:
        found = plain
    return found.counts, found.over, found.under


class _Solution(NamedTuple):
    """A solution: counts by block, what anchors have too much and too little, and how far that is off."""

    counts: np.ndarray
    over: np.ndarray
    under: np.ndarray
    missed: float


class _Program:
    """The linear program.

    Its unknowns are the counts of blocks, those of the ways from block to block, and what anchors have too
    much and too little. Among what fits equally well it takes the fewest instructions.
    """

    def __init__(self, blocks, anchors, wanted, offered, predicated, entries):
        self.blocks, self.anchors, self.offered = blocks, anchors, offered
        self.ways = [(i, target) for i, block in enumerate(blocks) for target in block.targets]
        self.first_way, self.first_slack = len(blocks), len(blocks) + len(self.ways)
        self.size = self.first_slack + 2 * len(anchors)
        self.below = self._flow()
        self.equal, self.given = [{0: 1.0}], [float(entries)]
        total = sum(wanted.values()) + entries
        self.cost = np.zeros(self.size)
        self.cost[: len(blocks)] = [(block.last - block.first) * _INSTRUCTION / total for block in blocks]
        # Lanes of a warp part where anchors say so, not to save instructions.
        for number, (source, _) in enumerate(self.ways, self.first_way):
            self.cost[number] = 0.0 if blocks[source].leaves else _PARTING / total
        for i, block in enumerate(blocks):
            if block.targets and not block.leaves:
                self.cost[i] -= _PARTING / total
        for i, anchor in enumerate(anchors):
            more, want = self.first_slack + 2 * i, wanted.get(anchor, 0.0)
            self.equal.append(dict(offered[anchor]) | {more: -1.0, more + 1: 1.0})
            self.given.append(want)
            weight = (_WEAK_ANCHOR if anchor.what in _WEAK else _ANCHOR) / max(want, entries * 1e-3)
            # A predicated instruction is issued at least as often as it takes place.
            self.cost[more] = _INSTRUCTION / max(want, entries) if anchor in predicated else weight
            self.cost[more + 1] = weight

    def _flow(self):
        """Return the rows that say that warps come from somewhere and go somewhere."""
        into, out, rows = defaultdict(list), defaultdict(list), []
        for number, (source, target) in enumerate(self.ways, self.first_way):
            out[source].append(number)
            into[target].append(number)
            rows += [{number: 1.0, at: -1.0} for at in {source, target}]
        for i, block in enumerate(self.blocks):
            if block.targets and not block.leaves:
                rows.append({i: 1.0} | dict.fromkeys(out[i], -1.0))
            if i:
                rows.append({i: 1.0} | dict.fromkeys(into[i], -1.0))
        return rows

    def trips(self, most):
        """Return the rows that say how much loops do each time a warp comes into them; `most`: by anchor."""
        rows, loops = [], loops_of(self.blocks)
        for anchor in self.anchors:
            if anchor not in most:
                continue
            for block, amount in self.offered[anchor].items():
                nest = nest_of(loops, block)
                if not nest or nest[-1][0] == 0:
                    continue
                first, last = nest[-1]
                trip = most[anchor][min(len(nest), len(most[anchor])) - 1]
                if not trip:  # no warp was in such a loop
                    rows.append({block: 1.0})
                    continue
                enter = [
                    number
                    for number, (source, target) in enumerate(self.ways, self.first_way)
                    if first <= target <= last and not first <= source <= last
                ]
                rows.append({block: amount / trip * _ROUNDING} | dict.fromkeys(enter, -1.0))
        return rows

    def _matrix(self, rows):
        from scipy.sparse import coo_array

        entries = [(row, column, value) for row, one in enumerate(rows) for column, value in one.items()]
        at, columns, values = zip(*entries, strict=True)
        return coo_array((values, (at, columns)), (len(rows), self.size)).tocsr()

    def solve(self, more=()):
        """Return the `_Solution` under more conditions, None if there is none."""
        try:
            from scipy.optimize import linprog
        except ImportError:
            message = "gpuless.profile solves linear programs with SciPy: pip install gpuless[profile]"
            raise NoSolver(message) from None
        options = {"A_eq": self._matrix(self.equal), "b_eq": self.given, "bounds": (0, None)}
        below = [*self.below, *more]
        if below:
            options |= {"A_ub": self._matrix(below), "b_ub": np.zeros(len(below))}
        found = linprog(self.cost, method="highs", **options)
        if found.x is None:
            return None
        slack = found.x[self.first_slack :]
        missed = float(self.cost[self.first_slack :] @ slack)
        return _Solution(np.maximum(found.x[: len(self.blocks)], 0.0), slack[::2], slack[1::2], missed)
