"""Loss scaling on the GPU: sizes, launches, and the scheduled step that may be skipped."""

import numpy as np
import pytest
from helpers import random_float32
from launches import only_launches, sanitized
from test_update_gpu import all_settings, cursor_at, make_rates, on_device, problem, scheduled_step

from cnn_numba import device
from cnn_numba.ops.update import gpu, reference
from cnn_numba.ops.update.gpu import THREADS


def there(*values, dtype=np.float32):
    return device.to_device(np.array(values, dtype))


def count(value=0):
    return there(value, dtype=np.int32)


@pytest.mark.parametrize("size", [1, THREADS - 1, THREADS, THREADS + 1, 2 * THREADS + 77])
@pytest.mark.parametrize("scale", [1024.0, 3.0])
def test_sizes_that_break_kernels(rng, size, scale):
    gradient = random_float32(rng, size)
    out = device.to_device(np.full(size, np.nan, np.float32))
    gpu.scale_gradient(device.to_device(gradient), there(scale), out)
    np.testing.assert_array_equal(device.to_host(out), gradient * np.float32(scale))
    found_inf = count()
    received = device.to_host(gpu.unscale_gradients(out, there(scale), found_inf))
    np.testing.assert_allclose(received, gradient, rtol=2e-7)
    assert device.to_host(found_inf) == 0


def state(bad=0):
    """The device arrays of a scaled step, beside arenas and rates."""
    return {"cursor": cursor_at(1), "taken": count(), "found_inf": count(bad)} | {
        "row": device.to_device(np.full((1, 2), np.nan, np.float32)),
        "row_cursor": count(-7),
    }


@all_settings
def test_a_skipped_step_changes_nothing(rng, name, options):
    arenas, (gradient, *_), lrs = problem(rng, name, THREADS + 45)
    gradient[3] = np.inf
    moved, there = on_device(arenas), state(bad=1)
    rates = device.to_device(make_rates(name, lrs, options))
    row = gpu.scheduled_rates(rates, rates, **there)
    scheduled_step(name, moved, device.to_device(gradient), *row, options)
    for received, before in zip(moved, arenas, strict=True):
        assert device.to_host(received).tobytes() == before.tobytes()
    assert device.to_host(there["taken"]) == 0


@all_settings
def test_steps_after_a_skipped_one_are_unaffected(rng, name, options):
    """The rate follows the schedule, Adam's corrections the steps taken: as in the reference."""
    arenas, gradients, lrs = problem(rng, name, 77)
    moved, expected = on_device(arenas), [arena.astype(np.float64) for arena in arenas]
    rates = device.to_device(gpu.sgd_rates(lrs))
    corrections = device.to_device(make_rates(name, np.ones(len(lrs)), options))
    there, number = state(), 0
    for step, (gradient, lr) in enumerate(zip(gradients, lrs, strict=True)):
        bad = step in (0, 3)
        device.copy(there["cursor"], np.array([step], np.int32))
        device.copy(there["found_inf"], np.array([bad], np.int32))
        row = gpu.scheduled_rates(rates, corrections, **there)
        scheduled_step(name, moved, device.to_device(gradient), *row, options)
        if bad:
            continue
        number += 1
        parameters, *moments = expected
        if name == "sgd":
            reference.sgd_update(parameters, gradient, *moments, lr, **options)
        else:
            reference.adam_update(parameters, gradient, *moments, number, lr, **options)
    assert device.to_host(there["taken"]) == number == 4
    for received, wanted in zip(moved, expected, strict=True):
        np.testing.assert_allclose(device.to_host(received), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("row", [-1, 2])
@pytest.mark.parametrize("which", ["cursor", "taken"])
def test_a_cursor_outside_its_table_gives_nan(which, row):
    there = state() | {which: cursor_at(row)}
    rates = device.to_device(gpu.sgd_rates([0.5, 0.25]))
    with sanitized() as reports:
        gpu.scheduled_rates(rates, rates, **there)
    assert reports[0].kinds <= {"NaN produced"}, str(reports[0])
    assert np.isnan(device.to_host(there["row"])[0, 0])


def scaled_step(there, arrays):
    """Do what a training step does with its gradients."""
    gradient, gradients, scale, good_steps, skipped, rates = arrays
    gpu.scale_gradient(gradient, scale, gradient)
    gpu.unscale_gradients(gradients, scale, there["found_inf"])
    gpu.scheduled_rates(rates, rates, **there)
    gpu.update_loss_scale(scale, good_steps, skipped, there["found_inf"])


@pytest.mark.parametrize("bad", [1.0, np.inf])
def test_launches_and_nothing_else_and_the_sanitizer_finds_nothing(rng, bad):
    gradients = random_float32(rng, THREADS + 45)
    gradients[::7] = bad
    arrays = device.to_device(random_float32(rng, 3, 10)), device.to_device(gradients), there(4), count()
    arrays = *arrays, count(), device.to_device(gpu.sgd_rates([0.5, 0.25]))
    where = state()
    with only_launches() as launched:
        scaled_step(where, arrays)
    names = ("scale_gradient", "unscale_gradients", "scheduled_rates", "update_loss_scale")
    assert launched == [f"{name}_kernel" for name in names]
    with sanitized() as reports:
        scaled_step(state(), arrays)
    for report, name in zip(reports, names, strict=True):
        # A skipped step has no rates.
        expected = {"never written"} if bad == np.inf and name == "scheduled_rates" else set()
        assert report.kinds == expected, str(report)


def test_nothing_to_scale_needs_no_launch():
    nothing, scale, found_inf = device.empty(0), there(2), count()
    with only_launches() as launched:
        gpu.scale_gradient(nothing, scale, nothing)
        gpu.unscale_gradients(nothing, scale, found_inf)
    assert not launched


def test_wrong_rates_raise():
    rates = device.zeros((3, 2))
    good = {"rates": rates, "corrections": device.zeros((3, 2)), **state()}
    gpu.scheduled_rates(**good)
    for argument, array in good.items():
        for wrong, error, match in (
            (device.to_host(array), TypeError, f"{argument} is an array on the host, shape"),
            (device.zeros(array.shape, np.int16), TypeError, f"{argument} must have dtype .*, got int16"),
            (device.zeros((5, 5), array.dtype), ValueError, f"{argument} must have shape .*, got .5, 5"),
        ):
            with pytest.raises(error, match=match), only_launches() as launched:
                gpu.scheduled_rates(**(good | {argument: wrong}))
            assert not launched


@pytest.mark.gpu
@pytest.mark.parametrize("place", [None, 0, 1_234_567, 3_000_000])
def test_a_large_arena(rng, place):
    gradients = random_float32(rng, 3_000_001)
    if place is not None:
        gradients[place] = np.nan
    found_inf, moved = count(), device.to_device(gradients * np.float32(65536))
    gpu.unscale_gradients(moved, there(65536), found_inf)
    received, number = device.to_host(moved), ~np.isnan(gradients)
    assert received[number].tobytes() == gradients[number].tobytes()
    assert np.isnan(received[~number]).all()  # the GPU chooses which NaN
    assert device.to_host(found_inf) == (place is not None)
