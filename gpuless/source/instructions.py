"""Turn a running instruction into its line, its expression and its variable in the source.

The simulator keeps the place in a kernel as a code object and a byte offset, which costs almost nothing, and
looks up the source only for a message. Messages name no files: a notebook cell's file has a random name.
"""

import ast
import dis
import functools
import linecache
import os
from typing import NamedTuple

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Site(NamedTuple):
    """One instruction of a kernel or device function, as the source shows it."""

    function: str
    line: int
    text: str
    """The whole line, stripped."""
    expression: str
    """The part of it that the instruction belongs to, such as ``tile[tx + 1]``."""
    offset: int
    """Byte offset of the instruction in its function."""

    def __str__(self):
        text = f": {self.text}" if self.text else ""
        return f"{self.function}, line {self.line}{text}"


@functools.cache
def _instructions(code):
    return tuple(dis.get_instructions(code))


# By id, as hashing a code object hashes its whole content. The code is kept, so that its id is not reused.
_starts = {}


def instruction_start(code, offset):
    """Return the offset of the instruction that a frame's ``f_lasti`` belongs to.

    A frame points to an instruction or to the inline cache after it, depending on whether Python has
    specialised the instruction; both must count as the same place.
    """
    known = _starts.get(id(code))
    if known is None:
        known = _starts[id(code)] = code, instruction_starts(code)
    return known[1][offset // 2]


def instruction_starts(code):
    """Return, for every two bytes of a function's code, the offset of the instruction they belong to."""
    starts = [0] * (len(code.co_code) // 2)
    for instruction in _instructions(code):
        starts[instruction.offset // 2] = instruction.offset
    for i in range(1, len(starts)):
        starts[i] = starts[i] or starts[i - 1]
    return tuple(starts)


def is_in_loop(code, offset):
    """Return whether an instruction is in a loop: whether one after it jumps back."""
    # A jump without interrupt is the wait in `yield from` a device function.
    backward = (each for each in _instructions(code) if "JUMP_BACKWARD" in each.opname)
    jumps = (each for each in backward if not each.opname.endswith("NO_INTERRUPT"))
    return any(each.argval <= offset < each.offset for each in jumps)


@functools.cache
def site(code, offset):
    """Return the `Site` of the instruction at an offset, or at the inline cache after it."""
    start = instruction_start(code, offset)
    line, end_line, column, end_column = list(code.co_positions())[start // 2]
    line = line or code.co_firstlineno
    raw = linecache.getline(code.co_filename, line)
    expression = ""
    if end_line == line and column is not None:
        expression = raw.encode()[column:end_column].decode()
    return Site(code.co_name, line, raw.strip(), expression, start)


@functools.cache
def assigned_name(code, offset):
    """Return the variable that a call's result is stored in, None if it isn't stored at once."""
    start = instruction_start(code, offset)
    following = (each for each in _instructions(code) if each.offset > start and each.opname != "CACHE")
    store = next(following, None)
    if store is None or not store.opname.startswith("STORE_"):
        return None
    # Newer versions of Python store and load in one instruction, which has two names.
    return store.argval[0] if isinstance(store.argval, tuple) else store.argval


@functools.cache
def negative_literals(expression):
    """Return the axes of a subscript, given as text, with a negative literal, which is on purpose.

    >>> negative_literals("x[-1]"), negative_literals("x[i - 1, -1]"), negative_literals("x[i - 1]")
    (frozenset({0}), frozenset({1}), frozenset())
    """
    try:
        node = ast.parse(expression.strip(), mode="eval").body
    except SyntaxError:
        return frozenset()
    if not isinstance(node, ast.Subscript):
        return frozenset()
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return frozenset(axis for axis, part in enumerate(parts) if _is_negative_number(part))


def _is_negative_number(node):
    is_minus = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    return is_minus and isinstance(node.operand, ast.Constant)


def place(traceback):
    """Return the site in the kernel where an exception was raised, None if there is none.

    It is the innermost frame of a user's code before one of the simulator or NumPy. Functions with a variable
    `__tracebackhide__` are skipped.
    """
    found = None
    while traceback is not None:
        code = traceback.tb_frame.f_code
        # By name: if NumPy is installed as bytecode, its files' paths are those of another machine.
        is_numpy = traceback.tb_frame.f_globals.get("__name__", "").partition(".")[0] == "numpy"
        if not is_numpy and not code.co_filename.startswith(PACKAGE):
            found = site(code, traceback.tb_lasti)
        elif found is not None and "__tracebackhide__" not in code.co_varnames:
            break  # further inside may be a library's code
        traceback = traceback.tb_next
    return found
