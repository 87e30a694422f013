"""Swaps for the shortest part that are rejected with a reason; and one that is only too slow."""

import numpy as np
import pytest
from numba import cuda, float32

from cnn_course.chapters.capstone import judging, modelling, watching
from cnn_course.chapters.capstone.judging import Judged, judge
from cnn_course.chapters.capstone.modelling import Modelled
from cnn_course.engine.checks.evidence import Wrong
from cnn_numba.ops.activation.gpu import relu_backward
from gpuless import frontends

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not frontends.installed(), reason="models launches of the emulated GPU"),
]


@cuda.jit
def gate_kernel(grad_output, out, grad_input):
    for i in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        grad_input[i] = grad_output[i] if out[i] > float32(0) else float32(0)


@cuda.jit
def unguarded_kernel(grad_output, out, grad_input):
    i = cuda.grid(1)
    grad_input[i] = grad_output[i] if out[i] > float32(0) else float32(0)


@cuda.jit
def wide_kernel(grad_output, out, grad_input):
    for i in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        grad_input[i] = grad_output[i] * (1 if out[i] > float32(0) else 0.0)


def in_float64(grad_output, out, grad_input):
    wide_kernel[1, 32](grad_output, out, grad_input)


def one_block(grad_output, out, grad_input):
    gate_kernel[1, 32](grad_output, out, grad_input)


def reads_on_the_host(grad_output, out, grad_input):
    one_block(grad_output, out, grad_input)
    out.copy_to_host()


kept = {}


def keeps_its_gate(grad_output, out, grad_input):
    """Reuse the gate of the first call for all calls of its size."""
    if out.size not in kept:
        kept[out.size] = cuda.device_array(out.size, np.float32)
        gate_kernel[4, 128](out, out, kept[out.size])
    gate_kernel[4, 128](grad_output, kept[out.size], grad_input)


def fills_first(grad_output, out, grad_input):
    grad_input[:] = 0
    gate_kernel[4, 128](grad_output, out, grad_input)


def copies_first(grad_output, out, grad_input):
    grad_input.copy_to_device(np.zeros(out.size, np.float32))
    gate_kernel[4, 128](grad_output, out, grad_input)


def copies_on_the_device(grad_output, out, grad_input):
    gate_kernel[4, 128](grad_output, out, grad_input)
    grad_input.copy_to_device(grad_input)


REFUSED = {
    "no such part": ("relu", one_block),
    "a kernel": ("relu_backward", gate_kernel),
    "not a function": ("relu_backward", 3),
    "wrong signature": ("relu_backward", lambda grad_output, out: None),
    "no launch": ("relu_backward", lambda grad_output, out, grad_input: None),
    "raises": ("relu_backward", lambda *arrays: 1 / 0),
    "out of bounds": ("relu_backward", lambda *arrays: unguarded_kernel[9, 64](*arrays)),
    "wrong numbers": ("relu_backward", lambda g, out, grad_input: one_block(out, g, grad_input)),
    "computes on the host": ("relu_backward", reads_on_the_host),
    "package's kernel": ("relu_backward", relu_backward),
    "keeps results": ("relu_backward", keeps_its_gate),
    "copies": ("relu_backward", fills_first),
    "copies, host": ("relu_backward", copies_first),
    "copies, device": ("relu_backward", copies_on_the_device),
    "slower": ("relu_backward", one_block),
}


@pytest.mark.parametrize(("name", "launcher"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_swap_is_rejected_by_name(name, launcher, request):
    with pytest.raises(Wrong) as refused:
        judge(name, launcher)
    assert refused.value.mistake == request.node.callspec.id.partition(", ")[0]
    assert "{" not in refused.value.message
    words = {
        "wrong when large": "Right at small sizes, wrong at the size of ",
        "slower": "not get faster on any",
    }
    assert words.get(refused.value.mistake, "") in refused.value.message


def test_unwritten_outputs_and_changed_inputs_are_named():
    def half(grad_output, out, grad_input):
        gate_kernel[1, 32](grad_output[:1], out[:1], grad_input[:1])

    with pytest.raises(Wrong, match="elements of `grad_input` are not written") as refused:
        judge("relu_backward", half)
    assert refused.value.mistake == "never written"

    def changes(grad_output, out, grad_input):
        one_block(grad_output, out, grad_input)
        gate_kernel[1, 32](out, out, grad_output)

    with pytest.raises(Wrong, match="changes `grad_output`, which must stay as it is") as refused:
        judge("relu_backward", changes)
    assert refused.value.mistake == "changes input"


def test_a_swap_that_is_faster_on_one_gpu_is_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("CNN_NUMBA_WORKBOOK", str(tmp_path))
    model_part = modelling.model_part

    def faster(name, launcher):
        found = model_part(name, launcher)
        launches = tuple(
            tuple(one._replace(times=((0.1, 0.1, 0.1), *one.times[1:])) for one in call)
            for call in found.launches
        )
        return found._replace(launches=launches)

    monkeypatch.setattr(modelling, "model_part", faster)
    monkeypatch.setattr(modelling, "_known", {})
    monkeypatch.setattr(judging, "_passed", {})
    found = judge("relu_backward", one_block)
    assert found.after.microseconds(0) < found.before.microseconds(0)
    assert found.after.microseconds(1) > found.before.microseconds(1)
    assert found.lines()[0].startswith("T4: the part takes")
    assert np.isfinite(found.after.microseconds(2))
    assert found.in_a_line().startswith("0.00")

    monkeypatch.setattr(judging, "_faster", None)
    assert judge("relu_backward", one_block) is found, "who changes nothing does not wait again"


def test_float64_in_a_swap_is_remarked_with_its_line(monkeypatch):
    nothing = Judged(Modelled(()), Modelled(()))
    monkeypatch.setattr(judging, "_faster", lambda part, launcher: nothing)
    monkeypatch.setattr(judging, "_passed", {})
    assert judge("relu_backward", one_block).float64 == ()
    (remark,) = judge("relu_backward", in_float64).float64
    assert remark.startswith("`wide_kernel` computes in float64, which most GPUs do far more slowly. Line 4")
    assert remark.endswith("Write `float32(1) if out[i] > float32(0) else float32(0)`.")


def test_the_simulator_cannot_judge_a_swap(monkeypatch):
    monkeypatch.setattr(watching.device, "simulated", lambda: True)
    message = "The check watches copies in the driver, and the simulator has none"
    with pytest.raises(Wrong, match=message), watching.copies_refused({}):
        pass
