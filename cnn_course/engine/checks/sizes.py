"""Judges of sizes in a kernel's source: in its guard, its loops, and powers.

Each reports only a mistake whose repair makes the kernel right (`repairs`).
"""

import ast
import inspect
import itertools
import textwrap
from typing import NamedTuple

import numpy as np

from cnn_course.engine.checks import changes
from cnn_course.engine.checks.evidence import Wrong
from cnn_course.engine.checks.repairs import Repairs, solves
from cnn_course.engine.checks.wording import advised
from gpuless.simulator import argument_names


def exchanged_guard(evidence):
    """Find a guard that compares indices with the sizes of the wrong axes."""
    repairs = repairs_of(evidence)
    for line, size_of in _guards(repairs.tree) if repairs else ():
        used = _used_at(repairs.tree, [index for _, index, _ in size_of])
        if not used:
            continue
        ordered = sorted(size_of, key=lambda each: used[1].index(each[1]))
        sizes = sorted((size for *_, size in size_of), key=lambda size: size.axis)
        places = [(node, size.text) for (node, *_), size in zip(ordered, sizes, strict=True)]
        moved = sum(size != better for (*_, size), better in zip(ordered, sizes, strict=True))
        if moved and repairs.helps(changes.put, places):
            pairs = [(index, size.text) for (_, index, _), size in zip(ordered, sizes, strict=True)]
            text = f"Line {line} of your kernel: `{repairs.text(line)}`"
            message = _exchanged(sizes, pairs, used[0], moved)
            return Wrong("guard exchanges axes", message, text, evidence.where(first_wrong(evidence)))
    return None


def _exchanged(sizes, pairs, element, moved):
    """Return which index to compare with which size, and why."""
    comma = ", and " if len(pairs) == 2 else ", "
    compare = comma.join(f"`{index}` with `{size}`" for index, size in pairs)
    if [size.axis for size in sizes] == [0, 1] and element.count(",") == 1:
        return (
            f"The guard stops threads that have an element. `{sizes[0].array}.shape` has the rows first: "
            f"compare {compare}."
        )
    axes = "two axes" if moved == 2 else "the axes"
    return f"Your guard exchanges {axes}. Your index is `{element}`: compare {compare}."


def fixed_loop(evidence):
    """Find loops with a fixed number of rounds over an axis of varying size."""
    repairs = repairs_of(evidence)
    loops = [each for each in _loops(repairs, evidence) if _rounds(each.call)] if repairs else []
    found = (
        repairs.replaced([(each.call, (each.call.args[-1], each.size.text)) for each in loops])
        if loops
        else []
    )
    if not found:
        return None
    arrays = {each.call.lineno: (each.size.array, _rounds(each.call)) for each in loops}
    message = _as_many_rounds([arrays[repair.line] for repair in found])
    return Wrong("fixed loop", message, *map(advised, found), evidence.where(first_wrong(evidence)))


def loop_over_another_axis(evidence):
    """Find loops that count along another axis than they index."""
    repairs, parts = repairs_of(evidence), []
    for call, size in _loops(repairs, evidence) if repairs else ():
        counted = _size(call.args[-1], _named_sizes(repairs.tree))
        if counted and len(call.args) == 1 and _differ(counted, size, evidence):
            parts.append((call, (call.args[0], size.text)))
    found = repairs.replaced(parts) if parts else []
    if not found:
        return None
    which = ("Your loop counts", "it indexes") if len(found) == 1 else ("Your loops count", "they index")
    message = f"{which[0]} along another axis than the one that {which[1]}."
    where = evidence.where(first_wrong(evidence))
    return Wrong("loop over another axis", message, *map(advised, found), where)


def _as_many_rounds(loops):
    """Return how many rounds loops have, and on which array they should depend."""
    names, rounds = (dict.fromkeys(each) for each in zip(*loops, strict=True))
    numbers = " and ".join(f"{count} round{'s' * (count > 1)}" for count in rounds)
    loop = "Your loop has" if len(loops) == 1 else "Your loops have"
    return f"{loop} {numbers}, whatever the size of {' and '.join(f'`{name}`' for name in names)}."


def one_too_few(evidence):
    """Find comparisons and loops that leave out the last one, as ``i < out.size - 1`` does."""
    repairs, parts = repairs_of(evidence), []
    for node in ast.walk(repairs.tree) if repairs else ():
        ends = node.args[:2][-1:] if changes.is_range(node) else _upper_ends(node)
        lesser = [end for end in ends if changes.is_one_less(end) and node.lineno == node.end_lineno]
        parts += [(node, (end, ast.unparse(end.left))) for end in lesser]
    found = repairs.replaced(parts) if parts else []
    if not found:
        return None
    message = f"`{found[0].old}` leaves one out: it is right without the `- 1`."
    return Wrong("one too few", message, *map(advised, found), evidence.where(first_wrong(evidence)))


def _upper_ends(node):
    """Return the sides that an index must be below, such as ``n`` in ``i < n`` or ``i >= n``."""
    if not isinstance(node, ast.Compare):
        return []
    pairs = zip(itertools.pairwise([node.left, *node.comparators]), node.ops, strict=True)
    sides = {ast.Lt: 1, ast.GtE: 1, ast.Gt: 0, ast.LtE: 0}
    return [pair[sides[type(sign)]] for pair, sign in pairs if type(sign) in sides]


def caret_for_power(evidence):
    """Find ``n^2`` instead of ``n**2``."""
    repairs = repairs_of(evidence)
    if not repairs:
        return None
    carets = (node for node in ast.walk(repairs.tree) if isinstance(getattr(node, "op", None), ast.BitXor))
    lines = [node.lineno for node in carets]
    source = inspect.getsource(evidence.attempt.py_func) if lines else ""

    def raise_to_power(tree):
        # Replaced in the text: `a // n^2` is `(a // n) ^ 2` in the tree, but should be `a // (n**2)`.
        tree.body = ast.parse(textwrap.dedent(source.replace("^", "**"))).body[0].body

    if not lines or not repairs.helps(raise_to_power):
        return None
    return Wrong(
        "^ for **",
        "In Python `^` is not a power, it compares bits: write `**`.",
        *(f"Line {line} of your kernel: `{repairs.text(line)}`" for line in dict.fromkeys(lines)),
        evidence.where(first_wrong(evidence)),
    )


# --- what the judges share ---------------------------------------------------------------------------------


def repairs_of(evidence):
    """Return the `Repairs` of the attempt; None if it is right, or has no source."""
    wrong = evidence.failed or any(trial.report.findings for trial in evidence.traced)
    if evidence.is_stand_in or not wrong:
        return None
    repairs = Repairs(evidence.attempt, solves(evidence, [trial.case for trial in evidence.trials]))
    return repairs if isinstance(repairs.tree, ast.FunctionDef) else None


def first_wrong(evidence):
    """Return the first trial that is wrong, or has a finding of the sanitizer."""
    return next(trial for trial in evidence.trials if not trial.right or trial.report.findings)


# --- guards ------------------------------------------------------------------------------------------------


class _Size(NamedTuple):
    """The size of an array along an axis, and its text in the kernel."""

    text: str
    array: str
    axis: int


def _guards(tree):
    """Yield the line of each guard with sizes of one array, and (node, index, size) of its comparisons."""
    names = _named_sizes(tree)
    tests = [node for node in ast.walk(tree) if isinstance(node, ast.BoolOp)]
    for test in tests:
        compared = []
        for node in test.values:
            operands = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
            for one, other in itertools.pairwise(operands):
                for index, place in ((one, other), (other, one)):
                    size = _size(place, names)
                    if size and not _size(index, names) and not isinstance(index, ast.Constant):
                        compared.append((place, ast.unparse(index), size))
        if len(compared) > 1 and len({size.array for *_, size in compared}) == 1:
            yield test.lineno, compared


def _named_sizes(tree):
    """Return the names of sizes, as after ``height, width = image.shape``."""
    named = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Attribute) and value.attr == "shape":
            for axis, name in enumerate(target.elts):
                if isinstance(name, ast.Name):
                    named[name.id] = _Size(name.id, ast.unparse(value.value), axis)
        elif isinstance(target, ast.Name) and (size := _size(value, {})):
            named[target.id] = _Size(target.id, size.array, size.axis)
    return named


def _size(node, named):
    """Return the size that an expression denotes, None if it denotes none."""
    if isinstance(node, ast.Name):
        return named.get(node.id)
    is_part = isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)
    if is_part and isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
        return _Size(ast.unparse(node), ast.unparse(node.value.value), node.slice.value)
    return None


def _used_at(tree, indices):
    """Return an element with all these indices, as text, and its indices; None if there is none."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript):
            parts = list(map(ast.unparse, changes.parts_of(node)))
            if len(set(indices)) == len(indices) and set(indices) <= set(parts):
                return ast.unparse(node), parts
    return None


# --- loops -------------------------------------------------------------------------------------------------


class _Loop(NamedTuple):
    """A loop over a range, and the size of the axis that its variable indexes."""

    call: ast.Call
    size: _Size


def _loops(repairs, evidence):
    """Return the loops over a range whose variable indexes an array."""
    names = argument_names(evidence.attempt.py_func, len(evidence.trials[0].case.arguments))
    found = []
    for loop in ast.walk(repairs.tree):
        if not (isinstance(loop, ast.For) and changes.is_range(loop.iter)):
            continue
        subscript, axis = _axis_of(loop, names)
        if subscript is not None:
            array, several = subscript.value.id, len(changes.parts_of(subscript)) > 1
            size = f"{array}.shape[{axis}]" if several else f"{array}.size"
            found.append(_Loop(loop.iter, _Size(size, array, axis)))
    return found


def _differ(one, other, evidence):
    """Return whether two sizes differ in one of the launches."""
    for trial in evidence.trials:
        names = argument_names(evidence.attempt.py_func, len(trial.case.arguments))
        shapes = dict(zip(names, map(np.shape, trial.case.arrays()), strict=True))
        sizes = [shapes.get(size.array, ())[size.axis :][:1] for size in (one, other)]
        if sizes[0] and sizes[1] and sizes[0] != sizes[1]:
            return True
    return False


def _rounds(call):
    """Return the rounds of a loop over ``range(3)`` or ``range(1, 4)``, 0 for other ranges."""
    numbers = [each.value for each in call.args if isinstance(each, ast.Constant)]
    is_plain = len(numbers) == len(call.args) < 3 and all(isinstance(each, int) for each in numbers)
    return len(range(*numbers)) if is_plain else 0


def _axis_of(loop, arrays):
    """Return the first element of an array that a loop's variable indexes, and the axis."""
    for node in ast.walk(loop):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in arrays:
            for axis, part in enumerate(changes.parts_of(node)):
                if ast.unparse(part) == ast.unparse(loop.target):
                    return node, axis
    return None, None
