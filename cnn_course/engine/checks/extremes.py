"""Launches with extreme numbers, for every exercise that they suit; and the effect of rounding.

A maximum, a copy or a softmax does not depend on where zero lies: if all numbers shift, its result shifts
with them, or stays. Then no finite number is small enough to start a search from. A launch with numbers
around -1e30 exposes such a start. If the result is defined for minus infinity, a launch with only minus
infinity exposes the others.
"""

from dataclasses import replace

import numpy as np

from cnn_course.engine.checks.evidence import call

_MOVED_BY, _FAR = 8.0, 1e30


def far_below(cases, reference):
    """Return launches with numbers far below zero, if the reference does not depend on where zero lies.

    Parameters
    ----------
    cases : list of LaunchCase
        The launches of the exercise. The second one is changed.
    reference : callable

    Returns
    -------
    list of LaunchCase
        Zero, one, or two.

    Examples
    --------
    >>> from cnn_course.engine.checks.launches import launch, normal, output
    >>> rng = np.random.default_rng(0)
    >>> cases = [launch(1, 32, normal(rng, (rows, 3)), output(rows)) for rows in (2, 4)]
    >>> lowest, infinite = far_below(cases, lambda x: x.max(axis=1))
    >>> bool((lowest.args[0] <= -1e30).all()), infinite.args[0].max()
    (True, np.float32(-inf))
    >>> far_below(cases, lambda x: x.sum(axis=1))
    []
    >>> far_below(cases, lambda x: (x - x.mean(axis=1, keepdims=True)) / x.std(axis=1, keepdims=True))
    []
    """
    case = cases[:2][-1]
    if not any(map(_is_moved, case.args)):
        return []
    right = _results(reference, case)
    moved = _results(reference, _changed(case, lambda x: x - np.float32(_MOVED_BY)))
    if not right or not moved or not all(map(_follows, moved, right)):
        return []
    # Standardised numbers need no search, and squares of such large numbers overflow.
    scaled = _results(reference, _changed(case, lambda x: 2 * x))
    if any(now.dtype.kind == "f" and _is_near(now, was) for now, was in zip(scaled, right, strict=True)):
        return []
    further = [_changed(case, _lowered)]
    if all(part.dtype.kind == "f" for part in right):  # if all are -inf, a search may find no index
        further.append(_changed(case, lambda x: np.full_like(x, -np.inf)))
    return [each for each in further if _is_defined(_results(reference, each))]


def _is_moved(value):
    return isinstance(value, np.ndarray) and value.dtype == np.float32


def _changed(case, change):
    """Return a launch with its float32 inputs changed."""
    for index, value in enumerate(case.args):
        if _is_moved(value):
            case = case.replaced(index, change(value))
    return case


def _lowered(x):
    """Map numbers to -3e30 to -1e30, keeping their order."""
    size = np.abs(x).max(initial=np.float32(1e-30))
    return (_FAR * (np.asarray(x, np.float64) / size - 2)).astype(np.float32)


def _results(reference, case):
    """Return the parts of a reference's result, an empty list if it raises."""
    outcome = call(reference, case)
    value = outcome.value if isinstance(outcome.value, tuple) else (outcome.value,)
    return [] if outcome.error else [np.asarray(part) for part in value]


def _follows(moved, right):
    """Return whether a result has shifted with the numbers, or stayed."""
    if right.dtype.kind != "f":
        return np.array_equal(moved, right)
    return any(_is_near(moved, right - by) for by in (0, _MOVED_BY))


def _is_near(one, other):
    with np.errstate(invalid="ignore"):
        return np.allclose(one, other, rtol=1e-4, atol=1e-4)


def _is_defined(results):
    """Return whether float32 can hold all numbers of a result; minus infinity counts as a number."""
    with np.errstate(over="ignore"):
        return bool(results) and not any(
            np.isnan(part).any() or (np.float32(part) == np.inf).any() for part in results
        )


def in_other_blocks(case):
    """Return a `LaunchCase` with blocks of other sizes along all axes, and as many threads or a few more.

    Examples
    --------
    >>> from cnn_course.engine.checks.launches import launch, output
    >>> other = in_other_blocks(launch((3, 1, 5), (8, 3, 1), output((5, 3, 24))))
    >>> other.grid, other.block
    ((6, 3, 3), (4, 1, 2))
    """
    axes = max(np.size(case.grid), np.size(case.block))
    grid, block = ((*np.atleast_1d(size).tolist(), 1, 1)[:axes] for size in (case.grid, case.block))
    other = tuple(
        threads // 2 if threads > 1 else min(blocks, 2) for blocks, threads in zip(grid, block, strict=True)
    )
    grid = tuple(-(-blocks * was // now) for blocks, was, now in zip(grid, block, other, strict=True))
    return replace(case, grid=grid, block=other) if axes > 1 else replace(case, grid=grid[0], block=other[0])


def narrowed(cases):
    """Return the case with the largest integers, in the smallest types that hold them.

    The result is a list, which is empty if no case has an array of integers. NumPy computes with 8-bit
    numbers in 8 bits, and wraps to 0 after 255.

    Examples
    --------
    >>> from cnn_course.engine.checks.evidence import Case
    >>> [case.args[0] for case in narrowed([Case((np.array([3, 255]), 2), {}), Case((np.array([1]), 9), {})])]
    [array([  3, 255], dtype=uint8)]
    """
    largest = max(cases, key=_largest)
    if _largest(largest) < 0:
        return []
    for index, value in enumerate(largest.args):
        if _is_whole(value):
            narrow = np.result_type(*map(np.min_scalar_type, (value.min(), value.max())))
            largest = largest.replaced(index, value.astype(narrow))
    return [largest]


def _is_whole(value):
    return isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.size > 0


def _largest(case):
    return max((int(value.max()) for value in case.args if _is_whole(value)), default=-1)


# The largest relative error that rounding excuses.
_MOST = 1e-3


def rounding(case, reference):
    """Return the error of a right result that float32 causes by rounding numbers as large as the inputs.

    A result that is right for inputs one rounding away is as right as float32 permits. If logits are around
    -1000, for example, the logarithm of a softmax's sum loses the digits after the fourth when it is added to
    one of them. The reference shows how much such inputs change the result.

    Parameters
    ----------
    case : LaunchCase
    reference : callable

    Returns
    -------
    float or list of float
        Absolute; for a tuple, one for each result.

    Examples
    --------
    >>> from cnn_course.engine.checks.launches import launch, output
    >>> case = launch(1, 32, np.linspace(1000, 1001, 11, dtype=np.float32), output(11))
    >>> bool(1e-4 < rounding(case, lambda x: np.exp(np.float64(x) - x.max())) < 1e-3)
    True
    """
    rng = np.random.default_rng(0)

    def near(x):
        direction = rng.choice(np.float32([-np.inf, 0, np.inf]), x.shape)
        return np.where((x != 0) & (direction != 0), np.nextafter(x, direction), x)

    right = _results(reference, case)
    others = [_results(reference, _changed(case, near)) for _ in range(3)]
    slack = [_slack(*parts) for parts in zip(right, *others, strict=True)]
    return slack if isinstance(call(reference, case).value, tuple) else slack[0]


def _slack(part, *others):
    """Return the allowed error of a result, given the results of other inputs.

    The smallest change counts: a result that jumps, because it is rounded itself, does not jump in every
    draw.
    """
    if part.dtype.kind != "f":
        return 0.0
    finite = np.isfinite([part, *others]).all(axis=0)
    change = min(np.abs(part[finite].astype(np.float64) - other[finite]).max(initial=0) for other in others)
    return min(4 * change, _MOST * np.abs(part[finite]).max(initial=0))
