"""Notebook 07: the patients with their bugs, and the pictures of gradients."""

import numpy as np
import pytest
import torch
from test_notebooks import defined_in_cell

from cnn_course.chapters.backprop_by_hand import exercises as backprop_by_hand
from cnn_course.chapters.backprop_by_hand.gradient_bugs import BUGS, PATIENTS, batch, gradients
from cnn_course.chapters.backprop_by_hand.pictures import (
    chain_picture,
    comparison_picture,
    epsilon_picture,
    error_maps,
    matrix_picture,
    promise_picture,
)
from cnn_numba import data
from cnn_numba.nn.gradcheck import compare_gradients

STEM = "07_backprop_by_hand"
SETTINGS = [(3, 2, 1), (3, 1, 1), (2, 2, 0), (1, 1, 0)]


def digits(count=3, stride=2, padding=1):
    """Draw images with a flat, black border, as the digits have."""
    rng = np.random.default_rng(count)
    images = np.zeros((count, 1, 14, 12))
    images[:, :, 4:10, 3:9] = rng.uniform(size=(count, 1, 6, 6))
    return batch(images, rng.integers(0, 10, count).astype(np.int32), stride, padding)


def wrong(bug, **setting):
    """Name the gradients that a bug spoils."""
    small = digits(**setting)
    right, received = gradients(small), gradients(small, bug)
    return [name for name in right if not compare_gradients(received[name], right[name]).passed]


@pytest.mark.parametrize("setting", SETTINGS)
def test_correct_gradients_match_autograd(setting):
    small = digits(*setting)
    images, weight, bias, dense = (
        torch.tensor(array, requires_grad=True)
        for array in (small.images, small.weight, small.bias, small.dense)
    )
    convolved = torch.nn.functional.conv2d(images, weight, bias, small.stride, small.padding)
    logits = torch.nn.functional.max_pool2d(convolved.relu(), 2).flatten(1) @ dense.T
    convolved.retain_grad()
    logits.retain_grad()
    torch.nn.functional.cross_entropy(logits, torch.tensor(small.labels, dtype=torch.int64)).backward()
    expected = {
        "logits": logits,
        "dense weight": dense,
        "conv output": convolved,
        "filters": weight,
        "images": images,
    }
    healthy = gradients(small)
    assert list(healthy) == list(expected)
    for name, tensor in expected.items():
        np.testing.assert_allclose(healthy[name], tensor.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("bug", "spoiled"),
    [
        ("flipped filter", ["images"]),
        ("padding row skipped", ["images"]),
        ("stride ignored", ["images"]),
        ("last image only", ["filters"]),
        ("sum over the batch", ["logits", "dense weight", "conv output", "filters", "images"]),
        ("pooled as an average", ["conv output", "filters", "images"]),
    ],
)
def test_bug_spoils_what_comes_after_it(bug, spoiled):
    assert wrong(bug) == spoiled


def test_ties_are_wrong_in_flat_windows_only():
    """A black image is one tie, and an image without equal pixels has none."""
    assert wrong("tie sent twice")[0] == "conv output"
    images = np.random.default_rng(0).uniform(size=(2, 1, 14, 12))
    busy = batch(images, np.array([1, 2], np.int32), padding=0)
    for name, right in gradients(busy).items():
        np.testing.assert_array_equal(gradients(busy, "tie sent twice")[name], right)


def test_an_open_gate_is_wrong_where_relu_had_closed_it():
    small = digits()
    right, received = (gradients(small, bug)["conv output"] for bug in (None, "gate left open"))
    different = right != received
    assert different.any()
    assert not right[different].any()


@pytest.mark.parametrize(
    ("bug", "cure"),
    [
        ("stride ignored", {"stride": 1}),
        ("padding row skipped", {"padding": 0}),
        ("sum over the batch", {"count": 1}),
        ("last image only", {"count": 1}),
    ],
)
def test_bug_vanishes_where_the_notebook_says_so(bug, cure):
    assert wrong(bug)
    assert wrong(bug, **cure) == []


@pytest.mark.parametrize("cure", [{"stride": 1}, {"padding": 0}, {"count": 1}])
@pytest.mark.parametrize("bug", ["flipped filter", "tie sent twice"])
def test_some_bugs_do_not_vanish(bug, cure):
    assert wrong(bug, **cure)


@pytest.mark.parametrize("padding", [1, 2])
def test_a_skipped_padding_row_spoils_the_uppermost_rows(padding):
    images = np.random.default_rng(0).uniform(size=(8, 1, 14, 12))
    small = batch(images, np.arange(8, dtype=np.int32), stride=1, padding=padding)
    error = gradients(small, "padding row skipped")["images"] != gradients(small)["images"]
    rows = np.flatnonzero(error.any(axis=(0, 1, 3)))
    assert rows.tolist() == [0, 1]


def test_patients_have_different_bugs_and_some_bugs_have_no_patient():
    assert "".join(PATIENTS) == "ABCDEF"
    assert len(set(PATIENTS.values())) == 6 < len(BUGS)
    assert set(PATIENTS.values()) < set(BUGS)
    for letter, bug in PATIENTS.items():
        assert wrong(letter) == wrong(bug)


def test_unknown_bugs_are_rejected():
    with pytest.raises(ValueError, match=r"bug must be one of flipped filter, .*got 'G'"):
        gradients(digits(), "G")


# --- the exercise in which they are named -------------------------------------------------------------------


def named(**names):
    return backprop_by_hand.name_the_bug(lambda patient: names.get(patient, ...))


def test_naming_some_is_not_solved_yet():
    assert named(A="stride ignored", C="sum over the batch").status == "unsolved"


def test_a_wrong_name_is_reported_before_the_others_are_given():
    verdict = named(A="stride ignored", C="flipped filter")
    assert (verdict.status, verdict.mistake) == ("wrong", "no flipped filter")
    assert "Patient C" in verdict.message
    assert verdict.details[-1] == "Right already: A."


@pytest.mark.parametrize("bug", list(BUGS))
def test_every_name_has_its_signs(bug):
    patient = next(letter for letter, name in PATIENTS.items() if name != bug)
    verdict = named(**{patient: bug})
    assert verdict.mistake == f"no {bug}"
    assert len(verdict.message) > 80


# --- pictures ----------------------------------------------------------------------------------------------


def test_chain_picture_describes_both_directions():
    alt = chain_picture(["x", "y", "L"], [1, 2, 4], [2, 4], [8, 4, 1]).alt
    assert "x = 1, y = 2, L = 4" in alt
    assert "from right to left: 1, 4, 8" in alt


@pytest.mark.parametrize(
    ("setting", "rows"),
    [
        ((4, 1, 0), "2 rows of 4: a b c 0, then 0 a b c"),
        ((5, 2, 1), "b c 0 0 0, then 0 a b c 0, then 0 0 0 a b"),
    ],
)
def test_matrix_picture_has_the_convolutions_matrix(setting, rows):
    assert rows in matrix_picture(["a", "b", "c"], *setting).alt


def test_error_maps_count_what_is_wrong():
    right = np.ones((2, 3, 2, 2))
    off = right.copy()
    off[1, 2, 0] = 5
    off[0, 0, 0, 0] = np.nan
    rows = {"mine": [compare_gradients(off, right, "input"), compare_gradients([1.0], [1.0], "bias")]}
    assert "mine: input 3 of 24 wrong, bias 0 of 1 wrong" in error_maps(rows, "Errors.").alt


def test_comparison_picture_draws_a_gradient_that_is_zero_everywhere():
    picture = comparison_picture(compare_gradients(np.ones((2, 2)), np.zeros((2, 2)), "input"), "Zero.")
    assert "4 of 4 elements are wrong" in picture.alt


def test_the_description_names_each_curve():
    steps = np.logspace(-8, -1, 20)
    assert "U" in epsilon_picture(steps, {"float64": steps**2, "float32": steps}).alt
    assert "stays near 0.9" in promise_picture(steps, {"all biases 0.1": steps, "all biases 0": steps}).alt


# --- figures in the text -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "best", "digits"), [(np.float64, 1e-5, 11), (np.float32, 5e-3, 5)])
def test_the_best_step_has_as_many_digits_as_the_text_says(dtype, best, digits):
    errors = defined_in_cell(STEM, "epsilon-curve", "errors")
    smaller, there, larger = (
        np.median(errors(dtype, np.geomspace(step / 1.5, step * 1.5, 21))) / (3 * 1.7**2)
        for step in (best / 100, best, best * 100)
    )
    assert there < min(smaller, larger)
    assert round(-np.log10(there)) == digits


def test_two_thirds_of_the_first_windows_are_black():
    images = np.pad(data.load("mnist").train_images[:8, 0], [(0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(images, (3, 3), axis=(1, 2))
    assert np.mean(windows.max(axis=(3, 4)) == 0) == pytest.approx(2 / 3, abs=0.03)
