"""Doing something to a module when it is imported, instead of importing it for that; optional packages."""

import importlib.util
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from typing import NamedTuple


def after_import(name, function):
    """Call a function with a module: at once if it is imported already, else as soon as it is.

    Asked for again before that, it is still called once.

    Importing `numba.cuda` takes half a second, so nothing here does it on its own account.

    >>> after_import("sys", lambda module: print(module.__name__))
    sys
    """
    if name in sys.modules:
        function(sys.modules[name])
    elif (finder := _Finder(name, function)) not in sys.meta_path:
        sys.meta_path.insert(0, finder)


def is_awaited(name, function):
    """Return whether a function is to be called when a module is imported."""
    return _Finder(name, function) in sys.meta_path


def is_installed(name):
    """Return whether a package is installed, whatever stands in for it."""
    return PathFinder.find_spec(name) is not None


def optional(name, extra):
    """Return a module that comes with an extra of gpuless; else ModuleNotFoundError, with what to install.

    >>> optional("no_such_package.plots", "pictures")
    Traceback (most recent call last):
        ...
    ModuleNotFoundError: no_such_package is not installed: pip install 'gpuless[pictures]'
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        package = name.partition(".")[0]
        if error.name != package:
            raise
        told = f"{package} is not installed: pip install 'gpuless[{extra}]'"
        raise ModuleNotFoundError(told, name=package) from None


class _Finder(NamedTuple):
    """Finds one module as it would have been found, and sees to it once it is loaded."""

    name: str
    function: Callable

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_call(module):
            execute(module)
            self.function(module)

        spec.loader.exec_module = execute_and_call
        return spec
