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

from cnn_course.engine.checks import changes

_BARRIER, WARP_BARRIER = "cuda.syncthreads()", "cuda.syncwarp()"
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
    why: str = ""
    """Where the kind of repair does not say it: what was wrong, one of `wording.REPAIRED`."""


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
            self._lines, self.tree = text.splitlines(), ast.parse(text).body[0]
        except (AttributeError, OSError, TypeError, SyntaxError):
            self._lines, self.tree = [], ast.Module([], [])

    def guard(self, lines, array):
        """Find the condition under which alone an access may happen: that its index lies inside."""
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
        """Find the comparisons that let through one number too many: one, or those of a condition, or all."""
        loops = [each.test for each in ast.walk(self.tree) if isinstance(each, ast.While)]
        goes_on = {node for test in loops for node in ast.walk(test)}
        loose = []
        for node in ast.walk(self.tree):
            operands = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
            for k, (one, other) in enumerate(itertools.pairwise(operands)):
                stricter = changes.STRICTER.get(type(node.ops[k]))
                # A loop that goes on at equality as well may have no end; `0 <= i` is about another edge.
                if not stricter or one.lineno != other.end_lineno or (">=" in stricter and node in goes_on):
                    continue
                if ast.unparse(one) != "0":
                    loose.append((node, k))
        conditions = [
            [each for each in loose if each[0] in node.values]
            for node in ast.walk(self.tree)
            if isinstance(node, ast.BoolOp)
        ]
        found = self._fewest(changes.tighten, loose, *conditions)
        by_line = {line: list(each) for line, each in itertools.groupby(sorted(found, key=_line), key=_line)}
        return _all_of("comparisons", found, [self._tightened(line, each) for line, each in by_line.items()])

    def _tightened(self, line, loose):
        """Return the repair of a line, from its first loose comparison to its last."""
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
        """Find the comparisons of an index with another size than that of its axis, or than `.size`."""
        wanted = {}
        for _, index in self._indices(lines[:1], array):
            wanted |= zip(map(ast.unparse, index), _sizes_of(array, index), strict=True)
        nodes = [each for each in ast.walk(self.tree) if isinstance(each, ast.Compare)]
        parts, totals = [], []
        for node in (each for each in nodes if each.lineno == each.end_lineno):
            for one, other in itertools.permutations([node.left, *node.comparators], 2):
                size = wanted.get(ast.unparse(one))
                if size and not isinstance(other, ast.Constant) and ast.unparse(other) not in wanted:
                    parts.append((node, (other, size)))
                elif not size and isinstance(other, ast.Attribute) and other.attr == "size":
                    totals.append((node, other))
        others = [f"{each.arg}.size" for each in ast.walk(self.tree) if isinstance(each, ast.arg)]
        flat = ([(node, (total, size))] for node, total in totals for size in others)
        return next(filter(None, map(self.replaced, [parts, *flat])), [])

    def loop(self, lines, array):
        """Find the loops that go one too far."""
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
        """Find two indices of the array that are exchanged."""
        for line, index in self._indices(lines[:1], array):
            for one, other in itertools.combinations(range(len(index)), 2):
                better = list(index)
                better[one], better[other] = index[other], index[one]
                old, new = (f"{array}[{', '.join(map(ast.unparse, each))}]" for each in (index, better))
                if old != new and self.helps(changes.exchange, line, old, new):
                    return [Repair(line, old, new)]
        return []

    def atomic(self, lines, array):
        """Find the atomic addition for one that threads make in several steps."""
        for line in lines[:1]:
            call = self.tree.body and changes.atomic_call(changes.statement_of(self.tree, line), array)
            if call and self.helps(changes.replace, line, call):
                return [Repair(line, self.text(line), call)]
        return []

    def barriers(self, lines, array):
        """Find the lines, one or two, before which a barrier is missing, and which: the least that helps."""
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
        """Yield each index of an array on some lines, as the line and the list of its parts."""
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
        """Yield what a guard can be around, with those of its conditions that are known there.

        The statement; that and what follows in its block, and in the blocks around it; and all that comes
        where the index is known. Not what a loop's condition waits for: the loop would have no end.
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
        """Return the lines that every thread reaches, the nearest to some lines first.

        Where all of these are in one loop, its lines come first; otherwise those in loops come last.
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
        """Return whether the kernel is right with its syntax changed; False after too many tries."""
        self._tries += 1
        return self._tries <= TRIES and self._is_right(change, *arguments)

    def replaced(self, parts):
        """Find which expressions to replace: each part is a node of a line, and (one in it, another text)."""
        found = self._fewest(lambda tree, some: changes.put(tree, [place for _, place in some]), parts)
        repairs = []
        for node, place in found:
            new = copy.deepcopy(node)
            changes.put(new, [place])
            old = ast.get_source_segment("\n".join(self._lines), node)
            repairs.append(Repair(node.lineno, old, ast.unparse(new)))
        return sorted(repairs)

    def _fewest(self, change, parts, *groups):
        """Return the parts of a change that repair the kernel: one, or the least of a group or of all."""
        several = [group for group in (*groups, parts) if len(group) > 1]
        for group in [*([each] for each in parts), *several]:
            if self.helps(change, group):
                return self._least(group, change)
        return []

    def _least(self, parts, change):
        """Return those of the parts of a change without which the kernel is not right."""
        for part in parts:
            rest = [each for each in parts if each != part]
            if rest and self._is_right(change, rest):
                parts = rest
        return parts

    def _is_right(self, change, *arguments):
        """Return whether it is: of a repair that has been found, however many tries that took."""
        tree = copy.deepcopy(self.tree)
        try:
            change(tree, *arguments)
            return self._passes(self._made(tree))
        except Exception:  # a change that makes no kernel of it
            return False

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


def solves(evidence, cases):
    """Return the function that says whether a kernel is right in all these launches, and allowed."""
    exercise = evidence.exercise
    return lambda kernel: (
        all(exercise.is_flawless(kernel, case) for case in cases) and exercise.allows(kernel)
    )


def _sizes_of(array, index):
    """Return the sizes that the parts of an index are to be less than, as text."""
    return [f"{array}.shape[{k}]" if len(index) > 1 else f"{array}.size" for k in range(len(index))]


def _all_of(why, parts, repairs):
    """Return repairs with the word for several, if they are of more than one part of the kernel."""
    return [repair._replace(why=why) for repair in repairs] if len(parts) > 1 else repairs


def _line(part):
    return part[0].lineno
