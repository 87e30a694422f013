"""Where lanes wait for each other: at instructions for which they come together, or in spinning loops.

A loop may spin if it reads memory that other threads write, or calls a function that does.
"""

from gpuless.emulator.ptx.instructions import destinations, sources, written_by

#: Instructions at which all lanes of a warp, or all warps of a block, come together.
MEETINGS = {"bar", "barrier", "shfl", "vote", "match", "redux", "activemask", "elect"}
_OF_ALL = {"mma", "wmma", "ldmatrix"}  # without a mask: all lanes
MEETINGS |= _OF_ALL
_MEETING_CALLS = {"cudaCGSynchronize"}  # functions that CUDA provides
ALL = {"-1", "4294967295", "0xffffffff", "0xFFFFFFFF"}
#: Instructions that may signal something to others.
TELLING = {"st", "red", "atom", "call", "trap", "cp", "mbarrier", "multimem"}


def gathered(instruction):
    """Return the operand with the mask of the lanes that come together for an instruction, or None.

    `activemask` doesn't wait: a lane may execute it while it holds a lock.
    """
    name = instruction.opcode[0]
    if name == "call":
        return "-1" if called(instruction) in _MEETING_CALLS else None
    if name not in MEETINGS or name == "activemask":
        return None
    named = "warp" in instruction.opcode if name in ("bar", "barrier") else "sync" in instruction.opcode
    return instruction.operands[-1] if named and name not in _OF_ALL else "-1"


def spinning_loops(flow):
    """Return the first blocks of loops that may wait for what other threads write to memory.

    Such a loop has a branch that depends on a volatile or atomic read, or on any read if the loop has a fence
    or a call. A loop with a barrier may also wait with plain reads, but mostly reads what all threads have
    computed together. It counts only if every exit depends on a read.
    """
    found = set()
    for first, last in flow.loop_ends.items():
        blocks = flow.blocks[first : last + 1]
        instructions = [instruction for block in blocks for instruction in block.body]
        calls = [one for one in instructions if calls_any(one, flow.anew, flow.registers)]
        # A called function may return what it has read through memory.
        fenced = bool(calls) or any(one.opcode[0] in _FENCES for one in instructions)
        waiting = [*calls, *(one for one in instructions if reads_anew(one, fenced))]
        read = _following(
            instructions, {n for one in waiting for n in (*destinations(one), *_given_back(one))}
        )
        waits = any(not _tries_again(one, blocks, read) for one in waiting)
        if waits and any(block.end.condition in read for block in blocks):
            found.add(first)
        elif any(one.opcode[0] in ("bar", "barrier") for one in instructions):
            leaving = [block for block in blocks if not set(block.end.targets) <= {*range(first, last + 1)}]
            ends = [_behind(instructions, {block.end.condition}) for block in leaving]
            if ends and all(any(reads_anew(one, True) for one in end) for end in ends):
                found.add(first)
    return found


def _following(instructions, names):
    """Return registers and all that are computed from them."""
    before, names = -1, set(names)
    while before != len(names):
        before = len(names)
        for instruction in instructions:
            if not names.isdisjoint(sources(instruction)):
                names.update(destinations(instruction))
    return names


def _behind(instructions, names):
    """Return the instructions that compute registers, back to loads from memory."""
    before, names, found = -1, set(names), []
    while before != len(names):
        before = len(names)
        found = [one for one in instructions if not names.isdisjoint(destinations(one))]
        names.update(name for one in found if one.opcode[0] != "ld" for name in sources(one))
    return found


def _tries_again(instruction, loop, read):
    """Return whether an instruction is a compare-and-swap that is retried with the value it has found.

    A retry means that another thread made progress. It does wait if it compares with a fixed value, or if
    more than one comparison ends the loop.
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
    """Return registers and those that only ever hold copies of them."""
    written, names = written_by(instructions), set(names)
    moved = {name for name, each in written.items() if all(one.opcode[0] == "mov" for one in each)}
    before = None
    while before != moved:
        before = set(moved)
        known = names | moved
        moved = {name for name in moved if all(known.issuperset(sources(one)) for one in written[name])}
    return names | moved


def calls_any(instruction, names, registers):
    """Return whether an instruction may call one of some functions; a call by address may call any."""
    if not names or instruction.opcode[0] != "call":
        return False
    name = called(instruction)
    return name in names or name in registers


def reading_anew(functions):
    """Return the names of the functions that may read what other threads have just written.

    Functions that call one are included.
    """
    found, before = set(), -1
    while before != len(found):
        before = len(found)
        for name, function in functions.items():
            for one in instructions_of(function):
                fence, calls = one.opcode[0] in _FENCES, calls_any(one, found, function.registers)
                if fence or calls or reads_anew(one, False):
                    found.add(name)
    return found


_FENCES = {"membar", "fence", "nanosleep"}


def called(call):
    """Return the name of the called function, or of the register with its address."""
    return next(operand for operand in call.operands if isinstance(operand, str))


def _given_back(instruction):
    """Return the names of a call's results."""
    first = instruction.operands[:1] if instruction.opcode[0] == "call" else ()
    return first[0] if first and isinstance(first[0], tuple) else ()


def called_by(function):
    """Return the names of the functions that a function calls; a register's name for a call by address."""
    return {called(one) for one in instructions_of(function) if one.opcode[0] == "call"}


def instructions_of(function):
    """Return the instructions of a function, without its labels."""
    return [item for item in function.body if not isinstance(item, str)]


OWN = {"param", "local", "const"}  # state spaces to which no other thread writes


def reads_anew(instruction, fenced):
    """Return whether an instruction reads what another thread may have just written."""
    opcode = instruction.opcode
    if opcode[0] == "ld" and OWN.isdisjoint(opcode):
        return fenced or not {"volatile", "relaxed", "acquire", "cv"}.isdisjoint(opcode)
    return opcode[0] == "atom" or (opcode[0] == "mbarrier" and opcode[1] in ("test_wait", "try_wait"))


def exits(function, functions):
    """Return the `exit` instructions that can be reached.

    Compilers also write `exit` after a call that never returns, so that nothing seems to follow it.
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
