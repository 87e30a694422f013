"""The files of the repository: the graph of their imports, and what is larger than allowed.

``python tests/house.py`` writes `house.json`, the budget of what is still too large, which may only shrink.
"""

import ast
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("cnn_course", "benchmarks", "cnn_numba", "gpuless")


def files_of(folder):
    """Return the Python files in a folder of the repository, or the one file of that name.

    Without any, a rule about them would hold for nothing.
    """
    path = ROOT / folder
    files = [file for file in sorted([*path.rglob("*.py"), path.with_suffix(".py")]) if file.is_file()]
    assert files, f"{folder} has no Python files: name the folder that it has become"
    return files


def module_of(path):
    """Return the import name of a file of the repository."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree_of(path):
    """Return the parsed file."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def modules():
    """Return the file of each module of the packages."""
    return {module_of(path): path for package in PACKAGES for path in files_of(package)}


def imports_of(path, top=False):
    """Return (module, line) of what a file imports; names imported from a package count as its modules.

    With `top`, only imports at import time: not those in functions or for type checkers.
    """
    nodes = [tree_of(path)]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if "standin" in path.parts and node.level:
                continue  # Python loads it under another name
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
    """Return the files that each module's file imports from the packages, by name of module.

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
    """Return the sets of modules that import each other, directly or through others (Tarjan's algorithm)."""
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


# --- Sizes -------------------------------------------------------------------------------------------------

FILE_LINES, FUNCTION_LINES = 400, 60
#: What ruff counts in a function, with the limits in pyproject.toml.
RULES = "C901,PLR0911,PLR0912,PLR0913,PLR0915"
#: Functions that may have as many parameters as there are options.
MANY_ARGUMENTS = ("__init__", "fit", "train")
BUDGET = Path(__file__).with_name("house.json")
#: Folders without some of their parts, and their maximum number of lines.
FOLDERS = {
    "cnn_numba": ((), 17_000),
    "cnn_numba but beyond and cli": (("beyond", "cli", "cli.py"), 11_000),
    "cnn_numba/train/loop.py": ((), 250),
}


def lines_of(path):
    """Return how many lines a file has."""
    return len(path.read_text(encoding="utf-8").splitlines())


def large_folders():
    """Return the number of excess lines for each of `FOLDERS` that is too large."""
    found = {}
    for name, (left_out, most) in FOLDERS.items():
        folder = name.partition(" ")[0]
        files = [path for path in files_of(folder) if path.relative_to(ROOT).parts[1] not in left_out]
        if (lines := sum(map(lines_of, files))) > most:
            found[name] = lines - most
    return found


def long_files():
    """Return the number of excess lines for each file of the packages that is too long."""
    lines = {str(path.relative_to(ROOT)): lines_of(path) for path in modules().values()}
    return {name: count - FILE_LINES for name, count in lines.items() if count > FILE_LINES}


def is_kernel(node):
    """Return whether a function is compiled, judged by its decorators."""
    return any(re.search("jit|kernel", ast.unparse(decorator)) for decorator in node.decorator_list)


def long_functions():
    """Return the number of excess lines for each function of the packages that is too long, kernels aside."""
    found = {}
    for path in modules().values():
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef) and not is_kernel(node):
                lines = node.end_lineno - node.lineno + 1
                if lines > FUNCTION_LINES:
                    found[f"{path.relative_to(ROOT)}: {node.name}"] = lines - FUNCTION_LINES
    return found


def complex_functions():
    """Return the excess of each function that is over one of ruff's limits; no file is exempt."""
    asked = f"--no-cache --output-format json --ignore-noqa --select {RULES}".split()
    everywhere = "--config", "lint.per-file-ignores={}"
    command = sys.executable, "-m", "ruff", "check", *asked, *everywhere, *PACKAGES
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode in (0, 1), run.stderr
    found = {}
    for each in json.loads(run.stdout):
        path = Path(each["filename"])
        name = function_at(path, each["location"]["row"])
        if each["code"] == "PLR0913" and name in MANY_ARGUMENTS:
            continue
        key = f"{path.relative_to(ROOT)}: {name}: {each['code']}"
        count, most = map(int, re.search(r"\((\d+) > (\d+)\)", each["message"]).groups())
        found[key] = max(found.get(key, 0), count - most)
    return found


def function_at(path, line):
    """Return the name of the function whose `def` is in a line of a file."""
    return next(node.name for node in ast.walk(tree_of(path)) if is_function(node) and node.lineno == line)


MEASURES = {
    "folders": large_folders,
    "files": long_files,
    "functions": long_functions,
    "ruff": complex_functions,
}


def budget():
    """Return the excess that is still allowed, by the names in `MEASURES`."""
    return json.loads(BUDGET.read_text(encoding="utf-8"))


def write_budget():
    """Write what is over a limit now, unless the total grows: code that is too large may move or be split."""
    found = {name: dict(sorted(measure().items())) for name, measure in MEASURES.items()}
    for name, allowed in budget().items():
        now, before = sum(found[name].values()), sum(allowed.values())
        if now > before:
            raise SystemExit(f"{name}: {now} over the limits in all, and the budget is {before}")
    BUDGET.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_budget()
