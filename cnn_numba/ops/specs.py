"""What the arrays of an operation must be, declared once for all backends.

A `Spec` is one line of text, ``x[N in_features], weight[out_features in_features] -> out[N out_features]``.
Each axis has the size that it has where it is named first. A number is that size, ``4H`` is four times ``H``,
and ``...``, with a name before it or without, is any number of axes; an argument has at most one of these of
unknown length. A ``?`` after a name allows None, a ``!`` says that the array is updated in place, ``:int32``
is its dtype, which is float32 otherwise, and parentheses hold the axes of an argument that is a shape, not an
array. Outputs come after the arrow: where one is None, a new array is made.

The definitions in `reference` use the same declarations as the backends that they judge. That is no
arithmetic in common: sizes are compared here, and nothing is computed from them.
"""

import re
import weakref
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cnn_numba.arguments import SETTINGS, sizes as tuple_of

_MOST_KNOWN = 1000
_ARGUMENT = re.compile(r"(?P<name>\w+)(?P<mark>[?!]*)(:(?P<dtype>\w+))?(?P<open>[\[(])(?P<axes>[^\])]*)[\])]")


class Memory(NamedTuple):
    """What the arrays of a backend are: on the host, on the device, or anything that NumPy takes."""

    check: Callable
    """``(name, array, shape, dtype, writeable)``: refuse an array, or return what is computed with.

    A shape of None stands for any.
    """
    empty: Callable
    """``(shape, dtype)``: a new, uninitialised array."""
    apart: Callable
    """``(written, read, may_be)``: refuse outputs that share memory, see `device.arrays`."""
    window: Callable
    """``(sizes, stride, padding, kernel_size=None)``: how a window slides; its `out` is (H_out, W_out)."""
    on_host: bool = False
    """Whether a check depends on nothing but the arrays, all of them NumPy's."""


class Axis(NamedTuple):
    """An axis of an argument, or any number of axes."""

    text: str
    """As in the declaration."""
    times: int
    """How many times as large as what it is named for."""
    name: str
    """Empty if it is a number, as a multiple of 1."""
    many: bool
    """Whether it is any number of axes, and its size a tuple."""

    def shape(self, sizes):
        """Return its part of a shape, and what it is called where its size is not known."""
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
    written: bool
    """Whether it is updated in place."""
    is_shape: str
    """Its axes in a message, where it is a shape; empty where it is an array."""

    def shape(self, sizes):
        """Return the shape that has these sizes."""
        return sum((axis.shape(sizes) for axis in self.axes), ())

    def compare(self, shape, known):
        """Return the sizes that are known once this shape is, and the axes that are of another size.

        Those are all where there are too few or too many.
        """
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


class _Known(NamedTuple):
    """What is known of shapes that go together."""

    sizes: dict
    """Of the axes."""
    windows: dict
    """What is known once there is a window, by its size of the output."""


class Seen:
    """What checks returned, by their arguments: a training step gives an operation the same arrays each time.

    A result is valid as long as the arrays live; what can be changed in place, such as a shape, is compared
    again. It keeps no array alive, and forgets one that is gone, as a new array may get the same id.
    """

    def __init__(self):
        self._known = {}

    def get(self, key, arguments):
        """Return what was added for a key, None if there is nothing or an array has changed since."""
        known = self._known.get(key)
        if known is None:
            return None
        result, arrays, _ = known
        for place, shape, dtype, flags in arrays:
            array = arguments[place]
            if array.shape != shape or array.dtype != dtype or array.flags.num != flags:
                return None
        return result

    def add(self, key, arguments, result):
        """Note the result of a check; the ids of the arrays among the arguments must be part of the key."""
        if len(self._known) > _MOST_KNOWN:
            self._known.clear()
        known = self._known

        def forget(_):
            known.pop(key, None)

        arrays = [(place, array) for place, array in enumerate(arguments) if isinstance(array, np.ndarray)]
        states = [(place, array.shape, array.dtype, array.flags.num) for place, array in arrays]
        known[key] = result, states, [weakref.ref(array, forget) for _, array in arrays]


def is_plain(value):
    """Return whether a value consists of None, ints and tuples, so that equal keys mean equal arguments.

    A bool does not count: True == 1.
    """
    kind = type(value)
    return kind is int or value is None or (kind is tuple and all(map(is_plain, value)))


class Spec:
    """The declaration of an operation: called with its arguments, it checks them.

    Parameters
    ----------
    text : str
        As at the top of this file.
    may_be : str
        The inputs that an output may be, that is, the same memory in the same shape.
    filled : str
        The axes that must not be of size 0.
    computed : str
        The axes whose sizes come from a window that slides over images.

    Examples
    --------
    >>> from cnn_numba.ops.shapes import HOST
    >>> product = Spec("a[rows depth], b[depth columns] -> out[rows columns]")
    >>> product(HOST, np.zeros((2, 3), np.float32), np.zeros((4, 5), np.float32), None)
    Traceback (most recent call last):
        ...
    ValueError: b must have shape (3, columns), got (4, 5): a has depth = 3
    """

    def __init__(self, text, may_be="", filled="", computed=""):
        inputs, _, outputs = text.partition("->")
        inputs, outputs = _arguments(inputs), _arguments(outputs)
        self.arguments = [*inputs, *(output._replace(optional=True, written=True) for output in outputs)]
        self.made = range(len(inputs), len(self.arguments))
        self.may_be, self.filled, self.computed = may_be.split(), filled.split(), computed.split()
        # A network meets the same few shapes in every step: only the first time they are compared.
        self._known = {}
        # On the host mostly the same arrays, too.
        self._seen = Seen()
        self._shapes = [i for i, argument in enumerate(self.arguments) if argument.is_shape]

    def __call__(self, memory, *arrays, window=None, **settings):
        """Check the arguments.

        Parameters
        ----------
        memory : Memory
            That of the backend.
        *arrays
            The arguments in the order of the declaration, outputs last.
        window : tuple, optional
            What `memory.window` takes beside the sizes; it gives the axes that are `computed`.
        **settings
            By the names in `cnn_numba.arguments.SETTINGS`.

        Returns
        -------
        list
            The arguments as the backend computes with them; outputs that were None are new arrays. The window
            comes last, if there is one.
        """
        for name, value in settings.items():
            SETTINGS[name](value, name)
        key = self._key(arrays, window) if memory.on_host else None
        seen = self._seen.get(key, arrays)
        if seen is not None:
            return [*arrays, *seen]
        checked, window = self._check(memory, arrays, window)
        found = [] if window is None else [window]
        if key is not None and all(arrays[index] is not None for index in self.made):
            self._seen.add(key, arrays, found)
        return [*checked, *found]

    def _key(self, arrays, window):
        """Return a key that belongs to these arguments alone, None if there is no such key."""
        if not self._shapes and window is None:
            return tuple(map(id, arrays))
        key = [*map(id, arrays)]
        for place in self._shapes:
            key[place] = arrays[place]
        if window is not None:
            key.append(window)
        return tuple(key) if all(map(is_plain, key)) else None

    def _check(self, memory, arrays, window):
        """Return the arguments that a backend computes with, and the window."""
        checked, shapes, outputs, inputs = [], [], {}, {}
        for (name, _, dtype, optional, written, axes), array in zip(self.arguments, arrays, strict=True):
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
        known = self._known.get(shapes) or self._compare(self._known, shapes, shapes, {})
        if window is not None:
            window = memory.window(known.sizes, *window)
            out = window.out
            known = known.windows.get(out) or self._compare(known.windows, out, shapes, out)
        if outputs:
            memory.apart(outputs, inputs, self.may_be)
        for index in self.made:
            if checked[index] is None:
                argument = self.arguments[index]
                checked[index] = memory.empty(argument.shape(known.sizes), argument.dtype)
        return checked, window

    def _compare(self, known, key, shapes, out):
        """Return what is known of these shapes from now on, once they are found to go together.

        What has axes that are computed is left out until they are there, in `out`.
        """
        found = dict(zip(self.computed, out, strict=False))
        sizes, sources = {"": 1} | found, dict.fromkeys(found, "the window")
        for argument, shape in zip(self.arguments, shapes, strict=True):
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
        if len(known) > _MOST_KNOWN:
            known.clear()
        known[key] = _Known(sizes, {})
        return known[key]


def _refusal(argument, shape, wrong, sizes, sources):
    """Say which shape an argument must have, and where the sizes come from that it has not."""
    reasons = {}
    for name in dict.fromkeys(axis.name for axis in wrong):
        if name in sources:
            reasons.setdefault(sources[name], []).append(f"{name} = {sizes[name]}")
    because = ", ".join(f"{source} has {' and '.join(known)}" for source, known in reasons.items())
    because = f": {because}" if because else ""
    must = "must be" if argument.is_shape else "must have shape"
    return f"{argument.name} {must} {_shape(argument.shape(sizes))}, got {tuple(shape)}{because}"


def _shape(axes):
    """Return axes as a message shows a shape."""
    return f"({', '.join(map(str, axes))}{',' * (len(axes) == 1)})"


def _arguments(text):
    """Return what a part of a declaration says."""
    found = []
    for match in _ARGUMENT.finditer(text):
        axes, dtype = match["axes"].split(), np.dtype(match["dtype"] or "float32")
        marks = "?" in match["mark"], "!" in match["mark"], _shape(axes) if match["open"] == "(" else ""
        found.append(Argument(match["name"], tuple(map(_axis, axes)), dtype, *marks))
    return found


def _axis(text):
    """Return the axis that a word of a declaration means."""
    name = text.lstrip("0123456789")
    times = text.removesuffix(name)
    return Axis(text, int(times or 1), name, name.endswith("..."))
