import numpy as np
import pytest

from cnn_numba.device import to_device
from cnn_numba.nn.gradcheck import GradientError, compare_gradients, gradcheck, numerical_gradient


def test_derivative_of_a_known_function(rng):
    x, grad_output = rng.standard_normal((2, 3, 4)), rng.standard_normal((2, 3, 4))
    gradient = numerical_gradient(np.sin, x, grad_output)
    assert gradient.shape == x.shape
    np.testing.assert_allclose(gradient, grad_output * np.cos(x), rtol=1e-8, atol=1e-9)


def test_output_of_another_shape_than_the_array(rng):
    matrix, x, grad_output = rng.standard_normal((3, 5)), rng.standard_normal(5), rng.standard_normal(3)
    np.testing.assert_allclose(
        numerical_gradient(lambda x: matrix @ x, x, grad_output), grad_output @ matrix, rtol=1e-7, atol=1e-9
    )
    np.testing.assert_allclose(
        numerical_gradient(lambda m: m @ x, matrix, grad_output),
        np.outer(grad_output, x),
        rtol=1e-7,
        atol=1e-9,
    )


def test_loss_as_a_number_needs_no_grad_output():
    np.testing.assert_allclose(
        numerical_gradient(lambda x: float((x**3).sum()), np.array([1.0, 2.0])), [3, 12], rtol=1e-8
    )
    assert numerical_gradient(lambda x: x**2, np.array(3.0)) == pytest.approx(6)


def test_array_is_put_back_to_the_bit(rng):
    x = rng.standard_normal(50) * 10.0 ** rng.integers(-3, 4, 50)
    before = x.copy()
    numerical_gradient(np.sum, x)
    np.testing.assert_array_equal(x, before)

    calls = iter(range(10))

    def fail_the_third_time(x):
        if next(calls) == 2:
            raise RuntimeError("no")
        return x.sum()

    with pytest.raises(RuntimeError, match="no"):
        numerical_gradient(fail_the_third_time, x)
    np.testing.assert_array_equal(x, before)


def test_function_may_return_the_same_buffer_each_time():
    x, buffer = np.array([1.0, 2.0]), np.empty(2)
    gradient = numerical_gradient(lambda x: np.square(x, out=buffer), x, np.ones(2))
    np.testing.assert_allclose(gradient, [2, 4], rtol=1e-8)


def test_function_may_read_the_array_from_elsewhere():
    class Layer:
        weight = np.array([[1.0, 2.0], [3.0, 4.0]])

        def forward(self, x):
            return self.weight @ x

    layer, x, grad_output = Layer(), np.array([5.0, 6.0]), np.array([1.0, 10.0])
    numerical = numerical_gradient(lambda _: layer.forward(x), layer.weight, grad_output)
    np.testing.assert_allclose(numerical, np.outer(grad_output, x), rtol=1e-8)


def test_views_and_strided_arrays_are_nudged_in_place():
    arena = np.arange(1.0, 13.0)
    weight = arena[2:8].reshape(2, 3).T
    numerical = numerical_gradient(lambda _: (arena**2).sum(), weight)
    np.testing.assert_allclose(numerical, 2 * weight, rtol=1e-7)


def test_float32_needs_a_larger_nudge():
    x = np.array([0.3, -1.7], np.float32)
    numerical = numerical_gradient(np.square, x, np.ones(2), epsilon=1e-2)
    assert numerical.dtype == np.float64
    np.testing.assert_allclose(numerical, 2 * x, rtol=1e-4)
    with pytest.raises(ValueError, match=r"epsilon 1e-06 vanishes beside array\[1\] = 100\.0 \(float32\)"):
        numerical_gradient(np.sum, np.array([0.0, 100.0], np.float32))


def test_the_difference_is_divided_by_the_nudge_actually_made():
    # float32 rounds 1e-6 beside 1.7 to 9.5e-7 or 1.07e-6.
    x = np.array([0.3, -1.7], np.float32)
    numerical = numerical_gradient(lambda x: 3 * x.astype(np.float64), x, np.ones(2), epsilon=1e-6)
    np.testing.assert_allclose(numerical, 3, rtol=1e-8)


def test_gradients_in_float32_are_not_judged():
    x = np.array([0.3, -1.7])
    with pytest.raises(
        TypeError, match=r"^array must have dtype float64, got float32: .*astype\(np.float64\)"
    ):
        gradcheck(np.sum, x.astype(np.float32), np.ones(2))
    with pytest.raises(TypeError, match=r"^the function's output must have dtype float64, got float32"):
        gradcheck(lambda x: x.astype(np.float32), x, np.ones(2), np.ones(2))
    assert gradcheck(lambda x: float(x.sum()), x, np.ones(2)).passed


def test_arrays_on_the_device_are_refused_with_advice():
    with pytest.raises(TypeError, match=r"array must be on the host, .* float64: copy it with .*to_host"):
        gradcheck(np.sum, to_device(np.ones(2)), np.ones(2))


def test_error_falls_and_rises_again_with_epsilon():
    x, grad_output = np.linspace(-1, 1, 7), np.ones(7)
    errors = [
        compare_gradients(np.exp(x), numerical_gradient(np.exp, x, grad_output, epsilon=10.0**-k)).max_error
        for k in (1, 3, 5, 8, 11)
    ]
    assert np.argmin(errors) == 2
    assert errors[0] == pytest.approx(errors[1] * 1e4, rel=0.01)  # the curvature: O(epsilon**2)
    assert errors[2] < errors[3] < errors[4]  # rounding


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ((np.sum, np.array([1, 2])), TypeError, "array must be an array of floats, got ndarray .* int64"),
        ((np.sum, [1.0, 2.0]), TypeError, "array must be an array of floats, got \\[1.0, 2.0\\]"),
        ((np.sum, np.zeros((0, 3))), ValueError, r"array is empty: .* shape \(0, 3\)"),
        ((np.sum, np.broadcast_to(np.zeros(1), 3)), ValueError, "array must be writeable"),
        ((np.sum, np.zeros(2), None, 0.0), ValueError, r"epsilon must be above 0 .*, got 0\.0"),
        ((np.sum, np.zeros(2), None, np.nan), ValueError, "got nan"),
        ((np.sin, np.zeros(2)), ValueError, r"function returns shape \(2,\), so grad_output .* is needed"),
        ((np.sin, np.zeros(2), np.ones(1)), ValueError, r"the shape \(2,\) of the output, got \(1,\)"),
        ((np.sin, np.zeros((2, 1)), np.ones((1, 2))), ValueError, r"\(2, 1\) of the output, got \(1, 2\)"),
        (
            (np.sin, np.zeros(2), [1.0, np.inf]),
            ValueError,
            r"grad_output must be finite, got inf at .*\(1,\)",
        ),
        ((3, np.zeros(2)), TypeError, "function must be callable, got 3"),
        ((lambda x: None, np.zeros(2)), TypeError, "the function's output must be a number, .*, got None"),
        ((lambda x: [1.0, None], np.zeros(2)), TypeError, r"output must be a number, .*, got \[1.0, None\]"),
        ((lambda x: [[1.0], [1.0, 2.0]], np.zeros(2)), TypeError, "output must be a number, or an array of"),
        ((lambda x: "1", np.zeros(2)), TypeError, "output must be a number, .*, got '1'"),
        ((lambda x: 1j * x.sum(), np.zeros(2)), TypeError, "output must be a number, .*, got .*j"),
        (
            (lambda x: x.sum() * np.nan, np.zeros(2)),
            ValueError,
            r"output must be finite, got nan: choose other inputs$",
        ),
        (
            (lambda x: np.where(x > 0, np.inf, x), np.zeros((1, 2))),
            ValueError,
            r"^the function's output must be finite, got inf at index \(0, 0\): choose other inputs$",
        ),
    ],
)
def test_numerical_gradient_rejects(arguments, error, match):
    with pytest.raises(error, match=match):
        numerical_gradient(*arguments)


@pytest.mark.parametrize("gradient", [None, "1", [1.0, None]])
def test_a_gradient_that_is_none_is_refused_before_anything_is_nudged(gradient):
    calls = []
    with pytest.raises(TypeError, match=r"^grad_x must be a number, or an array of numbers, got "):
        gradcheck(lambda x: calls.append(0) or x.sum(), np.zeros(2), gradient, name="grad_x")
    assert len(calls) == 1


def test_gradcheck_returns_the_error_of_every_element(rng):
    x, grad_output = rng.standard_normal((3, 4)), rng.standard_normal((3, 4))
    report = gradcheck(np.tanh, x, grad_output * (1 - np.tanh(x) ** 2), grad_output)
    assert report.passed
    assert report.error.shape == report.wrong.shape == (3, 4)
    assert 0 < report.max_error < 1e-8
    assert not report.wrong.any()


@pytest.mark.parametrize("index", list(np.ndindex(2, 3)))
def test_one_wrong_element_is_found_and_named(rng, index):
    x, grad_output = rng.standard_normal((2, 3)), rng.standard_normal((2, 3))
    gradient = grad_output * np.cos(x)
    gradient[index] += 1e-3
    with pytest.raises(GradientError) as failure:
        gradcheck(np.sin, x, gradient, grad_output, name="grad_x")
    report = failure.value.report
    assert isinstance(failure.value, AssertionError)
    assert (report.index, report.wrong.sum(), report.passed) == (index, 1, False)
    message = str(failure.value)
    assert f"grad_x: 1 of 6 elements are wrong, the worst at index {index}" in message
    assert f"received {gradient[index]:.5g}"[:12] in message
    assert "expected" in message
    assert "error    0.001" in message


def test_worst_is_measured_against_its_tolerance():
    report = compare_gradients([1000.1, 0.01], [1000.0, 0.0], rtol=1e-3, atol=1e-3)
    assert report.index == (1,)
    np.testing.assert_array_equal(report.wrong, [False, True])
    assert report.max_error == pytest.approx(0.1)
    assert compare_gradients([0.0, 2.0], [0.0, 2.5], rtol=0, atol=0).index == (1,)


@pytest.mark.parametrize(
    ("received", "expected"), [(np.nan, 1.0), (1.0, np.nan), (np.inf, np.inf), (np.inf, 1.0)]
)
def test_non_finite_is_always_wrong(received, expected):
    report = compare_gradients([5.0, received, 7.0], [5.0, expected, 8.0])
    assert not report.passed
    assert report.index == (1,)
    assert np.isnan(report.max_error)
    np.testing.assert_array_equal(report.wrong, [False, True, True])


def test_nothing_is_broadcast_and_empty_does_not_pass():
    with pytest.raises(ValueError, match=r"grad_bias must have shape \(3,\), got \(1,\)"):
        compare_gradients(np.zeros(1), np.zeros(3), name="grad_bias")
    with pytest.raises(ValueError, match=r"gradient is empty: .* shape \(0,\)"):
        compare_gradients([], [])
    with pytest.raises(ValueError, match=r"gradient must have shape \(2,\), got \(2, 1\)"):
        gradcheck(np.sum, np.zeros(2), np.ones((2, 1)))
