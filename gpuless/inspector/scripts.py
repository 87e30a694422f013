"""Import a module for its kernels, without running its launches.

A script that defines and launches kernels would otherwise have to run to its end. Here launches do nothing,
and statements that fail without their results, such as an `assert`, or without a GPU are skipped.
"""

import ast
import importlib.util
import io
import os
import sys
import traceback
import warnings
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from gpuless.frontends import kernel_types


def load(place):
    """Import a module without its launches, or return it if it is already imported.

    `place` is a module's name, or the path of a file, which can then import its neighbours, as if Python ran
    it. Returns the module and a description of the first skipped failure, "" if there is none. Raises
    ValueError if there is no such module, or for any other failure.

    >>> load("no_such_folder/my_kernels.py")
    Traceback (most recent call last):
        ...
    ValueError: there is no file no_such_folder/my_kernels.py
    """
    file = _file(place)
    if place in sys.modules:
        return sys.modules[place], ""
    with _without_launches() as skipped:
        spec = None
        try:
            spec = _spec_of_file(file) if file else _spec(place)
            if spec.name in sys.modules:
                return sys.modules[spec.name], ""
            return _load(spec, skipped)
        except Exception as error:
            fault = _described(error, spec and spec.origin)
            raise ValueError(f"{place} cannot be imported: {fault}") from None


def _file(place):
    """Return the file of a path, with or without its ".py"; None for a module's name."""
    if not (place.endswith(".py") or set(place) & {"/", os.sep}):
        return None
    path = Path(place if place.endswith(".py") else f"{place}.py").expanduser().resolve()
    if not path.is_file():
        raise ValueError(f"there is no file {place}")
    return path


def _spec(name):
    spec = importlib.util.find_spec(name)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {name!r}")
    return spec


def _spec_of_file(file):
    """Return the spec of a file, with the module name that makes its relative imports work."""
    name, folder = file.stem.replace(".", "_"), file.parent
    while (folder / "__init__.py").exists():
        name, folder = f"{folder.name}.{name}", folder.parent
    sys.path.insert(0, str(folder))
    spec = importlib.util.find_spec(name)
    if spec and spec.origin and Path(spec.origin).resolve() == file:
        return spec
    # Another module has this name: Python's, or another folder's.
    while name in sys.modules:
        name += "_"
    return importlib.util.spec_from_file_location(name, file)


def _load(spec, skipped):
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    complete = False
    try:
        # Without the launches, the results that it prints are wrong.
        with redirect_stdout(io.StringIO()), warnings.catch_warnings(action="ignore"):
            faults = _execute(module, spec, skipped)
        complete = not skipped and not faults
    finally:
        if not complete:
            sys.modules.pop(spec.name, None)  # later imports get the module with its launches
    fault = _described(faults[0], spec.origin) if faults else ""
    return module, f"without its launches, {fault}" if fault and skipped else fault


def _execute(module, spec, skipped):
    """Run a module statement by statement; return the exceptions that were skipped."""
    if not (spec.origin or "").endswith(".py"):
        spec.loader.exec_module(module)
        return []
    tree = ast.parse(Path(spec.origin).read_bytes(), spec.origin)
    futures = [node for node in tree.body if getattr(node, "module", None) == "__future__"]
    faults = []
    with _arguments(spec.origin):
        for statement in tree.body:
            part = ast.Module([*futures, statement], [])
            try:
                exec(compile(part, spec.origin, "exec", dont_inherit=True), vars(module))
            except SystemExit as error:
                return [*faults, error]
            except Exception as error:
                if not (skipped or faults or _names_cuda(statement)):
                    raise
                faults.append(error)
    return faults


def _names_cuda(statement):
    nodes = ast.walk(statement)
    return any("cuda" in (getattr(node, "id", None), getattr(node, "attr", None)) for node in nodes)


@contextmanager
def _without_launches():
    """Let launches do nothing; yield a list to which their kernels are appended."""
    skipped, before = [], []

    def configured(kernel, *configuration, **options):
        return lambda *arguments: skipped.append(kernel)

    for kernels in kernel_types():
        for name in ("__getitem__", "configure", "forall"):
            if hasattr(kernels, name):
                before.append((kernels, name, getattr(kernels, name)))
                setattr(kernels, name, configured)
    try:
        yield skipped
    finally:
        for kernels, name, method in before:
            setattr(kernels, name, method)


@contextmanager
def _arguments(file):
    """Let a script see a command line without arguments."""
    ours, sys.argv = sys.argv, [file]
    try:
        yield
    finally:
        sys.argv = ours


def _described(error, file):
    """Return an exception as text, with the line of the file where it occurred."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    kind = "" if isinstance(error, ImportError) else type(error).__name__
    text = ": ".join(filter(None, [kind, str(error)]))
    return f"line {lines[-1]}: {text}" if lines else text
