"""Find the branches and loops around an instruction, and the returns before it."""

import ast
import functools
import itertools
import linecache

LOOPS = (ast.For, ast.While)


@functools.lru_cache(maxsize=1024)
def _position(code, offset):
    """Return (line, column) of an instruction's begin and end; None if unknown."""
    line, end_line, column, end_column = list(code.co_positions())[offset // 2]
    return None if column is None else ((line, column), (end_line, end_column))


@functools.lru_cache(maxsize=16)
def _parse(text):
    try:
        return ast.parse(text)
    except SyntaxError:  # such as magic commands of a notebook
        return ast.Module([], [])


def syntax(file):
    """Return the syntax tree of a source file; an empty one if it cannot be read."""
    return _parse("".join(linecache.getlines(file)))


def _holds(node, position):
    if not hasattr(node, "lineno"):
        return False
    begin, end = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
    return begin <= position[0] and position[1] <= end


def path(code, offset):
    """Return the nodes around an instruction, from its function inwards; empty without source."""
    return _path(syntax(code.co_filename), code.co_name, _position(code, offset))


# Cached by the tree, not by the code: nodes must be those of the tree that `syntax` returns at the time.
@functools.lru_cache(maxsize=1024)
def _path(tree, function, position):
    node, nodes = tree, []
    while position and node is not None:
        node = next((child for child in ast.iter_child_nodes(node) if _holds(child, position)), None)
        if isinstance(node, ast.FunctionDef):
            nodes = []
        nodes += [node] if node is not None else []
    return nodes if nodes and getattr(nodes[0], "name", None) == function else []


def _arm(node, inner):
    """Return "body" or "else" if `inner` is a part of a node that runs under a condition, else None."""
    if isinstance(node, (ast.If, ast.IfExp)) and inner is not node.test:
        body = node.body if isinstance(node.body, list) else [node.body]
        return "body" if inner in body else "else"
    if isinstance(node, LOOPS) and inner in node.body:
        return "body"
    if isinstance(node, ast.BoolOp) and inner is not node.values[0]:
        return "body"
    return None


def conditions(code, offset):
    """Return each `if` and loop around an instruction, from the outermost inwards; none without source.

    Each comes with the arm that the instruction is in, "body" or "else".
    """
    nodes = path(code, offset)
    return [(node, arm) for node, inner in itertools.pairwise(nodes) if (arm := _arm(node, inner))]


def common_path(*places):
    """Return the function, and each `if` and loop in it that has all the instructions in one arm.

    A place is (code, offset). Empty without source.
    """
    shared = path(*places[0])[:1]
    for levels in zip(*(conditions(*place) for place in places), strict=False):
        if len(set(levels)) > 1:
            break
        shared.append(levels[0][0])
    return shared


def returns_before(code, offset):
    """Return the line of each `return` that a thread can take before an instruction; None without source."""
    nodes = path(code, offset)
    if not nodes:
        return None
    line = _position(code, offset)[0][0]
    # In a loop, code below the instruction runs before its next round.
    loops = [node for node in nodes if isinstance(node, LOOPS)]
    last = max([line, *(node.end_lineno + 1 for node in loops)])
    returns = (node for node in ast.walk(nodes[0]) if isinstance(node, ast.Return))
    return sorted(node.lineno for node in returns if node.lineno < last)
