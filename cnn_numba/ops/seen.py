"""Arguments that passed a check, so that the same ones pass it again at little cost.

A training step gives its operations the same arrays each time. What a check found out about them is still so
as long as they live, but for what can be changed in place: that is compared again.
"""

import weakref

import numpy as np

_MOST = 1000


class Seen:
    """What checks returned, by their arguments.

    It keeps no array alive, and forgets what it knows of one that is gone: a new one in its place may have
    the same id.
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
        if len(self._known) > _MOST:
            self._known.clear()
        known = self._known

        def forget(_):
            known.pop(key, None)

        arrays = [(place, array) for place, array in enumerate(arguments) if isinstance(array, np.ndarray)]
        states = [(place, array.shape, array.dtype, array.flags.num) for place, array in arrays]
        known[key] = result, states, [weakref.ref(array, forget) for _, array in arrays]


def is_plain(value):
    """Return whether a value is made of nothing but None, ints and tuples: as part of a key only it is equal.

    A bool is none of them, and equal to an int.
    """
    kind = type(value)
    return kind is int or value is None or (kind is tuple and all(map(is_plain, value)))
