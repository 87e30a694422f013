"""`numba.extending` in the simulator, for modules that extend the compiler.

The simulator can run extensions written in Python, but not those that generate machine code.
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
    """A function that generates machine code; in a kernel, its `py_func` runs if it has been given one."""

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
    """Return a function for kernels that generates machine code."""
    return Intrinsic if func is None else Intrinsic(func)


def register_jitable(function=None, **options):
    """Return a function that runs as Python on the host, and is a device function in kernels."""
    return register_jitable if function is None else HostFunction(function, options)


def _registered(*arguments, **options):
    """Return a decorator that does nothing: the simulator has no compiler to register the function with."""
    return lambda function: function


overload = overload_attribute = overload_method = overload_classmethod = _registered
box = unbox = infer_getattr = lower_builtin = lower_cast = lower_getattr = lower_setattr = _registered
lower_getattr_generic = lower_setattr_generic = register_model = type_callable = _registered


def infer(template):
    """Return a class of type rules unchanged."""
    return template


def make_attribute_wrapper(typeclass, struct_attr, python_attr):
    """Do nothing: in the simulator, kernels read the fields of the Python object."""


class _TypeRegistry:
    """Takes rules for the type of a value, and ignores them."""

    register = staticmethod(_registered)
    __call__ = staticmethod(_registered)


as_numba_type = typeof_impl = _TypeRegistry()


class models:
    """How a compiler lays out values: a module in Numba."""

    class DataModel:
        """Of any kind."""

    PrimitiveModel = StructModel = OpaqueModel = DataModel
