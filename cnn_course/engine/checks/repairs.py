"""Repairs of a learner's kernel that are tried before they are advised.

What the sanitizer has seen is certain; what is missing is a guess: where a thread writes past the edge there
may be no guard, or a guard of the wrong axis, or an index that is not the one meant. So the kernel is changed
in each likely way, by its syntax, and run once more. A change that makes it right is advised, with the line;
where none does, the verdict says only what has been seen.
"""

import ast
import copy
import inspect
import itertools
import linecache
import textwrap
from typing import NamedTuple

from numba import cuda

# For one kernel. Counted, not timed: the advice is the same on every machine and in a page.
TRIES = 24


class Repair(NamedTuple):
    """A change that makes a kernel right."""

    line: int
    """Of the kernel, counted from its first."""
    old: str
    """What stands there."""
    new: str
    """What to write."""
    where: str = "instead"
    """Or "before it", "around it", "around it and the lines below it"."""


class Repairs:
    """Looks for what makes a kernel right.

    Parameters
    ----------
    kernel : kernel
    passes : callable
        Takes a kernel, returns whether it is right.
    in_one_warp : bool, optional
        Whether a barrier of a warp may do, where one is missing.

    The methods take the lines of the accesses in question, counted from the kernel's first line, and the name
    of the array. They return a list of `Repair`, all to be made; empty if there is none of their kind, no
    source, or too many changes have been tried.
    """

    def __init__(self, kernel, passes, in_one_warp=False):
        self._kernel, self._passes, self._in_one_warp = kernel, passes, in_one_warp
        self._tries = 0
        try:
            text = textwrap.dedent(inspect.getsource(kernel.py_func))
            self._lines, self._tree = text.splitlines(), ast.parse(text).body[0]
        except (AttributeError, OSError, TypeError, SyntaxError):
            self._lines, self._tree = [], ast.Module([], [])

    def guard(self, lines, array):
        """Find the condition under which alone an access may happen: that its index lies inside."""
        for line, index in self._indices(lines[:1], array):
            sizes = [f"{array}.shape[{k}]" if len(index) > 1 else f"{array}.size" for k in range(len(index))]
            parts = [
                each for each in zip(map(ast.unparse, index), sizes, strict=True) if not each[0].isdigit()
            ]
            for sign in ("", "0 <= "):
                conditions = [f"{sign}{part} < {size}" for part, size in parts]
                for place, where, known in self._around(line, conditions):
                    if known and self._is_repaired(_guard, place, where, known):
                        needed = self._needed(place, where, known)
                        return [Repair(place, self._text(place), f"if {' and '.join(needed)}:", where)]
        return []

    def comparison(self, lines, array):
        """Find a comparison that lets through one number too many."""
        loops = [each.test for each in ast.walk(self._tree) if isinstance(each, ast.While)]
        goes_on = {node for test in loops for node in ast.walk(test)}
        for node in ast.walk(self._tree):
            operands = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
            for k, (one, other) in enumerate(itertools.pairwise(operands)):
                stricter = _STRICTER.get(type(node.ops[k]))
                # A loop that goes on at equality as well may have no end.
                if not stricter or one.lineno != other.end_lineno or (">=" in stricter and node in goes_on):
                    continue
                if self._is_repaired(_compare, node, k, stricter[0]):
                    text = self._lines[one.lineno - 1]
                    old = text[one.col_offset : other.end_col_offset]
                    sign = text[one.end_col_offset : other.col_offset]
                    new = old.replace(sign, sign.replace(*stricter[1:]), 1)
                    return [Repair(one.lineno, old, new)]
        return []

    def axes(self, lines, array):
        """Find two indices of the array that are exchanged."""
        for line, index in self._indices(lines[:1], array):
            for one, other in itertools.combinations(range(len(index)), 2):
                better = list(index)
                better[one], better[other] = index[other], index[one]
                old, new = (f"{array}[{', '.join(map(ast.unparse, each))}]" for each in (index, better))
                if old != new and self._is_repaired(_exchange, line, old, new):
                    return [Repair(line, old, new)]
        return []

    def atomic(self, lines, array):
        """Find the atomic addition for one that threads make in several steps."""
        for line in lines[:1]:
            call = self._tree.body and _atomic_call(_statement(self._tree, line), array)
            if call and self._is_repaired(_replace, line, call):
                return [Repair(line, self._text(line), call)]
        return []

    def barriers(self, lines, array):
        """Find the lines, one or two, before which a barrier is missing, and which: the least that helps."""
        gaps = self._gaps(lines)
        several = [*((gap,) for gap in gaps), *itertools.combinations(gaps, 2)]
        for barrier, places in itertools.product(self._barriers(), several):
            if self._is_repaired(_wait, places, barrier):
                if self._in_one_warp and self._is_right(_wait, places, WARP_BARRIER):
                    barrier = WARP_BARRIER
                return [Repair(gap, self._text(gap), barrier, "before it") for gap in sorted(places)]
        return []

    def _barriers(self):
        return (_BARRIER, WARP_BARRIER) if self._in_one_warp else (_BARRIER,)

    # --- what is in the kernel -----------------------------------------------------------------------------

    def _text(self, line):
        return self._lines[line - 1].strip()

    def _indices(self, lines, array):
        """Yield each index of an array on some lines, as the line and the list of its parts."""
        for node in ast.walk(self._tree):
            if getattr(node, "lineno", 0) not in lines:
                continue
            if isinstance(node, ast.Subscript) and ast.unparse(node.value) == array:
                index = node.slice
            elif isinstance(node, ast.Call) and len(node.args) > 1 and ast.unparse(node.args[0]) == array:
                index = node.args[1]  # of an atomic operation
            else:
                continue
            yield node.lineno, index.elts if isinstance(index, ast.Tuple) else [index]

    def _around(self, line, conditions):
        """Yield what a guard can be around, with those of its conditions that are known there.

        The statement; that and what follows in its block, and in the blocks around it; and all that comes
        where the index is known.
        """
        yield line, "around it", conditions
        for block in reversed(_blocks_around(self._tree, line)):
            place = next(k for k, each in enumerate(block) if each.lineno <= line <= each.end_lineno)
            inside = _bound(block[place])
            known = [each for each in conditions if not _names(ast.parse(each)) & inside]
            needed = set().union(*(_names(ast.parse(each)) for each in known))
            binding = [
                k for k, each in enumerate(block[:place]) if _is_comment(each) or needed & _bound(each)
            ]
            for first in (place, max(binding, default=-1) + 1):
                yield block[first].lineno, "around it and the lines below it", known

    def _gaps(self, lines):
        """Return the lines that every thread reaches, the nearest to some lines first.

        Where all of these are in one loop, its lines come first; otherwise those in loops come last.
        """
        bodies, gaps, own = [self._tree.body], [], []
        while bodies:
            found = [each for body in bodies for each in body if not _is_comment(each)]
            gaps += sorted((each.lineno for each in found), key=lambda gap: _distance(gap, lines))
            loops = [each for each in found if isinstance(each, (ast.For, ast.While))]
            around = [each for each in loops if all(each.lineno < line <= each.end_lineno for line in lines)]
            own = [each.lineno for each in around[0].body] if around and lines else own
            bodies = [each.body for each in loops]
        return sorted(gaps, key=lambda gap: gap not in own)

    # --- trying --------------------------------------------------------------------------------------------

    def _is_repaired(self, change, *arguments):
        """Return whether the kernel is right with its syntax changed; False after too many tries."""
        self._tries += 1
        return self._tries <= TRIES and self._is_right(change, *arguments)

    def _is_right(self, change, *arguments):
        """Return whether it is: of a repair that has been found, however many tries that took."""
        tree = copy.deepcopy(self._tree)
        try:
            change(tree, *arguments)
            return self._passes(self._made(tree))
        except Exception:  # a change that makes no kernel of it
            return False

    def _needed(self, place, where, conditions):
        """Return those of a guard's conditions without which the kernel is not right."""
        for condition in conditions:
            rest = [each for each in conditions if each != condition]
            if rest and self._is_right(_guard, place, where, rest):
                conditions = rest
        return conditions

    def _made(self, tree):
        """Return a kernel of other syntax, with the globals and the closure of this one."""
        function = self._kernel.py_func
        tree.decorator_list = []
        text = ast.unparse(ast.fix_missing_locations(tree))
        names = function.__code__.co_freevars
        if names:
            text = f"def around({', '.join(names)}):\n{textwrap.indent(text, '    ')}\n    return {tree.name}"
        file = f"<repaired-{hash(text)}>"
        linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
        namespace = dict(function.__globals__)
        exec(compile(text, file, "exec"), namespace)
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        return cuda.jit(namespace["around"](*cells) if names else namespace[tree.name])


# --- changes of a syntax tree ------------------------------------------------------------------------------

_BARRIER, WARP_BARRIER = "cuda.syncthreads()", "cuda.syncwarp()"


def _guard(tree, line, where, conditions):
    block = _block(tree, line)
    first = next(k for k, each in enumerate(block) if each.lineno <= line <= each.end_lineno)
    last = first + 1 if where == "around it" else len(block)
    test = ast.parse(" and ".join(conditions), mode="eval").body
    block[first:last] = [ast.If(test, block[first:last], [])]


#: Comparisons, and those that leave out equal numbers: of what may go on, and of what may not.
_STRICTER = {ast.LtE: (ast.Lt, "<=", "<"), ast.Gt: (ast.GtE, ">", ">=")}


def _compare(tree, comparison, k, kind):
    place = comparison.lineno, comparison.col_offset
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and (node.lineno, node.col_offset) == place:
            node.ops[k] = kind()


def _exchange(tree, line, old, new):
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and node.lineno == line and ast.unparse(node) == old:
            node.slice = ast.parse(new, mode="eval").body.slice


def _replace(tree, line, text):
    block = _block(tree, line)
    block[block.index(_statement(tree, line))] = ast.parse(text).body[0]


def _wait(tree, lines, barrier):
    for line in sorted(lines, reverse=True):
        block = _block(tree, line)
        place = next(k for k, each in enumerate(block) if each.lineno == line)
        block.insert(place, ast.parse(barrier).body[0])


def _distance(gap, lines):
    return min((abs(gap - line) for line in lines), default=0)


def _blocks_around(tree, line):
    """Return the lists of statements that a line is in, from the function's own inwards."""
    blocks, inner = [], tree
    while inner is not None:
        for name in ("body", "orelse"):
            block = getattr(inner, name, ())
            found = next((each for each in block if each.lineno <= line <= each.end_lineno), None)
            if found is not None:
                blocks.append(block)
                break
        inner = found if hasattr(found, "body") and found.lineno != line else None
    return blocks


def _block(tree, line):
    """Return the innermost list of statements with one that begins on a line, or a plain one around it."""
    return _blocks_around(tree, line)[-1]


def _statement(tree, line):
    return next(each for each in _block(tree, line) if each.lineno <= line <= each.end_lineno)


def _is_comment(statement):
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _names(tree, *contexts):
    """Return the names in a piece of syntax, those that it binds if asked for."""
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    return {node.id for node in nodes if isinstance(node.ctx, contexts or ast.expr_context)}


def _bound(statement):
    return _names(statement, ast.Store)


def _atomic_call(statement, array):
    """Return the atomic call that does what a statement such as ``a[i] += v`` does; None for another one."""
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add):
        target, values = statement.target, [statement.value]
    elif isinstance(statement, ast.Assign) and isinstance(getattr(statement.value, "op", None), ast.Add):
        target, sides = statement.targets[0], [statement.value.left, statement.value.right]
        values = [side for side in sides if ast.unparse(side) != ast.unparse(target)]
    else:
        return None
    if len(values) > 1 or not isinstance(target, ast.Subscript) or ast.unparse(target.value) != array:
        return None
    index = ast.unparse(target.slice)
    index = f"({index})" if isinstance(target.slice, ast.Tuple) else index
    return f"cuda.atomic.add({array}, {index}, {ast.unparse(values[0])})"
