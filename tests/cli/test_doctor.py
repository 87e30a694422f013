import importlib.metadata
import sys
import types

import pytest

from cnn_numba.cli import doctor
from cnn_numba.cli.doctor import Finding, examine, report
from cnn_numba.data import files as data_files
from cnn_numba.device import selection
from gpuless import Selection, nvidia
from gpuless.nvidia import Driver, Gpu

TOY = Gpu("Toy GPU", (8, 9))


@pytest.fixture
def machine(monkeypatch):
    """Pretend another machine: its GPUs, driver, toolkit and the selection."""

    def become(
        gpus=(TOY,),
        cuda=(13, 0),
        toolkit=(13, 2),
        gpu="hardware",
        reason="a GPU was found",
        **problem,
    ):
        found = Driver(tuple(gpus), cuda, "580.65.06" if cuda else None, **{"problem": None, **problem})
        monkeypatch.setattr(nvidia, "driver", lambda: found)
        monkeypatch.setattr(nvidia, "toolkit", lambda: toolkit)
        monkeypatch.setattr(selection, "SELECTION", Selection(gpu, reason))

    return become


def by_topic(topic):
    (finding,) = [finding for finding in examine() if finding.topic == topic]
    return finding


def test_this_installation_is_healthy():
    findings = list(examine())
    topics = "Python packages torchvision roads numba.cuda kernels GPU driver CPU MNIST"
    assert [finding.topic for finding in findings] == topics.split()
    text = "\n".join(map(report, findings))
    assert all(finding.healthy for finding in findings), text
    assert all(not finding.fix for finding in findings)
    for word in ("Python", "numpy", "numba-cuda", "torch", "thread", "60000 + 10000 images"):
        assert word in text


def test_a_single_thread_is_singular(monkeypatch):
    monkeypatch.setattr(doctor.device, "threads", lambda: 1)
    assert by_topic("CPU").text.startswith("1 thread, ")


def test_a_machine_without_a_gpu_is_healthy(machine):
    machine(gpus=(), cuda=None, problem="no NVIDIA driver is installed", gpu="simulator", reason="no driver")
    for topic in ("GPU", "kernels", "driver"):
        assert by_topic(topic).healthy
    assert "every notebook works without one" in by_topic("GPU").text
    assert "in the simulator" in by_topic("kernels").text
    machine(gpus=(), cuda=None, problem="no NVIDIA driver is installed", gpu="emulator", reason="no driver")
    assert by_topic("kernels").healthy
    assert by_topic("kernels").text.startswith("run compiled, on the emulated GPU: no driver; ")


def test_a_machine_with_a_fitting_gpu_is_healthy(machine):
    machine()
    for topic in ("GPU", "kernels", "driver"):
        assert by_topic(topic).healthy
    assert by_topic("GPU").text == "Toy GPU, compute capability 8.9"
    assert by_topic("driver").text == "580.65.06, supports CUDA 13.0"


def test_an_old_driver_gets_the_older_toolkit(machine):
    machine(cuda=(12, 4))
    finding = by_topic("driver")
    assert not finding.healthy
    assert finding.text.endswith("but the toolkit is CUDA 13.2")
    assert (
        finding.fix
        == "pip install --editable ./gpuless --editable '.[cu12]', or update the driver to 580 or newer"
    )


@pytest.mark.parametrize(
    ("cuda", "capability", "extra"), [((13, 0), (8, 9), 13), ((12, 4), (8, 9), 12), ((13, 0), (6, 1), 12)]
)
def test_a_missing_toolkit_is_named_for_driver_and_gpu(machine, cuda, capability, extra):
    machine(gpus=[Gpu("Toy GPU", capability)], cuda=cuda, toolkit=None)
    finding = by_topic("GPU")
    assert not finding.healthy
    assert finding.fix == f"pip install --editable ./gpuless --editable '.[cu{extra}]'"


def test_a_conda_toolkit_is_accepted(machine, monkeypatch, tmp_path):
    toolkit = nvidia.toolkit
    machine()
    monkeypatch.setattr(nvidia, "toolkit", toolkit)
    monkeypatch.setattr(nvidia, "installed", lambda package: None)
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path))
    (tmp_path / "conda-meta").mkdir()
    (tmp_path / "conda-meta" / "cuda-nvrtc-13.0.88-hecca717_0.json").touch()
    assert by_topic("GPU").healthy
    assert by_topic("driver").healthy


def test_an_old_gpu_gets_the_older_toolkit_or_the_emulated_one(machine):
    machine(gpus=[Gpu("Old GPU", (6, 1))])
    assert by_topic("GPU").fix == "pip install --editable ./gpuless --editable '.[cu12]'"
    machine(gpus=[Gpu("Ancient GPU", (3, 5))], toolkit=(12, 9))
    assert by_topic("GPU").fix == "export GPULESS=emulator"


def test_a_broken_driver_is_named(machine):
    machine(gpus=(), problem="the NVIDIA driver answers error 999", broken=True, gpu="simulator")
    finding = by_topic("GPU")
    assert not finding.healthy
    assert "nvidia-smi" in finding.fix


def test_a_hidden_gpu_is_no_fault(machine):
    machine(gpus=(), problem="the NVIDIA driver answers CUDA_ERROR_NO_DEVICE (100)", gpu="simulator")
    assert by_topic("GPU").healthy


def test_a_wish_against_the_machine_is_named(machine):
    machine(gpu="simulator", reason="the environment variable NUMBA_ENABLE_CUDASIM is 1")
    assert not by_topic("kernels").healthy
    assert by_topic("kernels").fix == "unset GPULESS NUMBA_ENABLE_CUDASIM"
    machine(gpus=(), problem="none", reason="the environment variable NUMBA_ENABLE_CUDASIM is 0")
    assert by_topic("kernels").text.startswith("cannot run")


def test_missing_and_wrong_packages_are_named_with_the_command(monkeypatch):
    monkeypatch.setattr(
        importlib.metadata, "requires", lambda name: ["numpy<1", "no-such>=2", "torch; extra == 'x'"]
    )
    finding = by_topic("packages")
    assert not finding.healthy
    assert "no-such is missing (needs >=2)" in finding.text
    assert finding.fix == "pip install 'numpy<1' 'no-such>=2'"


def test_a_torchvision_that_does_not_import_is_named(monkeypatch):
    def broken(name):
        raise RuntimeError("operator torchvision::nms does not exist\nmore")

    monkeypatch.setattr(doctor.importlib, "import_module", broken)
    finding = doctor._torchvision()
    assert finding.text == "does not import: operator torchvision::nms does not exist"
    assert finding.fix.startswith("pip install --force-reinstall torch torchvision")


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has no numba-cuda")
def test_the_old_numba_cuda_is_named(monkeypatch):
    monkeypatch.setattr(doctor.device, "simulated", lambda: False)
    old = types.SimpleNamespace(__file__="site-packages/numba/cuda/__init__.py")
    monkeypatch.setattr(doctor.importlib, "import_module", lambda name: old)
    finding = doctor._numba_cuda()
    assert "is the old one inside numba" in finding.text
    assert "numba-cuda" in finding.fix


def test_the_simulator_is_named(monkeypatch):
    monkeypatch.setattr(doctor.device, "simulated", lambda: True)
    monkeypatch.setattr(doctor, "installed", {"numba-cuda": None}.get)
    assert doctor._numba_cuda().text == "gpuless's simulator, without numba-cuda"


def test_missing_data_are_named_with_their_fix(monkeypatch, tmp_path):
    monkeypatch.setattr(data_files, "CHECKOUT", tmp_path)
    monkeypatch.setenv("CNN_NUMBA_CACHE", str(tmp_path))
    finding = by_topic("MNIST")
    assert finding.healthy
    assert "the first training run downloads it" in finding.text
    assert not list(tmp_path.iterdir())
    monkeypatch.setenv("CNN_NUMBA_DATA", str(tmp_path))
    finding = by_topic("MNIST")
    assert not finding.healthy
    assert f"{tmp_path} does not hold MNIST" in finding.text
    assert finding.fix == f"put a fresh copy of the original files into {tmp_path}"


@pytest.mark.parametrize("version", ["3.10.14", "3.15.0", "3.15.0a1", "4.0.0"])
def test_a_python_that_does_not_work_is_named(monkeypatch, version):
    monkeypatch.setattr(nvidia.platform, "python_version", lambda: version)
    finding = doctor._python()
    assert (finding.healthy, finding.text) == (
        False,
        f"{version} (3.11 to 3.14 work, with NumPy 1.26 to 2.4)",
    )
    assert finding.fix == "install Python 3.11 to 3.14 and make a new environment with it"


def test_a_numpy_that_does_not_work_is_named(monkeypatch):
    installed = nvidia.installed
    monkeypatch.setattr(nvidia, "installed", lambda name: "2.5.0" if name == "numpy" else installed(name))
    monkeypatch.setattr(doctor, "installed", nvidia.installed)
    assert str(nvidia.versions()[1]) == "NumPy 2.5.0 does not work (1.26 to 2.4 do)"
    finding = doctor._packages()
    assert not finding.healthy
    assert "numpy 2.5.0 (needs <2.5,>=1.26)" in finding.text


def test_report_aligns_and_puts_the_fix_below():
    findings = Finding("GPU", True, "fine"), Finding("torchvision", False, "broken", "mend it")
    lines = ["ok     GPU          fine", "WRONG  torchvision  broken", "                    fix: mend it"]
    assert [line for finding in findings for line in report(finding).splitlines()] == lines


def test_report_fits_a_narrow_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    lines = report(Finding("GPU", False, "some words " * 5, "a command of many words on one line")).split(
        "\n"
    )
    assert max(map(len, lines[:-1])) <= 40
    assert lines[-1].strip() == "fix: a command of many words on one line"


def test_missing_optional_packages_need_no_fix(monkeypatch):
    monkeypatch.setattr(doctor.extras, "present", lambda name: False)
    first, *_, how = report(doctor._torchvision()).splitlines()
    assert first.startswith("ok     torchvision  torch and torchvision not installed (optional: ")
    assert how.strip().startswith("to get it: pip install ")


def test_packages_of_the_last_notebooks_are_optional(monkeypatch):
    monkeypatch.setenv("COLUMNS", "96")
    monkeypatch.setattr(doctor.extras, "present", lambda name: name != "jax")
    first, how = report(doctor._roads()).splitlines()
    assert first.startswith("ok     roads        jax not installed (optional: ")
    assert how.strip() == "to get it: pip install --editable ./gpuless --editable '.[roads]'"


def test_the_command_prints_its_findings(run):
    code, out, err = run("doctor")
    assert code == 0
    assert err == ""
    assert "numba-cuda" in out


def test_the_command_fails_with_the_fix(run, monkeypatch):
    monkeypatch.setattr(doctor, "examine", lambda: [Finding("GPU", False, "too old", "buy one")])
    code, out, _ = run("doctor")
    assert code == 1
    assert "fix: buy one" in out
