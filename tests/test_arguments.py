"""The valid values of arguments, and how messages show them: the table of settings."""

import numpy as np
import pytest

from cnn_numba.arguments import integer, number, pair, sizes


@pytest.mark.parametrize(
    ("value", "expected"),
    [(3, (3, 3)), ((1, 2), (1, 2)), ([4, 5], (4, 5)), (np.int64(2), (2, 2)), ((np.int8(1), 3), (1, 3))],
)
def test_pair_takes_one_number_or_two(value, expected):
    assert pair(value, "stride") == expected
    assert all(type(entry) is int for entry in pair(value, "stride"))


@pytest.mark.parametrize(
    ("value", "error", "match"),
    [
        (1.5, TypeError, r"stride must be an int or a pair of ints, got 1\.5"),
        ("ab", TypeError, "got 'ab'"),
        (None, TypeError, "got None"),
        ((1, 2, 3), TypeError, r"got \(1, 2, 3\)"),
        ((1,), TypeError, r"got \(1,\)"),
        ((1, 2.0), TypeError, r"got \(1, 2\.0\)"),
        (0, ValueError, "stride must be at least 1, got 0"),
        ((2, -1), ValueError, r"at least 1, got \(2, -1\)"),
        (True, TypeError, "got True"),
        ((1, np.True_), TypeError, "got .*True"),
        (float("nan"), TypeError, "got nan"),
        (2**31, ValueError, "stride must be at most 2147483647, got 2147483648"),
        ((1, 2**70), ValueError, r"stride must be at most .* got \(1, 1180591620717411303424\)"),
    ],
)
def test_pair_rejects(value, error, match):
    with pytest.raises(error, match=match):
        pair(value, "stride")


def test_pair_has_its_own_minimum():
    assert pair(0, "padding", minimum=0) == (0, 0)
    with pytest.raises(ValueError, match="padding must be at least 0, got -1"):
        pair(-1, "padding", minimum=0)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: integer("4", "batch_size"), TypeError, "batch_size must be an int, got '4'"),
        (lambda: integer(4.0, "batch_size"), TypeError, r"batch_size must be an int, got 4\.0"),
        (lambda: integer(True, "batch_size"), TypeError, "batch_size must be an int, got True"),
        (lambda: integer((4,), "batch_size"), TypeError, r"got \(4,\)"),
        (lambda: integer(0, "batch_size", minimum=1), ValueError, "batch_size must be at least 1, got 0"),
        (lambda: integer(2**31, "batch_size"), ValueError, "batch_size must be at most 2147483647"),
        (lambda: sizes(5, "input_shape"), TypeError, "input_shape must be a tuple of ints, got 5"),
        (lambda: sizes("28", "input_shape"), TypeError, "input_shape must be a tuple of ints, got '28'"),
        (lambda: sizes((), "input_shape"), ValueError, r"input_shape must be .*one or more ints, got \(\)"),
        (lambda: sizes((1, 2.0), "input_shape"), TypeError, r"input_shape must .* got \(1, 2\.0\)"),
        (
            lambda: sizes((1, 2), "shape", "(N, C, H, W)"),
            ValueError,
            r"shape must be \(N, C, H, W\), got \(1, 2\)",
        ),
        (lambda: sizes((1, -2), "shape"), ValueError, r"shape must be at least 0, got \(1, -2\)"),
        (
            lambda: sizes((1, 2**40), "shape"),
            ValueError,
            r"shape must be at most .* got \(1, 1099511627776\)",
        ),
        (lambda: number("0.1", "lr"), TypeError, "lr must be a number, got '0.1'"),
        (lambda: number(False, "lr"), TypeError, "lr must be a number, got False"),
        (
            lambda: number(float("nan"), "lr"),
            ValueError,
            r"lr must be at least 0 and at most 3\.40282e\+38, got nan",
        ),
        (lambda: number(10**400, "lr"), ValueError, "lr must be at least 0 and at most .* got 1000"),
        (lambda: number(1.0, "beta", high=1, without=(1,)), ValueError, r"beta must be .* below 1, got 1\.0"),
    ],
)
def test_numbers_and_sizes_that_are_rejected(call, error, match):
    with pytest.raises(error, match=match):
        call()


def test_numbers_and_sizes_of_numpy_become_plain_ones():
    assert type(integer(np.int16(3), "n")) is int
    assert integer(10**30, "seed", maximum=None) == 10**30
    assert [type(size) for size in sizes([np.int64(1), 2], "shape")] == [int, int]
    assert type(number(np.float32(0.5), "lr")) is float
