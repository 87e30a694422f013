"""What is here - driver, GPUs, toolkit - and what is selected for it; the driver is a pretended one."""

import ctypes
import os
import sys

import numba
import pytest
from fresh_python import python

from gpuless import emulator, nvidia, select


class FakeCuda:
    """Answers as libcuda does, through the pointers ctypes hands it."""

    def __init__(self, names=("Toy GPU",), capability=(8, 9), version=13020, init=0):
        self.names, self.capability, self.version, self.init = names, capability, version, init

    def cuInit(self, flags):
        return self.init

    def cuDriverGetVersion(self, version):
        version._obj.value = self.version
        return 0

    def cuDeviceGetCount(self, count):
        count._obj.value = len(self.names)
        return 0

    def cuDeviceGet(self, handle, ordinal):
        handle._obj.value = ordinal
        return 0

    def cuDeviceGetName(self, buffer, size, handle):
        buffer.value = self.names[handle.value].encode()
        return 0

    def cuDeviceGetAttribute(self, value, attribute, handle):
        value._obj.value = self.capability[{75: 0, 76: 1}[attribute]]
        return 0

    def cuGetErrorName(self, status, text):
        text._obj.value = {100: b"CUDA_ERROR_NO_DEVICE"}.get(status, b"")
        return 0


class FakeNvml:
    def nvmlInit_v2(self):
        return 0

    def nvmlSystemGetDriverVersion(self, buffer, size):
        buffer.value = b"580.65.06"
        return 0

    def nvmlShutdown(self):
        return 0


@pytest.fixture
def libraries(monkeypatch):
    """Let the test choose what libcuda and libnvidia-ml are, and forget what was asked before."""

    def choose(cuda, nvml=None):
        monkeypatch.setattr(nvidia.sys, "platform", "linux")
        monkeypatch.setattr(
            nvidia,
            "_open_library",
            lambda names: nvml if any("nvidia-ml" in name for name in names) else cuda,
        )
        nvidia.driver.cache_clear()

    yield choose
    nvidia.driver.cache_clear()


# --- Selecting in a new interpreter ------------------------------------------------------------------------


def test_selecting_imports_neither_numba_cuda_nor_matplotlib():
    printed = python(
        "import os, sys, gpuless",
        "print(gpuless.select().simulator, os.environ['NUMBA_ENABLE_CUDASIM'])",
        "print([name for name in ('numba.cuda', 'matplotlib') if name in sys.modules])",
        "from numba import cuda",
        "print(type(cuda.jit(lambda x: None)).__name__)",
    )
    assert printed.splitlines() == ["True 1", "[]", "FakeCUDAKernel"]


def test_numba_cuda_imported_first_is_left_alone_and_told():
    lines = (
        "from numba import cuda",
        "import warnings, gpuless",
        "with warnings.catch_warnings(record=True) as caught:",
        "    warnings.simplefilter('always')",
        "    selection = gpuless.select()",
        "print(selection.reason, *(str(warning.message) for warning in caught), sep='\\n')",
    )
    reason, warning = python(*lines).splitlines()
    assert "no kernel can run; import gpuless first" in reason
    assert warning == reason
    printed = python(*lines, NUMBA_ENABLE_CUDASIM="1")
    assert printed == "numba.cuda was imported before gpuless, as the simulator\n"


# --- Asking the driver -------------------------------------------------------------------------------------


def test_a_gpu_is_found(libraries, monkeypatch):
    libraries(FakeCuda(names=("Toy GPU", "Other GPU"), capability=(9, 0)), FakeNvml())
    found = nvidia.driver()
    assert found.gpus == (("Toy GPU", (9, 0)), ("Other GPU", (9, 0)))
    assert (found.cuda, found.version, found.problem) == ((13, 2), "580.65.06", None)
    monkeypatch.delenv("NUMBA_ENABLE_CUDASIM", raising=False)
    monkeypatch.delitem(sys.modules, "numba.cuda", raising=False)
    assert select() == (False, "a GPU was found", False)
    assert "NUMBA_ENABLE_CUDASIM" not in os.environ


@pytest.mark.parametrize(
    ("cuda", "problem"),
    [
        (None, "no NVIDIA driver is installed"),
        (FakeCuda(names=()), "the NVIDIA driver sees no GPU"),
        (FakeCuda(init=100), "the NVIDIA driver answers CUDA_ERROR_NO_DEVICE (100)"),
        (FakeCuda(init=999), "the NVIDIA driver answers error 999"),
    ],
)
def test_no_gpu_selects_the_simulator(libraries, monkeypatch, cuda, problem):
    libraries(cuda)
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "")
    monkeypatch.setattr(numba.config, "ENABLE_CUDASIM", 0)
    monkeypatch.delitem(sys.modules, "numba.cuda", raising=False)
    assert select() == (True, problem, False)
    assert os.environ["NUMBA_ENABLE_CUDASIM"] == "1"
    assert numba.config.ENABLE_CUDASIM == 1


def test_a_wish_is_granted():
    """The environment says what shall run the kernels, whatever there is."""
    line = "import gpuless; print(*gpuless.select())"
    assert python(line, GPULESS="simulator") == "True the environment variable GPULESS is simulator False\n"
    assert python(line, GPULESS="hardware") == "False the environment variable GPULESS is hardware False\n"


def test_an_unknown_wish_is_refused():
    line = "import gpuless\ntry: gpuless.select()\nexcept ValueError as error: print(error)"
    wanted = "GPULESS must be hardware, emulator or simulator, got 'emulated'\n"
    assert python(line, GPULESS="emulated") == wanted


@pytest.mark.skipif(bool(emulator.problem()), reason=emulator.problem())
def test_the_emulator_has_to_be_asked_for():
    lines = ["import gpuless; print(*gpuless.select())", "from numba import cuda"]
    first, name = python(*lines, "print(cuda.get_current_device().name)", GPULESS="emulator").splitlines()
    assert first == "False the environment variable GPULESS is emulator True"
    assert name.startswith("Emulated GPU")


def test_without_a_compiler_there_is_no_emulated_gpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    monkeypatch.setattr(sys, "platform", "linux")
    assert emulator.problem().startswith("NVIDIA's compiler is not installed")
    monkeypatch.setattr(sys, "platform", "win32")
    assert emulator.problem().startswith("it runs on Linux")


def test_apple_is_not_asked_for_a_driver(libraries, monkeypatch):
    libraries(FakeCuda())
    monkeypatch.setattr(nvidia.sys, "platform", "darwin")
    assert nvidia.driver().problem == "no NVIDIA driver is installed"


def test_the_driver_is_asked_once(libraries):
    libraries(FakeCuda())
    assert nvidia.driver() is nvidia.driver()


def test_a_missing_library_is_no_error():
    assert nvidia._open_library(("libno-such-thing.so.1",)) is None
    assert isinstance(nvidia._open_library((None,)), ctypes.CDLL)


# --- The toolkit -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "expected"), [("13.2.2", (13, 2)), ("12.9", (12, 9)), (None, None)])
def test_toolkit_is_the_version_of_its_wheels(monkeypatch, version, expected):
    monkeypatch.setattr(nvidia, "installed", lambda package: version)
    monkeypatch.setattr(nvidia, "_TOOLKIT_ROOTS", ())
    assert nvidia.toolkit() == expected


@pytest.fixture
def toolkits(monkeypatch, tmp_path):
    """Return a function that puts a file into a fake toolkit; no wheel is installed."""
    monkeypatch.setattr(nvidia, "installed", lambda package: None)
    for name in ("CONDA_PREFIX", "CUDA_PATH", "CUDA_HOME"):
        monkeypatch.delenv(name, raising=False)

    def put(variable, file):
        path = tmp_path / variable / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        monkeypatch.setenv(variable, str(tmp_path / variable))

    return put


@pytest.mark.parametrize(
    ("variable", "file", "expected"),
    [
        ("CONDA_PREFIX", "conda-meta/cuda-nvrtc-13.0.88-hecca717_0.json", (13, 0)),
        ("CONDA_PREFIX", "conda-meta/cuda-nvrtc-dev-13.0.88-hecca717_0.json", None),
        ("CONDA_PREFIX", "conda-meta/numpy-2.4.0-py313_0.json", None),
        ("CONDA_PREFIX", "lib/libnvrtc.so.12.9.86", (12, 9)),
        ("CUDA_HOME", "lib64/libnvrtc.so.13.2.51", (13, 2)),
        ("CUDA_HOME", "lib64/libnvrtc-builtins.so.13.2", None),
        ("CUDA_PATH", "lib64/libnvrtc.so.12.4.127", (12, 4)),
    ],
)
def test_toolkit_is_found_without_wheels(toolkits, variable, file, expected):
    toolkits(variable, file)
    assert nvidia.toolkit() == expected


def test_toolkits_count_in_the_order_in_which_they_are_loaded(toolkits, monkeypatch):
    toolkits("CUDA_HOME", "lib64/libnvrtc.so.12.4.127")
    toolkits("CONDA_PREFIX", "lib/libnvrtc.so.13.0.88")
    assert nvidia.toolkit() == (13, 0)
    monkeypatch.setattr(nvidia, "installed", lambda package: "12.9.1")
    assert nvidia.toolkit() == (12, 9)
