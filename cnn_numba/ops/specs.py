"""What the arrays of an operation must be, declared once for all backends.

A `Spec` is one line of text, ``x[N in_features], weight[out_features in_features] -> out[N out_features]``.
Each axis is of the size that it has where it is named first; a number is that size, and ``...`` stands for
any further axes. A ``?`` behind a name allows None, a ``!`` says that the array is updated in place,
``:int32`` is its dtype, which is float32 otherwise, and parentheses hold the axes of an argument that is a
shape, not an array. Outputs are behind the arrow: where one is None, a new array is made.

The definitions in `reference` use the same declarations as the backends that they judge. That is no
arithmetic in common: sizes are compared here, and nothing is computed from them.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cnn_numba.arguments import SETTINGS, sizes as tuple_of
from cnn_numba.ops.seen import Seen, is_plain

_MOST_KNOWN = 1000
_ARGUMENT = re.compile(r"(?P<name>\w+)(?P<mark>[?!]?)(:(?P<dtype>\w+))?(?P<open>[\[(])(?P<axes>[^\])]*)[\])]")


class Memory(NamedTuple):
    """What the arrays of a backend are: on the host, on the device, or anything that NumPy takes."""

    check: Callable
    """``(name, array, shape, dtype, writeable)``: refuse an array, or return what is computed with.

    A shape of None stands for any.
    """
    empty: Callable
    """``(shape, dtype)``: a new, uninitialised array."""
    apart: Callable
    """``(written, read, may_be)``: refuse outputs that share memory, see `cnn_numba.ops.shapes`."""
    window: Callable
    """``(sizes, stride, padding, kernel_size=None)``: how a window slides; its `out` is (H_out, W_out)."""
    on_host: bool = False
    """Whether a check depends on nothing but the arrays, all of them NumPy's."""

    def output(self, name, out, shape, dtype=np.float32, inputs=None, may_be=()):
        """Return `out` once checked, or a new uninitialised array if it is None.

        Parameters
        ----------
        name, out, shape, dtype
            As `check` takes them.
        inputs, may_be
            As `read` and `may_be` of `apart`, which an operation with several outputs calls itself.
        """
        if out is None:
            return self.empty(shape, dtype)
        self.check(name, out, shape, dtype, writeable=True)
        if inputs:
            self.apart({name: out}, inputs, may_be)
        return out


class Argument(NamedTuple):
    """One argument of a `Spec`."""

    name: str
    axes: tuple[str, ...]
    """Their names, but for the dots."""
    rest: bool
    """Whether there are dots at the end."""
    dtype: np.dtype
    optional: bool
    written: bool
    """Whether it is updated in place."""
    is_shape: str
    """Its axes in a message, where it is a shape; empty where it is an array."""

    def sizes(self, shape):
        """Return the sizes in a shape by the names of the axes."""
        named = dict(zip(self.axes, shape, strict=False))
        return named | {"...": tuple(shape[len(self.axes) :])} if self.rest else named

    def shape(self, sizes):
        """Return the shape that has these sizes."""
        return tuple(sizes[axis] for axis in self.axes) + (sizes["..."] if self.rest else ())

    def mismatch(self, shape, sizes):
        """Return the axes that are of another size, or all where there are too few or too many."""
        if len(shape) != len(self.axes) and (not self.rest or len(shape) < len(self.axes)):
            return [*self.axes, "..."] if self.rest else self.axes
        axes = [*self.axes, *["..."] * self.rest]
        found = [*shape[: len(self.axes)], *[tuple(shape[len(self.axes) :])] * self.rest]
        first = {}
        return [
            axis
            for axis, size in zip(axes, found, strict=True)
            if sizes.get(axis, first.setdefault(axis, size)) != size
        ]


class _Known(NamedTuple):
    """What is known of shapes that go together."""

    sizes: dict
    """Of the axes."""
    windows: dict
    """What is known once there is a window, by its size of the output."""


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
        named = {axis for argument in self.arguments for axis in argument.axes}
        self.fixed = {axis: int(axis) for axis in named if axis.isdigit()}
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
        """Return what no other arguments are equal to, None if there is no such thing."""
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
        checked, shapes = [], []
        for (name, _, _, dtype, optional, written, axes), array in zip(self.arguments, arrays, strict=True):
            if array is None and optional:
                shapes.append(None)
            elif axes:
                array = tuple_of(array, name, axes)
                shapes.append(array)
            else:
                array = memory.check(name, array, None, dtype, written)
                shapes.append(array.shape)
            checked.append(array)
        shapes = tuple(shapes)
        known = self._known.get(shapes) or self._compare(self._known, shapes, shapes, {})
        if window is not None:
            window = memory.window(known.sizes, *window)
            out = window.out
            known = known.windows.get(out) or self._compare(known.windows, out, shapes, out)
        self._see_apart(memory, arrays)
        for index in self.made:
            if checked[index] is None:
                argument = self.arguments[index]
                checked[index] = memory.empty(argument.shape(known.sizes), argument.dtype)
        return checked, window

    def _see_apart(self, memory, arrays):
        """Insist that what is written shares no memory."""
        written, read = {}, {}
        for argument, array in zip(self.arguments, arrays, strict=True):
            if array is not None and not argument.is_shape:
                (written if argument.written else read)[argument.name] = array
        if written:
            memory.apart(written, read, self.may_be)

    def _compare(self, known, key, shapes, out):
        """Return what is known of these shapes from now on, once they are found to go together.

        What has axes that are computed is left out until they are there, in `out`.
        """
        found = dict(zip(self.computed, out, strict=False))
        sizes, sources = self.fixed | found, dict.fromkeys(found, "the window")
        for argument, shape in zip(self.arguments, shapes, strict=True):
            if shape is None or (not found and not set(self.computed).isdisjoint(argument.axes)):
                continue
            if wrong := argument.mismatch(shape, sizes):
                raise ValueError(_refusal(argument, shape, wrong, sizes, sources))
            for axis, size in argument.sizes(shape).items():
                sizes.setdefault(axis, size)
                sources.setdefault(axis, argument.name)
                if axis in self.filled and 0 in np.atleast_1d(size):
                    raise ValueError(
                        f"{argument.name} must not be empty, got shape {shape}: {axis} is {size}"
                    )
        if len(known) > _MOST_KNOWN:
            known.clear()
        known[key] = _Known(sizes, {})
        return known[key]


def _refusal(argument, shape, wrong, sizes, sources):
    """Say which shape an argument must have, and where the sizes come from that it has not."""
    wanted = [sizes.get(axis, axis) for axis in argument.axes]
    if argument.rest:
        wanted += sizes.get("...", ["..."])
    reasons = {}
    for axis in wrong:
        if axis in sources:
            reasons.setdefault(sources[axis], []).append(f"{axis} = {sizes[axis]}")
    because = ", ".join(f"{source} has {' and '.join(known)}" for source, known in reasons.items())
    because = f": {because}" if because else ""
    must = "must be" if argument.is_shape else "must have shape"
    return f"{argument.name} {must} {_shape(wanted)}, got {tuple(shape)}{because}"


def _shape(axes):
    """Return axes as a message shows a shape."""
    return f"({', '.join(map(str, axes))}{',' * (len(axes) == 1)})"


def _arguments(text):
    """Return what a part of a declaration says."""
    found = []
    for match in _ARGUMENT.finditer(text):
        axes, dtype = match["axes"].split(), np.dtype(match["dtype"] or "float32")
        rest = axes[-1:] == ["..."]
        marks = match["mark"] == "?", match["mark"] == "!", _shape(axes) if match["open"] == "(" else ""
        found.append(Argument(match["name"], tuple(axes[: -1 if rest else None]), rest, dtype, *marks))
    return found
