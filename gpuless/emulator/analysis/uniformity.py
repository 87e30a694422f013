"""What the registers of a function hold, and where the lanes of a warp are divergent.

The two depend on each other: lanes diverge at a branch whose condition is not uniform, and a register is not
uniform if it is written by divergent lanes and read after they reconverge. Both are found together as a fixed
point: it starts from "all is uniform" and weakens that until nothing changes.
"""

import functools
from collections import Counter

from gpuless.emulator.analysis import lanes
from gpuless.emulator.analysis.definitions import separate
from gpuless.emulator.analysis.flow import Flow
from gpuless.emulator.analysis.lanes import UNIFORM, VARYING, WARP, constant
from gpuless.emulator.analysis.rules import is_sign, is_widened, special_registers, transfer
from gpuless.emulator.analysis.sums import Sums
from gpuless.emulator.analysis.waits import spinning_loops
from gpuless.emulator.ptx import BITS, Address, PtxError, number
from gpuless.emulator.ptx.instructions import destinations, sources


class Analysis:
    """What is known of a function before it is translated.

    Parameters: `block`: the shape of a thread block; `space_of`: returns the state space of a variable;
    `local_kind`: returns the `Lanes` of the address of a local variable; `anew`: the functions that may read
    what other threads have just written, so a loop that calls one may wait.

    Results: `kinds`, `assumed`: the `Lanes` of each register, as proved, and as addresses may be assumed to
    be; `masked`: blocks that may run with some lanes off; `blended`: registers in which lanes that are off
    keep their old value; `doubted`: registers whose assumption follows from a sign and must be checked when
    the kernel runs; `wrapping`: registers whose assumption follows from a widened number that may have
    wrapped around; `crossing`: registers that are live across basic blocks.
    """

    def __init__(self, function, block, space_of, local_kind, anew=frozenset()):
        self.function, self.block, self.space_of, self.local_kind = function, block, space_of, local_kind
        self.flow = Flow(function, anew)
        separate(self.flow, function.registers)
        if spinning_loops(self.flow):
            self.flow = Flow(function, anew, True)
            separate(self.flow, function.registers)
            self.flow.await_others()
        self.kinds, self.assumed, self.masked, self.blended = {"%cc": VARYING}, {}, set(), set()
        self.special = special_registers(block)
        # The number of whole rows of a block in a warp.
        self.rows = WARP // block[0] if block[0] in (4, 8, 16) else 1
        self._depth = Counter()
        self.instructions = [
            (instruction, destinations(instruction)) for part in self.flow.blocks for instruction in part.body
        ]
        self.parameters = self._parameters()
        self._liveness()
        divergent = set()
        while True:
            self._propagate()
            new = {at for at in range(len(self.flow.blocks)) if at not in divergent and self.diverges(at)}
            if not new:
                break
            divergent |= new
            for at in new:
                self._diverge(at)
        self.sums = Sums(self)
        self.doubted = self._assumed_from(is_sign)
        self.wrapping = self._assumed_from(is_widened) & self._leading_to_memory()

    def _parameters(self):
        """Return the 64-bit parameters by the registers that hold them and never anything else."""
        if not self.function.kernel:
            return {}
        names = {variable.name for variable in self.function.parameters}
        writes = Counter(name for _, written in self.instructions for name in written)
        return {
            written[0]: instruction.operands[1]
            for instruction, written in self.instructions
            if instruction.opcode[:2] == ("ld", "param") and len(written) == 1 and writes[written[0]] == 1
            if BITS[instruction.opcode[-1]] == 64 and instruction.operands[1].base in names
        }

    # --- Liveness --------------------------------------------------------------------------------------

    def _liveness(self):
        names = {name: i for i, name in enumerate(self.function.registers)}
        names["%cc"] = len(names)
        self._bit, used, self._written = names, [], []
        for part in self.flow.blocks:
            reads = writes = 0
            for instruction in part.body:
                for name in sources(instruction):
                    if name in names:
                        reads |= (1 << names[name]) & ~writes
                for name in destinations(instruction):
                    if name not in names:
                        raise PtxError(f"{instruction.text}: the emulator does not know the register {name}")
                    writes |= 1 << names[name]
            if part.end.condition in names:
                reads |= (1 << names[part.end.condition]) & ~writes
            used.append(reads)
            self._written.append(writes)
        self.live = list(used)
        changed = True
        while changed:
            changed = False
            for at in reversed(range(len(self.flow.blocks))):
                after = 0
                for follower in self.flow.successors[at]:
                    after |= self.live[follower]
                live = used[at] | (after & ~self._written[at])
                if live != self.live[at]:
                    self.live[at], changed = live, True
        self.live.append(0)  # nothing is live at the end
        crossing = 0
        for live in self.live:
            crossing |= live
        self.crossing = {name for name, bit in names.items() if crossing >> bit & 1}

    @functools.cached_property
    def _read(self):
        conditions = (part.end.condition for part in self.flow.blocks)
        return {name for one, _ in self.instructions for name in sources(one)}.union(conditions)

    def is_read(self, name):
        """Return whether any instruction reads a register."""
        return name in self._read

    def lives(self, name, block):
        """Return whether a register is live at the beginning of a block."""
        return self.live[block] >> self._bit[name] & 1

    # --- Divergence ------------------------------------------------------------------------------------

    def diverges(self, at):
        """Return whether lanes diverge at the end of a block."""
        end = self.flow.blocks[at].end
        return (
            end.condition is not None
            and len(set(end.targets)) > 1
            and not lanes.uniform(self.kind(end.condition))
        )

    def _diverge(self, at):
        """Note the consequences of divergence at the end of a block."""
        flow = self.flow
        ways, meeting = flow.region(at), flow.divergent_until(at)
        targets = flow.blocks[at].end.targets
        apart = set().union(*ways)
        self.masked |= apart
        self._depth.update(apart)
        written = [self._written_in(way) for way in ways]
        everywhere = self._written_in(apart)
        differing = everywhere & self.live[meeting]
        for i, way in enumerate(ways):
            for j in range(len(ways)):
                if i != j:
                    differing |= written[i] & self.live[targets[j]]
                    for block in way & ways[j]:
                        differing |= everywhere & self.live[block]
        for block in apart & flow.pauses:
            differing |= everywhere & self.live[block]
        for name, bit in self._bit.items():
            if differing >> bit & 1:
                self.blended.add(name)
                self.kinds[name] = VARYING

    def _written_in(self, blocks):
        written = 0
        for block in blocks:
            written |= self._written[block]
        return written

    @functools.cached_property
    def restless(self):
        """The registers that are written under nested divergence within a divergent loop.

        The blocks there have many predecessors, and if such a register were an SSA value instead of memory,
        most edges would copy it. If lanes wait for each other, all masked blocks count as such a loop.
        """
        loops = [
            range(first, last + 1) for first, last in self.flow.loop_ends.items() if first in self.masked
        ]
        if not self.flow.waiting.isdisjoint(self.masked):
            loops = [range(len(self.flow.blocks))]
        blocks = [at for at in self.masked if self._depth[at] > 1 and any(at in loop for loop in loops)]
        written = self._written_in(blocks)
        return {name for name, bit in self._bit.items() if written >> bit & 1}

    # --- The kinds of registers ------------------------------------------------------------------------

    def _propagate(self):
        changed = True
        while changed:
            changed = False
            unknown = []
            for instruction, written in self.instructions:
                if not written:
                    continue
                if not self._known(instruction):
                    unknown.append(instruction)
                    continue  # known in the next round, after its loop has been passed once
                for name, (kind, assumed) in zip(written, self.results(instruction), strict=False):
                    changed |= self._weaken(name, kind, assumed)
            if unknown and not changed:
                # It reads a register before any write: its value is undefined, so it may be uniform.
                for name in sources(unknown[0]):
                    if name in self.function.registers or name == "%cc":
                        self.kinds.setdefault(name, UNIFORM)
                changed = True

    def _known(self, instruction):
        registers = self.function.registers
        return all(name in self.kinds for name in sources(instruction) if name in registers or name == "%cc")

    def _weaken(self, name, kind, assumed):
        old = self.kinds.get(name, kind)
        new = VARYING if old is VARYING or kind is VARYING else lanes.join(old, kind)
        changed = name not in self.kinds or new != old
        self.kinds[name] = new
        if new is VARYING:
            # One definition of a register may be proved and another assumed.
            known = kind if kind is not VARYING else assumed
            had = self.assumed.get(name, known)
            if name in self.blended or had is None or known is None:
                weaker = None
            else:
                weaker = lanes.join(had, known)
                # A constant becomes a number and its distances.
                weaker = (
                    weaker if weaker is None or not weaker.constant else lanes.Lanes(*lanes.relative(weaker))
                )
            changed |= name not in self.assumed or weaker != self.assumed[name]
            self.assumed[name] = weaker
        return changed

    def _assumed_from(self, begins):
        """Return the registers whose assumption follows from instructions for which `begins` is true."""
        found, before = set(), None
        while len(found) != before:
            before = len(found)
            for instruction, read, names in self._assuming:
                if begins(instruction) or not found.isdisjoint(read):
                    found |= names
        return found

    @functools.cached_property
    def _assuming(self):
        """The instructions with assumptions about their results: (instruction, operands, these results)."""
        found = []
        for instruction, written in self.instructions:
            names = {name for name in written if self.assumed.get(name)}
            if names:
                found.append((instruction, set(sources(instruction)), names))
        return found

    def _leading_to_memory(self):
        """Return the registers that addresses are computed from, except those of shared memory."""
        found = {
            operand.base
            for instruction, _ in self.instructions
            if not any(part.startswith(("shared", "param")) for part in instruction.opcode[1:2])
            for operand in instruction.operands
            if isinstance(operand, Address)
        }
        before = None
        while len(found) != before:
            before = len(found)
            for _, read, names in reversed(self._assuming):
                if not found.isdisjoint(names):
                    found |= read
        return found

    def kind(self, operand, type_="u64"):
        """Return the kind of an operand: a register's, a special register's, or an immediate's."""
        if operand in self.function.registers or operand == "%cc":
            return self.kinds.get(operand, UNIFORM)  # a register that is never written may hold anything
        if operand in self.special:
            return self.special[operand]
        if operand[0].isdigit() or operand[0] == "-":
            return constant(number(operand, type_ if type_ in BITS else "u64"))
        if operand.startswith("!"):
            return self.kind(operand[1:])
        if self.space_of(operand) == "local":
            return VARYING
        return UNIFORM

    def assumption(self, operand, type_="u64"):
        """Return the kind that may be assumed for an operand of an address."""
        kind = self.kind(operand, type_)
        return self.assumed.get(operand) if kind is VARYING else kind

    def results(self, instruction):
        """Return (kind, assumption) of each register that an instruction writes."""
        operands = instruction.operands[1:]

        def kinds(types):
            return [self.kind(operand, type_) for operand, type_ in zip(operands, types, strict=False)]

        def assumptions(types):
            return [self.assumption(operand, type_) for operand, type_ in zip(operands, types, strict=False)]

        return transfer(instruction, kinds, assumptions, self)
