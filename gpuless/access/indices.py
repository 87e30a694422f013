"""Take apart an index that is out of bounds: of an element, or of a row or another part."""

import numpy as np


def first_beyond(parts, shape):
    """Return the first number of an index that is out of bounds, with its axis and the axis's size.

    None if no number is, or if the index doesn't fit an array of this shape.
    """
    by_axis = _by_axis(parts, len(shape))
    if len(by_axis) != len(shape):
        return None
    found = (
        (part, axis, size)
        for axis, (part, size) in enumerate(zip(by_axis, shape, strict=True))
        if _is_number(part) and not -size <= part < size
    )
    return next(found, None)


def shape_of_part(parts, shape):
    """Return the shape that a part would have if the array were large enough; () for an element.

    >>> shape_of_part((9, slice(1, None)), (4, 5))
    (4,)
    """
    by_axis = _by_axis(parts, len(shape))
    sizes = [1 if _is_number(part) else size for part, size in zip(by_axis, shape, strict=True)]
    # Broadcast, so that it takes no memory.
    whole = np.broadcast_to(np.zeros((), np.int8), sizes)
    return whole[tuple(0 if _is_number(part) else part for part in parts)].shape


def plain(part):
    """Return a part of an index with Python's own integers."""
    if isinstance(part, slice):
        return slice(*map(plain, (part.start, part.stop, part.step)))
    return int(part) if _is_number(part) else part


def _is_number(part):
    return isinstance(part, (int, np.integer))


def _by_axis(parts, ndim):
    """Return the part of an index for each axis of an array."""
    by_axis = [part for part in parts if part is not None]
    rest = [slice(None)] * (ndim - sum(part is not ... for part in by_axis))
    place = next((i for i, part in enumerate(by_axis) if part is ...), len(by_axis))
    return [*by_axis[:place], *rest, *by_axis[place + 1 :]]
