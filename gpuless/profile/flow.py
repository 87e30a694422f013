"""The control-flow graph of machine code: basic blocks, successors, loops."""

import re
from typing import NamedTuple

from gpuless.inspector.control import MachineCode, Step

_LABEL = re.compile(r"\((\.L_x_\d+)\)")
_ENDS = {"BRA", "EXIT", "RET", "BRX", "JMP", "CALL", "BAR"}


class Block(NamedTuple):
    """A basic block: its first instruction and the one after its last, and the blocks that may follow.

    `leaves`: whether warps may exit there.
    """

    first: int
    last: int
    targets: tuple
    leaves: bool


def blocks_of(code: MachineCode) -> list[Block]:
    """Return the basic blocks of machine code, in program order."""
    ends_at = {at + 1 for at, step in enumerate(code.steps) if step.base in _ENDS}
    leaders = sorted(at for at in {0, *code.labels.values()} | ends_at if at < len(code.steps))
    numbers = {at: number for number, at in enumerate(leaders)}
    ends = [*leaders[1:], len(code.steps)]
    found = []
    for number, (first, last) in enumerate(zip(leaders, ends, strict=True)):
        targets, leaves = _targets(code, code.steps[last - 1], numbers, number + 1)
        found.append(Block(first, last, tuple(t for t in targets if t < len(leaders)), leaves))
    return found


def _targets(code, step, numbers, following):
    """Return which blocks may follow an instruction, and whether a warp may exit there."""
    match = _LABEL.search(step.operands)
    jump = [numbers[code.labels[match[1]]]] if match and match[1] in code.labels else []
    if step.base == "EXIT":
        return [following] if _conditional(step) else [], True
    if step.base == "RET":
        return [], True
    if step.base in ("BRA", "JMP"):
        return jump + ([following] if _conditional(step) else []), False
    if step.base == "CALL" and jump and ".NOINC" in step.opcode:  # the subroutine jumps back
        return [*jump, following], False
    return [following], False


def _conditional(step: Step) -> bool:
    """Return whether a jump is conditional."""
    if step.opcode.startswith(("BRA.DIV", "BRA.CONV")):
        return True
    return step.predicate not in ("", "@PT", "@UPT") or bool(re.match(r"!?U?P\d", step.operands))


def loops_of(blocks: list[Block]) -> list[tuple[int, int]]:
    """Return the first and the last block of each loop, which extends from a backward jump to its target."""
    ends: dict[int, int] = {}
    for number, block in enumerate(blocks):
        for target in block.targets:
            if target <= number:
                ends[target] = max(ends.get(target, number), number)
    return sorted(ends.items())


def nest_of(loops: list[tuple[int, int]], number: int) -> list[tuple[int, int]]:
    """Return the loops around a block, the outermost first."""
    around = [(first, last) for first, last in loops if first <= number <= last]
    return sorted(around, key=lambda loop: loop[0] - loop[1])
