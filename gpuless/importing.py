"""Call a function when a module is imported; import optional packages."""

import importlib.util
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from typing import NamedTuple


def after_import(name, function):
    """Call a function with a module: now if it has been imported, else as soon as it is.

    Registered twice before that, it is called once. Programs that don't use `numba.cuda` are spared the half
    second that importing it takes.

    >>> after_import("sys", lambda module: print(module.__name__))
    sys
    """
    if name in sys.modules:
        function(sys.modules[name])
    elif (finder := _Finder(name, function)) not in sys.meta_path:
        sys.meta_path.insert(0, finder)


def is_awaited(name, function):
    """Return whether a function will be called when a module is imported."""
    return _Finder(name, function) in sys.meta_path


def is_installed(name):
    """Return whether a package is installed; a stand-in for it doesn't count."""
    return PathFinder.find_spec(name) is not None


def optional(name, extra):
    """Import a module of an extra of gpuless; ModuleNotFoundError names the extra if it isn't installed.

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
        message = f"{package} is not installed: pip install 'gpuless[{extra}]'"
        raise ModuleNotFoundError(message, name=package) from None


class _Finder(NamedTuple):
    """Finds one module as Python would, and calls a function with it once it is loaded."""

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
