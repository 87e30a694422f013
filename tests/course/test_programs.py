"""Checks of whole programs: what a host function may do, and the rules for its launches."""

import numpy as np
import pytest
from numba import cuda

from cnn_course.engine.checks.evidence import StandIn
from cnn_course.engine.checks.programs import ProgramExercise
from cnn_numba import device
from cnn_numba.ops.activation.gpu import relu_forward_naive


@cuda.jit
def double_kernel(x, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        out[i] = x[i] + x[i]


def double(x, grid=2, block=4):
    d_x, d_out = cuda.to_device(x), cuda.device_array(x.size, np.float32)
    double_kernel[grid, block](d_x, d_out)
    return d_out.copy_to_host()


def cases(rng):
    return [(rng.normal(size=size).astype(np.float32),) for size in (1, 5, 8, 13)]


exercise = ProgramExercise(
    "double",
    reference=lambda x: 2 * x,
    cases=cases,
    large=lambda rng: [(np.ones(1001, np.float32),)],
    launches=3,
    dtype=np.float32,
    mistakes={"tripled": ("You add `{x}` three times.", lambda x: 3 * x)},
)


def mistake_of(attempt):
    verdict = exercise(attempt)
    assert verdict.status == "wrong", verdict
    return verdict.mistake


def test_right_programs_are_solved_however_they_launch():
    def by_the_package(x):
        d_out = device.empty(x.size)
        device.launch(double_kernel, 3, 32, device.to_device(x), d_out)
        return device.to_host(d_out)

    def with_a_stream(x):
        d_x, d_out = cuda.to_device(x), cuda.device_array(x.size, np.float32)
        double_kernel[2, 32, cuda.stream(), 0](d_x, d_out)
        return d_out.copy_to_host()

    assert [exercise(each).status for each in (double, by_the_package, with_a_stream)] == ["solved"] * 3


def test_a_stub_is_unsolved():
    def stub(x):
        """Double x."""
        ...

    def begun(x):
        d_x = cuda.to_device(x)
        ...
        return d_x

    assert [exercise(each).status for each in (stub, begun)] == ["unsolved"] * 2


def test_numpy_may_inspect_copy_and_slice():
    def careful(x):
        if x.ndim != 1 or np.isnan(x).any() or (x > 1e9).any():
            raise ValueError("no vector of numbers")
        twice = np.concatenate([x, x]).reshape(2, -1)[1].astype(np.float32)
        print(x, twice)
        return np.pad(double(np.ascontiguousarray(twice)), (1, 0))[1:].copy()

    assert exercise(careful).status == "solved"


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: x + x,
        lambda x: 2 * double(x) / 2,
        lambda x: double(x - x.mean()),
        lambda x: double(np.dot(x[None], np.eye(x.size, dtype=np.float32))[0]),
        lambda x: np.add(x, x, out=double(x)),
        lambda x: np.convolve(double(x), [1], "same"),
    ],
)
def test_numpy_may_not_compute(compute):
    verdict = exercise(compute)
    assert verdict.mistake == "computes on the host"
    assert "`np." in verdict.message


def copied_into(out, x):
    d_x, d_out = cuda.to_device(x), cuda.device_array(x.size, np.float32)
    double_kernel[2, 4](d_x, d_out)
    d_out.copy_to_host(out[: x.size])
    return out


def test_copies_in_host_arrays_may_be_sliced():
    assert exercise(lambda x: copied_into(np.empty(x.size + 1, np.float32), x)[:-1]).status == "solved"


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: copied_into(np.empty(x.size, np.float32), x) * 4 / 2,
        lambda x: double(np.pad(x, (0, 1)) * 2)[:-1],
    ],
)
def test_numpy_may_not_compute_with_copies_of_guarded_arrays(compute):
    assert mistake_of(compute) == "computes on the host"


def test_mistakes_use_the_learners_names():
    @cuda.jit
    def triple_kernel(x, out):
        if cuda.grid(1) < x.size:
            out[cuda.grid(1)] = x[cuda.grid(1)] * 3

    def thrice(values):
        d_out = cuda.device_array(values.size, np.float32)
        triple_kernel[4, 4](cuda.to_device(values), d_out)
        return d_out.copy_to_host()

    assert exercise(thrice).message == "You add `values` three times."
    assert exercise(StandIn(lambda x: 3 * x)).mistake == "tripled"


def test_findings_of_the_sanitizer_name_the_launch():
    @cuda.jit
    def unguarded(x, out):
        out[cuda.grid(1)] = 2 * x[cuda.grid(1)]

    def attempt(x):
        d_x, d_out = cuda.to_device(x), cuda.device_array(x.size, np.float32)
        unguarded[2, 4](d_x, d_out)
        return d_out.copy_to_host()

    verdict = exercise(attempt)
    assert verdict.mistake == "writes past the edge"
    assert "Launched as `unguarded[2, 4]`." in verdict.details


@pytest.mark.gpu
def test_a_kernel_called_like_a_function_is_named():
    def attempt(x):
        d_out = cuda.device_array(x.size, np.float32)
        double_kernel(cuda.to_device(x), d_out)
        return d_out.copy_to_host()

    assert exercise(attempt).message.startswith("A kernel is called like a function")


def test_an_endless_loop_ends():
    @cuda.jit
    def endless(x, out):
        i = cuda.grid(1)
        while i < x.size:
            out[i] = x[i]

    def attempt(x):
        d_out = cuda.device_array(x.size, np.float32)
        endless[1, 4](cuda.to_device(x), d_out)
        return d_out.copy_to_host()

    verdict = exercise(attempt)
    assert verdict.mistake == "does not end"
    assert any("while i < x.size" in line for line in verdict.details)


@pytest.mark.gpu
def test_large_arrays_need_several_blocks_in_few_launches():
    def in_pieces(x):
        return np.concatenate([double(piece) for piece in np.array_split(x, max(1, x.size // 100))])

    assert mistake_of(lambda x: double(x, grid=1, block=64)) == "one block"
    assert mistake_of(in_pieces) == "too many launches"
    assert mistake_of(lambda x: double(x, grid=2 if x.size < 100 else 2**31)) == "wrong when large"


def test_a_check_restores_what_it_replaces():
    array_type, kernel_type = type(device.empty(1)), type(double_kernel)
    before = array_type.copy_to_host, kernel_type.__getitem__
    exercise(double)
    assert (array_type.copy_to_host, kernel_type.__getitem__) == before
    out = relu_forward_naive(device.to_device(np.float32([-1, 2]))).copy_to_host()
    assert type(out) is np.ndarray
    np.testing.assert_array_equal(out, [0, 2])
