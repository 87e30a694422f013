"""What extends a compiler, for modules that do so and whose kernels run in the simulator.

Machine code that somebody writes cannot be stepped; what says in Python what a function does can.
"""

import functools

from gpuless.simulator.errors import UnsupportedPython
from gpuless.simulator.host_jit import HostFunction

__all__ = [
    *("as_numba_type", "box", "infer", "infer_getattr", "intrinsic", "lower_builtin", "lower_cast"),
    *("lower_getattr", "lower_getattr_generic", "lower_setattr", "lower_setattr_generic"),
    *("make_attribute_wrapper", "models", "overload", "overload_attribute", "overload_classmethod"),
    *("overload_method", "register_jitable", "register_model", "type_callable", "typeof_impl", "unbox"),
]


class Intrinsic:
    """A function that makes machine code; in a kernel its `py_func` runs, where it is given one."""

    def __init__(self, function):
        functools.update_wrapper(self, function)
        del self.__wrapped__

    def __call__(self, *arguments):
        raise UnsupportedPython(
            "makes machine code, which the simulator does not run: its py_func may be a Python function that "
            "does the same",
            self.__name__,
        )


def intrinsic(func=None, **options):
    """Return a function that kernels call and that makes machine code."""
    return Intrinsic if func is None else Intrinsic(func)


def register_jitable(function=None, **options):
    """Return a function that the host calls as Python, and kernels as one of theirs."""
    return register_jitable if function is None else HostFunction(function, options)


def _registered(*arguments, **options):
    """Return a decorator that leaves a function to itself: what it tells a compiler nobody asks for."""
    return lambda function: function


overload = overload_attribute = overload_method = overload_classmethod = _registered
box = unbox = infer_getattr = lower_builtin = lower_cast = lower_getattr = lower_setattr = _registered
lower_getattr_generic = lower_setattr_generic = register_model = type_callable = _registered


def infer(template):
    """Return a class that says what types a function takes."""
    return template


def make_attribute_wrapper(typeclass, struct_attr, python_attr):
    """Let kernels read a field of a type of the user's; in the simulator they read the Python object's."""


class _TypeRegistry:
    """Takes what says which type a value has."""

    register = staticmethod(_registered)
    __call__ = staticmethod(_registered)


as_numba_type = typeof_impl = _TypeRegistry()


class models:  # a module in Numba
    """How a compiler lays out values: a module in Numba."""

    class DataModel:
        """Of any kind."""

    PrimitiveModel = StructModel = OpaqueModel = DataModel
