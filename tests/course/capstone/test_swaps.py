"""Swaps that are refused, each by name, for the shortest part; and one that passes but for its time."""

import numpy as np
import pytest
from numba import cuda, float32

from cnn_course.chapters.capstone import modelling
from cnn_course.chapters.capstone.judging import judge
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


def one_block(grad_output, out, grad_input):
    gate_kernel[1, 32](grad_output, out, grad_input)


def reads_on_the_host(grad_output, out, grad_input):
    one_block(grad_output, out, grad_input)
    out.copy_to_host()


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
    "slower": ("relu_backward", one_block),
}


@pytest.mark.parametrize(("name", "launcher"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_swap_is_refused_by_name(name, launcher, request):
    with pytest.raises(Wrong) as refused:
        judge(name, launcher)
    assert refused.value.mistake == request.node.callspec.id
    assert "{" not in refused.value.message
    words = {
        "wrong when large": "Right at small sizes, wrong at the size of ",
        "slower": "not get faster on any",
    }
    assert words.get(refused.value.mistake, "") in refused.value.message


def test_what_is_not_written_and_what_is_changed_is_named():
    def half(grad_output, out, grad_input):
        gate_kernel[1, 32](grad_output[:1], out[:1], grad_input[:1])

    with pytest.raises(Wrong, match="elements of `grad_input` were not written") as refused:
        judge("relu_backward", half)
    assert refused.value.mistake == "never written"

    def changes(grad_output, out, grad_input):
        one_block(grad_output, out, grad_input)
        gate_kernel[1, 32](out, out, grad_output)

    with pytest.raises(Wrong, match="changes `grad_output`, which must stay as it is") as refused:
        judge("relu_backward", changes)
    assert refused.value.mistake == "changes input"


def test_a_swap_that_is_faster_on_one_gpu_is_kept(monkeypatch):
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
    found = judge("relu_backward", one_block)
    assert found.after.microseconds(0) < found.before.microseconds(0)
    assert found.after.microseconds(1) > found.before.microseconds(1)
    assert found.lines()[0].startswith("T4: the part takes")
    assert np.isfinite(found.after.microseconds(2))
