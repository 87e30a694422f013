import os
import subprocess
import sys

import pytest
from fresh_python import python_on_the_emulated_gpu

from cnn_numba import device
from cnn_numba.device import selection
from gpuless import Selection, nvidia
from gpuless.nvidia import Driver, Gpu


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


# --- The import --------------------------------------------------------------------------------------------


def test_importing_the_package_prints_nothing_and_selects_a_device():
    printed = python(
        "import numba, cnn_numba, sys",  # Numba may be imported first
        "from numba import cuda",
        "print(cnn_numba.device.SELECTION.gpu, cnn_numba.device.simulated(), 'torch' in sys.modules)",
        "print(type(cuda.jit(lambda x: None)).__name__)",
        GPULESS="simulator",
    )
    assert printed == "simulator True False\nKernel\n"


def test_importing_the_package_leaves_numba_cuda_torch_and_matplotlib_alone():
    printed = python(
        "import sys, cnn_numba",
        "names = ('numba.cuda', 'torch', 'torchvision', 'matplotlib')",
        "print([name for name in names if name in sys.modules])",
    )
    assert printed == "[]\n"


@pytest.mark.skipif(not device.SELECTION.emulated, reason="no GPU is emulated here")
def test_the_emulated_gpu_does_not_count_as_hardware():
    assert not device.hardware()


def test_importing_numba_cuda_first_gives_a_warning():
    printed = python(
        "import warnings",
        "from numba import cuda",
        "with warnings.catch_warnings(record=True) as caught:",
        "    import cnn_numba",
        "print(*(each.message for each in caught))",
        NUMBA_ENABLE_CUDASIM="1",
    )
    stays = "kernels made so far stay in Numba's own simulator"
    assert printed == f"numba.cuda was imported before cnn_numba: {stays}; import cnn_numba first\n"


@pytest.mark.parametrize(
    ("gpu", "auto", "wished", "timed"),
    [("hardware", "gpu", "gpu", "gpu"), ("emulator", "cpu", "gpu", None), ("simulator", "cpu", None, None)],
)
def test_a_backend_is_chosen_by_the_available_device(monkeypatch, gpu, auto, wished, timed):
    monkeypatch.setattr(selection, "SELECTION", Selection(gpu, "no driver"))
    assert device.choose("auto") == auto
    assert device.choose("cpu") == "cpu"
    for expected, arguments in ((wished, ("gpu",)), (timed, ("gpu", True))):
        if expected:
            assert device.choose(*arguments) == expected
        else:
            with pytest.raises(device.NoGpu, match="no driver"):
                device.choose(*arguments)


@pytest.mark.skipif(not device.SELECTION.emulated, reason="there is no emulated GPU")
@pytest.mark.parametrize("environment", [{}, {"GPULESS_THREADS": "7"}], ids=["shared", "overridden"])
def test_workers_on_one_machine_share_its_cores_in_both_backends(environment):
    printed = python_on_the_emulated_gpu(
        "import numba",
        "from cnn_numba import device",
        "before = numba.get_num_threads()",
        "device.share_threads(2)",
        "from gpuless.emulator.driver.device import device as emulated",
        "print(before, numba.get_num_threads(), emulated().workers.count)",
        **environment,
    )
    before, cpu, gpu = map(int, printed.split())
    assert cpu == max(1, before // 2)
    assert gpu == int(environment.get("GPULESS_THREADS", cpu))


def test_the_place_of_a_training_is_given_with_the_reason(monkeypatch):
    monkeypatch.setattr(nvidia, "driver", lambda: Driver((Gpu("Toy GPU", (9, 0)),), (13, 2), "580", None))
    threads = "1 CPU thread" if device.threads() == 1 else f"{device.threads()} CPU threads"
    monkeypatch.setattr(selection, "SELECTION", Selection("hardware", "a GPU was found"))
    assert [device.place_of(backend) for backend in ("cpu", "gpu")] == [threads, "on Toy GPU"]
    monkeypatch.setattr(selection, "SELECTION", Selection("emulator", "no driver"))
    assert device.place_of("cpu") == f"{threads} (no GPU: no driver)"
    assert device.place_of("gpu") == f"on the emulated GPU, which is {threads} (no driver)"
    monkeypatch.setattr(selection, "threads", lambda: 1)
    assert device.place_of("cpu") == "1 CPU thread (no GPU: no driver)"


def test_the_sanitizer_takes_vector_accesses_where_there_is_a_gpu():
    """There `load4` and `store4` are instructions, and Python needs a substitute."""
    pytest.importorskip("numba_cuda")
    printed = python(
        "import numpy as np",
        "from cnn_numba.ops.activation.gpu import relu_forward_vectorized_kernel",
        "from gpuless import sanitize",
        "x, out = np.arange(-2, 5, dtype=np.float32), np.full(7, np.nan, np.float32)",
        "report = sanitize(relu_forward_vectorized_kernel)[1, 32](x, out)",
        "print(report.ok, out.tolist())",
        GPULESS="hardware",
        PYTHONWARNINGS="ignore",  # arrays on the host: there is no memory of a GPU here
    )
    assert printed == "True [0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 4.0]\n"


def test_the_import_takes_little_compared_with_numba():
    printed = python(
        "from time import process_time",
        "began = process_time()",
        "import numba",
        "numbas = process_time() - began",
        "import cnn_numba",
        "print(process_time() - began - numbas, numbas)",
    )
    # In one process, as machines differ: ours takes half as long as Numba, PyTorch would take seven times.
    ours, numbas = map(float, printed.split())
    assert ours < 2 * numbas


# --- Facts -------------------------------------------------------------------------------------------------


def test_describe_is_short_and_says_why():
    text = device.describe()
    assert len(text.splitlines()) <= 10
    assert device.SELECTION.reason in text.splitlines()[0]


def test_facts_name_the_gpus_and_what_the_driver_supports(monkeypatch):
    gpus = (Gpu("Toy GPU", (9, 0)), Gpu("Other GPU", (9, 0)))
    monkeypatch.setattr(nvidia, "driver", lambda: Driver(gpus, (13, 2), "580.65.06", None))
    text = device.describe()
    assert "Toy GPU (compute capability 9.0), Other GPU" in text
    assert "580.65.06, supports CUDA 13.2" in text


def test_facts_say_why_there_is_no_gpu(monkeypatch):
    monkeypatch.setattr(nvidia, "driver", lambda: Driver((), None, None, "the NVIDIA driver sees no GPU"))
    assert "none: the NVIDIA driver sees no GPU" in device.describe()


def test_facts_are_text_and_complete_without_packages(monkeypatch):
    monkeypatch.setattr(nvidia, "installed", lambda package: None)
    monkeypatch.setattr(nvidia, "_TOOLKIT_ROOTS", ())
    facts = device.facts()
    assert all(isinstance(value, str) and value for value in facts.values())
    assert facts["CUDA toolkit"] == "not installed"
