"""Pages of the API reference, from the sources: nothing of the packages is imported."""

import ast
import re
from functools import cache
from pathlib import Path
from textwrap import indent
from typing import NamedTuple

from sphinx.ext.napoleon import Config, NumpyDocstring
from sphinx.pycode import ModuleAnalyzer

ROOT = Path(__file__).parents[2]
PACKAGES = "cnn_numba", "cnn_course", "gpuless"
#: Their words are for the command line, which shows them.
COMMANDS = "cnn_numba.cli", "cnn_numba.__main__", "gpuless.__main__"
#: The backends of an operation, in the order in which they are read.
BACKENDS = "reference", "cpu", "gpu"

_NAPOLEON = Config(napoleon_numpy_docstring=True, napoleon_use_rtype=False)
_CONSTANT = re.compile(r"((?:^#: .*\n)+)(?P<name>[A-Za-z]\w*)(?:: [^=\n]+)? = ", re.MULTILINE)
#: A comment on what is not a constant of the module: it is indented, or behind a statement.
_INSIDE = re.compile(r"^.+#: ", re.MULTILINE)


class Module(NamedTuple):
    """A module of one of the packages."""

    name: str
    path: Path

    @property
    def package(self):
        """The package that its page is about."""
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]

    @property
    def tree(self):
        """Its syntax tree."""
        return ast.parse(self.path.read_text(encoding="utf-8"))


@cache
def modules():
    """Return all public modules, in the order of their names."""
    found = []
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if not any(part.startswith("_") for part in parts if part != "__init__"):
            found.append(Module(".".join(part for part in parts if part != "__init__"), path))
    return sorted((module for module in found if not module.name.startswith(COMMANDS)), key=_place)


def _place(module):
    """Return what modules are sorted by: packages; in an operation the backends first, its checks last."""
    last = module.name.rpartition(".")[2]
    order = [*BACKENDS, "other", "checks"]
    first = "" if module.name == module.package else order[order.index(last) if last in order else 3]
    return module.package, first != "", order.index(first) if first else 0, module.name


def _definitions(tree):
    """Yield the public functions and classes of a module or class that say what they are."""
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            public = not node.name.startswith("_") or node.name == "__call__"
            if public and ast.get_docstring(node) and not _is_setter(node):
                yield node


def _is_setter(node):
    return any(
        isinstance(decorator, ast.Attribute) and decorator.attr == "setter"
        for decorator in node.decorator_list
    )


def pages():
    """Return the reference: the name of each page, and its text in reStructuredText."""
    packages = {}
    for module in modules():
        packages.setdefault(module.package, []).append(module)
    texts = {package: _page(package, members) for package, members in packages.items()}
    return texts | {"operations": _operations(packages)}


def _page(package, members):
    lines = [package, "=" * len(package), ""]
    for module in members:
        if module.name != package:
            lines += [module.name, "-" * len(module.name), ""]
        tree = module.tree
        lines += [f".. py:module:: {module.name}", "", *_docstring(tree), ""]
        lines += [*_constants(module), *_declarations(tree)]
        attributes = _attributes(module, tree)
        for node in _definitions(tree):
            lines += _described(node, attributes=attributes)
    return "\n".join(lines) + "\n"


def _constants(module):
    for match in _CONSTANT.finditer(module.path.read_text(encoding="utf-8")):
        yield f".. py:data:: {match['name']}"
        yield ""
        yield indent(re.sub(r"^#: ", "", match[1], flags=re.MULTILINE), "   ")


def _attributes(module, tree):
    """Return what comments and strings say of the attributes of classes, by class and name.

    Searching takes long, so a module without any is left out.
    """
    classes = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    strings = any(isinstance(statement, ast.Expr) for node in classes for statement in node.body[1:])
    if not strings and not _INSIDE.search(module.path.read_text(encoding="utf-8")):
        return {}
    return _analysed(module.path, module.name).find_attr_docs()


def _declarations(tree):
    """Yield what is declared of the arguments of an operation."""
    for node in tree.body:
        match node:
            case ast.Assign([ast.Name(name)], ast.Call(ast.Name("Spec"), [ast.Constant(text), *_])):
                yield from (f".. py:data:: {name}", "", f"   ``{text}``", "")


def _described(node, kind=None, attributes=()):
    """Return the lines about a function or class, with those of its attributes and methods below it."""
    if isinstance(node, ast.ClassDef):
        lines = [f".. py:class:: {node.name}{_constructor(node)}", "", *_docstring(node, "   "), ""]
        for (owner, name), about in dict(attributes).items():
            if owner == node.name:
                lines += [f"   .. py:attribute:: {name}", "", indent(" ".join(about), "      "), ""]
        for inner in _definitions(node):
            lines += [indent(line, "   ") for line in _described(inner, _kind(inner))]
        return lines
    signature = "" if kind == "property" else _signature(node, kind in ("method", "classmethod"))
    option = {"staticmethod": "   :staticmethod:", "classmethod": "   :classmethod:"}.get(kind)
    directive = {None: "function", "property": "property"}.get(kind, "method")
    head = [f".. py:{directive}:: {node.name}{signature}", *([option] if option else [])]
    return [*head, "", *_docstring(node, "   "), ""]


def _kind(node):
    """Return what a function in a class is: a property, a method, or one of the class."""
    names = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
    if "property" in names or "cached_property" in names:
        return "property"
    return next((name for name in ("classmethod", "staticmethod") if name in names), "method")


def _constructor(node):
    methods = {inner.name: inner for inner in node.body if isinstance(inner, ast.FunctionDef)}
    if "__init__" in methods:
        return _signature(methods["__init__"], bound=True, returns=False)
    fields = [inner for inner in node.body if isinstance(inner, ast.AnnAssign) and inner.simple]
    named = [_field(inner) for inner in fields if not inner.target.id.startswith("_")]
    return f"({', '.join(named)})" if named else ""


def _field(node):
    """Return a field of a class as an argument of its constructor."""
    if isinstance(node.value, ast.Call):
        node.value = ast.Constant(...)  # computed
    return ast.unparse(node).replace("\n", " ")


def _signature(node, bound=False, returns=True):
    arguments = node.args
    if bound and arguments.args:
        arguments.args = arguments.args[1:]
    result = f" -> {ast.unparse(node.returns)}" if returns and node.returns else ""
    return f"({ast.unparse(arguments)}){result}"


def _docstring(node, margin=""):
    text = ast.get_docstring(node) or ""
    converted = str(NumpyDocstring(text, _NAPOLEON))
    return [indent(converted, margin)]


def _operations(packages):
    """Return the page of the operations: a table with a row for each, and a column for each backend."""
    title = "The operations"
    head = ["operation", *(f"``{backend}``" for backend in BACKENDS), "GPU kernels"]
    rows = [head]
    for package in sorted(packages, key=lambda name: name.rpartition(".")[2]):
        names = {module.name.rpartition(".")[2] for module in packages[package]}
        if "reference" not in names:
            continue
        backends = [f":py:mod:`{backend} <{package}.{backend}>`" for backend in BACKENDS]
        rungs = sorted(name for name in names if name.startswith("gpu_"))
        rows.append(
            [
                f":doc:`{package.rpartition('.')[2]} <{package}>`",
                *backends,
                ", ".join(f":py:mod:`{rung} <{package}.{rung}>`" for rung in rungs),
            ]
        )
    table = [".. list-table::", "   :header-rows: 1", ""]
    for row in rows:
        table += [
            f"   {'*' if first else ' '} - {cell}"
            for first, cell in zip([True] + [False] * 4, row, strict=True)
        ]
    about = (
        "A function has the same name and the same arguments in every backend. Its contract stands in "
        "``reference``: shapes, dtypes, formula, errors. The others say what differs. A function of one "
        "backend only has its contract there."
    )
    return "\n".join([title, "=" * len(title), "", about, "", *table, ""])


@cache
def source_of(name):
    """Return a module's source and where its objects stand in it, for Sphinx's pages of sources."""
    path = next((module.path for module in modules() if module.name == name), None)
    if path is None:
        return None
    return path.read_text(encoding="utf-8"), _analysed(path, name).find_tags()


def _analysed(path, name):
    return ModuleAnalyzer.for_string(path.read_text(encoding="utf-8"), name)
