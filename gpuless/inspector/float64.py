"""Find the causes of float64 arithmetic in the source, and arrays, divisions and loops on its lines.

This looks only at the source; `beginnings` also uses the types of a kernel that Numba has compiled.
"""

import ast
import copy
import functools
import re
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from gpuless.inspector.assembly import Instruction
from gpuless.source.branches import syntax


class Float64Cause(NamedTuple):
    """Something in the source that makes a kernel compute in float64."""

    file: str
    line: int
    """The line to change; if `kind` is empty, a line that computes in float64 for an unknown reason."""
    kind: str
    """literal, integer start, integer, division, function, type, trigonometry, or empty."""
    what: str
    """The source to change."""
    remedy: str
    """Its replacement."""
    lines: tuple
    """The lines that compute in float64 because of it."""


def float64_causes(instructions: Iterable[Instruction]) -> list[Float64Cause]:
    """Find what makes instructions compute in float64.

    Parameters
    ----------
    instructions : iterable of Instruction
        With source lines: from a `KernelReport`, or from `read_ptx`.

    Returns
    -------
    list of Float64Cause
        Empty without float64 arithmetic. If causes are found, lines without one are taken for consequences.

    Examples
    --------
    >>> float64_causes([Instruction("fma.rn.f32", "%f3, %f1, %f2, %f3", "FMA", "kernels.py", 5)])
    []
    """
    places = sorted({(i.file, i.line) for i in instructions if i.kind == "FP64"})
    causes: defaultdict[tuple[str, int, str, str, str], set[int]] = defaultdict(set)
    unexplained = []
    for file, line in places:
        found = source_of(file).float64_causes(line)
        for cause in found:
            causes[file, *cause].add(line)
        if not found:
            unexplained.append(Float64Cause(file, line, "", "", "", (line,)))
    return [
        Float64Cause(*cause, tuple(sorted(lines))) for cause, lines in sorted(causes.items())
    ] or unexplained


def source_of(file):
    """Return the `Source` of a file."""
    return Source(syntax(file))


class Source:
    """A source file, which answers questions about its lines."""

    def __init__(self, tree):
        self.tree = tree
        self._on_line = _nodes_by_line(tree)

    def _nodes(self, line, *kinds):
        """Return the nodes of some kinds on or around a line."""
        return [node for node in self._on_line.get(line, ()) if isinstance(node, kinds)]

    def expressions(self, line):
        """Return the expressions on or around a line, without indices."""
        found = self._nodes(line, ast.expr)
        subscripts = [node.slice for node in found if isinstance(node, ast.Subscript)]
        inside = {id(part) for index in subscripts for part in ast.walk(index)}
        return [node for node in found if id(node) not in inside]

    def function(self, line):
        """Return the innermost function around a line."""
        functions = self._nodes(line, ast.FunctionDef)
        return max(functions, key=lambda node: node.lineno, default=self.tree)

    def float64_causes(self, line):
        """Return tuples (line to change, kind, what is wrong there, what to write), as in `Float64Cause`."""
        expressions = self.expressions(line)
        names = {node.id for node in expressions if isinstance(node, ast.Name)}
        faults = [
            ("literal", node, f"{node.targets[0].id} = {_as_float32(node.value)}")
            for node in ast.walk(self.function(line))
            if _name_bound(node) in names and _is_float(node.value)
        ]
        faults += [(_kind(node), node, better) for node in expressions if (better := _in_float32(node))]
        faults += [
            ("type", node, _WIDE.sub("float32", ast.unparse(node)))
            for node in ast.walk(self.function(line))
            if _name_bound(node) in names and isinstance(node.value, ast.Call)
            if _WIDE.search(ast.unparse(node))
        ]
        faults = faults or self._integer_beginnings(line)
        if not faults and any(_is_call(node, "sin", "cos", "tan") for node in expressions):
            return [(line, "trigonometry", "", "")]
        faults = faults or self._integers_in_float32(line)
        return [(node.lineno, kind, ast.unparse(node), better) for kind, node, better in faults]

    def _integer_beginnings(self, line):
        """Return statements such as `acc = 0` before an update of a line, `acc += x[i]`, and remedies."""
        nodes = list(ast.walk(self.function(line)))
        changed = {_target(node) for node in nodes if getattr(node, "lineno", 0) == line} - {None}
        return [
            ("integer start", node, f"{_target(node)} = {_as_float32(node.value)}")
            for node in nodes
            if _name_bound(node) in changed and type(_number(node.value)) is int
        ]

    def _integers_in_float32(self, line):
        """Return expressions of a line in which integers meet other numbers, and remedies."""
        integers = _integer_names(self.function(line))
        inner = {id(part) for node in self._nodes(line, ast.Compare) for part in ast.walk(node)}
        nodes = [*self._nodes(line, ast.AugAssign), *self.expressions(line)]
        found = ((node, _with_integers_cast(node, integers)) for node in nodes if id(node) not in inner)
        return [(_kind(node), node, better) for node, better in found if better]

    def divides(self, line):
        """Return whether a line contains `//` or `%`."""
        operators = (node.op for node in self._nodes(line, ast.BinOp, ast.AugAssign))
        return any(isinstance(operator, (ast.FloorDiv, ast.Mod)) for operator in operators)

    def counts_rounds(self, line):
        """Return whether a line contains a `range` with a step."""
        return any(_is_call(node, "range") and len(node.args) == 3 for node in self.expressions(line))

    def reshapes(self, line):
        """Return the lines in the function around a line that reshape an array."""
        function = self.function(line)
        nodes = ast.walk(function) if function is not self.tree else ()
        return {node.lineno for node in nodes if _is_call(node, "reshape")}

    def local_arrays(self, line):
        """Return the names of the local arrays in the function around a line."""
        return {
            _name_bound(node)
            for node in ast.walk(self.function(line))
            if _name_bound(node) and ast.unparse(node.value).partition("(")[0].endswith("local.array")
        }

    def subscripted(self, line):
        """Return the names of the arrays indexed on a line."""
        subscripts = self._nodes(line, ast.Subscript)
        return {node.value.id for node in subscripts if isinstance(node.value, ast.Name)}


@functools.lru_cache(maxsize=8)
def _nodes_by_line(tree):
    """Return the nodes on or around each line, the outermost first."""
    on_line = defaultdict(list)
    for node in ast.walk(tree):
        if isinstance(node, ast.expr | ast.stmt):
            for line in range(node.lineno, node.end_lineno + 1):
                on_line[line].append(node)
    return on_line


def _name_bound(node):
    """Return the name that an assignment such as `acc = 0.0` binds, None for other nodes."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return None


def _target(node):
    """Return the name that a statement such as `acc = 0` or `acc += 1` changes, None for other nodes."""
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    return _name_bound(node)


def _is_call(node, *names):
    return isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in names


def _number(node):
    """Return the value of a numeric literal such as -1.5, None for other nodes."""
    sign = 1
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node, sign = node.operand, -1
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return sign * node.value
    return None


def _is_float(node):
    """Return whether an expression is a Python float, such as `0.0` or `-math.inf`."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _is_float(node.operand)
    if isinstance(node, ast.Attribute):
        return node.attr in ("inf", "nan", "pi", "e")
    return isinstance(_number(node), float)


def _as_float32(node):
    number = _number(node)
    return f"float32({ast.unparse(node) if number is None else f'{number:g}'})"


def _kind(node):
    """Return the `Float64Cause.kind` of an expression."""
    if isinstance(node, ast.Call) and not _is_call(node, "max", "min"):
        return "function"
    if isinstance(getattr(node, "op", None), ast.Div):
        parts = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.value]
        return "literal" if any(map(_is_inexact, parts)) else "division"
    numbers = [number for part in ast.walk(node) if (number := _number(part)) is not None]
    return "literal" if any(isinstance(number, float) for number in numbers) else "integer"


def _integer_names(function):
    """Return the names of a function's indices, sizes and counters."""
    names = set()
    for node in ast.walk(function):
        if isinstance(node, ast.For) and _is_call(node.iter, "range"):
            target, values = node.target, [node.iter] * 9
        elif isinstance(node, ast.Assign):
            target = node.targets[0]
            pairs = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
            values = node.value.elts if pairs else [node.value] * 9
        else:
            continue
        targets = target.elts if isinstance(target, ast.Tuple) else [target]
        names |= {
            part.id
            for part, value in zip(targets, values, strict=False)
            if isinstance(part, ast.Name) and _INTEGERS.search(ast.unparse(value))
        }
    return names


_INTEGERS = re.compile(
    r"^range\(|^(cuda\.)?(grid|gridsize)\(|^(cuda\.)?(threadIdx|blockIdx|blockDim|gridDim)\.|\.shape(\[.*\])?$|\.size$"
)


_WIDE = re.compile(r"\b(?:np\.|numba\.)?float64\b")


def _with_integers_cast(node, names):
    """Return an expression with `float32` around integers that meet other numbers, None if there are none."""

    def integer(part):
        return _is_integer(part) or (isinstance(part, ast.Name) and part.id in names)

    better = copy.deepcopy(node)
    if _is_call(node, "exp", "log", "sqrt", "pow", "tanh", "exp2", "log2", "fabs"):
        better.args = [_cast(part) if integer(part) else part for part in node.args]
    elif isinstance(node, ast.AugAssign):
        better.value = _cast(node.value) if integer(node.value) else node.value
    elif isinstance(node, ast.BinOp):
        sides = integer(node.left), integer(node.right)
        if all(sides) and not isinstance(node.op, ast.Div):
            return None
        better.left, better.right = (
            _cast(part) if is_integer else part
            for part, is_integer in zip((node.left, node.right), sides, strict=True)
        )
    written = ast.unparse(better)
    return None if written == ast.unparse(node) else written


def _in_float32(node):
    """Return an expression rewritten to stay float32, None if it already does."""
    better = copy.deepcopy(node)
    if _is_call(node, "max", "min"):
        better.args = [_cast(part) if _number(part) is not None else part for part in node.args]
    elif isinstance(node, ast.BinOp):
        faulty = _is_integer if isinstance(node.op, ast.Div) else _is_inexact
        better.left = _cast(node.left) if faulty(node.left) or _is_inexact(node.left) else node.left
        better.right = _cast(node.right) if faulty(node.right) or _is_inexact(node.right) else node.right
    elif isinstance(node, ast.IfExp):
        # A Python number on one side turns the other side's float32 into float64.
        if _number(node.body) is None:
            better.orelse = _cast(node.orelse) if _number(node.orelse) is not None else node.orelse
        elif _number(node.orelse) is None:
            better.body = _cast(node.body)
    elif isinstance(node, ast.Compare):
        better.comparators = [_cast(part) if _is_inexact(part) else part for part in node.comparators]
    written = ast.unparse(better)
    return None if written == ast.unparse(node) else written


def _cast(node):
    return ast.parse(_as_float32(node), mode="eval").body


def _is_inexact(node):
    """Return whether a literal is a float that float32 cannot hold; the compiler shortens others itself."""
    number = _number(node)
    return isinstance(number, float) and float(np.float32(number)) != number


def _is_integer(node):
    """Return whether an expression is evidently an integer: a literal, a size, an element of a shape."""
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
    return isinstance(_number(node), int) or (isinstance(node, ast.Attribute) and node.attr == "size")
