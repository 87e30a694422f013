"""What notebook 07b looks at: the launches of its checks."""

import numpy as np
import pytest

from cnn_numba.course.checks.exercise import Exercise
from cnn_numba.course.exercises import backward_kernels

CHECKS = {name: value for name, value in vars(backward_kernels).items() if isinstance(value, Exercise)}

each_check = pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)


def threads(case):
    return int(np.prod(case.grid)) * int(np.prod(case.block))


@each_check
def test_a_check_launches_few_threads_over_several_blocks(check):
    cases = check.inputs()
    assert sum(map(threads, cases)) < 5000
    assert any(np.prod(case.grid) > 1 for case in cases)


@each_check
def test_arrays_are_never_square(check):
    for case in check.inputs():
        for array in case.args:
            shape = [size for size in np.shape(array)[-2:] if size > 1]
            assert len(set(shape)) == len(shape)


@pytest.mark.parametrize("name", ["conv2d_backward_weight_kernel", "conv2d_backward_input_kernel"])
def test_convolutions_have_batches_strides_and_paddings_that_differ(name):
    cases = CHECKS[name].inputs()
    steps = [case.args[2:6] for case in cases]
    assert any(stride_h != stride_w for stride_h, stride_w, _, _ in steps)
    assert any(padding_h != padding_w for _, _, padding_h, padding_w in steps)
    assert max(len(case.args[0]) for case in cases) > 1
    # Behind the last window some rows or columns are left over: their gradient is 0.
    assert any(_left_over(case) for case in cases)


def _left_over(case):
    images, filters = (
        (case.args[1], case.args[6]) if case.args[6].shape[2] < 4 else (case.args[6], case.args[1])
    )
    stride, padding = case.args[2:4], case.args[4:6]
    sizes = zip(images.shape[2:], filters.shape[2:], stride, padding, strict=True)
    return any((size + 2 * pad - k) % step for size, k, step, pad in sizes)


def test_some_windows_of_the_pooling_share_a_winner_and_some_cannot():
    shared = []
    for case in backward_kernels.max_pool_backward_kernel.inputs():
        argmax = case.args[1].reshape(len(case.args[1]), -1)
        shared.append(any(len(np.unique(plane)) < plane.size for plane in argmax))
    assert any(shared)
    assert not all(shared)
