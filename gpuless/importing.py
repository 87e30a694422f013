"""Doing something to a module when somebody imports it, instead of importing it for that."""

import importlib.util
import sys
from collections.abc import Callable
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
