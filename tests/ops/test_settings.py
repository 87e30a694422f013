"""Arguments that are no arrays: every operation in every backend rejects the same invalid values."""

import inspect

import numpy as np
import pytest
from test_operations import OPERATIONS, PUBLIC, case_of, for_each, send

from cnn_numba import device

NAN, INFINITY = float("nan"), float("inf")
NOT_A_NUMBER = "1", None, NAN, INFINITY, 1j, object(), [], np.array(1), np.ones(9), b"1", 10**5000
NO_FLAG = "1", None, NAN, -1, 1, 0.0, object(), [], np.array(True)
NO_COUNT = "1", NAN, 1.0, -1, True, 2**70, object(), [], np.array(1), np.ones(9)
NO_SIZES = (*NO_COUNT, None, (1, 2, 3, -4), (1, 2, "3", 4), [2] * 10000)
FLAGS = "causal", "training", "nesterov", "relu", "flip", "transpose_a", "transpose_b"
# Invalid values for an argument of this name, in all operations.
WRONG = {
    **dict.fromkeys(FLAGS, NO_FLAG),
    **dict.fromkeys(("lr", "eps", "weight_decay", "momentum"), (*NOT_A_NUMBER, -1, True)),
    **dict.fromkeys(("beta1", "beta2", "label_smoothing"), (*NOT_A_NUMBER, -1, 1.0, True)),
    "growth": (*NOT_A_NUMBER, 1, True),
    "backoff": (*NOT_A_NUMBER, 0, 1, True),
    **dict.fromkeys(("step", "interval"), (*NO_COUNT, None, 0)),
    **dict.fromkeys(("seed", "epoch"), (*NO_COUNT, None)),
    "mean": (*NOT_A_NUMBER, (NAN,), (0.5,) * 9),
    "std": (*NOT_A_NUMBER, (NAN,), (0.5,) * 9, 0, -1),
    "kernel_size": (*NO_COUNT, None, 0, (1, 2, 3)),
    "stride": (*NO_COUNT, 0, (1, 2, 3)),
    "padding": (*NO_COUNT, None, (1, 2, 3)),
    "batch_size": NO_COUNT,
    "precision": ("1", None, NAN, -1, object(), [], np.ones(9), ["float32"]),
    **dict.fromkeys(("input_shape", "weight_shape"), NO_SIZES),
}
# Checked elsewhere: working space, and the tiles of the rungs.
NO_SETTING = {"scratch", "tile", "launch"}


def settings_of(function, case):
    """Return the names of the arguments of an operation that are no arrays."""
    return set(inspect.signature(function).parameters) - {*case.written, *case.read} - NO_SETTING


@for_each(OPERATIONS)
def test_the_table_knows_every_setting(module, name):
    assert settings_of(getattr(module, name), case_of(name)) <= set(WRONG)


@for_each(
    [(module, name) for module, name in OPERATIONS if settings_of(getattr(module, name), case_of(name))]
)
def test_a_wrong_setting_is_named_before_anything_is_done(module, name):
    function, case = getattr(module, name), case_of(name)
    arrays = {**case.written, **case.read}
    there = {key: send(module, array) for key, array in arrays.items()}
    for setting in sorted(settings_of(function, case)):
        for value in WRONG[setting]:
            with pytest.raises((TypeError, ValueError)) as caught, np.errstate(all="raise"):
                function(**there, **case.options | {setting: value})
            message = str(caught.value)
            assert setting in message, (value, message)
            assert len(message) < 400, message
    for key, array in arrays.items():
        np.testing.assert_array_equal(device.to_host(there[key]), array)


# Beside the operations: functions for working space, and the host functions of a schedule.
SIZES, COUNT = (1, 2, 4, 4), 3
OTHERS = {
    "conv2d_scratch": {"input_shape": SIZES, "weight_shape": (2, 2, 3, 3), "stride": 1, "padding": 1},
    "sgd_rates": {"lrs": [0.1]},
    "adam_rates": {"lrs": [0.1], "first_step": 1, "beta1": 0.9, "beta2": 0.999},
}
WRONG_THERE = WRONG | {
    "lrs": [[value] for value in WRONG["lr"]],
    "first_step": WRONG["step"],
}


@for_each([(module, name) for module, name in PUBLIC if name in OTHERS])
def test_a_wrong_setting_raises_in_functions_that_write_nothing(module, name):
    function, good = getattr(module, name), OTHERS[name]
    function(**good)
    for setting in good:
        for value in WRONG_THERE[setting]:
            with pytest.raises((TypeError, ValueError)) as caught:
                function(**good | {setting: value})
            asked = {"lrs": "lr", "first_step": "step"}.get(setting, setting)
            assert asked in str(caught.value), (value, str(caught.value))
            assert len(str(caught.value)) < 400
