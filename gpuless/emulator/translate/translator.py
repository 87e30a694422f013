"""Translate a PTX function to LLVM IR that runs a warp, basic block by basic block.

`flow` gives the order of the blocks. A block that divergent lanes run has a mask of the lanes that wait for
it; it is skipped if there are none. Instructions are translated in `integers`, `bitfields`, `packed`,
`floats`, `small_floats`, `comparisons`, `conversions`, `addresses`, `access`, `atomics`, `asynchronous`,
`warps` and `matrices`.
"""

import itertools

from gpuless.emulator.analysis import lanes
from gpuless.emulator.ptx import PtxError
from gpuless.emulator.translate.values import ALL, INSTRUCTIONS
from gpuless.emulator.translate.writer import Writer
from gpuless.limits import WARP

_ROUNDS = 64  # iterations of a waiting loop before the next warp runs
# If lanes may wait for each other: the lanes in the region, and how many rounds all have waited.
_INSIDE, _STILL = "%mask.inside", "%mask.still"


class Translator(Writer):
    """Translate one function; parameters as for `Writer`."""

    def alone(self):
        """Return the condition that all lanes in the waiting region are on."""
        if not (self.masked and self.rounds):
            return "true"
        return self.new(f"icmp eq i32 {self.new(f'load i32, ptr {_INSIDE}')}, {self.mask}")

    def translate(self):
        """Return the function's signature and lines of IR."""
        self.full = self.module.begin(self)
        flow = self.analysis.flow
        self._chains()
        for block in flow.blocks:
            self._block(block)
        for at in flow.waiting - self.analysis.masked:
            self.label(f"again{at}")
            self._back_to(at)
        for label, (pauses, out) in self.rounds.items():
            self._round(label, pauses, out)
        self.label("finish")
        self.module.end(self)
        if self.misaligned:
            self.label("misaligned")
            self.module.misaligned(self)
        return self.module.signature(self), self.lines

    def _chains(self):
        """Find the label that follows each masked block in its region."""
        flow, masked = self.analysis.flow, self.analysis.masked
        self.after, self.loops_ending, self.gates, self.rounds = {}, {}, set(), {}
        # If a loop's first block is skipped, skip the whole loop: LLVM's loops have a single entry.
        self.loops_skipped = {}
        # A region ends at the first unmasked block that all its lanes reach.
        leave = {}
        for at in masked:
            leave[at] = flow.meeting(at)
            while leave[at] in masked:
                leave[at] = flow.meeting(leave[at])
        regions = {}
        for at in sorted(masked):
            regions.setdefault(leave[at], []).append(at)
        for end, region in regions.items():
            out = f"{'again' if end in flow.waiting else 'block'}{end}" if end != flow.exit else "finish"
            pauses = [] if flow.waiting.isdisjoint(region) else [at for at in region if at in flow.pauses]
            if pauses:
                self.rounds[f"round{end}"] = pauses, out
                self.gates.update(at for at in pauses if flow.gathered(at) is not None)
                out = f"round{end}"
            self.after |= {at: f"check{later}" for at, later in itertools.pairwise(region)} | {
                region[-1]: out
            }
            # At the end of a loop, lanes that stay in it go on before those that have left it, unless they
            # may wait for those.
            for first in (at for at in region if at in flow.loop_ends and at not in pauses):
                inside = range(first, flow.loop_ends[first] + 1)
                here = [at for at in inside if leave.get(at) == end]
                self.loops_ending.setdefault(here[-1], []).append(first)
                if not pauses and len(here) == len(inside) and flow.has_one_entry(first):
                    self.loops_skipped[first] = here[-1]

    def _mask_slot(self, at):
        self.slots[f"%mask{at}"] = "i32"
        return f"%mask{at}"

    def _block(self, block):
        at = block.index
        self.begin_block(at)
        start = len(self.lines) + 1
        if at in self.analysis.masked:
            self._check(at)
            if at in self.analysis.flow.loop_ends:  # its iterations don't begin with the check
                start = self.lines.index(f"block{at}:") + 1
        else:
            self.label(f"block{at}")
            self.mask = self.full
        for instruction in block.body:
            self.instruction = instruction
            self._instruction(instruction)
        self._end(block)
        self.lines[start:start] = self.lines_ahead

    def _check(self, at):
        """Skip a block if no lane waits for it, else run it with those that do."""
        slot = self._mask_slot(at)
        self.label(f"check{at}")
        waiting = self.new(f"load i32, ptr {slot}")
        none = self.new(f"icmp eq i32 {waiting}, 0")
        self.line(f"br i1 {none}, label %skip{at}, label %block{at}")
        self.label(f"skip{at}")
        self._go_on(self.loops_skipped.get(at, at))
        self.label(f"block{at}")
        self.mask = self.new(f"load i32, ptr {slot}")
        if at in self.gates:
            self._gather(at)
        else:
            self.line(f"store i32 0, ptr {slot}")

    def _gather(self, at):
        """Go on with the lanes whose partners are all here, or will not come."""
        here, slot = self.mask, self._mask_slot(at)
        away = self.new(f"xor i32 {self.new(f'load i32, ptr {_INSIDE}')}, {here}")
        members = self.operand(self.analysis.flow.gathered(at), "b32")
        if lanes.uniform(members.kind):
            missing = self.new(f"and i32 {away}, {members.scalar}")
            ready = self.new(f"select i1 {self.new(f'icmp eq i32 {missing}, 0')}, i32 {here}, i32 0")
        else:
            missing = self.new(f"and {ALL.int(32)} {self.splat(away, 'i32')}, {self.vector(members, 32)}")
            complete = self.mask_of(self.new(f"icmp eq {ALL.int(32)} {missing}, zeroinitializer"))
            ready = self.new(f"and i32 {complete}, {here}")
        # If all lanes wait for each other, some masks name lanes that don't come: let all go on.
        still = self.new(f"icmp ugt i32 {self.new(f'load i32, ptr {_STILL}')}, 1")
        self.mask = self.new(f"select i1 {still}, i32 {here}, i32 {ready}")
        none, opened = self.new(f"icmp eq i32 {self.mask}, 0"), self.fresh("opened")
        self.line(f"br i1 {none}, label %skip{at}, label %{opened}")
        self.label(opened)
        self.line(f"store i32 {self.new(f'xor i32 {here}, {self.mask}')}, ptr {slot}")
        self.line(f"store i32 0, ptr {_STILL}")

    def _round(self, label, pauses, out):
        """Run a region again while there are lanes in it: those that have waited may go on now."""
        self.slots |= {_INSIDE: "i32", _STILL: "i32"}
        self.label(label)
        left, again = self.new(f"load i32, ptr {_INSIDE}"), self.fresh("again")
        self.line(f"br i1 {self.new(f'icmp eq i32 {left}, 0')}, label %{out}, label %{again}")
        self.label(again)
        moving = "0"
        for at in (at for at in pauses if at not in self.gates):
            moving = self.new(f"or i32 {moving}, {self.new(f'load i32, ptr {self._mask_slot(at)}')}")
        rounds = self.new(f"add i32 {self.new(f'load i32, ptr {_STILL}')}, 1")
        none = self.new(f"icmp eq i32 {moving}, 0")
        self.line(f"store i32 {self.new(f'select i1 {none}, i32 {rounds}, i32 0')}, ptr {_STILL}")
        self._let_others_run(f"check{pauses[0]}")

    def _go_on(self, at):
        """Go from a masked block, run or skipped, to the next one in its region."""
        for first in sorted(self.loops_ending.get(at, ()), reverse=True):
            waiting = self.new(f"load i32, ptr {self._mask_slot(first)}")
            some = self.new(f"icmp ne i32 {waiting}, 0")
            again, out = self.fresh("again"), self.fresh("out")
            self.line(f"br i1 {some}, label %{again}, label %{out}")
            self.label(again)
            self._back_to(first)
            self.label(out)
        self.line(f"br label %{self.after[at]}")

    def _wait(self, at, target, mask):
        """Add lanes of a block to those that wait for another block."""
        if target in self.analysis.masked:
            self._add_lanes(self._mask_slot(target), mask)
        if self.rounds and (at in self.analysis.masked) != (target in self.analysis.masked):
            self._add_lanes(_INSIDE, mask, "or" if target in self.analysis.masked else "xor")

    def _add_lanes(self, slot, mask, word="or"):
        self.slots[slot] = "i32"
        before = self.new(f"load i32, ptr {slot}")
        self.line(f"store i32 {self.new(f'{word} i32 {before}, {mask}')}, ptr {slot}")

    def _end(self, block):
        at, end = block.index, block.end
        if len(set(end.targets)) < 2:
            self._jump(at, end.targets)
            return
        condition = self.operand(
            end.condition, "pred" if len(end.targets) == 2 and not self._is_switch(end) else "u32"
        )
        if self._is_switch(end):
            self._switch(at, end, condition)
            return
        if lanes.uniform(condition.kind):
            self._uniform_branch(at, end, condition)
            return
        there = self._taken(self.vector(condition, 1))
        rest = self.new(f"xor i32 {self.mask}, {there}")
        if end.negated:
            there, rest = rest, there
        self._wait(at, end.targets[0], there)
        self._wait(at, end.targets[1], rest)
        self._leave(at, end.targets)

    def _taken(self, vector):
        """Return a mask of the lanes that are on and for which a condition is true."""
        if self.masked:
            # A freeze of the lanes that are off would take LLVM more time than everything else.
            on, type_ = self.mask_vector(), f"<{WARP} x i1>"
            vector = self.new(f"select {type_} {on}, {type_} {vector}, {type_} zeroinitializer")
        return self.new(f"bitcast <{WARP} x i1> {vector} to i32")

    def _is_switch(self, end):
        return self.function.registers.get(end.condition, 1) > 1

    def _jump(self, at, targets):
        masked = at in self.analysis.masked
        if masked:
            self._wait(at, targets[0] if targets else None, self.mask)
            self._go_on(at)
        elif not targets:
            self.line("br label %finish")
        else:
            self._wait(at, targets[0], self.mask)
            if targets[0] <= at:
                self._back_to(targets[0])
            else:
                self.line(f"br label %block{targets[0]}")

    def _back_to(self, first):
        """Go back to the first block of a loop."""
        if first in self.analysis.flow.waiting:
            self._let_others_run(f"block{first}")
        else:
            self.line(f"br label %block{first}")

    def _let_others_run(self, label):
        """Go on at a label; every `_ROUNDS` times let other warps run first, as lanes may wait for them."""
        self.module.uses_barriers = self.module.spins = True
        self.slots["%rounds"] = "i32"
        rounds = self.new(f"add i32 {self.new('load i32, ptr %rounds')}, 1")
        self.line(f"store i32 {rounds}, ptr %rounds")
        few = self.new(f"icmp ne i32 {self.new(f'and i32 {rounds}, {_ROUNDS - 1}')}, 0")
        wait = self.fresh("wait")
        self.line(f"br i1 {few}, label %{label}, label %{wait}")
        self.label(wait)
        self.line("call void @yield(ptr %ctx, i32 %warp)")
        self.line(f"br label %{label}")

    def _leave(self, at, targets):
        """Go on after divergence, with the first masked block."""
        if at in self.analysis.masked:
            self._go_on(at)
            return
        inside = sorted(target for target in targets if target in self.analysis.masked)
        self.line(f"br label %check{inside[0]}")

    def _uniform_branch(self, at, end, condition):
        frozen = self.new(f"freeze i1 {condition.scalar}")
        yes, no = self.fresh("yes"), self.fresh("no")
        first, second = (no, yes) if end.negated else (yes, no)
        self.line(f"br i1 {frozen}, label %{first}, label %{second}")
        for label, target in ((yes, end.targets[0]), (no, end.targets[1])):
            self.label(label)
            self._jump(at, (target,))

    def _switch(self, at, end, condition):
        if lanes.uniform(condition.kind):
            chosen = self.new(f"freeze i32 {condition.scalar}")
            cases = [(i, target, self.fresh("case")) for i, target in enumerate(end.targets)]
            table = " ".join(f"i32 {i}, label %{label}" for i, _, label in cases)
            self.line(f"switch i32 {chosen}, label %{cases[-1][2]} [{table}]")
            for _, target, label in cases:
                self.label(label)
                self._jump(at, (target,))
            return
        chosen = self.vector(condition, 32)
        for i, target in enumerate(end.targets):
            here = self.mask_of(self.new(f"icmp eq <{WARP} x i32> {chosen}, splat (i32 {i})"))
            self._wait(at, target, self.new(f"and i32 {self.mask}, {here}"))
        self._leave(at, end.targets)

    def _instruction(self, instruction):
        try:
            INSTRUCTIONS[instruction.opcode[0]](self, instruction)
        except (AttributeError, LookupError, StopIteration, TypeError, ValueError) as error:
            if isinstance(error, PtxError):
                raise
            self.refuse(f"the emulator does not know this form of the instruction ({error!r})")
