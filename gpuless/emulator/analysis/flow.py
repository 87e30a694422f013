"""The control flow of a function: blocks, an order in which loops are whole, where lanes part and meet again.

The lanes of a warp run in step. At a branch on which they disagree they part, and both ways are run, one
after the other, each with the lanes that chose it; where all ways lead, they meet. Blocks are run in one
order, in which every loop is contiguous, so that no lane waits for one that waits for it.

Where lanes may wait for each other in a loop that is not enough. There, those that have left the loop, or
have not come to it, go on until they have to wait as well: where all lanes come together.
"""

from dataclasses import replace
from typing import NamedTuple

from gpuless.emulator.ptx import PtxError
from gpuless.emulator.ptx.instructions import destinations, sources, written_by


class Branch(NamedTuple):
    """How a block ends: by a register that chooses among blocks, or with one target, or none."""

    condition: str | None
    negated: bool
    targets: tuple


class Block:
    """Instructions that run one after the other.

    Attributes
    ----------
    body : list of Instruction
    end : Branch
    index : int
        Its place in the order.
    location : Location or None
        Where it ends.
    last : Instruction or None
        The one that ends it, if it does not just go on.
    """

    def __init__(self):
        self.body, self.end, self.index, self.location, self.last = [], None, None, None, None


class Flow:
    """The blocks of a function in their order.

    Attributes
    ----------
    blocks : list of Block
        Targets of their ends are indices into it.
    loop_ends : dict
        For the first block of a loop, the last one.
    anew : set of str
        What `reading_anew` says of the module.
    registers : dict
        Those of the function.
    paused : bool
        Whether each instruction for which lanes come together begins a block.
    waiting : set of int
        The first blocks of loops in which lanes may wait for what others write.
    pauses : set of int
        Blocks that some lanes may have come to, and not begun, while others run any other block.
    """

    def __init__(self, function, anew=frozenset(), paused=False):
        self.anew, self.registers = anew, function.registers
        blocks = _split(function, anew, paused)
        reached, order = _reachable(blocks), []
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
        """Return for each block the first one that all ways from it come to, `exit` if that is the end."""
        # Cooper, Harvey and Kennedy, "A simple, fast dominance algorithm" (2001), on the reversed graph.
        count = len(self.blocks)
        followers = [set(found) or {count} for found in self.successors]
        order = _depth_first(count + 1, count, _reverse(followers, count + 1))
        while endless := set(range(count)) - set(order):
            followers[max(endless)].add(count)  # a loop without a way out: as if it had one
            order = _depth_first(count + 1, count, _reverse(followers, count + 1))
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
        """Return where lanes that part at the end of a block meet again."""
        return self._meeting[block]

    def await_others(self):
        """Find the loops in which lanes wait for others, and let no others wait for them before they must.

        So a lock that a lane holds is given back, though other lanes of its warp wait for it.
        """
        self.waiting = spinning_loops(self)
        if self.waiting:
            gates = {at for at in range(self.exit) if self.gathered(at) is not None}
            self.pauses = gates | {first for first in self.loop_ends if self.holds(first, gates)}
            self._tells = self._telling()

    def holds(self, first, gates):
        """Return whether lanes may stay in a loop until others have come further."""
        return not (self.waiting | gates).isdisjoint(range(first, self.loop_ends[first] + 1))

    def gathered(self, block):
        """Return the operand that names the lanes which come together before a block is run, or None."""
        return gathered(self.blocks[block].body[0]) if self.blocks[block].body else None

    def _telling(self):
        """Return the blocks from which others may be told something before all lanes must come together."""
        found, silent = set(), set()
        for at, block in enumerate(self.blocks):
            for one in block.body:
                lanes = gathered(one)
                if lanes in _ALL:
                    silent.add(at)
                elif lanes is not None or (one.opcode[0] in _TELLING and _OWN.isdisjoint(one.opcode)):
                    found.add(at)
                if at in silent or at in found:
                    break
        size = -1
        while size != len(found):
            size = len(found)
            found |= {at for at in range(self.exit) if at not in silent and self.successors[at] & found}
        return found

    def parted_until(self, block):
        """Return where the region ends in which lanes are apart that part at the end of a block."""
        end = self._until.get(block, self._meeting[block])
        if block not in self._until and self.waiting:
            while end in self._tells and not self.waiting.isdisjoint(set().union(*self._ways(block, end))):
                end = self._meeting[end]
            self._until[block] = end
        return end

    def region(self, block):
        """Return the blocks where lanes are apart that part at the end of a block, by the way they took.

        Returns
        -------
        list of set of int
            One set for each target.
        """
        return self._ways(block, self.parted_until(block))

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


#: Instructions for which all lanes of a warp, or all warps of a block, come together.
_MEETINGS = {"bar", "barrier", "shfl", "vote", "match", "redux", "activemask", "elect"}
_OF_ALL = {"mma", "wmma", "ldmatrix"}  # which name no lanes
_MEETINGS |= _OF_ALL
_MEETING_CALLS = {"cudaCGSynchronize"}  # functions that CUDA provides
_ALL = {"-1", "4294967295", "0xffffffff", "0xFFFFFFFF"}
#: Instructions by which others may learn of something.
_TELLING = {"st", "red", "atom", "call", "trap", "cp", "mbarrier", "multimem"}


def gathered(instruction):
    """Return the operand that names the lanes which come together for an instruction; None if none do.

    `activemask` waits for nobody: it may well stand where a lane has a lock.
    """
    name = instruction.opcode[0]
    if name == "call":
        return "-1" if called(instruction) in _MEETING_CALLS else None
    if name not in _MEETINGS or name == "activemask":
        return None
    named = "warp" in instruction.opcode if name in ("bar", "barrier") else "sync" in instruction.opcode
    return instruction.operands[-1] if named and name not in _OF_ALL else "-1"


def spinning_loops(flow):
    """Return the first blocks of loops that may wait for what other threads write to memory.

    Such a loop reads memory in a way that tells so, and where it goes on depends on what it has read. Behind
    a barrier any reading is such, but there most loops read what all threads have computed together. One that
    waits has no end but by what it reads.
    """
    found = set()
    for first, last in flow.loop_ends.items():
        blocks = flow.blocks[first : last + 1]
        instructions = [instruction for block in blocks for instruction in block.body]
        calls = [one for one in instructions if _calls(one, flow.anew, flow.registers)]
        # What a function has found it may also have left in memory.
        fenced = bool(calls) or any(one.opcode[0] in _FENCES for one in instructions)
        waiting = [*calls, *(one for one in instructions if _reads_anew(one, fenced))]
        read = _following(
            instructions, {n for one in waiting for n in (*destinations(one), *_given_back(one))}
        )
        waits = any(not _tries_again(one, blocks, read) for one in waiting)
        if waits and any(block.end.condition in read for block in blocks):
            found.add(first)
        elif any(one.opcode[0] in ("bar", "barrier") for one in instructions):
            leaving = [block for block in blocks if not set(block.end.targets) <= {*range(first, last + 1)}]
            ends = [_behind(instructions, {block.end.condition}) for block in leaving]
            if ends and all(any(_reads_anew(one, True) for one in end) for end in ends):
                found.add(first)
    return found


def _following(instructions, names):
    """Return registers, and those that are computed from them."""
    before, names = -1, set(names)
    while before != len(names):
        before = len(names)
        for instruction in instructions:
            if not names.isdisjoint(sources(instruction)):
                names.update(destinations(instruction))
    return names


def _behind(instructions, names):
    """Return the instructions by which registers are computed, from memory at most."""
    before, names, found = -1, set(names), []
    while before != len(names):
        before = len(names)
        found = [one for one in instructions if not names.isdisjoint(destinations(one))]
        names.update(name for one in found if one.opcode[0] != "ld" for name in sources(one))
    return found


def _tries_again(instruction, loop, read):
    """Return whether an instruction tries again with just what it has found: somebody has got on.

    It waits if it tries with what it wants to find, or if more than one comparison says whether it is done.
    """
    if "cas" not in instruction.opcode:
        return False
    instructions = [one for block in loop for one in block.body]
    expected, new = instruction.operands[2:4]
    found = _copies(instructions, destinations(instruction))
    decisive = [block.end.condition for block in loop if block.end.condition in read]
    tests = [one for one in instructions if not set(decisive).isdisjoint(destinations(one))]
    if len(decisive) != 1 or len(tests) != 1 or tests[0].opcode[0] != "setp" or len(tests[0].operands) != 3:
        return False
    return expected in found and new != expected and not found.isdisjoint(sources(tests[0]))


def _copies(instructions, names):
    """Return registers, and those that hold nothing else than one of them."""
    written, names = written_by(instructions), set(names)
    moved = {name for name, each in written.items() if all(one.opcode[0] == "mov" for one in each)}
    before = None
    while before != moved:
        before = set(moved)
        known = names | moved
        moved = {name for name in moved if all(known.issuperset(sources(one)) for one in written[name])}
    return names | moved


def _calls(instruction, names, registers):
    """Return whether an instruction calls one of some functions; by an address it may call any."""
    if not names or instruction.opcode[0] != "call":
        return False
    name = called(instruction)
    return name in names or name in registers


def reading_anew(functions):
    """Return the names of the functions that may read what other threads have just written.

    They do so themselves, or by what they call.
    """
    found, before = set(), -1
    while before != len(found):
        before = len(found)
        for name, function in functions.items():
            for one in instructions_of(function):
                fence, calls = one.opcode[0] in _FENCES, _calls(one, found, function.registers)
                if fence or calls or _reads_anew(one, False):
                    found.add(name)
    return found


_FENCES = {"membar", "fence", "nanosleep"}


def called(call):
    """Return the name of the function that is called, or of the register that has its address."""
    return next(operand for operand in call.operands if isinstance(operand, str))


def _given_back(instruction):
    """Return the names of what a call gives back."""
    first = instruction.operands[:1] if instruction.opcode[0] == "call" else ()
    return first[0] if first and isinstance(first[0], tuple) else ()


def called_by(function):
    """Return the names that a function calls; those of registers where it calls by an address."""
    return {called(one) for one in instructions_of(function) if one.opcode[0] == "call"}


def instructions_of(function):
    """Return the instructions of a function, without its labels."""
    return [item for item in function.body if not isinstance(item, str)]


_OWN = {"param", "local", "const"}  # where no other thread writes


def _reads_anew(instruction, fenced):
    opcode = instruction.opcode
    if opcode[0] == "ld" and _OWN.isdisjoint(opcode):
        return fenced or not {"volatile", "relaxed", "acquire", "cv"}.isdisjoint(opcode)
    return opcode[0] == "atom" or (opcode[0] == "mbarrier" and opcode[1] in ("test_wait", "try_wait"))


def _split(function, anew, paused):
    """Return the blocks of a function, targets as numbers of blocks."""
    starts, blocks = {}, [Block()]
    # Where lanes may wait for each other they part until a block that begins with such an instruction.
    listed = instructions_of(function)
    wait = any(_reads_anew(one, False) or _calls(one, anew, function.registers) for one in listed)
    meetings = _MEETINGS if wait or paused else ()

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
            # The lanes it is for go to a block of its own, and come back.
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
        # Lanes that return leave by a block of their own.
        gone = Block()
        gone.end = Branch(None, False, ())
        blocks.append(gone)
        block.end = Branch(*item.guard, (following, following + 1))


def _reachable(blocks):
    found, waiting = set(), [0]
    while waiting:
        at = waiting.pop()
        if at not in found:
            found.add(at)
            waiting += blocks[at].end.targets
    return found


def _reverse(followers, count):
    before = [[] for _ in range(count)]
    for block, found in enumerate(followers):
        for follower in found:
            before[follower].append(block)
    return before


def _depth_first(count, start, followers):
    """Return the blocks that can be reached, each after those it leads to."""
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
    """Append the members of a part of the graph to the order, each loop in one piece, its entry first."""
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
            # Without its entry the loop is one no more; what is left may hold loops of its own.
            _order(blocks, [*starts, *rest], rest, order, loop_ends)
        assert len(order) - begin == len(component)
        loop_ends[first] = order[-1]


def _components(blocks, entries, inside):
    """Return the strongly connected components among some blocks, each before those it leads to."""
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


def exits(function, functions):
    """Return the instructions by which lanes end, but not those that only stand behind what never returns.

    Compilers write `exit` there, so that nobody takes what comes next for what is run next.
    """
    found, over = [], False
    for item in function.body:
        if isinstance(item, str):
            over = False
        elif item.opcode[0] == "exit" and not over:
            found.append(item)
        elif item.guard is None:
            over = over or item.opcode[0] == "trap" or _never_returns(item, functions)
    return found


def _never_returns(instruction, functions):
    if instruction.opcode[0] != "call":
        return False
    name = called(instruction)
    if name not in functions:
        return name == "__assertfail"
    return all(item.opcode[0] != "ret" for item in instructions_of(functions[name]))
