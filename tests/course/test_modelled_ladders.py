"""Rungs by modelled time: the model, the text, and the message if nothing can be modelled."""

from types import SimpleNamespace

import numpy as np
import pytest
from numba import cuda

import gpuless
from cnn_course.engine.ladders import modelled
from cnn_course.engine.modelled_ladders import ModelledLadder, Time
from cnn_numba import device

compiled = pytest.mark.skipif(not device.SELECTION.emulated, reason="modelled on the emulated GPU")

LADDER = ModelledLadder(
    "products",
    {
        "plain": {
            "T4": Time(56_697, 34_018, 141_743, "L2", "line 3: `x = a[i]`"),
            "H100": Time(900, 540, 2250, "latency", "line 3: `x = a[i]`"),
        },
        "tiled": {
            "T4": Time(5000, 3000, 12_500, "DRAM", "line 4: `x = b[i]`"),
            "H100": Time(750, 450, 1875, "DRAM", "line 4: `x = b[i]`"),
        },
    },
)


@cuda.jit
def neighbours(x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i]


@cuda.jit
def strides(x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[8 * i]


@pytest.fixture
def arrays():
    return cuda.to_device(np.arange(1 << 21, dtype=np.float32)), cuda.device_array(1 << 18, np.float32)


def both(x, out):
    """Return a rung of each kind, the second a function."""
    return {
        "neighbours": (neighbours, 1 << 10, 1 << 8, (x, out)),
        "strides": lambda: device.launch(strides, 1 << 10, 1 << 8, x, out),
    }


def check_as_profiled(ladder, x, out):
    """Compare a ladder of both kernels with `gpuless.profile` of each."""
    assert list(ladder.times) == ["neighbours", "strides"]
    for kernel in neighbours, strides:
        report = gpuless.profile(kernel[1 << 10, 1 << 8], "T4")(x, out)
        time = ladder.times[kernel.py_func.__name__]["T4"]
        assert time[:3] == (report.microseconds, report.low, report.high)
        assert report.limiter.startswith(time.limiter)
        assert report.limiter.endswith(time.line)


@compiled
def test_times_match_a_profile_and_launches_take_place(arrays):
    x, out = arrays
    ladder = modelled(both(x, out), ["T4"])
    np.testing.assert_array_equal(out.copy_to_host(), 8 * np.arange(1 << 18))
    check_as_profiled(ladder, x, out)
    assert ladder.microseconds("T4")["strides"] > 1.25 * ladder.microseconds("T4")["neighbours"]
    assert (
        ladder.times["strides"]["T4"].line
        == f"line {strides.py_func.__code__.co_firstlineno + 4}: `out[i] = x[8 * i]`"
    )


@compiled
def test_on_a_real_gpu_the_same_times_are_modelled_and_none_called_measured(arrays, monkeypatch):
    x, out = arrays
    monkeypatch.setattr(device, "SELECTION", SimpleNamespace(emulated=False, simulated=False))
    ladder = modelled(both(x, out), ["T4"])
    np.testing.assert_array_equal(out.copy_to_host(), 8 * np.arange(1 << 18))
    check_as_profiled(ladder, x, out)
    assert "modelled times, not measured" in repr(ladder)
    with pytest.raises(ValueError, match="the rung 'own' launches no kernel that can be modelled"):
        modelled({"own": lambda: neighbours[1 << 10, 1 << 8](x, out)}, ["T4"])


@compiled
def test_a_rung_of_several_launches_takes_their_sum_and_names_the_longest(arrays):
    x, out = arrays
    ladder = modelled(
        both(x, out) | {"twice": lambda: [strides[1 << 10, 1 << 8](x, out) for _ in "ab"]}, ["T4"]
    )
    one, two = ladder.times["strides"]["T4"], ladder.times["twice"]["T4"]
    np.testing.assert_allclose(two[:3], 2 * np.array(one[:3]))
    assert (two.limiter, two.line) == (one.limiter, f"in strides, {one.line}")


@compiled
def test_a_rung_without_a_launch_and_an_unknown_gpu_raise():
    with pytest.raises(ValueError, match="the rung 'idle' launches no kernel"):
        modelled({"idle": lambda: None}, ["T4"])
    with pytest.raises(ValueError, match="T5"):
        modelled({"idle": lambda: None}, ["T5"])


def test_the_text_says_time_range_limiter_and_line():
    assert repr(LADDER).splitlines() == [
        "products: modelled times, not measured",
        "                        T4                  H100",
        "plain  56.7 ms (34 to 140)  900 us (540 to 2200)",
        "tiled       5 ms (3 to 12)  750 us (450 to 1900)",
        "A measured time would lie in the range in brackets four times out of five.",
        "Too close for the model to tell apart: tiled / plain (H100).",
        "",
        "limited by",
        "plain  L2 (T4), line 3: `x = a[i]`",
        "       latency (H100), line 3: `x = a[i]`",
        "tiled  DRAM, line 4: `x = b[i]`",
    ]


def test_only_rungs_less_than_a_quarter_apart_are_close():
    assert LADDER.close() == {("tiled", "plain"): ["H100"]}
    same = {"T4": Time(10, 8, 15, "L2", "line 1: `x`")}
    assert ModelledLadder("", {"a": same, "b": same}).close() == {("a", "b"): ["T4"]}
    assert "Too close for the model to tell apart: a / b.\n" in repr(
        ModelledLadder("", {"a": same, "b": same})
    )
    assert ModelledLadder("", {"a": same}).close() == {}


def test_many_close_rungs_are_said_in_one_sentence():
    times = {"a": (100, 10), "b": (110, 11), "c": (120, 10.5), "d": (134, 30), "e": (200, 34)}
    rungs = {
        rung: {
            gpu: Time(t, t / 2, 2 * t, "L2", "line 1: `x`") for gpu, t in zip(("T4", "H100"), of, strict=True)
        }
        for rung, of in times.items()
    }
    ladder = ModelledLadder("", rungs)
    assert ladder.close() == {("a", "b", "c"): ["T4", "H100"], ("b", "c", "d"): ["T4"], ("d", "e"): ["H100"]}
    assert repr(ladder).count("Too close") == 1
    assert "tell apart: a / b / c; b / c / d (T4); d / e (H100).\n" in repr(ladder)


def test_the_picture_says_that_it_is_modelled():
    picture = LADDER.picture()
    assert picture.caption.startswith("products: modelled, not measured.")
    assert "plain: T4 56.7 ms (34 to 140), H100 900 us (540 to 2200); tiled: T4 5 ms" in picture.alt
    assert len(picture.png) < 30_000


def test_the_simulator_models_nothing_and_says_so(monkeypatch):
    monkeypatch.setattr(device, "simulated", lambda: True)
    ladder = modelled({"never run": None})
    assert not ladder
    assert repr(ladder).startswith("No modelled times: they need compiled kernels")
    assert ladder.picture() is None
    assert ladder.microseconds("T4") == {}
    assert ladder.close() == {}
