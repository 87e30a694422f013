"""Explains an exception that ended a launch by its line of the source."""

import ast

import numpy as np

from cnn_course.engine.checks import changes
from cnn_course.engine.checks.repairs import Repairs, solves
from cnn_course.engine.checks.source import parsed
from cnn_course.engine.checks.wording import own_line, too_few_indices
from gpuless.simulator import UnsupportedPython, argument_names


def explained_by_source(evidence, trial):
    """Explain an exception with the attempt's names; return "" if the source does not explain it."""
    attempt, error = evidence.attempt, trial.got.error
    tree = parsed(attempt)
    if tree is None:
        return ""
    if said := _grid_of_other_axes(tree, trial.case, error):
        return said
    line = _line_of(attempt, error)
    if line is None:
        return ""
    arguments = trial.case.arguments
    arrays = dict(zip(argument_names(attempt.py_func, len(arguments)), trial.case.arrays(), strict=True))
    arrays = {name: array for name, array in arrays.items() if isinstance(array, np.ndarray)}
    nodes = [node for node in ast.walk(tree) if getattr(node, "lineno", 0) == line]
    return (
        _no_array_for_an_atomic(evidence, nodes, arrays, error)
        or _value_before_index(evidence, nodes, error)
        or _missing_indices(nodes, arrays, error)
        or _missing_indices(_given_names(nodes, tree), arrays, error)
        or _missing_in_atomic(nodes, tree, arrays, error)
        or _whole_arrays(nodes, arrays, error)
    )


def _line_of(attempt, error):
    """Return the line that raised an exception, counted from the kernel's first; None if unknown."""
    where = getattr(error, "where", None) or getattr(getattr(error, "place", None), "site", None)
    return own_line(attempt, where) if where else None


# --- arrays ------------------------------------------------------------------------------------------------


def _is_of_an_index(error):
    cause = getattr(error, "cause", None)
    is_sequence = cause is not None and cause.kind == "sequence"
    return isinstance(error, IndexError) or is_sequence or getattr(error, "whole_array", False)


def _missing_indices(nodes, arrays, error):
    """Name an array that has more or fewer axes than indices, on the line that raised an exception."""
    if not _is_of_an_index(error):
        return ""
    is_of_a_value = isinstance(error, UnsupportedPython)
    changed = [node.target for node in nodes if isinstance(node, ast.AugAssign)]
    for node in nodes:
        if not (isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name)):
            continue
        if is_of_a_value and not isinstance(node.ctx, ast.Load) and node not in changed:
            continue
        axes, given = np.ndim(arrays.get(node.value.id, 0)), len(changes.parts_of(node))
        has_slices = any(isinstance(part, ast.Slice) for part in ast.walk(node.slice))
        if (
            given != axes
            and (given < axes or node.value.id in arrays)
            and not has_slices
            and "..." not in ast.unparse(node.slice)
        ):
            return too_few_indices(node.value.id, axes, given)
    return ""


def _missing_in_atomic(nodes, tree, arrays, error):
    """Say the same of the array of an atomic operation."""
    calls = [node for node in nodes if changes.called(node).startswith("cuda.atomic.") and len(node.args) > 2]
    for call in calls if _is_of_an_index(error) else ():
        array, index = ast.unparse(call.args[0]), call.args[1]
        given = _given_names([index], tree) or [index]
        counts = {len(each.elts) if isinstance(each, ast.Tuple) else 1 for each in given}
        axes = np.ndim(arrays.get(array, 0))
        if not any(isinstance(each, ast.Call) for each in given) and max(counts) < axes:
            return too_few_indices(array, axes, max(counts))
    return ""


def _given_names(nodes, tree):
    """Return the expressions that are assigned to the names used on a line."""
    used = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    given = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and used & changes.bound(node):
            target, value = node.targets[0], node.value
            several = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
            pairs = zip(target.elts, value.elts, strict=False) if several else [(target, value)]
            given += [part for name, part in pairs if used & changes.names(name, ast.Store)]
    return given


def _whole_arrays(nodes, arrays, error):
    """Name the whole arrays that need the index of the assigned element."""
    targets = [node.targets[0] for node in nodes if isinstance(node, ast.Assign)]
    targets += [node.target for node in nodes if isinstance(node, ast.AugAssign)]
    elements = [target for target in targets if isinstance(target, ast.Subscript)]
    if not getattr(error, "whole_array", False) or not elements:
        return ""
    parts = changes.parts_of(elements[0])
    if any(isinstance(part, (ast.Slice, ast.Constant)) for part in parts):
        return ""
    operands = [side for node in nodes if isinstance(node, ast.BinOp) for side in (node.left, node.right)]
    names = {
        node.id: node.col_offset
        for node in operands
        if isinstance(node, ast.Name) and np.ndim(arrays.get(node.id, 0)) == len(parts)
    }
    index = ", ".join(map(ast.unparse, parts))
    written = [f"`{name}[{index}]`" for name in sorted(names, key=names.get)]
    return f"A thread computes with single elements: write {' and '.join(written)}." if written else ""


def _no_array_for_an_atomic(evidence, nodes, arrays, error):
    """Say that the first argument of an atomic operation must be the array."""
    cause = getattr(error, "cause", None)
    if cause is None or cause.kind != "no array":
        return ""
    calls = [node for node in nodes if changes.called(node) == cause.name and node.args]
    orders = [(call, arguments) for call in calls for arguments in _orders(call, arrays)]
    helping = next(filter(None, (_tried(evidence, *each) for each in orders)), "")
    advice = f": write `{helping}`" * bool(helping)
    return f"The first argument of `{cause.name}` is the array itself{advice}."


def _value_before_index(evidence, nodes, error):
    """Say that the index of an atomic operation comes before the value."""
    for call in nodes if isinstance(error, IndexError) else ():
        if changes.called(call).startswith("cuda.atomic.") and len(call.args) == 3:
            array, value, index = call.args
            if helping := _tried(evidence, call, [array, index, value]):
                return f"The index comes before the value: write `{helping}`."
    return ""


def _orders(call, arrays):
    """Yield possible orders of an atomic operation's arguments, with an array first."""
    first, *others = call.args
    if isinstance(first, ast.Subscript):
        yield [first.value, *others]
        yield [first.value, first.slice, *others[-1:]]
    for place, node in enumerate(call.args):
        if isinstance(node, ast.Name) and node.id in arrays:
            rest = [*call.args[:place], *call.args[place + 1 :]]
            yield [node, *rest]
            yield [node, *reversed(rest)]


def _tried(evidence, call, arguments):
    """Return a call with other arguments as text, if it makes the kernel right; else an empty string."""
    text = f"{ast.unparse(call.func)}({', '.join(map(ast.unparse, arguments))})"
    repairs = Repairs(evidence.attempt, solves(evidence, evidence.exercise.inputs()))
    return text if repairs.helps(changes.put, [(call, text)]) else ""


# --- the grid ----------------------------------------------------------------------------------------------

_NUMBERS = {1: "one number", 2: "two numbers", 3: "three numbers"}


def _grid_of_other_axes(tree, case, error):
    """Say that `cuda.grid` returns another number of values than the kernel has names."""
    if not isinstance(error, (TypeError, ValueError)):
        return ""
    for node in ast.walk(tree):
        for call in filter(_is_grid, ast.iter_child_nodes(node)):
            axes, names = call.args[0].value, _names_for(node, tree)
            if names and axes != len(names):
                return _other_axes(axes, names, case)
    return ""


def _is_grid(node):
    is_call = changes.called(node) == "cuda.grid" and len(node.args) == 1
    return is_call and isinstance(node.args[0], ast.Constant) and node.args[0].value in _NUMBERS


def _names_for(node, tree):
    """Return the names for a grid's numbers, [""] if an expression needs one number, [] if unclear."""
    if isinstance(node, (ast.BinOp, ast.Compare)) or changes.called(node) == "range":
        return [""]
    if not isinstance(node, ast.Assign):
        return []
    target = node.targets[0]
    if isinstance(target, ast.Tuple):
        return list(map(ast.unparse, target.elts))
    parted = (each for each in ast.walk(tree) if isinstance(each, (ast.Subscript, ast.Starred, ast.Assign)))
    is_parted = any(ast.unparse(each.value) == ast.unparse(target) for each in parted)
    return [] if is_parted else [ast.unparse(target)]


def _other_axes(axes, names, case):
    """Return how many numbers the grid has, and what to write."""
    written = f"{', '.join(names)} = cuda.grid({len(names)})" if names[0] else "cuda.grid(1)"
    gives = f"`cuda.grid({axes})` gives {_NUMBERS[axes]}"
    if len(names) > 1:
        return f"{gives}, and you give {len(names)} names: write `{written}`."
    sizes = [size for size in (case.grid, case.block) if isinstance(size, tuple)]
    if max(map(len, sizes), default=1) == 1:
        return f"{gives}. This grid has one axis: {'' if names[0] else 'write '}`{written}`."
    return f"{gives}. Give each its own name, as in `x, y = cuda.grid(2)`."
