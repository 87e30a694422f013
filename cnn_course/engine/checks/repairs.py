"""Repairs of a learner's kernel, which are tried before the check advises them.

The sanitizer's finding is certain, but its cause is a guess: if a thread writes past the edge, a guard may be
missing or have the wrong axis, or the index may be wrong. So `Repairs` changes the kernel's syntax tree in
each likely way, and runs it again. The check advises a change that makes the kernel right, with its line. If
there is none, it reports only the finding.
"""

import ast
import copy
import inspect
import itertools
import linecache
import textwrap
from typing import NamedTuple

from numba import cuda

from cnn_course.engine.checks import changes

_BARRIER, WARP_BARRIER = "cuda.syncthreads()", "cuda.syncwarp()"
# For one kernel. A count, not a time, makes the advice the same on every machine and in a page.
TRIES = 24


class Repair(NamedTuple):
    """A change that makes a kernel right."""

    line: int
    """Counted from the kernel's first line."""
    old: str
    """The old code."""
    new: str
    """The new code."""
    where: str = "instead"
    """Or "before it", "around it", "around it and the lines below it"."""
    why: str = ""
    """A key of `wording.REPAIRED`, if the kind of repair does not determine it."""


class Repairs:
    """Finds changes that make a kernel right.

    Parameters
    ----------
    kernel : kernel
    passes : callable
        Takes a kernel, returns whether it is right.
    in_one_warp : bool, optional
        Whether a warp's barrier may be enough, if one is missing.

    The methods take the lines of the accesses in question, counted from the kernel's first line, and the name
    of the array. They return a list of `Repair`, which are all needed. It is empty if no change of the kind
    helps, if the kernel has no source, or after too many tries.
    """

    def __init__(self, kernel, passes, in_one_warp=False):
        self._kernel, self._passes, self._in_one_warp = kernel, passes, in_one_warp
        self._tries = 0
        try:
            text = textwrap.dedent(inspect.getsource(kernel.py_func))
            self._lines, self.tree = text.splitlines(), ast.parse(text).body[0]
        except (AttributeError, OSError, TypeError, SyntaxError):
            self._lines, self.tree = [], ast.Module([], [])

    def guard(self, lines, array):
        """Find a missing guard: the condition that an index lies inside the array."""
        for line, index in self._indices(lines[:1], array):
            pairs = zip(map(ast.unparse, index), _sizes_of(array, index), strict=True)
            parts = [each for each in pairs if not each[0].isdigit()]
            for sign in ("", "0 <= "):
                conditions = [f"{sign}{part} < {size}" for part, size in parts]
                for place, where, known in self._around(line, conditions):
                    if known and self.helps(changes.guard, place, where, known):
                        needed = self._least(
                            known, lambda tree, rest, at=(place, where): changes.guard(tree, *at, rest)
                        )
                        return [Repair(place, self.text(place), f"if {' and '.join(needed)}:", where)]
        return []

    def comparison(self, lines, array):
        """Find comparisons that let one number too many pass: one, those in one condition, or all."""
        loops = [each.test for each in ast.walk(self.tree) if isinstance(each, ast.While)]
        goes_on = {node for test in loops for node in ast.walk(test)}
        loose = []
        for node in ast.walk(self.tree):
            operands = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
            for k, (one, other) in enumerate(itertools.pairwise(operands)):
                stricter = changes.STRICTER.get(type(node.ops[k]))
                # A loop that goes on at equality, too, may not end; `0 <= i` concerns another edge.
                if not stricter or one.lineno != other.end_lineno or (">=" in stricter and node in goes_on):
                    continue
                if ast.unparse(one) != "0":
                    loose.append((node, k))
        conditions = [
            [each for each in loose if each[0] in node.values]
            for node in ast.walk(self.tree)
            if isinstance(node, ast.BoolOp)
        ]
        found = self.fewest(changes.tighten, loose, *conditions)
        by_line = {line: list(each) for line, each in itertools.groupby(sorted(found, key=_line), key=_line)}
        return _all_of("comparisons", found, [self._tightened(line, each) for line, each in by_line.items()])

    def _tightened(self, line, loose):
        """Return the repair of a line's loose comparisons, from the first to the last."""
        text = self._lines[line - 1]
        signs, first, last = [], len(text), 0
        for node, k in loose:
            one, other = [node.left, *node.comparators][k : k + 2]
            _, sign, better = changes.STRICTER[type(node.ops[k])]
            signs.append((one.end_col_offset, other.col_offset, sign, better))
            first, last = min(first, one.col_offset), max(last, other.end_col_offset)
        new, done = "", first
        for start, end, sign, better in sorted(signs):
            new += text[done:start] + text[start:end].replace(sign, better, 1)
            done = end
        return Repair(line, text[first:last], new + text[done:last])

    def sizes(self, lines, array):
        """Find comparisons of an index with another size than its axis's, or with another array's `.size`."""
        wanted = {}
        for _, index in self._indices(lines[:1], array):
            wanted |= zip(map(ast.unparse, index), _sizes_of(array, index), strict=True)
        nodes = [each for each in ast.walk(self.tree) if isinstance(each, ast.Compare)]
        parts, totals = [], []
        for node in (each for each in nodes if each.lineno == each.end_lineno):
            for one, other in itertools.permutations([node.left, *node.comparators], 2):
                size = wanted.get(ast.unparse(one))
                if size and not isinstance(other, ast.Constant) and ast.unparse(other) not in (*wanted, size):
                    parts.append((node, (other, size)))
                elif not size and isinstance(other, ast.Attribute) and other.attr == "size":
                    totals.append((node, other))
        others = [f"{each.arg}.size" for each in ast.walk(self.tree) if isinstance(each, ast.arg)]
        flat = (
            [(node, (total, size))] for node, total in totals for size in others if size != ast.unparse(total)
        )
        return next(filter(None, map(self.replaced, [parts, *flat])), [])

    def loop(self, lines, array):
        """Find loops that go one too far."""
        stops = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.For) and changes.is_range(node.iter):
                stop = node.iter.args[min(len(node.iter.args), 2) - 1]
                goes_down = isinstance(node.iter.args[-1], ast.UnaryOp)
                if not goes_down and not isinstance(stop, ast.Constant):
                    stops.append((node.iter, stop))
        repairs = self.replaced([(node, (stop, changes.one_less(stop))) for node, stop in stops])
        return _all_of("loops", repairs, repairs)

    def axes(self, lines, array):
        """Find two exchanged indices of the array."""
        for line, index in self._indices(lines[:1], array):
            for one, other in itertools.combinations(range(len(index)), 2):
                better = list(index)
                better[one], better[other] = index[other], index[one]
                old, new = (f"{array}[{', '.join(map(ast.unparse, each))}]" for each in (index, better))
                if old != new and self.helps(changes.exchange, line, old, new):
                    return [Repair(line, old, new)]
        return []

    def atomic(self, lines, array):
        """Find an addition that must be atomic."""
        for line in lines[:1]:
            call = self.tree.body and changes.atomic_call(changes.statement_of(self.tree, line), array)
            if call and self.helps(changes.replace, line, call):
                return [Repair(line, self.text(line), call)]
        return []

    def barriers(self, lines, array):
        """Find one or two lines before which a barrier is missing; a warp's barrier if that is enough."""
        gaps = self._gaps(lines)
        several = [*((gap,) for gap in gaps), *itertools.combinations(gaps, 2)]
        for barrier, places in itertools.product(self._barriers(), several):
            if self.helps(changes.wait, places, barrier):
                if self._in_one_warp and self._is_right(changes.wait, places, WARP_BARRIER):
                    barrier = WARP_BARRIER
                return [Repair(gap, self.text(gap), barrier, "before it") for gap in sorted(places)]
        return []

    def _barriers(self):
        return (_BARRIER, WARP_BARRIER) if self._in_one_warp else (_BARRIER,)

    # --- what is in the kernel -----------------------------------------------------------------------------

    def text(self, line):
        """Return a line of the kernel."""
        return self._lines[line - 1].strip()

    def _indices(self, lines, array):
        """Yield the line and the list of parts of each index of an array on some lines."""
        for node in ast.walk(self.tree):
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
        """Yield what a guard can enclose, with those of its conditions whose names are known there.

        This is the statement; the statement and those below it, in its block and in the blocks around it; and
        all statements from where the index is known. A statement that changes a loop's condition is left out:
        the loop would not end.
        """
        loops = [each for each in ast.walk(self.tree) if isinstance(each, ast.While)]
        yield line, "around it", conditions
        for block in reversed(changes.blocks_around(self.tree, line)):
            place = next(k for k, each in enumerate(block) if each.lineno <= line <= each.end_lineno)
            inside = changes.bound(block[place])
            known = [each for each in conditions if not changes.names(ast.parse(each)) & inside]
            needed = set().union(*(changes.names(ast.parse(each)) for each in known))
            binding = [
                k
                for k, each in enumerate(block[:place])
                if changes.is_comment(each) or needed & changes.bound(each)
            ]
            awaited = {name for loop in loops if loop.body is block for name in changes.names(loop.test)}
            for first in (place, max(binding, default=-1) + 1):
                if any(awaited & changes.bound(each) for each in block[first:]):
                    continue
                yield block[first].lineno, "around it and the lines below it", known

    def _gaps(self, lines):
        """Return the lines that every thread reaches, those nearest to `lines` first.

        If all of `lines` are in one loop, that loop's lines come first; otherwise lines in loops come last.
        """
        bodies, gaps, own = [self.tree.body], [], []
        while bodies:
            found = [each for body in bodies for each in body if not changes.is_comment(each)]
            gaps += sorted((each.lineno for each in found), key=lambda gap: changes.distance(gap, lines))
            loops = [each for each in found if isinstance(each, (ast.For, ast.While))]
            around = [each for each in loops if all(each.lineno < line <= each.end_lineno for line in lines)]
            own = [each.lineno for each in around[0].body] if around and lines else own
            bodies = [each.body for each in loops]
        return sorted(gaps, key=lambda gap: gap not in own)

    # --- trying --------------------------------------------------------------------------------------------

    def helps(self, change, *arguments):
        """Return whether a change makes the kernel right; False after too many tries."""
        self._tries += 1
        return self._tries <= TRIES and self._is_right(change, *arguments)

    def replaced(self, parts):
        """Find expressions to replace; a part is a node, and a pair: a node in it, and the new text."""
        found = self.fewest(lambda tree, some: changes.put(tree, [place for _, place in some]), parts)
        repairs = []
        for node, place in found:
            new = copy.deepcopy(node)
            changes.put(new, [place])
            old = ast.get_source_segment("\n".join(self._lines), node)
            repairs.append(Repair(node.lineno, old, ast.unparse(new)))
        return sorted(repairs)

    def fewest(self, change, parts, *groups):
        """Return the parts of a change that repair the kernel: one, or the fewest of a group, or of all."""
        several = [group for group in (*groups, parts) if len(group) > 1]
        for group in [*([each] for each in parts), *several]:
            if self.helps(change, group):
                return self._least(group, change)
        return []

    def _least(self, parts, change):
        """Return only the parts of a change that are needed."""
        for part in parts:
            rest = [each for each in parts if each != part]
            if rest and self._is_right(change, rest):
                parts = rest
        return parts

    def _is_right(self, change, *arguments):
        """Return whether a change makes the kernel right, without counting tries."""
        tree = copy.deepcopy(self.tree)
        try:
            change(tree, *arguments)
            return self._passes(self._made(tree))
        except Exception:  # the changed code is not a kernel
            return False

    def _made(self, tree):
        """Return a kernel with another syntax tree, and the globals and the closure of this one."""
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


def solves(evidence, cases):
    """Return a function that takes a kernel: whether it is right in all these launches, and allowed."""
    exercise = evidence.exercise
    return lambda kernel: (
        all(exercise.is_flawless(kernel, case) for case in cases) and exercise.unmet(kernel) is None
    )


def _sizes_of(array, index):
    """Return the sizes that the parts of an index must be less than, as text."""
    return [f"{array}.shape[{k}]" if len(index) > 1 else f"{array}.size" for k in range(len(index))]


def _all_of(why, parts, repairs):
    """Return repairs, with the plural as their reason if they change several parts of the kernel."""
    return [repair._replace(why=why) for repair in repairs] if len(parts) > 1 else repairs


def _line(part):
    return part[0].lineno
