"""How often each instruction of the machine code ran, from the emulator's counts of PTX.

The machine code differs from the PTX: loops are unrolled, loads merged, branches removed. But both come from
the same source lines, and on each line both move the same bytes, do the same multiply-adds and execute the
same barriers. A linear program finds the counts of basic blocks that fit these *anchors* best and that
control flow allows.
"""

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from gpuless.compiler.jobs import InspectionError
from gpuless.profile.flow import blocks_of, loops_of, nest_of

#: Anchors with a larger relative error count as missed.
TOLERANCE = 0.05
# The linear program's costs: of an instruction, of divergence at a branch, of missing an anchor.
_INSTRUCTION, _DIVERGENCE, _ANCHOR, _WEAK_ANCHOR = 1e-3, 0.5, 10.0, 1.0
_ROUNDING = 0.999  # keeps loops that do exactly as much as others feasible


class Anchor(NamedTuple):
    """An operation on a source line, which machine code and PTX do equally often."""

    what: str
    file: str
    line: int


class SassCounts(NamedTuple):
    """How often warps ran the machine code.

    `steps`: its instructions; `executed`: how often warps ran each; `blocks`: the basic blocks; `shares`: by
    anchor, the share of issued predicated instructions that were executed; `missed`: by anchor, the amounts
    in PTX and in the counted machine code, if they differ.
    """

    steps: list
    executed: np.ndarray
    blocks: list
    shares: dict
    missed: dict

    @property
    def has_barriers(self):
        """Whether the kernel has barriers."""
        return any(step.base == "BAR" for step in self.steps)


class NoSolver(ImportError):
    """SciPy, which solves linear programs, is not installed."""


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
#: Operations that the assembler may add or remove: weak anchors, which are never reported as missed.
_WEAK = {"add", "multiply", "double add", "double multiply", "special"}
_ARITHMETIC = {("fma", "f32"): "fma", ("fma", "f64"): "double fma", ("add", "f64"): "double add"}
_ARITHMETIC |= {("mul", "f64"): "double multiply", ("add", "f32"): "add", ("sub", "f32"): "add"}
_ARITHMETIC |= {("mul", "f32"): "multiply", ("sub", "f64"): "double add"}
# PTX instructions that become several, with a MUFU and with arithmetic that isn't in PTX.
_FLOAT32 = {"fma", "add", "multiply"}
_ROUNDED = {"div", "sqrt", "rsqrt", "rcp", "rem", "sin", "cos", "ex2", "lg2", "tanh"}


def width(opcode):
    """Return how many bytes a load or store moves per lane.

    >>> width("LDG.E.128.SYS"), width("STS"), width("LDG.E.U8")
    (16, 4, 1)
    """
    return next((_WIDTHS[part] for part in opcode.split(".")[1:] if part in _WIDTHS), 4)


def anchor_of(step):
    """Return the `Anchor` of an instruction of machine code and its amount, or None."""
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
    """Return the `SassCounts` of the recorded blocks, from a `MachineCode` and the emulator's recording."""
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
    # Code that two branches share may carry a line on which PTX has no such instruction: ignore it.
    listed = {found[0] for part in recording.listings for one in part if (found := _anchor_of_ptx(one))}
    anchors = [
        anchor
        for anchor in sorted(listed & {*offered})
        if not (anchor.what in _FLOAT32 and (anchor[1:] in rounded or not wanted.get(anchor)))
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
    """Return each anchor's amount in PTX."""
    found = defaultdict(float)
    for warps, part in zip(recording.executed, recording.listings, strict=True):
        for listed in part:
            if warps and (anchor := _anchor_of_ptx(listed)):
                found[anchor[0]] += anchor[1] * warps
    return found


def _offered(code, blocks):
    """Return each anchor's amount per execution of each block, and the predicated anchors."""
    found, predicated = defaultdict(lambda: defaultdict(float)), set()
    for number, block in enumerate(blocks):
        for step in code.steps[block.first : block.last]:
            if anchor := anchor_of(step):
                found[anchor[0]][number] += anchor[1]
                if step.predicate:
                    predicated.add(anchor[0])
    return found, predicated


def _most_a_trip(recording, predicated):
    """Return, by anchor, the most that a warp does of it each time it enters a loop around it.

    Each value is a list: for outermost loops, for loops in these, and so on. If several loops have the
    anchor, such as an unrolled one and its remainder, warps enter them together. A conditional instruction of
    PTX is issued in every iteration if it is predicated in the machine code.
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
    """Return how often each block ran, and by how much each anchor is exceeded and missed.

    Control flow alone would allow a loop to run without being entered. So what PTX's loops do per entry
    bounds what those of the machine code do, unless their loops are too different.
    """
    entries = recording.count * recording.warps
    program = _Program(blocks, anchors, wanted, offered, predicated, entries)
    plain = program.solve()
    found = program.solve(program.trips(_most_a_trip(recording, predicated)))
    if found is None or found.missed > plain.missed + TOLERANCE:
        found = plain
    return found.counts, found.over, found.under


class _Solution(NamedTuple):
    """A solution: counts by block, by how much anchors are exceeded and missed, and the cost of that."""

    counts: np.ndarray
    over: np.ndarray
    under: np.ndarray
    missed: float


class _Program:
    """The linear program.

    Its unknowns are the counts of blocks and of the edges between them, and by how much anchors are exceeded
    and missed. Among equally good fits it chooses the one with the fewest instructions.
    """

    def __init__(self, blocks, anchors, wanted, offered, predicated, entries):
        self.blocks, self.anchors, self.offered = blocks, anchors, offered
        self.edges = [(i, target) for i, block in enumerate(blocks) for target in block.targets]
        self.first_edge, self.first_slack = len(blocks), len(blocks) + len(self.edges)
        self.size = self.first_slack + 2 * len(anchors)
        self.below = self._flow()
        self.equal, self.given = [{0: 1.0}], [float(entries)]
        # Costs are scaled by the total: the solver treats costs below 1e-7 as zero.
        self.total = total = sum(wanted.values()) + entries
        self.cost = np.zeros(self.size)
        self.cost[: len(blocks)] = [(block.last - block.first) * _INSTRUCTION for block in blocks]
        # Warps diverge if anchors require it, not to save instructions.
        for number, (source, _) in enumerate(self.edges, self.first_edge):
            self.cost[number] = 0.0 if blocks[source].leaves else _DIVERGENCE
        for i, block in enumerate(blocks):
            if block.targets and not block.leaves:
                self.cost[i] -= _DIVERGENCE
        for i, anchor in enumerate(anchors):
            more, want = self.first_slack + 2 * i, wanted.get(anchor, 0.0)
            self.equal.append(dict(offered[anchor]) | {more: -1.0, more + 1: 1.0})
            self.given.append(want)
            weight = (_WEAK_ANCHOR if anchor.what in _WEAK else _ANCHOR) * total / max(want, entries * 1e-3)
            # A predicated instruction is issued at least as often as it is executed.
            self.cost[more] = _INSTRUCTION if anchor in predicated else weight
            self.cost[more + 1] = weight

    def _flow(self):
        """Return the rows for the conservation of flow: warps come from somewhere and go somewhere."""
        into, out, rows = defaultdict(list), defaultdict(list), []
        for number, (source, target) in enumerate(self.edges, self.first_edge):
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
        """Return the rows that bound what loops do each time a warp enters them; `most`: by anchor."""
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
                if not trip:  # no warp was in a loop with this anchor
                    rows.append({block: 1.0})
                    continue
                enter = [
                    number
                    for number, (source, target) in enumerate(self.edges, self.first_edge)
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
        """Return the `_Solution` with additional rows of `below`, None if there is none."""
        try:
            from scipy.optimize import linprog
        except ImportError:
            message = "gpuless.profile solves linear programs with SciPy: pip install gpuless[profile]"
            raise NoSolver(message) from None
        options = {"A_eq": self._matrix(self.equal), "b_eq": self.given, "bounds": (0, None)}
        if below := [*self.below, *more]:
            options |= {"A_ub": self._matrix(below), "b_ub": np.zeros(len(below))}
        found = linprog(self.cost, method="highs", **options)
        if found.x is None:
            return None
        slack = found.x[self.first_slack :]
        missed = float(self.cost[self.first_slack :] @ slack) / self.total
        return _Solution(np.maximum(found.x[: len(self.blocks)], 0.0), slack[::2], slack[1::2], missed)
