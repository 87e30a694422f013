"""How the Tensor Cores of an H200 add up, bit by bit: by products that one has computed (2026-11-27)."""

from pathlib import Path

import numpy as np
import pytest

MEASURED = np.load(Path(__file__).with_name("tensor_cores_h200.npz"))
DEPTHS = {"tf32": 8, "float16": 16}  # products that an instruction adds to a sum


def product(a, b, depth):
    """Return a product of matrices as the instructions `mma` of this depth compute it, one after another.

    Of each product and of the sum so far what lies below 2^-25 of the largest power of two among them is cut
    off; the power of a product is the sum of its factors'. All are added exactly, and the total is cut off.
    """
    total = np.zeros((len(a), b.shape[1]))
    for first in range(0, a.shape[1], depth):
        left, right = a[:, None, first : first + depth], b.T[None, :, first : first + depth]
        terms = np.concatenate([left * right, total[..., None]], axis=-1)
        powers = np.concatenate([power(left) + power(right), power(total)[..., None]], axis=-1)
        unit = 2.0 ** (powers.max(axis=-1, initial=-400) - 25.0)
        total = cut_off(np.trunc(terms / unit[..., None]).sum(axis=-1) * unit)
    return total


def power(numbers):
    """Return the exponents of the largest powers of two that are no larger than the numbers, -500 for 0."""
    return np.where(numbers == 0, -500, np.frexp(numbers)[1] - 1)


def cut_off(numbers):
    """Return float64 numbers without what float32 has no place for."""
    near = numbers.astype(np.float32)
    return np.where(np.abs(near) > np.abs(numbers), np.nextafter(near, np.float32(0)), near).astype(float)


@pytest.mark.parametrize("kind", DEPTHS)
@pytest.mark.parametrize("scale", ["alike", "wild"])
@pytest.mark.parametrize("depth", [4, 8, 16, 32, 512])
def test_the_definition_gives_what_an_h200_gave(kind, scale, depth):
    a, b, given = (MEASURED[f"{depth}_{scale}_{name}"] for name in ("a", "b", kind))
    if kind == "float16":
        a, b = a.astype(np.float16), b.astype(np.float16)
    received, whole = product(a.astype(float), b.astype(float), DEPTHS[kind]), np.isfinite(given)
    assert whole.mean() > 0.5
    np.testing.assert_array_equal(received[whole], given[whole])
    assert (received != a.astype(float) @ b.astype(float)).mean() > 0.2  # there is something to be cut off
