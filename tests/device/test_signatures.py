"""The note on a kernel: the types of its launches."""

from cnn_numba import device

# isort: split
from numba import cuda


def test_a_note_changes_nothing_but_the_attributes():
    def function(x):
        pass

    assert device.signature("void(float32[::1])")(function) is function
    assert (function.signature, function.capability, function.allowed) == ("void(float32[::1])", "", {})
    assert function.__name__ == "function"
    note = device.signature("void(int32)", capability=">= 8.0", allowed={"spills": "why"}, name="other")
    assert note(function).__name__ == function.__qualname__ == "other"
    assert (function.signature, function.capability) == ("void(int32)", ">= 8.0")
    assert function.allowed == {"spills": "why"}


def test_a_kernel_with_a_note_compiles_for_its_arguments():
    @cuda.jit
    @device.signature("void(float32[::1])")
    def count_kernel(out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = i

    assert not getattr(count_kernel, "overloads", {})
    for dtype in ("float32", "int32"):
        out = device.empty(5, dtype)
        device.launch(count_kernel, 1, 32, out)
        assert device.to_host(out).tolist() == [0, 1, 2, 3, 4]
