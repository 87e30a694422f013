"""The files of the repository and what they import, as a graph."""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("cnn_course", "benchmarks", "cnn_numba", "gpuless")


def files_of(folder):
    """Return the Python files in a folder of the repository, or the file that it is."""
    path = ROOT / folder
    return sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]


def module_of(path):
    """Return the name that a file of the repository is imported by."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree_of(path):
    """Return a file as Python parses it."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def modules():
    """Return the file of each module of the packages."""
    return {module_of(path): path for package in PACKAGES for path in files_of(package)}


def imports_of(path, top=False):
    """Return (module, line) of what a file imports; names imported from a package count as its modules.

    With `top`, only what it imports when it is imported itself: not in a function, nor for type checkers.
    """
    nodes = [tree_of(path)]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}, line {node.lineno}: a relative import"
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)
        elif top and (is_function(node) or is_for_type_checkers(node)):
            continue
        nodes.extend(ast.iter_child_nodes(node))


def is_function(node):
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)


def is_for_type_checkers(node):
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def arrows(top=False):
    """Return which files each module's file imports from the packages, by name of module.

    A name that is imported from a module is that module's own, unless it is a module itself.
    """
    known = modules()
    graph = {}
    for module, path in known.items():
        found = set()
        for name, _ in imports_of(path, top):
            while name and name not in known:
                name = name.rpartition(".")[0]
            found.add(name)
        graph[module] = found - {"", module}
    return graph


def circles(graph):
    """Return the sets of modules that import each other, directly or by way of others (Tarjan's algorithm)."""
    order, low, stack, found = {}, {}, [], []

    def visit(module):
        order[module] = low[module] = len(order)
        stack.append(module)
        for other in sorted(graph[module]):
            if other not in order:
                visit(other)
            if other in stack:
                low[module] = min(low[module], low[other])
        if low[module] == order[module]:
            members = set(stack[stack.index(module) :])
            del stack[stack.index(module) :]
            if len(members) > 1:
                found.append(frozenset(members))

    for module in graph:
        if module not in order:
            visit(module)
    return found
