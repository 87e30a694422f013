import ctypes
import os
import subprocess
import sys

import numba
import pytest

from cnn_numba import device
from gpuless import nvidia, select


def python(*lines, **environment):
    """Run lines in a fresh interpreter that sees no GPU; return what it prints."""
    env = {key: value for key, value in os.environ.items() if key != "NUMBA_ENABLE_CUDASIM"}
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        capture_output=True,
        text=True,
        env=env | {"CUDA_VISIBLE_DEVICES": ""} | environment,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


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


# --- The import --------------------------------------------------------------------------------------------


def test_importing_the_package_selects_the_simulator_and_prints_nothing():
    printed = python(
        "import cnn_numba, sys, os",
        "from numba import cuda",
        "print(os.environ['NUMBA_ENABLE_CUDASIM'], cnn_numba.device.simulated(), 'torch' in sys.modules)",
        "print(type(cuda.jit(lambda x: None)).__name__)",
    )
    assert printed == "1 True False\nFakeCUDAKernel\n"


def test_importing_the_package_leaves_numba_cuda_torch_and_matplotlib_alone():
    printed = python(
        "import sys, cnn_numba",
        "names = ('numba.cuda', 'torch', 'torchvision', 'matplotlib')",
        "print([name for name in names if name in sys.modules])",
    )
    assert printed == "[]\n"


def test_a_kernel_runs_after_the_import():
    printed = python(
        "import numpy as np, cnn_numba",
        "from numba import cuda",
        "@cuda.jit",
        "def fill(x):",
        "    i = cuda.grid(1)",
        "    if i < x.size:",
        "        x[i] = i",
        "x = cuda.to_device(np.zeros(5))",
        "fill[2, 4](x)",
        "print(x.copy_to_host().tolist())",
    )
    assert printed == "[0.0, 1.0, 2.0, 3.0, 4.0]\n"


def test_numba_may_be_imported_first():
    printed = python(
        "import numba, cnn_numba",
        "from numba import cuda",
        "print(cnn_numba.device.simulated(), type(cuda.jit(lambda x: None)).__name__)",
    )
    assert printed == "True FakeCUDAKernel\n"


def test_numba_cuda_imported_first_is_left_alone_and_told():
    lines = (
        "from numba import cuda",
        "import warnings",
        "with warnings.catch_warnings(record=True) as caught:",
        "    warnings.simplefilter('always')",
        "    import cnn_numba",
        "print(cnn_numba.device.SELECTION.reason, *(str(warning.message) for warning in caught), sep='\\n')",
    )
    reason, warning = python(*lines).splitlines()
    assert "no kernel can run; import cnn_numba first" in reason
    assert warning == reason
    printed = python(*lines, NUMBA_ENABLE_CUDASIM="1")
    assert printed == "numba.cuda was imported before cnn_numba, as the simulator\n"


@pytest.mark.parametrize(("value", "simulated"), [("0", False), ("1", True)])
def test_a_wish_in_the_environment_is_respected(value, simulated):
    printed = python(
        "import cnn_numba, os",
        "print(*cnn_numba.device.SELECTION, os.environ['NUMBA_ENABLE_CUDASIM'], sep='|')",
        NUMBA_ENABLE_CUDASIM=value,
    )
    reason = f"the environment variable NUMBA_ENABLE_CUDASIM is {value}"
    if simulated and nvidia.driver().problem:
        reason = nvidia.driver().problem  # there was nothing to wish for
    assert printed == f"{simulated}|{reason}|{value}\n"


def test_the_sanitizer_takes_vector_accesses_where_there_is_a_gpu():
    """There `load4` and `store4` are instructions, and Python needs another way to do what they do."""
    pytest.importorskip("numba_cuda")
    printed = python(
        "import numpy as np",
        "from cnn_numba.ops.activation.gpu import relu_forward_vectorized_kernel",
        "from gpuless import sanitize",
        "x, out = np.arange(-2, 5, dtype=np.float32), np.full(7, np.nan, np.float32)",
        "report = sanitize(relu_forward_vectorized_kernel)[1, 32](x, out)",
        "print(report.ok, out.tolist())",
        NUMBA_ENABLE_CUDASIM="0",
    )
    assert printed == "True [0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 4.0]\n"


def test_the_import_is_quick():
    before = os.times()
    python("import cnn_numba")
    after = os.times()
    # Processor time, so that other processes do not count. 0.6 s; the bound still notices torch.
    assert sum(after[2:4]) - sum(before[2:4]) < 2.5


# --- Asking the driver -------------------------------------------------------------------------------------


def test_a_gpu_is_found(libraries, monkeypatch):
    libraries(FakeCuda(names=("Toy GPU", "Other GPU"), capability=(9, 0)), FakeNvml())
    found = nvidia.driver()
    assert found.gpus == (("Toy GPU", (9, 0)), ("Other GPU", (9, 0)))
    assert (found.cuda, found.version, found.problem) == ((13, 2), "580.65.06", None)
    monkeypatch.delenv("NUMBA_ENABLE_CUDASIM", raising=False)
    monkeypatch.delitem(sys.modules, "numba.cuda", raising=False)
    assert select() == (False, "a GPU was found")
    assert "NUMBA_ENABLE_CUDASIM" not in os.environ
    text = device.describe()
    assert "Toy GPU (compute capability 9.0), Other GPU" in text
    assert "580.65.06, supports CUDA 13.2" in text


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
    assert select() == (True, problem)
    assert os.environ["NUMBA_ENABLE_CUDASIM"] == "1"
    assert numba.config.ENABLE_CUDASIM == 1
    assert f"none: {problem}" in device.describe()


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


# --- Facts -------------------------------------------------------------------------------------------------


def test_describe_is_short_and_says_why():
    text = device.describe()
    assert len(text.splitlines()) <= 10
    assert device.SELECTION.reason in text.splitlines()[0]


def test_facts_are_text_and_complete_without_packages(monkeypatch):
    monkeypatch.setattr(nvidia, "installed", lambda package: None)
    monkeypatch.setattr(nvidia, "_TOOLKIT_ROOTS", ())
    facts = device.facts()
    assert all(isinstance(value, str) and value for value in facts.values())
    assert facts["CUDA toolkit"] == "not installed"


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
