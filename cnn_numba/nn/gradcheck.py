"""Is a gradient right? Compare it with float64 central differences, element by element.

Nudge one number up and down by epsilon, and see how much the loss moves. That takes two forward passes for
each number, far too slow to train with, but no calculus: so every backward pass here is checked by it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike

from cnn_numba.arguments import number, settings, shown
from cnn_numba.device import is_device_array

_OUTPUT = "the function's output"


class GradientError(AssertionError):
    """A gradient differs from the numerical one; `report` holds the `GradientReport`."""

    def __init__(self, report: GradientReport) -> None:
        super().__init__(str(report))
        self.report = report


@dataclass(frozen=True)
class GradientReport:
    """A comparison of a gradient with the expected one, element by element, in float64."""

    name: str  #: The name of the gradient
    received: np.ndarray
    expected: np.ndarray
    error: np.ndarray  #: ``|received - expected|``; NaN where one of the two is not finite
    tolerance: np.ndarray  #: The error allowed for each element: ``atol + rtol * |expected|``

    @property
    def wrong(self) -> np.ndarray:
        """Mask of the elements with an error above the tolerance; NaN is always wrong."""
        return ~(self.error <= self.tolerance)

    @property
    def passed(self) -> bool:
        """Whether every element is within the tolerance."""
        return not self.wrong.any()

    @property
    def index(self) -> tuple[int, ...]:
        """Index of the worst element: a NaN if there is one, else the largest error / tolerance."""
        error = np.where(np.isnan(self.error), np.inf, self.error)
        with np.errstate(divide="ignore", invalid="ignore"):
            excess = np.divide(error, self.tolerance, out=np.zeros(error.shape), where=error > 0)
        return tuple(int(i) for i in np.unravel_index(np.argmax(excess), excess.shape))

    @property
    def max_error(self) -> float:
        """The largest error; NaN if one is NaN."""
        return float(self.error.max())

    def __str__(self):
        at = self.index
        verdict = f"{self.wrong.sum()} of {self.error.size} elements are wrong, the worst at index {at}"
        return (
            f"{self.name}: {verdict}\n"
            f"  received {self.received[at]:.10g}\n"
            f"  expected {self.expected[at]:.10g}\n"
            f"  error    {self.error[at]:.3g} (allowed: {self.tolerance[at]:.3g})"
        )


def numerical_gradient(
    function: Callable[[np.ndarray], ArrayLike],
    array: np.ndarray,
    grad_output: ArrayLike | None = None,
    epsilon: float = 1e-6,
) -> np.ndarray:
    """Differentiate a function numerically with respect to every element of an array.

    With the loss ``L = sum(grad_output * function(array))``, each element x of `array` gets::

        dL/dx = (L(x + epsilon) - L(x - epsilon)) / (2 * epsilon) + O(epsilon**2)

    Parameters
    ----------
    function : callable
        Takes `array`, returns an array or a number. It may return the same buffer each time.
    array : ndarray, any shape, float64
        Where to differentiate, such as a layer's weight: each element is nudged in place and restored.
    grad_output : array_like, shape of the output, optional
        Gradient of the loss with respect to the output of `function`; None if the output is the loss.
    epsilon : float
        The nudge. Curvature and rounding errors balance near 1e-6 in float64, near 1e-2 in float32.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as above, `array` is empty or read-only, adding `epsilon` changes nothing, or an
        output is missing or not finite.

    Notes
    -----
    Central differences mislead at a kink: keep the inputs of ReLU away from 0 and those of max pooling free
    of near ties, by more than `epsilon`. Nocedal and Wright, "Numerical Optimization" (2006), section 8.1.

    Examples
    --------
    >>> x = np.array([1.0, 2.0, 3.0])
    >>> numerical_gradient(lambda x: (x**2).sum(), x).round(6)
    array([2., 4., 6.])
    >>> numerical_gradient(np.square, x, grad_output=[1.0, 0.0, 10.0]).round(6)
    array([ 2.,  0., 60.])
    """
    _check_arguments(function, array, epsilon)
    gradient = np.empty(array.shape)
    for index in np.ndindex(array.shape):
        centre = array[index]
        try:
            array[index] = centre + epsilon
            high, above = array[index], _finite(function(array), _OUTPUT)
            array[index] = centre - epsilon
            low, below = array[index], _finite(function(array), _OUTPUT)
        finally:
            array[index] = centre
        if not low < centre < high and np.isfinite(centre):
            element = f"array{list(index)} = {centre} ({array.dtype})"
            raise ValueError(f"epsilon {epsilon} vanishes beside {element}")
        # Subtract, then sum: outputs that do not depend on this element cancel exactly.
        difference = (above - below) * _output_gradient(grad_output, above.shape)
        gradient[index] = difference.sum() / (float(high) - float(low))
    return gradient


def compare_gradients(
    received: ArrayLike, expected: ArrayLike, name: str = "gradient", rtol: float = 1e-5, atol: float = 1e-7
) -> GradientReport:
    """Compare a gradient with the one it should equal; report the error of every element.

    Parameters
    ----------
    received : array_like
        The gradient under test.
    expected : array_like, shape of `received`
        For example from `numerical_gradient`.
    name : str
        Its name in the report.
    rtol, atol : float
        The tolerance of an element is ``atol + rtol * |expected|``.

    Raises
    ------
    TypeError, ValueError
        If the shapes differ (nothing is broadcast), the arrays are empty, or a tolerance is not a number.

    Examples
    --------
    >>> report = compare_gradients([1.0, 2.5, 3.0], [1.0, 2.0, 3.0], name="grad_weight")
    >>> report.passed, report.index, report.error
    (False, (1,), array([0. , 0.5, 0. ]))
    >>> print(report)
    grad_weight: 1 of 3 elements are wrong, the worst at index (1,)
      received 2.5
      expected 2
      error    0.5 (allowed: 2.01e-05)
    """
    rtol, atol = settings(rtol=rtol, atol=atol)
    received, expected = _values(received, name), _values(expected, "expected")
    if received.shape != expected.shape:
        raise ValueError(f"{name} must have shape {expected.shape}, got {received.shape}")
    if received.size == 0:
        raise ValueError(f"{name} is empty: there is nothing to compare in shape {received.shape}")
    with np.errstate(invalid="ignore"):  # inf - inf is NaN, and NaN is wrong
        error = np.abs(received - expected)
        tolerance = atol + rtol * np.abs(expected)
    error = np.where(np.isfinite(error), error, np.nan)
    return GradientReport(name, received, expected, error, tolerance)


def gradcheck(
    function: Callable[[np.ndarray], ArrayLike],
    array: np.ndarray,
    gradient: ArrayLike,
    grad_output: ArrayLike | None = None,
    *,
    name: str = "gradient",
    epsilon: float = 1e-6,
    rtol: float = 1e-5,
    atol: float = 1e-7,
) -> GradientReport:
    """Check that a gradient equals the numerical one in every element.

    Parameters
    ----------
    function, array, epsilon
        As for `numerical_gradient`: the forward pass, and where the gradient was taken.
    gradient : ndarray, shape of `array`
        What the backward pass returned for `array` and `grad_output`.
    grad_output : array_like, shape of the output, optional
        The argument of the backward pass. Use random numbers: ones hide errors that sum to zero.
    name, rtol, atol
        As for `compare_gradients`.

    Raises
    ------
    GradientError
        If an element is wrong; the message names the worst one, and `report` holds all of them.
    TypeError, ValueError
        As in `numerical_gradient` and `compare_gradients`; also if `array` or the output of `function` is
        float32, whose rounding errors would look like a wrong gradient.

    Examples
    --------
    >>> x, grad_output = np.array([1.0, 2.0]), np.array([3.0, 5.0])
    >>> gradcheck(np.square, x, 2 * x * grad_output, grad_output).passed
    True
    >>> gradcheck(np.square, x, x * grad_output, grad_output, name="grad_x", rtol=1e-3)
    Traceback (most recent call last):
        ...
    cnn_numba.nn.gradcheck.GradientError: grad_x: 2 of 2 elements are wrong, the worst at index (1,)
      received 10
      expected 20
      error    10 (allowed: 0.02)
    """
    _check_arguments(function, array, epsilon)
    for what, values in (("array", array), (_OUTPUT, function(array))):
        # An `epsilon` of 1e-6 changes mostly the rounding errors of a float32.
        if (dtype := getattr(values, "dtype", None)) in (np.float16, np.float32):
            advice = "compute in float64, with array.astype(np.float64) and the reference backend"
            raise TypeError(f"{what} must have dtype float64, got {dtype}: {advice}")
    gradient = _values(gradient, name)  # before all elements are nudged
    expected = numerical_gradient(function, array, grad_output, epsilon)
    report = compare_gradients(gradient, expected, name, rtol, atol)
    if not report.passed:
        raise GradientError(report)
    return report


def _check_arguments(function, array, epsilon):
    """Refuse what cannot be called, an array that cannot be nudged, and a nudge of 0."""
    if not callable(function):
        raise TypeError(f"function must be callable, got {shown(function)}")
    if is_device_array(array):
        where = "on the host, where its elements are nudged"
        raise TypeError(f"array must be {where}, got {shown(array)}: copy it with cnn_numba.device.to_host")
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
        raise TypeError(f"array must be an array of floats, got {shown(array)}")
    if array.size == 0:
        raise ValueError(f"array is empty: there is nothing to differentiate in shape {array.shape}")
    if not array.flags.writeable:
        raise ValueError("array must be writeable, because its elements are nudged in place")
    number(epsilon, "epsilon", without=(0.0,))


def _output_gradient(grad_output, shape):
    """Return the gradient of an output of `shape`, 1 if the output is the loss."""
    if grad_output is None:
        if np.prod(shape) != 1:
            raise ValueError(f"function returns shape {shape}, so grad_output of that shape is needed")
        return np.ones(shape)
    grad_output = _finite(grad_output, "grad_output")
    if grad_output.shape != shape:
        raise ValueError(f"grad_output must have the shape {shape} of the output, got {grad_output.shape}")
    return grad_output


def _finite(array: object, what: str) -> np.ndarray:
    """Return a float64 copy, all of whose values are finite."""
    values = _values(array, what)
    if not np.isfinite(values).all():
        index = tuple(np.argwhere(~np.isfinite(values))[0].tolist())
        where = f" at index {index}" if index else ""
        raise ValueError(f"{what} must be finite, got {values[index]}{where}: choose other inputs")
    return values


def _values(array: object, what: str) -> np.ndarray:
    """Return a float64 copy: the next call may overwrite the buffer."""
    try:
        values = np.array(array)
    except (TypeError, ValueError):
        values = np.empty(0, object)
    if values.dtype.kind == "O" and values.size and all(isinstance(value, Real) for value in values.flat):
        with contextlib.suppress(OverflowError):  # fractions, and integers that no dtype holds
            values = values.astype(np.float64)
    if values.dtype.kind not in "buif":  # NumPy would make NaN of None, and a number of its text
        raise TypeError(f"{what} must be a number, or an array of numbers, got {shown(array)}")
    return values.astype(np.float64, copy=False)
