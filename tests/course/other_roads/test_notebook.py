"""Notebook 25: every road's numbers, its stored outputs, and that the yardstick can fail."""

import re
import sys
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import stored

from cnn_course.chapters.other_roads import pictures, roads
from cnn_course.chapters.other_roads.exercises.standardise_rows import Addresses
from cnn_course.chapters.other_roads.roads import blocks, machine_code, opencl, tuning, yardstick
from cnn_course.engine.checks.evidence import Wrong
from cnn_numba import device

NOTEBOOK = Path(__file__).parents[3] / "notebooks" / "25_other_roads.ipynb"


@pytest.fixture(scope="module")
def task():
    return yardstick.task(3)


@pytest.fixture(scope="module")
def wanted(task):
    return yardstick.ours(yardstick.REFERENCE, task)


def shown(cell_id):
    return stored.all_shown(NOTEBOOK.name, cell_id)


class Plain:
    """A road in NumPy, in float64, that shares no code with others: three lines more than the formulas."""

    array, host = staticmethod(lambda host: host.astype(np.float64)), staticmethod(np.array)

    def empty(self, *shape):
        return np.full(shape, np.nan)

    def windows(self, x):
        return np.lib.stride_tricks.sliding_window_view(x[:, 0], (3, 3), axis=(1, 2))

    def conv_forward(self, x, weight, bias, out, relu):
        found = np.einsum("nhwij,oij->nohw", self.windows(x), weight[:, 0]) + bias[:, None, None]
        out[...] = np.maximum(found, 0 if relu else -np.inf).reshape(out.shape)

    def conv_grad_weight(self, grad_output, x, grad_weight, grad_bias):
        grad = grad_output.reshape(len(x), len(grad_bias), x.shape[2] - 2, x.shape[3] - 2)
        grad_weight[:, 0] = np.einsum("nhwij,nohw->oij", self.windows(x), grad)
        grad_bias[...] = grad.sum(axis=(0, 2, 3))

    def conv_grad_input(self, grad_output, weight, grad_input):
        padded = np.pad(grad_output, ((0, 0), (0, 0), (2, 2), (2, 2)))
        views = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
        grad_input[:, 0] = np.einsum("nohwij,oij->nhw", views, weight[:, 0, ::-1, ::-1])

    def product(self, a, b, out, turn_a=False, turn_b=False):
        out[...] = (a.T if turn_a else a) @ (b.T if turn_b else b)

    def cross_entropy(self, logits, bias, labels, losses, grad_logits):
        shares = np.exp(logits + bias) / np.exp(logits + bias).sum(axis=1, keepdims=True)
        right = np.eye(10)[labels.astype(int)]
        losses[...], grad_logits[...] = -np.log((shares * right).sum(axis=1)), (shares - right) / len(labels)

    def relu_backward(self, out, gradient):
        gradient[out <= 0] = 0

    def sgd(self, parameters, gradient, rate):
        parameters -= rate * gradient.reshape(parameters.shape)


def test_the_reference_matches_plain_numpy(task, wanted):
    found = yardstick.differences(yardstick.take(Plain(), task), wanted)
    assert max(found.values()) < 1e-12
    assert len(found) == 9


def road(name):
    """Return a road, or skip the test where its package is missing."""
    language = name.partition(" as ")[0]
    if reason := roads.missing(language) or ("as" in name and roads.missing("CUDA C++")):
        pytest.skip(reason)
    if name == "OpenCL":
        from cnn_course.chapters.other_roads.roads.opencl import OpenCL as Road
    elif name == "CUDA C++":
        from cnn_course.chapters.other_roads.roads.cuda_cpp import CudaCpp as Road
    elif name == "Triton":
        Road = blocks.Blocks
    else:
        from cnn_course.chapters.other_roads.roads.translated import Translated as Road
    return Road()


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["OpenCL", "OpenCL as CUDA", "CUDA C++", "Triton"])
def test_every_road_gives_the_same_numbers(name, task, wanted):
    """Three images, too: a number that no block divides."""
    found = yardstick.differences(yardstick.take(road(name), task), wanted)
    assert yardstick.verdict(name, found) == f"{name}: all 9 arrays agree to 2e-06 of their largest number."


@pytest.mark.gpu
def test_ours_gives_them(task, wanted):
    assert max(yardstick.differences(yardstick.ours(yardstick.GPU, task), wanted).values()) < yardstick.BOUND


@pytest.mark.parametrize("kernel", ["conv_forward", "conv_grad_weight", "conv_grad_input", "product"])
def test_a_kernel_that_does_nothing_is_noticed(kernel, task, wanted):
    lazy = Plain()
    setattr(lazy, kernel, lambda *args, **kwargs: None)
    assert "differ by more than" in yardstick.verdict(
        "Lazy", yardstick.differences(yardstick.take(lazy, task), wanted)
    )


@pytest.mark.parametrize("name", ["weight after", "bias after", "dense after", "dense_bias after"])
def test_the_step_moves_every_parameter_by_far_more_than_the_bound(name, task, wanted):
    before = getattr(task, name.removesuffix(" after"))
    assert yardstick.difference(before, wanted[name]) > 100 * yardstick.BOUND


def test_differences_need_the_same_names():
    with pytest.raises(ValueError, match=r"\['a'\], expected \['b'\]"):
        yardstick.differences({"a": 1}, {"b": 1})


def test_a_missing_package_gives_one_line(monkeypatch):
    monkeypatch.setattr("cnn_numba.extras.present", lambda package: package not in ("pyopencl", "triton"))
    how = "pip install --editable ./gpuless --editable '.["
    assert roads.missing("OpenCL") == f"OpenCL is left out: pyopencl not installed ({how}roads]')."
    assert roads.missing("Triton").startswith(f"Triton is left out: triton not installed ({how}torch")
    triton, tl = blocks.language()

    @triton.jit
    def program(x, BLOCK: tl.constexpr):
        return x

    assert program(3, 4) == 3
    from cnn_course.chapters.other_roads.exercises import standardise_rows

    assert "cannot be checked here. Triton is left out" in str(standardise_rows(program))


@pytest.mark.parametrize("out", [0x10_0200_0000, 0x70_0000_0000])
def test_verdicts_do_not_depend_on_where_arrays_are_in_memory(out):
    x = 0x10_0000_0000
    addresses = Addresses({"x": x, "out": out}, rows=3, columns=7)
    with pytest.raises(Wrong, match=r"Program 1 goes far from `x` and `out`: .* begins at place 7, after"):
        addresses(1, x + 4 * (8_300_000 + np.arange(8)), True, is_store=False)


def test_opencl_without_a_platform_gives_one_line(monkeypatch):
    pyopencl = pytest.importorskip("pyopencl")

    def no_platforms():
        raise pyopencl.LogicError("clGetPlatformIDs failed: PLATFORM_NOT_FOUND_KHR")

    monkeypatch.setattr(pyopencl, "get_platforms", no_platforms)
    assert roads.missing("OpenCL").startswith("OpenCL is left out: it has no platform")


@pytest.mark.parametrize("complains", [False, True])
def test_opencl_takes_the_first_device_of_any_platform(monkeypatch, complains):
    pyopencl = pytest.importorskip("pyopencl")

    def none():
        if complains:
            raise pyopencl.RuntimeError("clGetDeviceIDs failed: OUT_OF_HOST_MEMORY")
        return []

    empty, other = SimpleNamespace(get_devices=none), SimpleNamespace(get_devices=lambda: ["one", "two"])
    monkeypatch.setattr(roads, "_compiler_refuses", lambda device: f"{device} is asked")
    monkeypatch.setattr(pyopencl, "get_platforms", lambda: [empty, other])
    assert roads.first_opencl_device() == "one"
    assert roads.missing("OpenCL") == "OpenCL is left out: one is asked."

    monkeypatch.setattr(pyopencl, "get_platforms", lambda: [empty])
    assert roads.missing("OpenCL").startswith("OpenCL is left out: it has no platform with a device")
    with pytest.raises(LookupError, match="no platform with a device"):
        opencl.OpenCL()


def test_opencl_for_another_processor_gives_one_line(monkeypatch):
    """As the compiler reports an AMD processor newer than itself."""
    pyopencl = pytest.importorskip("pyopencl")
    if "no platform" in roads.missing("OpenCL"):
        pytest.skip("OpenCL has no platform")

    def build(*args, **kwargs):
        raise pyopencl.RuntimeError("Build on <Device>:\n\nerror: unknown target CPU 'generic'\nfailed")

    roads._compiler_refuses.cache_clear()
    monkeypatch.setattr(pyopencl.Program, "build", build)
    message = roads.missing("OpenCL")
    roads._compiler_refuses.cache_clear()
    assert message.startswith("OpenCL is left out: the compiler of ")
    assert "accepts no program for this processor (unknown target CPU 'generic'); " in message
    assert "conda's PoCL is newer" in message


def test_compiled_triton_is_not_interpreted(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", object())
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(RuntimeError, match="set TRITON_INTERPRET=1 before the import"):
        blocks.interpret()


# --- what is stored ----------------------------------------------------------------------------------------


@pytest.fixture
def compiled(tmp_path, monkeypatch):
    """Return a function that compiles Triton's convolution without a cache."""
    if reason := roads.missing("Triton"):
        pytest.skip(reason)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    types = dict.fromkeys(("x", "weight", "bias", "out"), "*fp32")
    types |= dict.fromkeys(("count", "height", "width", "channels"), "i32")
    usual = {"relu": False, "PLACES": 64, "CHANNELS": 16, "DEPTH": 16, "PRECISION": "ieee"}
    kernel = blocks.Blocks().kernels.conv_forward
    return lambda **constants: machine_code.of_triton(kernel, types, usual | constants, 80)


def test_triton_compiles_after_interpreting_its_own_library(compiled):
    """`cross_entropy` calls `tl.sum`, which is written in Triton."""
    programs = blocks.Blocks()
    scores, labels = np.zeros((2, 10), np.float32), np.zeros(2, np.int32)
    given = map(programs.array, (scores, scores[0], labels))
    programs.cross_entropy(*given, programs.empty(2), programs.empty(2, 10))
    code = compiled()
    assert "sm_80" in code.ptx
    assert code.shared > 0 < code.registers


def test_errors_of_triton_are_shown_in_its_words(compiled):
    with pytest.raises(RuntimeError, match=r"Triton does not compile `conv_forward`:[\s\S]*power of 2"):
        compiled(DEPTH=15)


def test_all_roads_are_stored_as_right():
    for cell in ("yardstick", "opencl-run", "words", "triton-run", "cuda-run"):
        assert "all 9 arrays agree to 2e-06" in shown(cell), cell


def test_the_compiled_programs_use_the_instructions_in_the_text():
    found = {}
    for line in shown("compile").splitlines():
        if match := re.match(r"([\d.]+) (\w+): ", line):
            found[match.groups()] = {name: int(n) for n, name in re.findall(r"(\d+) ([A-Z]+)\b", line)}
    a100, a100_tf32, h100 = found["8.0", "ieee"], found["8.0", "tf32"], found["9.0", "tf32"]
    assert (a100["FFMA"] > 0, a100["HMMA"], a100["HGMMA"]) == (True, 0, 0)
    assert (a100_tf32["FFMA"], a100_tf32["HMMA"] > h100["HGMMA"] > 0, a100_tf32["LDSM"] > 0) == (
        0,
        True,
        True,
    )
    assert (h100["FFMA"], h100["HMMA"]) == (0, 0)
    assert min(counts["BAR"] for counts in found.values()) > 0
    assert shown("ptx").splitlines()[:2] == [
        "ieee: within 2e-06 True, within 0.001 True",
        "tf32: within 2e-06 False, within 0.001 True",
    ]


def test_the_tuner_answers_as_the_text_says():
    layer, square, large, *_ = shown("tuned").splitlines()
    assert "16 x 16 x 16" in layer
    assert "64 x 64 x 16" in square
    assert "128 x 64 x 16" in large
    assert "64 x 64 x 4, 2 x 2 a thread (1)" in shown("tuned")
    counted = re.findall(r"([\d,]+) bytes counted, ([\d,]+) in the model", shown("counted"))
    assert len(counted) == 2
    assert all(counts == model for counts, model in counted)


def test_threads_with_few_results_are_limited_by_deliveries():
    """Of 32 numbers per cycle, and 128 multiply-adds, of which `m` x `n` take `m + n` deliveries."""
    bounds = {(m, n): Fraction(m * n, m + n) * Fraction(32, 128) for m, n in ((1, 1), (2, 2), (4, 4), (8, 4))}
    assert list(bounds.values()) == [Fraction(1, 8), Fraction(1, 4), Fraction(1, 2), Fraction(2, 3)]
    one, four = map(float, re.findall(r"([\d.]+) deliveries", shown("counted")))
    assert 2 <= one < 3  # two, and what fills the tiles
    assert 1 <= four < 2


# --- what is compiled --------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_a_candidate_that_rounds_down_is_found_out():
    if reason := roads.missing("CUDA C++"):
        pytest.skip(reason)
    by_depth = {
        choice[:3]: tuning.Candidate(*choice, 1024 if choice[2] == 4 else 256, 0, 0)
        for choice in tuning.CHOICES
    }
    assert not tuning.is_right(by_depth[64, 64, 4])
    assert tuning.is_right(by_depth[32, 32, 16])


@pytest.mark.gpu
def test_registers_and_instructions_are_the_compiler_s():
    """The assembler's output, and figures read from its cubin."""
    if reason := roads.missing("CUDA C++"):
        pytest.skip(reason)
    from cuda.core import Program, ProgramOptions

    text = roads.source("kernels.cu")
    text = text[: text.index("// One output")] + roads.kernel("sgd", "kernels.cu")
    cubin = Program(text, "c++", ProgramOptions(arch="sm_80", std="c++17")).compile("cubin").code
    assert machine_code.registers_in(cubin) == machine_code.usage(text, {}, 80)[0]
    counted = machine_code.instructions_in(cubin)
    assert (counted["FFMA"], counted["STG"], counted["HMMA"]) == (1, 1, 0)
    with pytest.raises(ValueError, match="does not say how many registers"):
        machine_code.registers_in(b"")


def test_too_much_shared_memory_is_reported_with_its_size():
    if roads.missing("CUDA C++") or device.simulated():
        pytest.skip("there is no compiler")
    one = tuning.Candidate(128, 128, 64, 4, 4, 1024, 0, 0)
    assert machine_code.usage(roads.source(tuning.PROGRAM), one.define, 90)[1] == 65536


# --- pictures ----------------------------------------------------------------------------------------------


def test_columns_have_the_same_background_for_the_same_thing():
    columns = {"a": "cuda.syncthreads() <b>", "b": "barrier(CLK_LOCAL_MEM_FENCE); get_local_id(0)"}
    html = pictures.SideBySide(columns)._repr_html_()
    assert html.count(pictures.plots.ORANGE) == 2
    assert html.count(pictures.plots.BLUE) == 1
    assert "&lt;b&gt;" in html
    assert repr(pictures.SideBySide(columns)).startswith("a\ncuda.syncthreads()")
    columns = {
        "Triton": "tl.program_id(0)\nx = tl.load(p, mask=there, other=0.0)\n",
        "cuTile": "ct.bid(0)\nx = ct.load(a, (0,), (4,), padding_mode=ct.PaddingMode.ZERO)\n",
    }
    html = pictures.SideBySide(columns)._repr_html_()
    assert [html.count(colour) for colour in (pictures.plots.BLUE, pictures.plots.ORANGE)] == [2, 2]
    assert html.count(pictures.plots.PURPLE) == 2


def test_picture_descriptions_match_the_data():
    assert "the last 2 of them empty" in pictures.grain_picture(22, 8).alt
    found = {"ours": {"out": 1e-7}, "theirs": {"out": 3e-7}}
    assert "ours 1.0e-07; theirs 3.0e-07" in pictures.differences_picture(found, 2e-6).alt
    assert "small: 2 and 3" in pictures.model_picture({"small": (2e-6, 3e-6)}, "title").alt
