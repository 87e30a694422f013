"""The machine - driver, GPUs, toolkit - and the selection for it; the driver is a fake."""

import ctypes
import functools
import os
import sys
from types import SimpleNamespace

import numba
import pytest
from fresh_python import program_text, python

import gpuless
from gpuless import emulator, frontends, nvidia, select, simulator


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
    """Let the test choose libcuda and libnvidia-ml, and clear earlier answers."""

    def choose(cuda, nvml=None):
        monkeypatch.setattr(nvidia.sys, "platform", "linux")
        monkeypatch.setattr(
            nvidia,
            "_open_library",
            lambda names: nvml if any("nvidia-ml" in name for name in names) else cuda,
        )
        monkeypatch.setattr(nvidia, "_played", [])
        # The settings of this process stay with it.
        monkeypatch.setattr(nvidia, "driver", functools.cache(nvidia.driver.__wrapped__))

    return choose


# --- Selecting in a new interpreter ------------------------------------------------------------------------


emulated = pytest.mark.skipif(bool(emulator.problem()), reason=emulator.problem())
FILL = program_text("fills_an_array.py")


@pytest.mark.parametrize(("gpu", "kernel"), [("emulator", "CUDADispatcher"), ("simulator", "Kernel")])
def test_selecting_imports_neither_cuda_nor_matplotlib(gpu, kernel):
    """A request is honoured, whatever Numba's own variable says."""
    if gpu == "emulator" and emulator.problem():
        pytest.skip(emulator.problem())
    printed = python(
        "import sys, gpuless",
        "print(*gpuless.select(), gpuless.select() == gpuless.select())",
        "print({'numba.cuda', 'cuda.bindings', 'cuda.core', 'matplotlib'} & sys.modules.keys())",
        FILL,
        GPULESS=gpu,
        NUMBA_ENABLE_CUDASIM="1",
    )
    reason = f"the environment variable GPULESS is {gpu}"
    assert printed.splitlines() == [f"{gpu} {reason} True", "set()", f"{kernel} 2016.0"]


@emulated
def test_without_a_gpu_there_is_an_emulated_one():
    lines = ("import gpuless", "print(*gpuless.select(), sep='|')", "print(gpuless.nvidia.driver().problem)")
    printed = python(*lines, FILL, NUMBA_ENABLE_CUDASIM="0")  # which is no request
    first, problem, kernel = printed.splitlines()
    assert first == f"emulator|{problem}"
    assert kernel == "CUDADispatcher 2016.0"


@emulated
@pytest.mark.exhaustive_unless(lambda first: first, "that a name of it has been used, which loads the driver")
@pytest.mark.parametrize("first", ["", "cuda.is_available()"])
def test_numba_cuda_imported_first_still_gets_the_emulated_gpu(first):
    lines = ("from numba import cuda", first, "import gpuless", "print(gpuless.select().gpu)", FILL)
    assert python(*lines) == "emulator\nCUDADispatcher 2016.0\n"


@emulated
def test_numbas_variable_that_disables_cuda_disables_the_emulated_gpu():
    lines = ("import gpuless", "gpuless.select()", "from numba import cuda", "print(cuda.is_available())")
    assert python(*lines, NUMBA_DISABLE_CUDA="1") == "False\n"


def test_numba_cuda_imported_first_cannot_become_the_simulator_and_warns():
    lines = (
        "from numba import cuda",
        "import warnings, gpuless",
        "with warnings.catch_warnings(record=True) as caught:",
        "    warnings.simplefilter('always')",
        "    selection = gpuless.select()",
        "print(*selection, *(str(warning.message) for warning in caught), sep='\\n')",
    )
    gpu, reason, warning = python(*lines, GPULESS="simulator").splitlines()
    assert gpu == "hardware"
    assert reason == warning
    assert "GPULESS is simulator: import gpuless first" in reason
    printed = python(*lines, NUMBA_ENABLE_CUDASIM="1")
    early, stays = (
        "numba.cuda was imported before gpuless",
        "kernels made so far stay in Numba's own simulator",
    )
    reason = "the environment variable NUMBA_ENABLE_CUDASIM is 1"
    assert printed.splitlines() == ["simulator", reason, f"{early}: {stays}; import gpuless first"]


def test_numbas_own_variable_asks_for_the_simulator():
    printed = python("import gpuless", "print(gpuless.select().gpu)", FILL, NUMBA_ENABLE_CUDASIM="1")
    assert printed == "simulator\nKernel 2016.0\n"


@emulated
def test_the_driver_api_without_numba_finds_the_emulated_gpu():
    lines = ("import gpuless", "gpuless.select()", "from cuda.core import Device", "print(Device(0).name)")
    assert python(*lines).startswith("Emulated GPU")
    lines = (
        "import gpuless",
        "gpuless.select()",
        "from cuda.bindings import driver",
        "print(driver.cuInit(0)[0].name, driver.cuDeviceGetCount()[1])",
    )
    assert python(*lines) == "CUDA_SUCCESS 1\n"


# --- Asking the driver -------------------------------------------------------------------------------------


def test_a_gpu_is_found(libraries, monkeypatch):
    libraries(FakeCuda(names=("Toy GPU", "Other GPU"), capability=(9, 0)), FakeNvml())
    found = nvidia.driver()
    assert found.gpus == (("Toy GPU", (9, 0)), ("Other GPU", (9, 0)))
    assert (found.cuda, found.version, found.problem) == ((13, 2), "580.65.06", None)
    monkeypatch.delenv("NUMBA_ENABLE_CUDASIM", raising=False)
    monkeypatch.delitem(sys.modules, "numba.cuda", raising=False)
    kept = []
    monkeypatch.setattr(frontends, "keep_kernels", lambda: kept.append("kernels"))
    assert select() == ("hardware", "a GPU was found")
    assert kept == ["kernels"]
    assert "NUMBA_ENABLE_CUDASIM" not in os.environ


@pytest.mark.parametrize(
    ("cuda", "problem", "broken"),
    [
        (None, "no NVIDIA driver is installed", False),
        (FakeCuda(names=()), "the NVIDIA driver sees no GPU", False),
        (FakeCuda(init=100), "the NVIDIA driver answers CUDA_ERROR_NO_DEVICE (100)", False),
        (FakeCuda(init=999), "the NVIDIA driver answers error 999", True),
    ],
)
@pytest.mark.parametrize("lack", ["", "no compiler"])
def test_no_gpu_selects_the_emulator_else_the_simulator(libraries, monkeypatch, cuda, problem, broken, lack):
    libraries(cuda)
    assert nvidia.driver().broken == broken
    monkeypatch.setattr(emulator, "problem", lambda: lack)
    for module in (emulator, simulator):
        monkeypatch.setattr(module, "install", lambda: None)
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "")
    monkeypatch.setattr(numba.config, "ENABLE_CUDASIM", 0)
    monkeypatch.delitem(sys.modules, "numba.cuda", raising=False)
    if lack:
        assert select() == ("simulator", f"{problem}, and no GPU can be emulated: no compiler")
        assert os.environ["NUMBA_ENABLE_CUDASIM"] == "1"
        assert numba.config.ENABLE_CUDASIM == 1
        # A child process gets the same setting.
    else:
        assert select() == ("emulator", problem)
        assert not os.environ["NUMBA_ENABLE_CUDASIM"]
        assert numba.config.ENABLE_CUDASIM == 0
    assert select().reason.startswith(problem)


def test_a_request_is_honoured():
    """The environment variable decides what runs the kernels, whatever is installed."""
    line = "import gpuless; print(*gpuless.select())"
    assert python(line, GPULESS="simulator") == "simulator the environment variable GPULESS is simulator\n"
    assert python(line, GPULESS="hardware") == "hardware the environment variable GPULESS is hardware\n"


def test_an_unknown_request_raises():
    line = "import gpuless\ntry: gpuless.select()\nexcept ValueError as error: print(error)"
    wanted = "GPULESS must be hardware, emulator or simulator, got 'emulated'\n"
    assert python(line, GPULESS="emulated") == wanted


def test_requesting_an_impossible_emulator_raises(monkeypatch):
    monkeypatch.setenv("GPULESS", "emulator")
    monkeypatch.setattr(emulator, "problem", lambda: "no compiler")
    with pytest.raises(RuntimeError, match="there can be no emulated GPU: no compiler"):
        select()


def test_without_a_compiler_there_is_no_emulated_gpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    monkeypatch.setattr(sys, "platform", "linux")
    assert emulator.problem().startswith("NVIDIA's compiler is not installed")
    monkeypatch.setattr(sys, "platform", "win32")
    assert emulator.problem().startswith("it runs on Linux")


@emulated
def test_a_compiler_that_does_not_load_is_named_when_it_is_needed():
    printed = python(
        "import gpuless; print(gpuless.select().gpu)",
        "from cuda.bindings import nvvm; nvvm.version = lambda: open('/no/libnvvm.so')",
        "try: from numba import cuda\nexcept ImportError as error: print(error)",
    )
    reason = "[Errno 2] No such file or directory: '/no/libnvvm.so'"
    assert printed == (
        f"emulator\nthere is no emulated GPU: NVIDIA's compiler is not installed ({reason}): "
        "pip install 'gpuless[cu13]', or set GPULESS=simulator\n"
    )


LIMITED = "import resource; resource.setrlimit(resource.RLIMIT_AS, (4096000000, 4096000000)); import gpuless"
ADDRESSES = (
    "it takes 2 TiB of addresses, most of them for nothing that is there, and ulimit -v allows 4000000 KB"
)


@pytest.mark.skipif(bool(emulator.problem()), reason=emulator.problem())
def test_too_little_address_space_prevents_the_emulated_gpu():
    assert f"no GPU can be emulated: {ADDRESSES}" in python(LIMITED, "print(gpuless.select().reason)")
    line = "try: gpuless.select()\nexcept RuntimeError as error: print(error)"
    wanted = f"GPULESS is emulator, and there can be no emulated GPU: {ADDRESSES}\n"
    assert python(LIMITED, line, GPULESS="emulator") == wanted


@pytest.mark.skipif(bool(emulator.problem()), reason=emulator.problem())
def test_just_enough_address_space_is_enough():
    """This stays so once there is enough memory."""
    enough = str((2 << 40) + (60 << 30))
    line = LIMITED.replace("4096000000", enough)
    more = "import numpy as np; from numba import cuda; cuda.to_device(np.ones(3))"
    assert python(line, "gpuless.select()", more, "print(gpuless.select().gpu)") == "emulator\n"


@pytest.mark.needs("numba_cuda")
def test_kernels_of_a_gpu_are_looked_for_on_disk():
    """Selecting again, before and after the import, changes nothing."""
    printed = python(
        "import gpuless; gpuless.select()",
        "from numba import cuda; gpuless.select()",
        "print(type(cuda.jit(lambda x: None)._cache).__module__)",
        "print(cuda.dispatcher.CUDADispatcher.__init__.__wrapped__.__module__)",
        GPULESS="hardware",
    )
    assert printed == "gpuless.frontends.numba_cuda.overloads\nnumba.cuda.dispatcher\n"


@pytest.mark.parametrize("hidden", ["", "-1", " -1,0"])
def test_if_all_gpus_are_hidden_the_driver_is_not_loaded(monkeypatch, hidden):
    """Once loaded, it would stay instead of the emulated GPU's."""
    monkeypatch.setattr(nvidia, "_played", [])
    monkeypatch.setattr(nvidia, "_open_library", lambda names: pytest.fail(f"{names} was loaded"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    problem = "CUDA_VISIBLE_DEVICES hides all GPUs"
    assert nvidia.driver.__wrapped__() == ((), None, None, problem, False)


def test_a_loaded_driver_cannot_be_replaced(monkeypatch):
    asked = []
    libraries = SimpleNamespace(CDLL=lambda *given: asked.append(given) or object())
    monkeypatch.setattr(emulator, "ctypes", libraries)
    assert "call gpuless.select() before" in emulator._lack_of_place()
    assert asked == [("libcuda.so.1", os.RTLD_NOLOAD | os.RTLD_LAZY)]  # which loads none


def test_on_macos_no_driver_is_loaded(libraries, monkeypatch):
    libraries(FakeCuda())
    monkeypatch.setattr(nvidia.sys, "platform", "darwin")
    assert nvidia.driver().problem == "no NVIDIA driver is installed"


def test_the_driver_is_queried_once(libraries):
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


def test_a_compiler_without_wheels_needs_its_libraries_and_the_bindings(toolkits, monkeypatch):
    toolkits("CONDA_PREFIX", "lib/libnvJitLink.so.13")
    monkeypatch.setattr(nvidia, "installed", lambda name: "13.0.0" if name == "cuda-bindings" else None)
    assert not nvidia.has_compiler()
    toolkits("CONDA_PREFIX", "nvvm/lib64/libnvvm.so.4")
    assert nvidia.has_compiler()
    monkeypatch.setattr(nvidia, "installed", lambda name: None)
    assert not nvidia.has_compiler()


def test_a_wheel_without_its_library_is_no_compiler(toolkits, monkeypatch, tmp_path):
    class File:
        name = "libnvvm.so.4"

        def locate(self):
            return tmp_path / "libnvvm.so.4"

    monkeypatch.setattr(nvidia, "installed", lambda name: "13.0.0")
    monkeypatch.setattr(nvidia, "_COMPILER", {"libnvvm.so": ("nvidia-nvvm",)})
    monkeypatch.setattr(nvidia.importlib.metadata, "files", lambda name: [File()])
    assert not nvidia.has_compiler()
    (tmp_path / "libnvvm.so.4").touch()
    assert nvidia.has_compiler()


def test_toolkits_are_found_in_loading_order(toolkits, monkeypatch):
    toolkits("CUDA_HOME", "lib64/libnvrtc.so.12.4.127")
    toolkits("CONDA_PREFIX", "lib/libnvrtc.so.13.0.88")
    assert nvidia.toolkit() == (13, 0)
    monkeypatch.setattr(nvidia, "installed", lambda package: "12.9.1")
    assert nvidia.toolkit() == (12, 9)


def test_tools_are_imported_on_first_use():
    """A program that only selects a device or sets limits needs none of them."""
    printed = python(
        "import sys, gpuless\n"
        "gpuless.select(), gpuless.check_launch(1, 32)\n"
        "print('gpuless.access' in sys.modules, set(gpuless.__all__) <= set(dir(gpuless)))\n"
        "from gpuless import *\n"
        "print(*[globals()[name].__name__ for name in gpuless.__all__ if name != 'SHARED_LIMIT'])\n"
        "print(hasattr(gpuless, 'no_such_tool'))"
    )
    loaded, names, unknown = printed.splitlines()
    assert loaded == "False True"
    assert names.split() == [name for name in gpuless.__all__ if name != "SHARED_LIMIT"]
    assert unknown == "False"
