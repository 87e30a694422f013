"""The parts of PTX as classes: modules, functions, variables, instructions and their operands."""

from dataclasses import dataclass, field
from typing import NamedTuple

BITS = {"pred": 1, "b8": 8, "u8": 8, "s8": 8, "b16": 16, "u16": 16, "s16": 16, "f16": 16, "bf16": 16}
BITS |= {"b32": 32, "u32": 32, "s32": 32, "f32": 32, "f16x2": 32, "bf16x2": 32, "tf32": 32}
BITS |= {"u16x2": 32, "s16x2": 32, "e4m3x2": 16, "e5m2x2": 16}
BITS |= {"b64": 64, "u64": 64, "s64": 64, "f64": 64, "b128": 128}


class PtxError(ValueError):
    """PTX that cannot be parsed, or an unknown instruction."""


class Address(NamedTuple):
    """A memory operand: a register or the name of a variable, and an offset in bytes."""

    base: str
    offset: int


class Location(NamedTuple):
    """A source line: the number of its file, its own number, and the call's place if it is inlined."""

    file: int
    line: int
    caller: tuple | None = None


@dataclass(slots=True)
class Instruction:
    """One instruction.

    `opcode`: name and modifiers, such as ("ld", "global", "f32"); `operands`: names of registers and
    variables, immediates as written, `Address` objects, or tuples of these; `guard`: the predicate, and
    whether it is negated.
    """

    opcode: tuple
    operands: list
    guard: tuple | None
    location: Location | None

    @property
    def text(self):
        """Return the instruction nearly as it was written, for messages."""
        guard = f"@{'!' * self.guard[1]}{self.guard[0]} " if self.guard else ""
        brackets = "()" if self.opcode[0] == "call" else "{}"
        operands = ", ".join(_written(operand, brackets) for operand in self.operands)
        return f"{guard}{'.'.join(self.opcode)} {operands}".rstrip()


def _written(operand, brackets):
    """Return an operand as PTX writes it, a tuple within these brackets."""
    if isinstance(operand, Address):
        return f"[{operand.base}{f'{operand.offset:+}' if operand.offset else ''}]"
    if isinstance(operand, tuple):
        return brackets[0] + ", ".join(_written(one, brackets) for one in operand) + brackets[1]
    return operand


@dataclass(slots=True)
class Variable:
    """A variable of a module or of a function: its state space, alignment, size and initial bytes."""

    name: str
    space: str
    align: int
    size: int
    initial: bytes = b""
    external: bool = False
    pointers: tuple = ()  # (offset, name of a variable): addresses among the initial bytes


@dataclass
class Function:
    """A kernel or a device function.

    `registers`: the width in bits of each; `body`: instructions, and labels as strings.
    """

    name: str
    kernel: bool
    parameters: list
    results: list = field(default_factory=list)
    registers: dict = field(default_factory=dict)
    variables: dict = field(default_factory=dict)
    body: list = field(default_factory=list)
    tables: dict = field(default_factory=dict)  # labels that `brx.idx` chooses from
    limits: dict = field(default_factory=dict)  # .maxntid, .reqntid, ...


@dataclass
class Module:
    """A translation unit."""

    text: str
    functions: dict = field(default_factory=dict)
    variables: dict = field(default_factory=dict)
    files: dict = field(default_factory=dict)
    version: tuple = ()
    target: str = ""
    identity: int = 0  # a hash of the text
