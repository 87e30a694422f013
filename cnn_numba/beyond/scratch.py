"""Working space that a caller may bring: for the shapes at hand, or for larger ones."""

import math


def fitted_scratch(operation, scratch, shapes):
    """Return `scratch` with the first elements of its arrays in these shapes, by name.

    Raise ValueError if an array is too small.
    """
    views = {}
    for name, shape in shapes.items():
        array, size = getattr(scratch, name), math.prod(shape)
        if array.size < size:
            raise ValueError(
                f"scratch.{name} must have at least {size} elements, got {array.size}: make it with "
                f"{operation}_scratch for these shapes"
            )
        views[name] = array.ravel()[:size].reshape(shape)
    return scratch._replace(**views)
