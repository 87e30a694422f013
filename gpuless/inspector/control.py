"""Read machine code with its control codes, which say when a warp may issue its next instruction.

Since Volta, an instruction of 128 bits contains the cycles that the warp waits before the next one, and which
of six scoreboards it sets or waits for: these track instructions of variable latency.
"""

import re
from typing import NamedTuple

from gpuless.inspector.assembly import is_numbas
from gpuless.source.files import source_file

#: The number that means no scoreboard.
NO_SCOREBOARD = 7
SCOREBOARDS = 6

_CODE = re.compile(
    r"\s+/\*[0-9a-f]{4,}\*/\s+(?:(@!?U?P[T0-9]+)\s+)?([A-Z][A-Z0-9_.]*)\s*(.*?)\s*;\s*/\* 0x[0-9a-f]{16} \*/"
)
_UPPER_HALF = re.compile(r"\s+/\* (0x[0-9a-f]{16}) \*/")
_LABEL = re.compile(r"(\.L_x_\d+):")
_PLACE = re.compile(r'\s*//## File "([^"]*)", line (\d+)(.*)')


class Step(NamedTuple):
    """An instruction with its control codes.

    `stall`: cycles before the next one; `sets`: the scoreboard that is set until the result is ready;
    `frees`: the one that is set until the operands have been read; `waits`: those that it waits for, as bits.
    """

    opcode: str
    operands: str
    predicate: str
    file: str
    line: int
    stall: int = 1
    sets: int = NO_SCOREBOARD
    frees: int = NO_SCOREBOARD
    waits: int = 0

    @property
    def base(self):
        """The opcode without its modifiers."""
        return self.opcode.partition(".")[0]


class MachineCode(NamedTuple):
    """The machine code of a kernel: its instructions, and the index of each label's."""

    steps: list
    labels: dict


def read_control(text: str) -> MachineCode:
    r"""Read the output of ``nvdisasm`` for a kernel, with instruction encodings and source lines.

    Examples
    --------
    >>> text = '''.text.kernel:
    ... 	//## File "a.py", line 7
    ...         /*0000*/   LDG.E R6, [R6] ;     /* 0x0000000006067381 */
    ...                                         /* 0x000ea8000c1e1900 */
    ...         /*0010*/   @!P0 FADD R5, R6, R6 ;   /* 0x0000000606058221 */
    ...                                         /* 0x004fca0000000000 */'''
    >>> for step in read_control(text).steps:
    ...     print(step.opcode, step.predicate, step.line, step.stall, step.sets, step.waits)
    LDG.E  7 4 2 0
    FADD @!P0 7 5 7 4
    """
    sections = re.split(r"^\.text\.", text, flags=re.M)[1:]
    found = [_section(section) for section in sections]
    # A linked library's functions have no lines; a kernel of Numba's own has only Numba's lines.
    own = [code for code in found if _has_lines(code)]
    own = own or [code for code in (_section(each, numbas=True) for each in sections) if _has_lines(code)]
    return next(iter(own or found), MachineCode([], {}))


def _has_lines(code):
    return any(step.line for step in code.steps)


def _section(text, numbas=False):
    steps, labels, place, chain, ended = [], {}, ("", 0), [], True
    for row in text.splitlines():
        if match := _PLACE.match(row):
            chain = [*([] if ended else chain), (match[1], int(match[2]))]
            ended = "inlined at" not in match[3]
        elif match := _LABEL.match(row):
            labels[match[1]] = len(steps)
        elif match := _CODE.match(row):
            place, chain = _own(chain, numbas) or place, []
            steps.append(Step(match[2], match[3], match[1] or "", *place))
        elif (match := _UPPER_HALF.match(row)) and steps:
            steps[-1] = steps[-1]._replace(**_control(int(match[1], 16)))
    while steps and steps[-1].opcode == "NOP":
        steps.pop()
    if len(steps) > 1 and steps[-1].base == "BRA":  # an unreachable loop after the end
        steps.pop()
    return MachineCode(steps, {name: at for name, at in labels.items() if at < len(steps)})


def _own(chain, numbas=False):
    """Return the innermost place that isn't numba's; `chain` begins with the innermost function."""
    places = (place for place in chain if place[1] and (numbas or not is_numbas(place[0])))
    return next(((source_file(file), line) for file, line in places), None)


def _control(upper):
    bits = upper >> 41
    return {"stall": bits & 15, "sets": bits >> 5 & 7, "frees": bits >> 8 & 7, "waits": bits >> 11 & 63}
