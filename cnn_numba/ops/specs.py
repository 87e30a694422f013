"""The shapes and dtypes of an operation's arrays, declared once for all backends.

A `Spec` is one line of text, ``x[N in_features], weight[out_features in_features] -> out[N out_features]``,
with the arguments in the order of the function. The first argument that names an axis gives its size. A
number is a size, ``4H`` is four times ``H``, and ``...``, with or without a name before it, is any number of
axes; at most one of these in an argument may have an unknown length. A ``?`` after a name allows None, a
``!`` means that the array is updated in place, a ``~`` that it is compared after those with fewer, and gets
the blame. One with two ``...`` needs it, to wait for an argument that gives the length of one. ``:int32`` is
its dtype (float32 by default), and parentheses instead of brackets mean that the argument is a shape, not an
array. Outputs come after the arrow; for None a new array is allocated.

`reference` uses the same declarations as the other backends. They still share no arithmetic: sizes are only
compared here.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cnn_numba.arguments import SETTINGS, sizes as tuple_of

_MOST_KNOWN = 1000
_ARGUMENT = re.compile(
    r"(?P<name>\w+)(?P<mark>[?!~]*)(:(?P<dtype>\w+))?(?P<open>[\[(])(?P<axes>[^\])]*)[\])]"
)


class Memory(NamedTuple):
    """What arrays a backend accepts: on the host, on the device, or anything that NumPy takes."""

    check: Callable
    """``(name, array, shape, dtype, writeable)``: refuse an array, or return the one to compute with.

    A shape of None allows any shape.
    """
    empty: Callable
    """``(shape, dtype)``: a new, uninitialised array."""
    apart: Callable
    """``(written, read, may_be)``: refuse outputs that share memory, see `device.arrays`."""
    window: Callable
    """``(sizes, stride, padding, kernel_size=None)``: how a window slides; its `out` is (H_out, W_out)."""


class Axis(NamedTuple):
    """An axis of an argument, or any number of axes."""

    text: str  # as in the declaration
    times: int  # the factor before the name
    name: str  # empty for a number, which is then a multiple of 1
    many: bool  # any number of axes, whose size is a tuple

    def shape(self, sizes):
        """Return its part of a shape; its text if the size is not known."""
        size = sizes.get(self.name)
        if size is None:
            return (self.text,)
        return size if self.many else (self.times * size,)


class Argument(NamedTuple):
    """One argument of a `Spec`."""

    name: str
    axes: tuple[Axis, ...]
    dtype: np.dtype
    optional: bool
    written: bool  # updated in place
    late: int  # compared after those with less
    is_shape: str  # its axes as a message shows them, if it is a shape; empty for an array

    def shape(self, sizes):
        """Return the shape that has these sizes."""
        return sum((axis.shape(sizes) for axis in self.axes), ())

    def compare(self, shape, known):
        """Return the sizes known with this shape, and the axes of a wrong size: all if their number is."""
        widths = [len(known.get(axis.name, ())) if axis.many else 1 for axis in self.axes]
        left = len(shape) - sum(widths)
        for index, axis in enumerate(self.axes):
            if axis.many and axis.name not in known and left > 0:
                widths[index], left = left, 0
        if left:
            return known, self.axes
        sizes, wrong, rest = dict(known), [], tuple(shape)
        for axis, width in zip(self.axes, widths, strict=True):
            part, rest = rest[:width], rest[width:]
            size, remainder = (part, 0) if axis.many else divmod(part[0], axis.times)
            if remainder or sizes.setdefault(axis.name, size) != size:
                wrong.append(axis)
        return sizes, wrong


class Spec:
    """The declaration of an operation: called with its arguments, it checks them.

    Parameters
    ----------
    text : str
        As at the top of this file.
    may_be : str
        The inputs that an output may be: the same memory in the same shape.
    filled : str
        The axes that must not have size 0.
    computed : str
        The axes whose sizes come from a window that slides over images.
    scratch : str
        The first arguments of ``<name>_scratch``, separated by commas: one axis is a size, several are a
        shape. Without it the operation has no working space.

    Examples
    --------
    >>> from cnn_numba.ops.shapes import HOST
    >>> product = Spec("a[rows depth], b[depth columns] -> out[rows columns]")
    >>> product(HOST, np.zeros((2, 3), np.float32), np.zeros((4, 5), np.float32), None)
    Traceback (most recent call last):
        ...
    ValueError: b must have shape (3, columns), got (4, 5): a has depth = 3
    """

    def __init__(self, text, may_be="", filled="", computed="", scratch=""):
        inputs, _, outputs = text.partition("->")
        inputs, outputs = _arguments(inputs), _arguments(outputs)
        self.arguments = [*inputs, *(output._replace(optional=True, written=True) for output in outputs)]
        self.made = range(len(inputs), len(self.arguments))
        self._order = [*sorted(range(len(inputs)), key=lambda index: inputs[index].late), *self.made]
        self.may_be, self.filled, self.computed = may_be.split(), filled.split(), computed.split()
        self.scratch = [tuple(map(_axis, words.split())) for words in scratch.split(",") if words]
        self._known = {}  # every step of a training has the same few shapes, compared once

    def __call__(self, memory, *arrays, window=None, scratch=None, **settings):
        """Check the arguments.

        Parameters
        ----------
        memory : Memory
        *arrays
            The arguments in the order of the declaration, outputs last.
        window : tuple, optional
            The arguments of `memory.window` after the sizes; the window gives the `computed` axes.
        scratch : tuple, optional
            The backend's ``<name>_scratch``, what the caller gave as `scratch`, and the first's arguments
            after the declared ones.
        **settings
            By the names in `cnn_numba.arguments.SETTINGS`.

        Returns
        -------
        list
            The arguments to compute with; outputs that were None are new arrays. Window and working space
            come last, if there are any.
        """
        for name, value in settings.items():
            SETTINGS[name](value, name)
        checked, shapes, outputs, inputs, further = [], [], {}, {}, []
        for (name, _, dtype, optional, written, _, axes), array in zip(self.arguments, arrays, strict=True):
            if array is None and optional:
                shapes.append(None)
            elif axes:
                array = tuple_of(array, name, axes)
                shapes.append(array)
            else:
                (outputs if written else inputs)[name] = array
                array = memory.check(name, array, None, dtype, written)
                shapes.append(array.shape)
            checked.append(array)
        shapes = tuple(shapes)
        sizes = self._known.get((shapes, ())) or self._compare(shapes, ())
        if window is not None:
            slides = memory.window(sizes, *window)
            sizes = self._known.get((shapes, slides.out)) or self._compare(shapes, slides.out)
            further.append(slides)
        if scratch is not None:
            make, given, *further_sizes = scratch
            needs = (sum((axis.shape(sizes) for axis in axes), ()) for axes in self.scratch)
            fitted = make.fit(given, *(need if len(need) > 1 else need[0] for need in needs), *further_sizes)
            fields = fitted._asdict().items()
            outputs |= {f"scratch.{name}": value for name, value in fields if getattr(value, "ndim", 0)}
            further.append(fitted)
        if outputs:
            memory.apart(outputs, inputs, self.may_be)
        for index in self.made:
            if checked[index] is None:
                argument = self.arguments[index]
                checked[index] = memory.empty(argument.shape(sizes), argument.dtype)
        return [*checked, *further]

    def _compare(self, shapes, out):
        """Check that the shapes match; return and store the sizes of their axes.

        Arguments with computed axes wait until these are known, in `out`.
        """
        found = dict(zip(self.computed, out, strict=False))
        sizes, sources = {"": 1} | found, dict.fromkeys(found, "the window")
        for index in self._order:
            argument, shape = self.arguments[index], shapes[index]
            if shape is None or (not found and any(axis.name in self.computed for axis in argument.axes)):
                continue
            now, wrong = argument.compare(shape, sizes)
            if wrong:
                raise ValueError(_refusal(argument, shape, wrong, sizes, sources))
            for axis in [axis for axis in now if axis not in sizes]:
                sources[axis] = argument.name
                if axis in self.filled and 0 in np.atleast_1d(now[axis]):
                    raise ValueError(
                        f"{argument.name} must not be empty, got shape {shape}: {axis} is {now[axis]}"
                    )
            sizes = now
        if len(self._known) > _MOST_KNOWN:
            self._known.clear()
        self._known[shapes, out] = sizes
        return sizes


def _refusal(argument, shape, wrong, sizes, sources):
    """Return a message: which shape an argument must have, and which arguments gave its sizes."""
    reasons = {}
    for name in dict.fromkeys(axis.name for axis in wrong):
        if name in sources:
            reasons.setdefault(sources[name], []).append(f"{name} = {sizes[name]}")
    because = ", ".join(f"{source} has {' and '.join(known)}" for source, known in reasons.items())
    because = f": {because}" if because else ""
    must = "must be" if argument.is_shape else "must have shape"
    return f"{argument.name} {must} {_shape(argument.shape(sizes))}, got {tuple(shape)}{because}"


def _shape(axes):
    """Return a shape as a message shows it."""
    return f"({', '.join(map(str, axes))}{',' * (len(axes) == 1)})"


def _arguments(text):
    """Return the arguments in one half of a declaration."""
    found = []
    for match in _ARGUMENT.finditer(text):
        axes, dtype = match["axes"].split(), np.dtype(match["dtype"] or "float32")
        mark, is_shape = match["mark"], _shape(axes) if match["open"] == "(" else ""
        marks = "?" in mark, "!" in mark, mark.count("~"), is_shape
        found.append(Argument(match["name"], tuple(map(_axis, axes)), dtype, *marks))
    return found


def _axis(text):
    """Return the axis that a word of a declaration names."""
    name = text.lstrip("0123456789")
    times = text.removesuffix(name)
    return Axis(text, int(times or 1), name, name.endswith("..."))
