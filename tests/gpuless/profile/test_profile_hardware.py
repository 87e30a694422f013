"""`gpuless.profile` on a real GPU; the emulated one plays its part, so times are those of a CPU."""

import sys
from types import SimpleNamespace

import gpuless

# isort: split
import numpy as np
import pytest
from numba import cuda
from warm_python import warm

from gpuless.profile import hardware
from gpuless.profile.devices import device

if not gpuless.select().emulated:
    pytest.skip("runs kernels on the emulated GPU", allow_module_level=True)
pytest.importorskip("scipy", reason="solves linear programs")


@cuda.jit
def add_to(x, y, factor):
    i = cuda.grid(1)
    if i < x.size:
        y[i] += factor * x[i]


@pytest.fixture
def t4(monkeypatch):
    monkeypatch.setattr(hardware, "_current_gpu", lambda: "Tesla T4")


def test_a_launch_is_measured_here_and_modelled_in_another_process(t4):
    x, y = (cuda.to_device(np.full(1 << 16, value, np.float32)) for value in (1, 2))
    launch, arguments = add_to[256, 256], (x, y, np.float32(3))
    # First, so that the other process finds the machine code on disk.
    expected = gpuless.profile(launch, ["T4", gpuless.profile.device("A100", clock=1.0)])(*arguments)
    found = hardware.reports(launch, [device("T4"), device("A100", clock=1.0)], arguments)
    assert [each.microseconds for each in found] == [each.microseconds for each in expected]
    assert (y.copy_to_host() == 2).all()
    gpu, microseconds = found[0].measured
    assert gpu == "Tesla T4"
    assert microseconds > 0
    assert " on Tesla T4\n" in str(found[0])
    assert "measured" not in str(expected)
    assert found[0].to_dict()["measured"] == found[0].measured


def test_the_gpu_has_the_name_that_numba_gives_it():
    found = hardware._current_gpu()
    assert found
    assert found in str(cuda.get_current_device().name)


def test_each_launch_finds_the_arguments_as_they_were():
    class Launch:
        stream, found = 0, []

        def __call__(self, x, factor):
            self.found.append(x.copy_to_host().tolist())
            add_to[1, 4](x, x, factor)

    launch = Launch()
    assert hardware.measure(launch, [np.arange(4, dtype=np.float32), np.float32(1)]) > 0
    assert len(launch.found) > 20
    assert all(found == [0, 1, 2, 3] for found in launch.found)


def test_one_array_given_twice_stays_one_array():
    x = cuda.to_device(np.ones(4, np.float32))
    first, (second, number) = hardware._on_host((x, (x, 2)), {})
    assert first is second
    first, (second, again) = hardware._on_device((first, (second, number)), {})
    assert first is second
    assert again == 2


@pytest.fixture
def warm_process(monkeypatch):
    """Use another process that has already imported Numba, if possible."""

    def run(command, input, env, **options):
        return warm("emulator").run(command[1:], env, given=input)

    if sys.platform.startswith("linux"):
        monkeypatch.setattr(hardware, "subprocess", SimpleNamespace(run=run))


@pytest.mark.usefixtures("warm_process")
def test_errors_of_the_other_process_are_reported(t4):
    @cuda.jit
    def wide(x):
        x[0] = 1

    with pytest.raises(RuntimeError, match=r"the launch was not modelled: .*a block may have 49152 bytes"):
        hardware._modelled(wide[1, 32, 0, 200 << 10], [device("T4")], [np.ones(1, np.float32)])
