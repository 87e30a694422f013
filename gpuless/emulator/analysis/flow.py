"""The control flow of a function: basic blocks, their order, where lanes diverge and reconverge.

The lanes of a warp run in step. At a divergent branch both sides run, one after the other, each under the
mask of the lanes that took it; lanes reconverge at the branch's post-dominator. Basic blocks run in one fixed
order in which every loop is contiguous, so no lanes wait for lanes that wait for them.

That isn't enough for loops in which lanes wait for each other, such as spin locks. There, the lanes outside
the loop go on until they must wait too, at an instruction for which all lanes come together.
"""

from dataclasses import replace
from typing import NamedTuple

from gpuless.emulator.analysis.waits import (
    ALL,
    MEETINGS,
    OWN,
    TELLING,
    calls_any,
    gathered,
    instructions_of,
    reads_anew,
    spinning_loops,
)
from gpuless.emulator.ptx import PtxError


class Branch(NamedTuple):
    """How a basic block ends: with a register that selects a target, with a single target, or with none."""

    condition: str | None
    negated: bool
    targets: tuple


class Block:
    """A basic block.

    `index`: its place in the order; `location`: the source line of its end; `last`: the branch or return that
    ends it, None if it falls through.
    """

    def __init__(self):
        self.body, self.end, self.index, self.location, self.last = [], None, None, None, None


class Flow:
    """The basic blocks of a function in their order.

    `blocks`: the targets of branches are indices into it; `loop_ends`: the last block of each loop, by its
    first block; `anew`: the result of `reading_anew` for the module; `registers`: of the function; `paused`:
    whether each instruction for which lanes come together begins a block; `waiting`: the first blocks of
    loops in which lanes may wait for writes of others; `pauses`: blocks at which some lanes may wait while
    others run any other block.
    """

    def __init__(self, function, anew=frozenset(), paused=False):
        self.anew, self.registers = anew, function.registers
        blocks = _split(function, anew, paused)
        reached, order = _depth_first(0, [block.end.targets for block in blocks]), []
        self.loop_ends = {}
        _order(blocks, [0], sorted(reached), order, self.loop_ends)
        place = {old: new for new, old in enumerate(order)}
        self.blocks = [blocks[old] for old in order]
        for new, block in enumerate(self.blocks):
            block.index = new
            block.end = block.end._replace(targets=tuple(place[target] for target in block.end.targets))
        self.loop_ends = {place[first]: place[last] for first, last in self.loop_ends.items()}
        self.successors = [set(block.end.targets) for block in self.blocks]
        self.exit = len(self.blocks)
        self._meeting, self._until = self._post_dominators(), {}
        self.waiting, self.pauses = set(), set()

    def _post_dominators(self):
        """Return the immediate post-dominator of each block; `exit` stands for the end of the function."""
        # Cooper, Harvey and Kennedy, "A simple, fast dominance algorithm" (2001), on the reversed graph.
        count = len(self.blocks)
        followers = [set(found) or {count} for found in self.successors]
        order = _depth_first(count, _reverse(followers, count + 1))
        while endless := set(range(count)) - set(order):
            followers[max(endless)].add(count)  # treat an endless loop as if it had an exit
            order = _depth_first(count, _reverse(followers, count + 1))
        number = {block: i for i, block in enumerate(order)}  # the end has the largest
        meeting = {count: count}

        def meet(a, b):
            while a != b:
                while number[a] < number[b]:
                    a = meeting[a]
                while number[b] < number[a]:
                    b = meeting[b]
            return a

        changed = True
        while changed:
            changed = False
            for block in reversed(order[:-1]):
                found = None
                for follower in followers[block]:
                    if follower in meeting:
                        found = follower if found is None else meet(found, follower)
                if meeting.get(block) != found:
                    meeting[block], changed = found, True
        return [meeting[block] for block in range(count)]

    def meeting(self, block):
        """Return the block at which lanes that diverge at the end of a block reconverge."""
        return self._meeting[block]

    def has_one_entry(self, first):
        """Return whether a loop is entered only through its first block."""
        inside = range(first, self.loop_ends[first] + 1)
        outside = (followers for at, followers in enumerate(self.successors) if at not in inside)
        return not any(at in inside and at != first for followers in outside for at in followers)

    def await_others(self):
        """Find the loops in which lanes wait for others, and the blocks at which lanes pause for them.

        A lane that holds a lock can then release it, although other lanes of its warp wait for the lock.
        """
        self.waiting = spinning_loops(self)
        if self.waiting:
            gates = {at for at in range(self.exit) if self.gathered(at) is not None}
            self.pauses = gates | {first for first in self.loop_ends if self.holds(first, gates)}
            self._tells = self._telling()

    def holds(self, first, gates):
        """Return whether lanes may stay in a loop until others have gone on."""
        return not (self.waiting | gates).isdisjoint(range(first, self.loop_ends[first] + 1))

    def gathered(self, block):
        """Return the operand with the mask of the lanes that come together before a block, or None."""
        return gathered(self.blocks[block].body[0]) if self.blocks[block].body else None

    def _telling(self):
        """Return the blocks from which lanes may signal others before all lanes must come together."""
        found, silent = set(), set()
        for at, block in enumerate(self.blocks):
            for one in block.body:
                lanes = gathered(one)
                if lanes in ALL:
                    silent.add(at)
                elif lanes is not None or (one.opcode[0] in TELLING and OWN.isdisjoint(one.opcode)):
                    found.add(at)
                if at in silent or at in found:
                    break
        size = -1
        while size != len(found):
            size = len(found)
            found |= {at for at in range(self.exit) if at not in silent and self.successors[at] & found}
        return found

    def divergent_until(self, block):
        """Return the block that ends the divergent region after a block."""
        end = self._until.get(block, self._meeting[block])
        if block not in self._until and self.waiting:
            while end in self._tells and not self.waiting.isdisjoint(set().union(*self._ways(block, end))):
                end = self._meeting[end]
            self._until[block] = end
        return end

    def region(self, block):
        """Return the blocks that diverged lanes run before they reconverge: a set for each target."""
        return self._ways(block, self.divergent_until(block))

    def _ways(self, block, end):
        ways = []
        for target in self.blocks[block].end.targets:
            way, waiting = set(), [target] if target != end else []
            while waiting:
                at = waiting.pop()
                if at not in way:
                    way.add(at)
                    waiting += [follower for follower in self.successors[at] if follower != end]
            ways.append(way)
        return ways


def _split(function, anew, paused):
    """Return the basic blocks of a function; their targets are indices of blocks."""
    starts, blocks = {}, [Block()]
    # If lanes may wait for each other, divergence lasts until a block that begins with such an instruction.
    listed = instructions_of(function)
    wait = any(reads_anew(one, False) or calls_any(one, anew, function.registers) for one in listed)
    meetings = MEETINGS if wait or paused else ()

    def fresh():
        if blocks[-1].body or blocks[-1].end:
            blocks.append(Block())

    for item in function.body:
        if isinstance(item, str):
            fresh()
            starts[item] = len(blocks) - 1
        elif item.opcode[0] in ("bra", "ret", "exit", "brx"):
            _finish(blocks, item, function)
            blocks.append(Block())
        elif item.guard is not None:
            # The lanes whose guard holds run it in a separate block.
            following = len(blocks)
            blocks[-1].end = Branch(*item.guard, (following, following + 1))
            blocks += [Block(), Block()]
            blocks[-2].body.append(replace(item, guard=None))
        else:
            if item.opcode[0] in meetings or (paused and gathered(item) is not None):
                fresh()
            blocks[-1].body.append(item)
    for number, block in enumerate(blocks):
        if block.end is None:
            block.end = Branch(None, False, (number + 1,) if number + 1 < len(blocks) else ())
        nowhere = [name for name in block.end.targets if isinstance(name, str) and name not in starts]
        if nowhere:
            raise PtxError(f"{block.last.text}: the function {function.name} has no label {nowhere[0]}")
        targets = (starts[target] if isinstance(target, str) else target for target in block.end.targets)
        block.end = block.end._replace(targets=tuple(targets))
    return blocks


def _finish(blocks, item, function):
    block, following = blocks[-1], len(blocks)
    block.location, block.last = item.location, item
    name = item.opcode[0]
    if name == "brx":
        index, table = item.operands
        if item.guard is not None:
            raise PtxError(f"{item.text}: the emulator does not know this instruction with a guard")
        if table not in function.tables:
            raise PtxError(f"{item.text}: the function {function.name} has no list of labels {table}")
        block.end = Branch(index, False, tuple(function.tables[table]))
        return
    targets = (item.operands[0],) if name == "bra" else ()
    if item.guard is None:
        block.end = Branch(None, False, targets)
    elif targets:
        block.end = Branch(*item.guard, (*targets, following))
    else:
        # The lanes that return leave through a separate block.
        gone = Block()
        gone.end = Branch(None, False, ())
        blocks.append(gone)
        block.end = Branch(*item.guard, (following, following + 1))


def _reverse(followers, count):
    before = [[] for _ in range(count)]
    for block, found in enumerate(followers):
        for follower in found:
            before[follower].append(block)
    return before


def _depth_first(start, followers):
    """Return the reachable blocks in postorder."""
    seen, order, stack = {start}, [], [(start, iter(followers[start]))]
    while stack:
        block, rest = stack[-1]
        for follower in rest:
            if follower not in seen:
                seen.add(follower)
                stack.append((follower, iter(followers[follower])))
                break
        else:
            order.append(block)
            stack.pop()
    return order


def _order(blocks, entries, members, order, loop_ends):
    """Append some blocks to the order: each loop contiguous, its entry first."""
    inside = set(members)
    for component in _components(blocks, entries, inside):
        if len(component) == 1 and component[0] not in blocks[component[0]].end.targets:
            order.append(component[0])
            continue
        member = set(component)
        outside = {
            target for at in range(len(blocks)) if at not in member for target in blocks[at].end.targets
        }
        first = next((at for at in component if at in outside), component[0])
        begin = len(order)
        order.append(first)
        rest = [at for at in component if at != first]
        starts = [target for target in blocks[first].end.targets if target in member and target != first]
        if rest:
            # Without its entry the loop is broken; the rest may contain inner loops.
            _order(blocks, [*starts, *rest], rest, order, loop_ends)
        assert len(order) - begin == len(component)
        loop_ends[first] = order[-1]


def _components(blocks, entries, inside):
    """Return the strongly connected components of some blocks in topological order."""
    # Tarjan, "Depth-first search and linear graph algorithms" (1972), without recursion.
    number, low, stack, on_stack, found = {}, {}, [], set(), []
    for entry in entries:
        if entry in number:
            continue
        work = [(entry, None)]
        while work:
            at, rest = work.pop()
            if rest is None:
                number[at] = low[at] = len(number)
                stack.append(at)
                on_stack.add(at)
                # The last target first, so that the first comes first in the order.
                rest = iter([target for target in reversed(blocks[at].end.targets) if target in inside])
            for target in rest:
                if target not in number:
                    work += [(at, rest), (target, None)]
                    break
                if target in on_stack:
                    low[at] = min(low[at], number[target])
            else:
                if low[at] == number[at]:
                    component = []
                    while not component or component[-1] != at:
                        component.append(stack.pop())
                        on_stack.discard(component[-1])
                    found.append(component[::-1])
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[at])
    return found[::-1]
