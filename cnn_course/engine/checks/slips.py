"""Judges of single words and signs in a kernel's source: ``break`` for ``continue``, ``+`` for ``-``.

Each reports only a mistake whose repair makes the kernel right (`repairs`).
"""

import ast
import copy

from cnn_course.engine.checks import changes
from cnn_course.engine.checks.evidence import Wrong
from cnn_course.engine.checks.repairs import Repair
from cnn_course.engine.checks.sizes import first_wrong, repairs_of
from cnn_course.engine.checks.wording import advised


def break_for_continue(evidence):
    """Find the ``break`` that ends a ``for`` loop instead of one round."""
    repairs = repairs_of(evidence)
    found = repairs.fewest(changes.go_on, _breaks_of_for(repairs.tree)) if repairs else []
    if not found:
        return None
    message = "`break` ends the loop. To skip only this round, write `continue`."
    advice = [advised(Repair(node.lineno, "break", "continue")) for node in found]
    return Wrong("break for continue", message, *advice, evidence.where(first_wrong(evidence)))


def _breaks_of_for(tree):
    """Return each ``break`` of a ``for`` loop; without its ``break``, a ``while`` loop might not end."""
    breaks, loops = [], [(tree, None)]
    while loops:
        node, loop = loops.pop()
        if isinstance(node, ast.Break) and isinstance(loop, ast.For):
            breaks.append(node)
        inner = node if isinstance(node, (ast.For, ast.While)) else loop
        loops += [(child, inner) for child in ast.iter_child_nodes(node)]
    return sorted(breaks, key=lambda node: node.lineno)


def other_sign(evidence):
    """Find a ``+`` instead of ``-``, or the other way round."""
    repairs = repairs_of(evidence)
    for node in _sums(repairs.tree) if repairs else ():
        if repairs.helps(changes.turn_sign, node):
            new = copy.deepcopy(node)
            changes.turn_sign(new, node)
            advice = advised(Repair(node.lineno, ast.unparse(node), ast.unparse(new)))
            return Wrong("other sign", "A sign is wrong.", advice, evidence.where(first_wrong(evidence)))
    return None


def _sums(tree):
    """Return the sums and differences, except those that the end of a ``while`` loop depends on."""
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.While)]
    awaited = {name for loop in loops for name in changes.names(loop.test)}
    steps = [
        node for node in ast.walk(tree) if isinstance(node, ast.Assign) and changes.bound(node) & awaited
    ]
    left_out = {part for step in steps for part in ast.walk(step)}
    sums = (node for node in ast.walk(tree) if isinstance(node, ast.BinOp) and node not in left_out)
    return [node for node in sums if isinstance(node.op, (ast.Add, ast.Sub))]
