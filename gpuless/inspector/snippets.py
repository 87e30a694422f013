"""Source code around expressions, as written and with the expressions cast to float32."""

import ast
import itertools
import linecache

_SNIPPETS = (ast.BinOp, ast.Call, ast.Compare, ast.IfExp, ast.stmt)


def around(function, node):
    """Return the smallest piece of code that shows an expression in its context."""
    inside = [
        each
        for each in ast.walk(function)
        if each is not node and isinstance(each, _SNIPPETS) and not isinstance(each, ast.FunctionDef)
        if any(part is node for part in ast.walk(each))
    ]
    return min(inside, key=lambda each: sum(1 for _ in ast.walk(each)), default=node)


def merged(parts):
    """Yield pieces of code that don't overlap, each with a kind and all nodes to change in it."""
    outer = []
    for piece, _, _ in sorted(parts, key=lambda part: -sum(1 for _ in ast.walk(part[0]))):
        if not any(any(each is piece for each in ast.walk(other)) for other in outer):
            outer.append(piece)
    for piece in outer:
        inside = {id(each) for each in ast.walk(piece)}
        mine = [(kind, node) for _, kind, node in parts if id(node) in inside]
        yield piece, mine[0][0], [(node, kind) for kind, node in mine]


def text(function, piece, changes=()):
    """Return a piece of code with some of its expressions cast to float32."""
    lines = [line.encode() for line in linecache.getlines(function.code.co_filename)]
    begins = [0, *itertools.accumulate(map(len, lines))]

    def place(line, column):
        return begins[line - 1] + column

    whole, begin = b"".join(lines), place(piece.lineno, piece.col_offset)
    end = place(piece.end_lineno, piece.end_col_offset)
    written = "float32" if "float32" in function.outside else "np.float32"
    for node, kind in sorted(changes, key=lambda change: -place(change[0].lineno, change[0].col_offset)):
        first, last = place(node.lineno, node.col_offset), place(node.end_lineno, node.end_col_offset)
        new = written if kind == "type" else f"{written}({_short(whole[first:last].decode())})"
        whole, end = whole[:first] + new.encode() + whole[last:], end + len(new) - (last - first)
    return " ".join(whole[begin:end].decode().split())


def _short(text):
    """Return a number without a needless decimal point: 0 for 0.0."""
    try:
        number = float(text)
    except ValueError:
        return text
    return f"{number:g}" if float(f"{number:g}") == number else text
