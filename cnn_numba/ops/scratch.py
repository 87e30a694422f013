"""Working space of operations, in the backends that need some: made, checked and passed on.

Such a backend has a function ``<name>_scratch`` below `@working_space`. Its functions take the result as the
keyword `scratch`, the one argument in which backends differ, and pass it to the check of their arguments as
``scratch=(<name>_scratch, scratch)``, with further sizes after these if the arrays do not give all. The check
refuses arrays of working space that share memory with an argument: its own, not those inside another field.
"""

import functools
import inspect
import math
from numbers import Integral

import numpy as np

from cnn_numba.arguments import shown


def working_space(memory, kind, make, late=False, check=None):
    """Turn a function that returns what an operation needs into one that makes it.

    For each of the first fields of `kind`, a named tuple, the function returns what it must be: the shape of
    a float32 array, which may have more elements; a number, which may be larger; or anything else. `make`
    takes these needs and returns all fields. The attribute ``fit(scratch, *sizes)`` returns working space
    with arrays in exactly these shapes, only those with one axis may be longer; new if `scratch` is None.
    With `late` they are None then, and the operation allocates what it needs. Kernels write into working
    space unchecked, so `fit` raises TypeError or ValueError if it does not suffice. `check` gets the sizes
    that working space is to be made for; `fit` gets those of arguments that are checked already.
    """

    def decorate(needs_of):
        @functools.wraps(needs_of)
        def made(*sizes, **named):
            if check is not None:
                check(*sizes, **named)
            return kind(*make(*needs_of(*sizes, **named)))

        def fit(scratch, *sizes):
            if scratch is None:
                return kind(*[None] * len(kind._fields)) if late else made(*sizes)
            if not isinstance(scratch, kind):
                raise TypeError(f"scratch must come from {made.__name__}, got {type(scratch).__name__}")
            views = {}
            try:
                for name, value, need in zip(kind._fields, scratch, needs_of(*sizes), strict=False):
                    if (view := _fitted(memory, f"scratch.{name}", value, need)) is not value:
                        views[name] = view
            except ValueError as error:
                raise ValueError(f"{error}: make it with {made.__name__} for these arguments") from None
            return scratch._replace(**views) if views else scratch

        made.fit = fit
        return made

    return decorate


def _fitted(memory, name, value, need):
    """Return a field of working space, of an array the first elements; ValueError if they don't suffice."""
    if isinstance(need, Integral):  # before arrays: NumPy's numbers have a dtype as well
        if value < need:
            at_least = "" if need is True else "at least "
            raise ValueError(f"{name} must be {at_least}{need}, got {value}")
    elif hasattr(value, "dtype"):
        memory.check(name, value, None, np.float32, True)
        size = math.prod(need)
        if value.size < size:
            raise ValueError(f"{name} must have at least {size} elements, got {value.size}")
        if value.shape == need or len(need) == value.ndim == 1:
            return value  # to slice an array of the device takes longer than to launch a kernel
        return value.reshape(-1)[:size].reshape(need)
    elif value != need:
        raise ValueError(f"{name} must be {shown(need)}, got {shown(value)}")
    return value


def with_scratch(functions, name, *sizes):
    """Return an operation's functions, bound to working space if the backend needs any.

    With it bound, the calls are the same in all backends.

    Parameters
    ----------
    functions : module
        An operation in one backend, such as ``backend("cpu").ops.conv``.
    name : str
        The beginning of its functions' names: "conv2d".
    *sizes
        The arguments of ``<name>_scratch``.

    Examples
    --------
    >>> from cnn_numba.ops.backends import backend
    >>> functions = backend("reference").ops.conv
    >>> with_scratch(functions, "conv2d", (64, 1, 28, 28), (32, 1, 3, 3)) is functions
    True
    """
    make = getattr(functions, f"{name}_scratch", None)
    return functions if make is None else _WithScratch(functions, make(*sizes))


class _WithScratch:
    functions = None  # while Python copies it

    def __init__(self, functions, scratch):
        self.functions, self.scratch = functions, scratch

    def __getattr__(self, name):
        function = getattr(self.functions, name)
        if "scratch" in inspect.signature(function).parameters:
            function = functools.partial(function, scratch=self.scratch)
        setattr(self, name, function)  # no further call of __getattr__ for it
        return function
