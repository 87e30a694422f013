"""Mistakes that the source of an attempt shows."""

import ast
import dis
import inspect
import textwrap

from cnn_course.engine.checks.evidence import Wrong
from cnn_course.engine.checks.uninitialised import code_of


def is_blank(attempt: object) -> bool:
    """Return whether a function's body has at most a docstring, ``...`` or ``pass``.

    Examples
    --------
    >>> def stub(x):
    ...     "Double x."
    ...     ...
    >>> is_blank(stub), is_blank(lambda x: 2 * x)
    (True, False)
    """
    code = code_of(attempt)
    if code is None:
        return False
    ignored = {"RESUME", "NOP", "CACHE"}
    steps = [step for step in dis.get_instructions(code) if step.opname not in ignored]
    return len(steps) <= 2 and all(step.argval is None for step in steps)


def has_dots_left(attempt):
    """Return whether an attempt has a ``...`` left as a statement or a value."""
    tree = parsed(attempt)
    if tree is None:
        return False
    values = (node.value for node in ast.walk(tree) if isinstance(node, (ast.Expr, ast.Assign)))
    return any(isinstance(value, ast.Constant) and value.value is ... for value in values)


def parsed(attempt):
    """Return the syntax tree of a kernel's source, None if there is none."""
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(getattr(attempt, "py_func", attempt))))
    except (OSError, TypeError, SyntaxError):  # no function, no source, or a lambda within an expression
        return None


def is_same_code(attempt, kernel):
    """Return whether two kernels have the same arguments and statements, apart from docstrings."""
    # Byte code would depend on the rest of the cell or the module.
    texts = [_text_of(tree) for tree in map(parsed, (attempt, kernel))]
    return None not in texts and texts[0] == texts[1]


def _text_of(tree):
    """Return a function's arguments and statements in canonical form, None if there is no function."""
    function = (
        next((node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)), None) if tree else None
    )
    if function is None:
        return None
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return [ast.unparse(part) for part in (function.args, *body)]


# --- Judges ------------------------------------------------------------------------------------------------


def bitwise_condition(evidence):
    """Find ``a < b & c < d`` in a condition, which is ``a < (b & c) < d``."""
    for node in _nodes(evidence, ast.Compare):
        for part in (node.left, *node.comparators):
            bitwise = isinstance(part, ast.BinOp) and isinstance(part.op, (ast.BitAnd, ast.BitOr))
            if bitwise and len(node.ops) > 1:
                sign, word = ("&", "and") if isinstance(part.op, ast.BitAnd) else ("|", "or")
                return Wrong(
                    "& for and",
                    f"Write `{word}` between two comparisons: `{sign}` binds tighter than `<`, so "
                    f"`{ast.unparse(part)}` is computed first.",
                    f"Line {node.lineno} of your kernel: `{ast.unparse(node)}`",
                )
    return None


def atomic_assigned(evidence):
    """Find the result of an atomic operation that is stored into its own array."""
    for node in _nodes(evidence, (ast.Assign, ast.AugAssign)):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        for call in ast.walk(node.value):
            name = ast.unparse(call.func) if isinstance(call, ast.Call) else ""
            if not (name.startswith("cuda.atomic.") and isinstance(target, ast.Subscript) and call.args):
                continue
            if ast.unparse(target.value) == ast.unparse(call.args[0]):
                text = ast.unparse(node)
                before, is_last = text.partition(name)[0].rstrip(), text.endswith(ast.unparse(call))
                does = "adds" if name.endswith(".add") else "stores"
                return Wrong(
                    "atomic assigned",
                    f"`{name}(...)` {does} by itself. Let it stand alone on its line"
                    f"{f', without `{before}`' * is_last}.",
                    f"Line {node.lineno} of your kernel: `{text}`",
                )
    return None


def launch_assigned(evidence):
    """Find an assignment of a launch's result, which is None."""
    for node in _nodes(evidence, ast.Assign):
        call, target = node.value, node.targets[0]
        is_launch = isinstance(call, ast.Call) and isinstance(call.func, ast.Subscript)
        if is_launch and isinstance(target, ast.Name):
            kernel = ast.unparse(call.func.value)
            if hasattr(_named(evidence.attempt, kernel), "py_func"):
                return Wrong(
                    "launch assigned",
                    f"A launch returns None: leave out `{target.id} =`. The result is in the array that you "
                    "passed.",
                    f"Line {node.lineno} of your function: `{ast.unparse(node)}`",
                )
    return None


def _named(function, name):
    """Return the value of a name in a function; None if unknown."""
    outside = inspect.getclosurevars(function) if inspect.isfunction(function) else None
    return {**outside.globals, **outside.nonlocals}.get(name) if outside else None


_TO_BE_CALLED = ("cuda.sync", "cuda.threadfence")


def uncalled(evidence):
    """Find a statement that names a barrier or a fence without calling it."""
    for node in _nodes(evidence, ast.Expr):
        name = ast.unparse(node.value) if isinstance(node.value, ast.Attribute) else ""
        # Not `cuda.threadIdx.x`, which cannot be called.
        if (name.startswith(_TO_BE_CALLED) and name.count(".") == 1) or name.endswith(".sync"):
            return Wrong(
                "not called",
                f"You name `{name}`, but do not call it: write `{name}()`.",
                f"Line {node.lineno} of your kernel: `{name}`",
            )
    return None


def _nodes(evidence, kind):
    """Return the nodes of a kind in the attempt's source, none if it has no source."""
    tree = None if evidence.is_stand_in else parsed(evidence.attempt)
    return [node for node in ast.walk(tree) if isinstance(node, kind)] if tree else []
