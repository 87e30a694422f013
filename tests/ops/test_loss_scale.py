"""Loss scaling in all backends: by hand, and against `torch.amp.GradScaler`."""

import numpy as np
import pytest
import torch
from helpers import backends, random_float32, strided

from cnn_numba.ops.update import cpu, reference

NAMES = ("scale_gradient", "unscale_gradients", "update_loss_scale")


def floats(*values):
    return np.array(values, np.float32)


def count(value=0):
    return np.array([value], np.int32)


@backends("update", gpu=True)
def test_scaling_by_hand(ops):
    gradient, scale, out = (
        floats(0.25, -0.5, 0).reshape(1, 3),
        floats(1024),
        np.full((1, 3), np.nan, np.float32),
    )
    assert ops.scale_gradient(gradient, scale, out) is out
    np.testing.assert_array_equal(out, [[256, -512, 0]])
    np.testing.assert_array_equal(ops.scale_gradient(gradient, scale), out)
    assert ops.scale_gradient(gradient, scale, gradient) is gradient
    np.testing.assert_array_equal(gradient, out)


@backends("update", gpu=True)
@pytest.mark.parametrize("shape", [(), (1,), (3, 1, 2), (0,), (7, 10)])
def test_a_gradient_of_any_shape_is_scaled(ops, shape, rng):
    gradient = random_float32(rng, *shape)
    received = ops.scale_gradient(gradient, floats(3), np.full(shape, np.nan, np.float32))
    np.testing.assert_array_equal(received, gradient * np.float32(3))


@backends("update", gpu=True)
def test_unscaling_by_hand(ops):
    gradients, found_inf = floats(256, -512, 0), count()
    assert ops.unscale_gradients(gradients, floats(1024), found_inf) is gradients
    np.testing.assert_array_equal(gradients, [0.25, -0.5, 0])
    assert found_inf == 0


@backends("update", gpu=True)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("size", [1, 40, 300])
def test_nan_and_infinity_are_found_at_any_place(ops, bad, size):
    for place in {0, size // 2, size - 1}:
        gradients, found_inf = np.ones(size, np.float32), count()
        gradients[place] = bad
        ops.unscale_gradients(gradients, floats(2), found_inf)
        assert found_inf == 1
        assert (gradients == 0.5).sum() == size - 1


@backends("update", gpu=True)
def test_the_flag_stays_set(ops):
    """Until `update_loss_scale`: a second arena, all finite, does not undo it."""
    found_inf = count(1)
    ops.unscale_gradients(floats(1, 2), floats(2), found_inf)
    assert found_inf == 1


@backends("update", gpu=True)
def test_the_largest_float_counts_as_finite(ops):
    gradients, found_inf = floats(np.finfo(np.float32).max), count()
    ops.unscale_gradients(gradients, floats(1), found_inf)
    assert found_inf == 0


@backends("update", gpu=True)
def test_a_scale_of_0_finds_infinity(ops):
    """So with a collapsed scale nothing passes, not even zero gradients."""
    gradients, found_inf = floats(0, 0), count()
    ops.unscale_gradients(gradients, floats(0), found_inf)
    assert found_inf == 1


@backends("update", gpu=True)
def test_the_scale_by_hand(ops):
    scale, good_steps, skipped = floats(8), count(), count()
    for bad, expected in (
        (0, (8, 1, 0)),
        (1, (4, 0, 1)),
        (0, (4, 1, 1)),
        (0, (4, 2, 1)),
        (0, (12, 0, 1)),
        (1, (6, 0, 2)),
        (1, (3, 0, 3)),
    ):
        found_inf = count(bad)
        returned = ops.update_loss_scale(scale, good_steps, skipped, found_inf, growth=3, interval=3)
        assert returned is scale
        assert (scale[0], good_steps[0], skipped[0], found_inf[0]) == (*expected, 0)


@backends("update", gpu=True)
def test_the_scale_does_not_grow_to_infinity(ops):
    scale = floats(2.0**127)
    ops.update_loss_scale(scale, count(), count(), count(), interval=1)
    assert scale == np.float32(2.0**127)


@backends("update")
def test_the_scale_follows_torch(ops, rng):
    """A thousand steps with the default factors, one in thirty of them skipped."""
    theirs = torch.amp.GradScaler("cpu", init_scale=2.0**16, growth_interval=20)
    leaf = torch.zeros(3, requires_grad=True)
    optimizer = torch.optim.SGD([leaf], lr=0.25)
    scale, found_inf = floats(2.0**16), count()
    good_steps, skipped, parameters = count(), count(), np.zeros(3, np.float32)
    for bad in rng.random(1000) < 1 / 30:
        gradient = random_float32(rng, 3)
        gradient[1] = np.inf if bad else gradient[1]
        theirs.scale(torch.zeros(1))  # creates its scale, the first time
        leaf.grad = torch.from_numpy(gradient * scale[0])
        theirs.step(optimizer)
        theirs.update()
        ours = ops.unscale_gradients(gradient * scale[0], scale, found_inf)
        if not found_inf[0]:
            ops.sgd_update(parameters, ours, None, lr=0.25)
        ops.update_loss_scale(scale, good_steps, skipped, found_inf, interval=20)
        assert scale[0] == theirs.get_scale()
        assert good_steps[0] == theirs.state_dict()["_growth_tracker"]
    assert 20 < skipped[0] < 50
    np.testing.assert_array_equal(parameters, leaf.detach().numpy())


# --- Arguments ---------------------------------------------------------------------------------------------


def good_arguments(name):
    scale, counts = {"scale": floats(2)}, {key: count() for key in ("good_steps", "skipped", "found_inf")}
    return {
        "scale_gradient": {"gradient": floats(1, 2, 3), **scale, "out": floats(0, 0, 0)},
        "unscale_gradients": {"gradients": floats(1, 2, 3), **scale, "found_inf": count()},
        "update_loss_scale": {**scale, **counts},
    }[name]


ARRAYS = [(name, argument) for name in NAMES for argument in good_arguments(name)]


def check_refused(ops, name, argument, wrong, error, match):
    """Check the error, and that nothing changed."""
    arguments, before = good_arguments(name) | {argument: wrong}, good_arguments(name)
    with pytest.raises(error, match=match):
        getattr(ops, name)(**arguments)
    for key in before.keys() - {argument}:
        np.testing.assert_array_equal(arguments[key], before[key])


@backends("update", gpu=True)
@pytest.mark.parametrize(("name", "argument"), ARRAYS)
def test_wrong_arguments_raise(ops, name, argument):
    array = good_arguments(name)[argument]
    kind = np.float32 if array.dtype == np.int32 else np.int16
    if argument not in ("gradient", "scale") or ops.__name__ != reference.__name__:
        match = rf"{argument} must .*, got .*{np.dtype(kind)}"
        check_refused(ops, name, argument, np.ones(array.shape, kind), TypeError, match)
    if argument != "out":
        check_refused(ops, name, argument, None, TypeError, rf"{argument} must ")
    if argument != "gradient":
        wrong = np.ones((2, 2), array.dtype)
        match = rf"{argument} must have shape \(.*\), got \(2, 2\)"
        check_refused(ops, name, argument, wrong, ValueError, match)


@pytest.mark.parametrize(("name", "argument"), ARRAYS)
def test_cpu_rejects_wrong_arrays(name, argument):
    array = good_arguments(name)[argument]
    if array.size > 1:
        match = rf"{argument} must be C-contiguous, got shape \(3,\) with strides \(8,\)"
        check_refused(cpu, name, argument, strided(array), ValueError, match)
    if argument not in ("gradient", "scale") or name == "update_loss_scale":
        array.flags.writeable = False
        check_refused(cpu, name, argument, array, ValueError, f"{argument} must be writeable")


@backends("update", gpu=True)
@pytest.mark.parametrize(
    ("setting", "match"),
    [
        ({"growth": 1}, "growth must be above 1 and at most .*, got 1"),
        ({"backoff": 1.5}, "backoff must be above 0 and below 1, got 1.5"),
        ({"backoff": 0}, "backoff must be above 0 and below 1, got 0"),
        ({"interval": 0}, "interval must be at least 1, got 0"),
    ],
)
def test_settings_out_of_range_are_rejected(ops, setting, match):
    arguments = good_arguments("update_loss_scale")
    with pytest.raises(ValueError, match=match):
        ops.update_loss_scale(**arguments, **setting)
    assert arguments["scale"] == 2
