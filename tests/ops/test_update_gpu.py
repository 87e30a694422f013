import numpy as np
import pytest
import torch
from helpers import random_float32
from launches import only_launches, sanitized

from cnn_numba import device
from cnn_numba.ops.update import gpu, reference
from cnn_numba.ops.update.gpu import SKIPPED, THREADS

STEPS = 6
ARENAS = {"sgd": ("velocity",), "adam": ("exp_avg", "exp_avg_sq")}
SETTINGS = [
    ("sgd", {}),
    ("sgd", dict(weight_decay=0.1)),
    ("sgd", dict(momentum=0.9, weight_decay=0.01)),
    ("sgd", dict(momentum=0.9, nesterov=True)),
    ("adam", {}),
    ("adam", dict(beta1=0.8, beta2=0.99, eps=1e-6, weight_decay=0.1)),
]
all_settings = pytest.mark.parametrize(("name", "options"), SETTINGS)


def problem(rng, name, size, steps=STEPS):
    """Parameters with the optimiser's state, one gradient and one learning rate for each step."""
    arenas = [random_float32(rng, size)] + [np.zeros(size, np.float32) for _ in ARENAS[name]]
    return arenas, random_float32(rng, steps, size), 0.01 * (1 + rng.random(steps))


def plain_step(ops, name, arenas, gradient, number, lr, options):
    parameters, *state = arenas
    if name == "sgd":
        return ops.sgd_update(parameters, gradient, *state, lr, **options)
    return ops.adam_update(parameters, gradient, *state, number, lr, **options)


def scheduled_step(name, arenas, gradient, rates, cursor, options, advances=None):
    parameters, *state = arenas
    update = {"sgd": gpu.sgd_update_scheduled, "adam": gpu.adam_update_scheduled}[name]
    return update(parameters, gradient, *state, rates, cursor, **options, advances=advances)


def make_rates(name, lrs, options, first_step=1):
    if name == "sgd":
        return gpu.sgd_rates(lrs)
    return gpu.adam_rates(lrs, first_step, options.get("beta1", 0.9), options.get("beta2", 0.999))


def on_device(arrays):
    return [device.to_device(array) for array in arrays]


def cursor_at(row):
    return device.to_device(np.array([row], np.int32))


@all_settings
@pytest.mark.parametrize("size", [1, THREADS - 1, THREADS, THREADS + 1, 2 * THREADS + 77])
def test_sizes_that_break_kernels(rng, name, options, size):
    arenas, (gradient, *_), (lr, *_) = problem(rng, name, size)
    there = on_device(arenas)
    assert plain_step(gpu, name, there, device.to_device(gradient), 1, lr, options) is there[0]
    plain_step(reference, name, arenas, gradient, 1, lr, options)
    for received, expected in zip(there, arenas, strict=True):
        np.testing.assert_allclose(device.to_host(received), expected, rtol=1e-6, atol=1e-7)


@all_settings
def test_scheduled_updates_give_the_bits_of_the_plain_ones(rng, name, options):
    arenas, gradients, lrs = problem(rng, name, THREADS + 45)
    plain, scheduled = on_device(arenas), on_device(arenas)
    rates, cursor = device.to_device(make_rates(name, lrs, options)), cursor_at(0)
    for number, (gradient, lr) in enumerate(zip(gradients, lrs, strict=True), start=1):
        gradient = device.to_device(gradient)
        plain_step(gpu, name, plain, gradient, number, lr, options)
        device.copy(cursor, np.array([number - 1], np.int32))
        assert scheduled_step(name, scheduled, gradient, rates, cursor, options) is scheduled[0]
        for one, other, before in zip(plain, scheduled, arenas, strict=True):
            one, other = device.to_host(one), device.to_host(other)
            assert one.tobytes() == other.tobytes()
            # Without momentum the velocity stays as it is.
            used = name != "sgd" or "momentum" in options or before is arenas[0]
            assert (one.tobytes() != before.tobytes()) == used
    assert device.to_host(cursor) == STEPS - 1


@all_settings
def test_a_schedule_may_begin_at_any_step(rng, name, options):
    """Rates of steps 4 to 6 continue after three plain steps, as when a run is resumed."""
    arenas, gradients, lrs = problem(rng, name, 9)
    plain, resumed = on_device(arenas), on_device(arenas)
    rates = device.to_device(make_rates(name, lrs[3:], options, first_step=4))
    for number, (gradient, lr) in enumerate(zip(on_device(gradients), lrs, strict=True), start=1):
        plain_step(gpu, name, plain, gradient, number, lr, options)
        if number <= 3:
            plain_step(gpu, name, resumed, gradient, number, lr, options)
        else:
            scheduled_step(name, resumed, gradient, rates, cursor_at(number - 4), options)
    for one, other in zip(plain, resumed, strict=True):
        assert device.to_host(one).tobytes() == device.to_host(other).tobytes()


@all_settings
@pytest.mark.parametrize("row", [-1, 3, 2**31 - 1, -(2**31)])
def test_a_cursor_outside_the_rates_makes_the_parameters_nan(rng, name, options, row):
    arenas, (gradient, *_), lrs = problem(rng, name, 5, steps=3)
    arenas, rates = on_device(arenas), device.to_device(make_rates(name, lrs, options))
    with sanitized() as reports:
        scheduled_step(name, arenas, device.to_device(gradient), rates, cursor_at(row), options)
    assert reports[0].kinds <= {"NaN produced"}, str(reports[0])
    assert np.isnan(device.to_host(arenas[0])).all()


@all_settings
def test_one_launch_and_nothing_else(rng, name, options):
    arenas, (gradient, *_), lrs = problem(rng, name, 2 * THREADS + 1)
    arenas, gradient, cursor = on_device(arenas), device.to_device(gradient), cursor_at(2)
    rates = device.to_device(make_rates(name, lrs, options))
    with only_launches() as launched:
        plain_step(gpu, name, arenas, gradient, 1, 0.1, options)
        scheduled_step(name, arenas, gradient, rates, cursor, options)
    assert launched == [f"{name}_kernel", f"{name}_scheduled_kernel"]


@all_settings
def test_the_sanitizer_finds_nothing(rng, name, options):
    arenas, (gradient, *_), lrs = problem(rng, name, THREADS + 45)
    arenas, gradient, cursor = on_device(arenas), device.to_device(gradient), cursor_at(2)
    rates = device.to_device(make_rates(name, lrs, options))
    with sanitized() as reports:
        plain_step(gpu, name, arenas, gradient, 1, 0.1, options)
        scheduled_step(name, arenas, gradient, rates, cursor, options)
    assert len(reports) == 2
    for report in reports:
        assert report.ok, str(report)


@all_settings
@pytest.mark.parametrize("size", [0, 1, 2 * THREADS + 77])
@pytest.mark.parametrize("row", [1, SKIPPED, 3])
def test_a_scheduled_step_moves_another_cursor(rng, name, options, size, row):
    """Also if the step is skipped, its rates are missing, or there are no parameters."""
    arenas, (gradient, *_), lrs = problem(rng, name, size, steps=3)
    rates, gradient = device.to_device(make_rates(name, lrs, options)), device.to_device(gradient)
    arenas, expected = on_device(arenas), on_device(arenas)
    cursor, other = cursor_at(row), cursor_at(41)
    with sanitized() as reports:
        scheduled_step(name, arenas, gradient, rates, cursor, options, other)
        scheduled_step(name, expected, gradient, rates, cursor, options)
    assert all(report.kinds <= {"NaN produced"} for report in reports), str(reports)
    assert [device.to_host(each).tolist() for each in (cursor, other)] == [[row], [42]]
    for one, another in zip(arenas, expected, strict=True):
        assert device.to_host(one).tobytes() == device.to_host(another).tobytes()


@all_settings
def test_a_step_cannot_move_the_cursor_that_it_reads(rng, name, options):
    arenas, (gradient, *_), lrs = problem(rng, name, 5)
    rates, cursor = device.to_device(make_rates(name, lrs, options)), cursor_at(0)
    arguments = name, on_device(arenas), device.to_device(gradient), rates, cursor, options, cursor
    with pytest.raises(ValueError, match=r"advances .* cursor"), only_launches() as launched:
        scheduled_step(*arguments)
    assert not launched


@all_settings
def test_no_parameters_need_no_launch(name, options):
    arenas, gradient = [device.empty(0) for _ in range(1 + len(ARENAS[name]))], device.empty(0)
    with only_launches() as launched:
        plain_step(gpu, name, arenas, gradient, 1, 0.1, options)
    assert not launched


def test_rates_are_rounded_once():
    lrs, steps = np.array([0.1, 1e-3, 0.25]), np.arange(7, 10)
    rates = gpu.adam_rates(lrs, 7, beta1=0.9, beta2=0.999)
    assert rates.dtype == np.float32
    np.testing.assert_allclose(rates[:, 0], lrs / (1 - 0.9**steps), rtol=6e-8)
    np.testing.assert_allclose(rates[:, 1], 1 / np.sqrt(1 - 0.999**steps), rtol=6e-8)
    rates = gpu.sgd_rates(lrs)
    assert rates.dtype == np.float32
    np.testing.assert_array_equal(rates, np.stack([lrs, np.zeros(3)], axis=1).astype(np.float32))
    assert gpu.sgd_rates([]).shape == gpu.adam_rates([]).shape == (0, 2)


@pytest.mark.parametrize(("step", "error"), [(0, ValueError), (-3, ValueError), (1.5, TypeError)])
def test_rates_count_steps_from_one(step, error):
    with pytest.raises(error, match=f"step must be (at least 1|an int), got {step}"):
        gpu.adam_rates([0.1], step)


# --- Arguments ---------------------------------------------------------------------------------------------


UPDATES = ["sgd_update", "sgd_update_scheduled", "adam_update", "adam_update_scheduled"]


def good_arguments(name, scheduled):
    arrays = {array: device.zeros(3) for array in ("parameters", "gradients", *ARENAS[name])}
    if scheduled:
        arrays |= {"rates": device.zeros((4, 2)), "cursor": device.zeros(1, np.int32)}
        return arrays | ({"momentum": 0.9} if name == "sgd" else {})
    return arrays | {"lr": 0.1} | ({"momentum": 0.9} if name == "sgd" else {"step": 1})


@pytest.mark.parametrize("name", UPDATES)
def test_wrong_arrays_raise(name):
    good = good_arguments(name.partition("_")[0], name.endswith("scheduled"))
    getattr(gpu, name)(**good)
    for argument, array in good.items():
        if not device.is_device_array(array):
            continue
        for wrong, error, match in (
            (device.to_host(array), TypeError, f"{argument} is an array on the host, shape"),
            (device.zeros(array.shape, np.int16), TypeError, f"{argument} must have dtype .*, got int16"),
            (device.zeros((5, 5), array.dtype), ValueError, f"{argument} must have shape .*, got .5, 5"),
            (None, TypeError, f"{argument} must be an array on the device, got NoneType"),
        ):
            with pytest.raises(error, match=match), only_launches() as launched:
                getattr(gpu, name)(**(good | {argument: wrong}))
            assert not launched


def test_scheduled_nesterov_needs_momentum():
    good = good_arguments("sgd", scheduled=True) | {"momentum": 0.0, "nesterov": True}
    with pytest.raises(ValueError, match=r"nesterov needs momentum, got momentum 0\.0"):
        gpu.sgd_update_scheduled(**good)


@pytest.mark.parametrize("scheduled", [False, True])
def test_without_momentum_the_velocity_may_be_anything(scheduled):
    function = gpu.sgd_update_scheduled if scheduled else gpu.sgd_update
    results = []
    for velocity in (None, np.zeros(3)):
        arguments = good_arguments("sgd", scheduled=scheduled) | {"momentum": 0.0, "velocity": velocity}
        results.append(device.to_host(function(**arguments)))
    np.testing.assert_array_equal(*results)


# --- At real sizes, compiled: on a GPU, or the emulated one -----------------------------------------------


def lost_digits(name, gradient, parameters, lr, options):
    """Return how far rounding the decayed gradient can move the parameters.

    Adam's step is lr g / (|g| + eps): steep where weight decay cancels the gradient to something near eps,
    which among 20 million elements it does.
    """
    decay, eps = options.get("weight_decay", 0), options.get("eps", 1e-8)
    if name == "sgd" or not decay:
        return 0
    decayed = np.abs(gradient + decay * parameters)
    rounding = 2**-23 * np.maximum(np.abs(gradient), np.abs(decay * parameters))
    return lr * rounding * eps / (decayed + eps) ** 2


@pytest.mark.exhaustive_unless(lambda size: size < 20_000_001, "up to 100,003 parameters with all settings")
@pytest.mark.gpu
@all_settings
@pytest.mark.parametrize("size", [1, 100_003, 20_000_001])
def test_large_arenas_against_torch(rng, name, options, size):
    arenas, gradients, lrs = problem(rng, name, size, steps=3)
    leaf = torch.from_numpy(arenas[0].astype(np.float64)).requires_grad_()
    betas = {"betas": (options.get("beta1", 0.9), options.get("beta2", 0.999))} if name == "adam" else {}
    others = {key: value for key, value in options.items() if not key.startswith("beta")}
    optimizer = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[name]([leaf], lr=1.0, **betas, **others)
    plain, scheduled = on_device(arenas), on_device(arenas)
    rates = device.to_device(make_rates(name, lrs, options))
    # Three steps of some ten float32 roundings each.
    tolerance = 2e-5 * np.abs(arenas[0]) + 2e-6
    for number, (gradient, lr) in enumerate(zip(gradients, lrs, strict=True), start=1):
        tolerance += lost_digits(name, gradient, leaf.detach().numpy(), lr, options)
        leaf.grad, optimizer.param_groups[0]["lr"] = torch.from_numpy(gradient.astype(np.float64)), lr
        optimizer.step()
        gradient = device.to_device(gradient)
        plain_step(gpu, name, plain, gradient, number, lr, options)
        scheduled_step(name, scheduled, gradient, rates, cursor_at(number - 1), options)
    assert (np.abs(device.to_host(plain[0]) - leaf.detach().numpy()) <= tolerance).all()
    for one, other in zip(plain, scheduled, strict=True):
        assert device.to_host(one).tobytes() == device.to_host(other).tobytes()
