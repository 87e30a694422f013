"""The numbers of a NamedTuple as a kernel takes them."""

from typing import NamedTuple

import numpy as np

from cnn_numba.device import for_kernel


class Window(NamedTuple):
    start: np.uint32
    batch: int
    is_last: bool


class Crop(NamedTuple):
    width: np.uint32
    padding: int
    flip: bool


def test_numbers_get_the_types_of_their_annotations():
    found = for_kernel(Window(-1, 64, True))
    assert found == Window(2**32 - 1, 64, True)
    assert [type(number) for number in found] == [np.uint32, int, bool]
    assert for_kernel(Window(0, -1, True)).batch == -1


def test_equal_numbers_of_two_kinds_are_kept_apart():
    found = [for_kernel(kind(3, 4, False)) for kind in (Window, Crop)]
    assert [type(numbers) for numbers in found] == [Window, Crop]
