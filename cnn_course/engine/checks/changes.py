"""Changes of a kernel's syntax tree that may repair it, and look-ups in the tree."""

import ast

# --- statements --------------------------------------------------------------------------------------------


def guard(tree, line, where, conditions):
    """Put an `if` around the statement on a line, or around it and those below it in its block."""
    block = block_of(tree, line)
    first = next(k for k, each in enumerate(block) if each.lineno <= line <= each.end_lineno)
    last = first + 1 if where == "around it" else len(block)
    test = ast.parse(" and ".join(conditions), mode="eval").body
    block[first:last] = [ast.If(test, block[first:last], [])]


def replace(tree, line, text):
    """Replace the statement on a line."""
    block = block_of(tree, line)
    block[block.index(statement_of(tree, line))] = ast.parse(text).body[0]


def move(tree, line, before):
    """Move the statement on a line before the one on another line."""
    block = block_of(tree, line)
    statement = statement_of(tree, line)
    block.remove(statement)
    block_of(tree, before).insert(block_of(tree, before).index(statement_of(tree, before)), statement)


def wait(tree, lines, barrier):
    """Insert a barrier before the statements on some lines."""
    for line in sorted(lines, reverse=True):
        block = block_of(tree, line)
        place = next(k for k, each in enumerate(block) if each.lineno == line)
        block.insert(place, ast.parse(barrier).body[0])


# --- within them -------------------------------------------------------------------------------------------


def exchange(tree, line, old, new):
    """Replace an array's index on one line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and node.lineno == line and ast.unparse(node) == old:
            node.slice = ast.parse(new, mode="eval").body.slice


#: Comparisons and their stricter forms: of a condition to go on (`<=`), and of one to stop (`>`).
STRICTER = {ast.LtE: (ast.Lt, "<=", "<"), ast.Gt: (ast.GtE, ">", ">=")}


def tighten(tree, loose):
    """Make comparisons stricter: each is a node, and the index of the operator in it."""
    for comparison, k in loose:
        twin = _twin(tree, comparison)
        twin.ops[k] = STRICTER[type(twin.ops[k])][0]()


def go_on(tree, breaks):
    """Replace `break` by `continue`."""
    for node in breaks:
        _twin(tree, node).__class__ = ast.Continue


def turn_sign(tree, node):
    """Subtract what is added, or add what is subtracted."""
    _twin(tree, node).op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()


def put(tree, places):
    """Replace expressions: each is a node, and the new text."""
    new = {_key(node): ast.parse(text, mode="eval").body for node, text in places}

    class Put(ast.NodeTransformer):
        def visit(self, node):
            return new.get(_key(node)) or self.generic_visit(node)

    Put().visit(tree)


def _twin(tree, node):
    """Return the node in a copy of a tree that corresponds to a node of the tree."""
    return next(each for each in ast.walk(tree) if _key(each) == _key(node))


def _key(node):
    return type(node), *(getattr(node, name, None) for name in ("lineno", "col_offset", "end_col_offset"))


def one_less(node):
    """Return the text of an expression minus one: without its `+ 1` if it has one.

    >>> [one_less(ast.parse(text, mode="eval").body) for text in ("n + 1", "1 + n", "n + 1 - d", "n - d")]
    ['n', 'n', 'n - d', 'n - d - 1']
    """
    fewer = _without_one(node)
    return f"{ast.unparse(node)} - 1" if fewer is None else ast.unparse(fewer)


def is_one_less(node):
    """Return whether an expression subtracts one, such as ``n - 1``."""
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and _is_one(node.right)


def _without_one(node):
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub))):
        return None
    if isinstance(node.op, ast.Add) and _is_one(node.right):
        return node.left
    if isinstance(node.op, ast.Add) and _is_one(node.left):
        return node.right
    left = _without_one(node.left)
    return None if left is None else ast.BinOp(left, node.op, node.right)


def _is_one(node):
    return isinstance(node, ast.Constant) and node.value == 1


# --- look-ups ----------------------------------------------------------------------------------------------


def distance(gap, lines):
    """Return the distance from a line to the nearest of some lines."""
    return min((abs(gap - line) for line in lines), default=0)


def blocks_around(tree, line):
    """Return the lists of statements that contain a line, from the function's body inwards."""
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


def block_of(tree, line):
    """Return the innermost list of statements that contains a line."""
    return blocks_around(tree, line)[-1]


def statement_of(tree, line):
    """Return the innermost statement that contains a line."""
    return next(each for each in block_of(tree, line) if each.lineno <= line <= each.end_lineno)


def is_comment(statement):
    """Return whether a statement is only a constant, such as a docstring."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def names(tree, *contexts):
    """Return the names in a tree, only those with some contexts if these are given."""
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    return {node.id for node in nodes if isinstance(node.ctx, contexts or ast.expr_context)}


def bound(statement):
    """Return the names that a statement binds."""
    return names(statement, ast.Store)


def parts_of(subscript):
    """Return the indices of a subscript as a list."""
    index = subscript.slice
    return index.elts if isinstance(index, ast.Tuple) else [index]


def called(node):
    """Return the name that a node calls, such as "cuda.grid"; "" if it calls none."""
    is_named = isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute))
    return ast.unparse(node.func) if is_named else ""


def is_range(node):
    """Return whether a node is a call of `range` on one line."""
    return called(node) == "range" and bool(node.args) and node.lineno == node.end_lineno


def atomic_call(statement, array):
    """Return the atomic call that is equivalent to ``a[i] += v`` and the like; None for other statements."""
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
    return f"cuda.atomic.add({array}, {index}, {ast.unparse(values[0])})"
