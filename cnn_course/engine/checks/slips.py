"""Judges of single words and signs in a kernel's source: ``break`` for ``continue``, ``+`` for ``-``.

Each says something only if the kernel is right once that is changed (`repairs`).
"""

import ast
import copy

from cnn_course.engine.checks import changes
from cnn_course.engine.checks.evidence import Wrong
from cnn_course.engine.checks.repairs import Repair
from cnn_course.engine.checks.sizes import first_wrong, repairs_of
from cnn_course.engine.checks.wording import advised


def break_for_continue(evidence):
    """Find the ``break`` that ends a loop where only a round is to be left out."""
    repairs = repairs_of(evidence)
    breaks = [node for node in ast.walk(repairs.tree) if isinstance(node, ast.Break)] if repairs else []
    for group in [*([each] for each in breaks), breaks][: len(breaks) + (len(breaks) > 1)]:
        if repairs.helps(changes.go_on, group):
            message = "`break` ends the loop. Where only this round is to be left out, write `continue`."
            advice = [advised(Repair(node.lineno, "break", "continue")) for node in group]
            return Wrong("break for continue", message, *advice, evidence.where(first_wrong(evidence)))
    return None


def other_sign(evidence):
    """Find a ``+`` where ``-`` is right, and the other way round."""
    repairs = repairs_of(evidence)
    for node in ast.walk(repairs.tree) if repairs else ():
        is_sum = isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub))
        if is_sum and repairs.helps(changes.turn_sign, node):
            new = copy.deepcopy(node)
            changes.turn_sign(new, node)
            message = f"A sign is wrong: write `{ast.unparse(new)}`."
            line = f"Line {node.lineno} of your kernel: `{repairs.text(node.lineno)}`"
            return Wrong("other sign", message, line, evidence.where(first_wrong(evidence)))
    return None
