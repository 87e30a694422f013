"""What a signature converts: the numbers that a function is given, and the one that it returns.

That goes for the one signature of a function; where there are several, arguments stay as they are.
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
    """Functions that convert, None for what is no number."""

    arguments: tuple
    result: object

    def of_launch(self, arguments):
        """Return the arguments of a launch; Numba takes no float for an integer there."""
        return [
            _converted(value, convert, exactly=True)
            for value, convert in zip(arguments, self.arguments, strict=False)
        ]

    def around(self, function, names):
        """Return a device function with parameters of these names so that it converts."""
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
    """Return what is converted by a function with these signatures, texts or types; None if nothing is."""
    if len(signatures) != 1:
        return None
    signature = signatures[0]
    if isinstance(signature, str):
        try:
            signature = eval(signature, {**vars(kinds), **kinds.NAMES})
        except Exception:  # it names types that are the compiler's alone
            return None
    arguments = signature if isinstance(signature, tuple) else getattr(signature, "args", None)
    if arguments is None:
        return None
    result = getattr(signature, "return_type", None)
    return Conversion(tuple(map(_conversion_to, arguments)), _conversion_to(result))


def _conversion_to(kind):
    """Return what converts a number to a type; None for a type of arrays and the like."""
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
    """Wait as a device function does, and convert what it returns."""
    __tracebackhide__ = True
    return _converted((yield from generator), convert)
