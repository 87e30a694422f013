"""Judges of sums in a kernel's source, which loops overwrite or reset.

Each reports only a mistake whose repair makes the kernel right (`repairs`).
"""

import ast

from cnn_course.engine.checks import changes
from cnn_course.engine.checks.evidence import Wrong
from cnn_course.engine.checks.repairs import Repair
from cnn_course.engine.checks.sizes import first_wrong, repairs_of
from cnn_course.engine.checks.wording import advised


def overwritten_sum(evidence):
    """Find a sum that a loop overwrites in each round."""
    repairs = repairs_of(evidence)
    for assignment, loops in _assignments(repairs.tree) if repairs else ():
        name, line = assignment.targets[0].id, assignment.lineno
        if _is_zero(assignment.value) or not _starts_before(loops[-1], name, repairs.tree):
            continue
        new = f"{name} += {ast.unparse(assignment.value)}"
        if name not in changes.names(assignment.value) and repairs.helps(changes.replace, line, new):
            message = f"`{name} =` overwrites the sum in each round of the loop: add to it, with `+=`."
            advice = advised(Repair(line, repairs.text(line), new))
            return Wrong("overwritten sum", message, advice, evidence.where(first_wrong(evidence)))
    return None


def sum_set_back(evidence):
    """Find a sum that a loop resets, although it belongs to all rounds."""
    repairs = repairs_of(evidence)
    for assignment, loops in _assignments(repairs.tree) if repairs else ():
        name, line = assignment.targets[0].id, assignment.lineno
        start = "zero" if _is_zero(assignment.value) else f"`{ast.unparse(assignment.value)}`"
        for loop in loops if start == "zero" or _is_added_to(name, loops[0]) else ():
            if repairs.helps(changes.move, line, loop.lineno):
                message = (
                    f"The loop sets `{name}` back to {start} in each round, so only the last one counts: "
                    "move that line out of the loop."
                )
                advice = advised(
                    Repair(loop.lineno, repairs.text(loop.lineno), repairs.text(line), "before it")
                )
                seen = f"Line {line} of your kernel: `{repairs.text(line)}`"
                where = evidence.where(first_wrong(evidence))
                return Wrong("sum set back", message, seen, advice, where)
    return None


def _assignments(tree):
    """Return the assignments to names in loops, each with the loops around it, from the inside out."""
    found = []

    def visit(node, loops):
        for child in ast.iter_child_nodes(node):
            if loops and isinstance(child, ast.Assign) and isinstance(child.targets[0], ast.Name):
                found.append((child, loops))
            visit(child, [child, *loops] if isinstance(child, (ast.For, ast.While)) else loops)

    visit(tree, [])
    return found


def _starts_before(loop, name, tree):
    """Return whether a name is set above a loop."""
    return any(
        isinstance(node, ast.Assign) and name in changes.bound(node) and node.lineno < loop.lineno
        for node in ast.walk(tree)
    )


def _is_added_to(name, loop):
    """Return whether a loop adds to a name by `+=`."""
    steps = (node for node in ast.walk(loop) if isinstance(node, ast.AugAssign))
    return any(ast.unparse(node.target) == name for node in steps)


def _is_zero(node):
    """Return whether an expression is 0, of any type.

    >>> [_is_zero(ast.parse(text, mode="eval").body) for text in ("0", "0.0", "float32(0)", "np.float32(1)")]
    [True, True, True, False]
    """
    if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
        node = node.args[0]
    return isinstance(node, ast.Constant) and node.value == 0 and node.value is not False
