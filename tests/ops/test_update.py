import numpy as np
import pytest
import torch
from helpers import backends, random_float32, signatures, strided
from hypothesis import given, settings, strategies as st

from cnn_numba.ops.update import cpu, gpu, gpu_scale, reference

thorough = settings(deadline=None, derandomize=True, max_examples=25)
STEPS = 20

sgd_options = st.tuples(
    st.sampled_from([0.0, 0.5, 0.9]), st.sampled_from([0.0, 0.01, 0.3]), st.booleans()
).map(lambda drawn: dict(momentum=drawn[0], weight_decay=drawn[1], nesterov=drawn[2] and drawn[0] > 0))
adam_options = st.fixed_dictionaries(
    {
        "beta1": st.sampled_from([0.9, 0.5, 0.0]),
        "beta2": st.sampled_from([0.999, 0.9]),
        "eps": st.sampled_from([1e-8, 1e-3, 1.0]),
        "weight_decay": st.sampled_from([0.0, 0.01, 0.3]),
    }
)


@pytest.mark.parametrize("backend", [cpu, reference])
def test_betas_of_numpy_lose_no_digits(backend):
    betas = np.float32(0.9), np.float32(0.9999)
    found = []
    for beta1, beta2 in (betas, map(float, betas)):
        arrays = [np.ones(1, np.float32), np.ones(1, np.float32), *np.zeros((2, 1), np.float32)]
        for step in range(1, 6):
            backend.adam_update(*arrays, step, 1.0, beta1, beta2)
        found.append(arrays[0])
    np.testing.assert_array_equal(*found)


def problem(size):
    """Parameters, a gradient for each step (some of them 0, some tiny), and a learning rate for each."""
    rng = np.random.default_rng(size)
    gradients = random_float32(rng, STEPS, size) * np.exp(random_float32(rng, size) * 3)
    gradients[rng.random(gradients.shape) < 0.1] = 0
    rates = 0.01 * (1 + np.arange(STEPS) % 3)
    return random_float32(rng, size), gradients, rates


def torch_run(optimizer, parameters, gradients, rates, **options):
    """Return the parameters after each step of a torch optimiser in float64."""
    leaf = torch.from_numpy(parameters.astype(np.float64)).requires_grad_()
    optimizer = optimizer([leaf], lr=1.0, **options)
    history = []
    for gradient, rate in zip(gradients, rates, strict=True):
        optimizer.param_groups[0]["lr"] = rate
        leaf.grad = torch.from_numpy(gradient.astype(np.float64))
        optimizer.step()
        history.append(leaf.detach().numpy().copy())
    return history


def check_run(step, parameters, gradients, rates, expected):
    """Take the steps, and compare the parameters after each of them."""
    tolerance = 1e-12 if parameters.dtype == np.float64 else 2e-5
    for number, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        before = gradient.copy()
        assert step(parameters, gradient, number, float(rate)) is parameters
        np.testing.assert_array_equal(gradient, before)
        scale = tolerance * max(1, np.abs(expected[number - 1]).max())
        np.testing.assert_allclose(parameters, expected[number - 1], rtol=tolerance, atol=scale / 10)


def check_sgd(ops, size, dtype, **options):
    parameters, gradients, rates = problem(size)
    expected = torch_run(torch.optim.SGD, parameters, gradients, rates, **options)
    velocity = np.zeros(size, dtype) if options.get("momentum") else None

    def step(parameters, gradient, number, rate):
        return ops.sgd_update(parameters, gradient, velocity, rate, **options)

    check_run(step, parameters.astype(dtype), gradients.astype(dtype), rates, expected)


def check_adam(ops, size, dtype, beta1=0.9, beta2=0.999, **options):
    parameters, gradients, rates = problem(size)
    expected = torch_run(torch.optim.Adam, parameters, gradients, rates, betas=(beta1, beta2), **options)
    means = np.zeros(size, dtype), np.zeros(size, dtype)

    def step(parameters, gradient, number, rate):
        return ops.adam_update(parameters, gradient, *means, number, rate, beta1, beta2, **options)

    check_run(step, parameters.astype(dtype), gradients.astype(dtype), rates, expected)


def test_backends_have_the_same_functions():
    expected = signatures(reference)
    assert len(expected) == 5
    assert signatures(cpu) == expected
    on_gpu = signatures(gpu) | signatures(gpu_scale)
    assert {name: on_gpu[name] for name in expected} == expected
    assert all(hasattr(gpu, name) for name in expected)


@backends("update")
@thorough
@given(size=st.integers(1, 70), options=sgd_options)
def test_sgd_follows_torch(ops, size, options):
    check_sgd(ops, size, np.float32, **options)


@backends("update")
@thorough
@given(size=st.integers(1, 70), options=adam_options)
def test_adam_follows_torch(ops, size, options):
    check_adam(ops, size, np.float32, **options)


@thorough
@given(size=st.integers(1, 9), sgd=sgd_options, adam=adam_options)
def test_reference_follows_torch_in_float64(size, sgd, adam):
    check_sgd(reference, size, np.float64, **sgd)
    check_adam(reference, size, np.float64, **adam)


@backends("update")
@pytest.mark.parametrize("size", [1, 8, 63, 1000, 65_537])
def test_sizes_that_break_kernels(ops, size):
    check_sgd(ops, size, np.float32)
    check_sgd(ops, size, np.float32, momentum=0.9)
    check_adam(ops, size, np.float32)


def test_cpu_updates_as_many_parameters_as_all_cores_take():
    size = cpu.PARALLEL_FROM + 5
    check_sgd(cpu, size, np.float32)
    check_sgd(cpu, size, np.float32, momentum=0.9)
    check_adam(cpu, size, np.float32)


SETTINGS = [
    (check_sgd, {}),
    (check_sgd, dict(weight_decay=0.3)),
    (check_sgd, dict(momentum=0.9, weight_decay=0.01)),
    (check_sgd, dict(momentum=0.5, nesterov=True)),
    (check_adam, {}),
    (check_adam, dict(beta1=0.5, beta2=0.9, eps=1e-3, weight_decay=0.01)),
    (check_adam, dict(beta1=0.0)),
]


@backends("update", gpu=True)
@pytest.mark.parametrize(("check", "options"), SETTINGS)
def test_settings_follow_torch(ops, check, options):
    for size in (1, 37):
        check(ops, size, np.float32, **options)


def floats(*values):
    return np.array(values, np.float32)


@backends("update", gpu=True)
def test_sgd_by_hand(ops):
    parameters = floats(1, -2)
    ops.sgd_update(parameters, floats(0.5, 4), None, lr=0.5)
    np.testing.assert_array_equal(parameters, [0.75, -4])
    ops.sgd_update(parameters, floats(1, 0), None, lr=0.5, weight_decay=0.25)
    np.testing.assert_array_equal(parameters, [0.15625, -3.5])


@backends("update", gpu=True)
def test_momentum_by_hand(ops):
    parameters, velocity = floats(0, 0), floats(0, 0)
    for expected_velocity, expected in (([2, -4], [-1, 2]), ([3, -6], [-2.5, 5]), ([3.5, -7], [-4.25, 8.5])):
        ops.sgd_update(parameters, floats(2, -4), velocity, lr=0.5, momentum=0.5)
        np.testing.assert_array_equal(velocity, expected_velocity)
        np.testing.assert_array_equal(parameters, expected)
    # Nesterov looks ahead: the gradient 2 plus half the new velocity, 0.5 * 3.75
    ops.sgd_update(parameters, floats(2, -4), velocity, lr=0.5, momentum=0.5, nesterov=True)
    np.testing.assert_array_equal(velocity, [3.75, -7.5])
    np.testing.assert_array_equal(parameters, [-4.25 - 1.9375, 8.5 + 3.875])


@backends("update", gpu=True)
def test_adam_by_hand(ops):
    # The first step is lr in the direction of the gradient; with eps = 1 and gradient 1, half of that.
    parameters, exp_avg, exp_avg_sq = floats(0, 0, 0), floats(0, 0, 0), floats(0, 0, 0)
    arguments = parameters, floats(1, -3, 0), exp_avg, exp_avg_sq
    ops.adam_update(*arguments, step=1, lr=0.5, beta1=0.75, beta2=0.75, eps=1.0)
    np.testing.assert_allclose(exp_avg, [0.25, -0.75, 0], rtol=1e-6)
    np.testing.assert_allclose(exp_avg_sq, [0.25, 2.25, 0], rtol=1e-6)
    np.testing.assert_allclose(parameters, [-0.25, 0.375, 0], rtol=1e-6)
    # m = 0.1875, v = 0.1875; corrected by 1 - 0.75**2 = 0.4375: m_hat = v_hat = 3/7
    ops.adam_update(
        parameters, floats(0, 0, 0), exp_avg, exp_avg_sq, step=2, lr=0.5, beta1=0.75, beta2=0.75, eps=1.0
    )
    np.testing.assert_allclose(exp_avg[0], 0.1875, rtol=1e-6)
    np.testing.assert_allclose(exp_avg_sq[0], 0.1875, rtol=1e-6)
    np.testing.assert_allclose(parameters[0], -0.25 - 0.5 * (3 / 7) / (np.sqrt(3 / 7) + 1), rtol=1e-6)


@backends("update", gpu=True)
def test_adam_weight_decay_is_part_of_the_gradient(ops):
    parameters, exp_avg, exp_avg_sq = floats(4, -4), floats(0, 0), floats(0, 0)
    ops.adam_update(parameters, floats(0, 0), exp_avg, exp_avg_sq, step=1, lr=0.5, weight_decay=0.25)
    np.testing.assert_allclose(exp_avg, [0.1, -0.1], rtol=1e-6)
    np.testing.assert_allclose(parameters, [3.5, -3.5], rtol=1e-6)  # not 4 - 0.5 * 0.25 * 4


@backends("update", gpu=True)
def test_a_parameter_without_a_gradient_stays(ops):
    parameters, zeros = floats(3, -1), floats(0, 0)
    for step in range(1, 4):
        ops.adam_update(parameters, zeros, zeros.copy(), zeros.copy(), step, lr=0.1)
        ops.sgd_update(parameters, zeros, zeros.copy(), lr=0.1, momentum=0.9)
    np.testing.assert_array_equal(parameters, [3, -1])


@backends("update", gpu=True)
def test_late_steps_need_no_correction(ops):
    parameters, exp_avg, exp_avg_sq = floats(0), floats(0.5), floats(0.25)
    ops.adam_update(parameters, floats(0.5), exp_avg, exp_avg_sq, step=1_000_000, lr=0.125)
    np.testing.assert_allclose(parameters, [-0.125], rtol=1e-6)


@backends("update", gpu=True)
def test_without_momentum_the_velocity_is_left_alone(ops):
    parameters, velocity = floats(1, 2), floats(np.nan, np.nan)
    ops.sgd_update(parameters, floats(1, 1), velocity, lr=1.0)
    np.testing.assert_array_equal(parameters, [0, 1])
    assert np.isnan(velocity).all()


@backends("update", gpu=True)
def test_any_kind_of_number_is_accepted(ops):
    parameters, velocity, exp_avg, exp_avg_sq = floats(0), floats(0), floats(0), floats(0)
    ops.sgd_update(
        parameters, floats(1), velocity, np.float32(1), momentum=np.float64(0.5), nesterov=np.True_
    )
    ops.sgd_update(parameters, floats(1), None, 1)
    np.testing.assert_array_equal(parameters, [-2.5])
    ops.adam_update(parameters, floats(1), exp_avg, exp_avg_sq, np.int32(1), 1, eps=0)
    np.testing.assert_allclose(parameters, [-3.5], rtol=1e-6)


@backends("update", gpu=True)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # inf / inf
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_infinity_spoil_their_own_parameter(ops, bad):
    size = 20
    gradients = np.ones(size, np.float32)
    gradients[3] = bad
    zeros, spoiled = np.zeros(size, np.float32), np.arange(size) == 3
    for parameters in (
        ops.sgd_update(zeros.copy(), gradients, None, lr=0.1),
        ops.sgd_update(zeros.copy(), gradients, zeros.copy(), lr=0.1, momentum=0.9),
        ops.adam_update(zeros.copy(), gradients, zeros.copy(), zeros.copy(), 1, lr=0.1),
    ):
        np.testing.assert_array_equal(~np.isfinite(parameters), spoiled)


@backends("update")
def test_two_runs_give_the_same_bits(ops):
    def run():
        parameters, gradients, rates = problem(4099)
        state = np.zeros((3, 4099), np.float32)
        for number, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
            ops.adam_update(parameters, gradient, state[0], state[1], number, rate)
            ops.sgd_update(parameters, gradient, state[2], rate, momentum=0.9, weight_decay=0.1)
        return parameters.tobytes() + state.tobytes()

    assert run() == run()


def good_arguments(name):
    """Arguments of a function, all arrays of ones."""
    arrays = {"sgd_update": ["velocity"], "adam_update": ["exp_avg", "exp_avg_sq"]}[name]
    options = {"sgd_update": {"momentum": 0.9}, "adam_update": {"step": 1}}[name]
    names = ["parameters", "gradients", *arrays]
    return {array: np.ones(3, np.float32) for array in names} | options | {"lr": 0.1}


PARAMETERS = [
    (name, parameter)
    for name in ("sgd_update", "adam_update")
    for parameter, value in good_arguments(name).items()
    if isinstance(value, np.ndarray)
]


def check_refused(ops, name, arguments, error, match):
    """Check the error, and that nothing changed."""
    with pytest.raises(error, match=match):
        getattr(ops, name)(**arguments)
    for value in arguments.values():
        if isinstance(value, (np.ndarray, list)):
            np.testing.assert_array_equal(value, np.ones_like(value))


@backends("update", gpu=True)
@pytest.mark.parametrize(("name", "parameter"), PARAMETERS)
def test_wrong_shapes_raise(ops, name, parameter):
    for wrong in ((1,), (4,), (3, 1), ()):
        arguments = good_arguments(name) | {parameter: np.ones(wrong, np.float32)}
        check_refused(ops, name, arguments, ValueError, r"must have shape \(\S+\), got \(.*\)")


@backends("update", gpu=True)
@pytest.mark.parametrize(("name", "parameter"), PARAMETERS)
def test_other_types_are_rejected(ops, name, parameter):
    for wrong, got in (
        (np.ones(3, np.int32), "int32"),
        ([1.0, 1.0, 1.0], r"\[1.0, 1.0, 1.0\]"),
        (None, "None"),
    ):
        arguments = good_arguments(name) | {parameter: wrong}
        check_refused(ops, name, arguments, TypeError, rf"{parameter} must .*, got .*{got}")


@pytest.mark.parametrize(("name", "parameter"), PARAMETERS)
def test_cpu_rejects_wrong_arrays(name, parameter):
    arguments = good_arguments(name)
    wrong_dtype = arguments | {parameter: np.ones(3)}
    check_refused(cpu, name, wrong_dtype, TypeError, f"{parameter} must have dtype float32, got float64")
    wrong_layout = arguments | {parameter: strided(np.ones(3, np.float32))}
    match = rf"{parameter} must be C-contiguous, got shape \(3,\) with strides \(8,\)"
    check_refused(cpu, name, wrong_layout, ValueError, match)


@backends("update", gpu=True)
def test_nesterov_needs_momentum(ops):
    arguments = good_arguments("sgd_update") | {"momentum": 0.0, "nesterov": True}
    check_refused(ops, "sgd_update", arguments, ValueError, "nesterov needs momentum, got momentum 0.0")


@backends("update", gpu=True)
@pytest.mark.parametrize(
    ("step", "error", "match"),
    [
        (0, ValueError, "step must be at least 1, got 0"),
        (-3, ValueError, "got -3"),
        (1.0, TypeError, "step must be an int, got 1.0"),
        (True, TypeError, "step must be an int, got True"),
    ],
)
def test_steps_count_from_one(ops, step, error, match):
    check_refused(ops, "adam_update", good_arguments("adam_update") | {"step": step}, error, match)


def test_cpu_read_only_state_is_rejected():
    arrays = [np.ones(3, np.float32) for _ in range(4)]
    for index, name in ((0, "parameters"), (2, "exp_avg"), (3, "exp_avg_sq")):
        arrays[index].flags.writeable = False
        with pytest.raises(ValueError, match=f"{name} must be writeable"):
            cpu.adam_update(*arrays, step=1, lr=0.1)
        arrays[index].flags.writeable = True
    arrays[1].flags.writeable = False  # gradients are only read
    cpu.adam_update(*arrays, step=1, lr=0.1)
