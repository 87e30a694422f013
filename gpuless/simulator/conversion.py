"""Convert a function's arguments and its result as its signature says.

With several signatures, nothing is converted.
"""

import itertools
import numbers
import operator
import types
from typing import NamedTuple

import numpy as np

from gpuless.simulator import types as kinds
from gpuless.simulator.arithmetic import typed


class Conversion(NamedTuple):
    """The functions that convert; None for what isn't a number."""

    arguments: tuple
    result: object

    def of_launch(self, arguments):
        """Convert the arguments of a launch, where Numba refuses a float for an integer."""
        return [
            _converted(value, convert, exactly=True)
            for value, convert in zip(arguments, self.arguments, strict=False)
        ]

    def around(self, function, names):
        """Return a device function, with parameters of these names, that converts."""
        by_name = dict(zip(names, self.arguments, strict=False))

        def call(*given, **named):
            __tracebackhide__ = True
            given = itertools.zip_longest(given, self.arguments[: len(given)])
            named = {name: _converted(value, by_name.get(name)) for name, value in named.items()}
            returned = function(*itertools.starmap(_converted, given), **named)
            if isinstance(returned, types.GeneratorType):
                return _returned(returned, self.result)
            return _converted(returned, self.result)

        return call


def conversion(signatures):
    """Return the `Conversion` for these signatures, given as strings or types; None if there is none."""
    if len(signatures) != 1:
        return None
    signature = signatures[0]
    if isinstance(signature, str):
        try:
            signature = eval(signature, {**vars(kinds), **kinds.NAMES})
        except Exception:  # it names types that only the compiler has
            return None
    arguments = signature if isinstance(signature, tuple) else getattr(signature, "args", None)
    if arguments is None:
        return None
    result = getattr(signature, "return_type", None)
    return Conversion(tuple(map(_conversion_to, arguments)), _conversion_to(result))


def _conversion_to(kind):
    """Return the function that converts a number to a type; None for array types and the like."""
    if str(kind) == "bool":
        return bool
    convert = typed(kind)
    return convert if callable(convert) and convert is not kind else None


def _converted(value, convert, exactly=False):
    if convert is None or not isinstance(value, (numbers.Number, np.bool_)):
        return value
    if exactly and convert is bool:
        return bool(int(value))
    is_integer = isinstance(convert, types.FunctionType)  # the others are classes
    return convert(operator.index(value) if exactly and is_integer else value)


def _returned(generator, convert):
    """Run a device function that waits, and convert its result."""
    __tracebackhide__ = True
    return _converted((yield from generator), convert)
