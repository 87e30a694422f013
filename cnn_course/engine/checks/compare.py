"""Compares results: numbers, shapes and types."""

import numpy as np


def close(got, expected, rtol, slack=0.0):
    """Compare two arrays element by element; errors are relative to the largest magnitude.

    Parameters
    ----------
    got, expected : ndarray, same shape
    rtol : float
    slack : float
        An absolute error that is allowed as well.

    Returns
    -------
    ndarray of bool
        A NaN equals only a NaN, an infinity only the same infinity.

    Examples
    --------
    >>> close(np.array([1.0, np.nan, 3.0]), np.array([1.0, np.nan, np.nan]), rtol=1e-6)
    array([ True,  True, False])
    """
    if expected.dtype.kind not in "fc":
        return np.asarray(got == expected)
    finite = np.abs(expected[np.isfinite(expected)])
    scale = finite.max() if finite.size else 0.0
    return np.isclose(got, expected, rtol=0, atol=rtol * scale + slack, equal_nan=True)


def same(got, expected, dtype, rtol, slack=0.0) -> bool:
    """Return whether a result is the expected one: type, shape and numbers, tuples part by part.

    Parameters
    ----------
    got, expected : object
    dtype : dtype or None
        The dtype that `got` must have; None requires only the kind of `expected`.
    rtol : float
    slack : float or list of float
        As in `close`; for a tuple, one for each part.

    Examples
    --------
    >>> same(3, 3.0, None, 1e-6), same(np.ones(2), np.ones(2), None, 1e-6)
    (False, True)
    """
    if isinstance(expected, tuple):
        alike = isinstance(got, tuple) and len(got) == len(expected)
        slack = slack or [0.0] * len(expected)
        parts = zip(got, expected, slack, strict=True) if alike else ()
        return alike and all(same(g, e, dtype, rtol, s) for g, e, s in parts)
    if type_problem(got, expected, dtype) or np.shape(got) != np.shape(expected):
        return False
    return bool(close(np.asarray(got), np.asarray(expected), rtol, slack).all())


def repeats(outcome, other, rtol):
    """Return whether two calls of the same code had the same outcome."""

    def alike(value, second):
        if isinstance(value, tuple) and isinstance(second, tuple):
            return len(value) == len(second) and all(map(alike, value, second))
        if not isinstance(value, (np.ndarray, np.number, float)):
            return True  # not a number: checked elsewhere
        value, second = np.asarray(value), np.asarray(second)
        return value.shape == second.shape and bool(close(value, second, rtol).all())

    if outcome.error is not None or other.error is not None:
        return type(outcome.error) is type(other.error)
    return alike(outcome.value, other.value)


def identical(array, other):
    """Return whether two arrays are equal bit by bit, except that all NaN are equal."""
    return np.array_equal(array, other, equal_nan=array.dtype.kind in "fc")


def same_bits(got, other):
    """Return whether two results are identical, part by part.

    Examples
    --------
    >>> same_bits((1.0, [2, 3]), (1.0, [2, 3])), same_bits(np.ones(2), np.float32([1, 1.0000001]))
    (True, False)
    """
    if isinstance(got, tuple | list) or isinstance(other, tuple | list):
        return type(got) is type(other) and len(got) == len(other) and all(map(same_bits, got, other))
    return identical(np.asarray(got), np.asarray(other))


_KINDS = {"f": "floating-point", "i": "integer", "u": "integer", "b": "Boolean", "c": "complex"}


def type_problem(got, expected, dtype):
    """Return the problem with a result's type as a sentence; an empty string if there is none."""
    if isinstance(expected, np.ndarray) and expected.ndim and not isinstance(got, np.ndarray):
        found = "a single number" if np.isscalar(got) else f"of type `{type(got).__name__}`"
        return f"The result must be a NumPy array, and yours is {found}."
    try:
        found = np.asarray(got).dtype
    except ValueError:  # a ragged list
        return f"The result must be an array or a number, and yours is of type `{type(got).__name__}`."
    wanted = np.asarray(expected).dtype
    if _KINDS.get(found.kind) != _KINDS[wanted.kind]:
        kind = _KINDS.get(found.kind, "not numeric")
        return f"The result must be {_KINDS[wanted.kind]}, and yours is {kind} (dtype {found})."
    if dtype is not None and found != dtype:
        return f"The result must have dtype {np.dtype(dtype)}, and yours has {found}."
    return ""
