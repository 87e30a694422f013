"""The checks that the cpu and the gpu backend share: they return the outputs, made if None."""

from cnn_numba.arguments import settings
from cnn_numba.ops.shapes import check_memory


def inputs(memory, q, k, v, causal):
    """Check queries, keys and values against each other."""
    settings(causal=causal)
    memory.check("q", q, (None, None, None, None))
    memory.check("k", k, (*q.shape[:2], None, q.shape[3]))
    memory.check("v", v, k.shape)
    for name, array in (("q", q), ("k", k)):
        if array.size == 0:
            raise ValueError(f"{name} must not be empty, got shape {array.shape}")
    if causal and q.shape != k.shape:
        raise ValueError(
            f"causal attention needs as many queries as keys, got q with shape {q.shape}, k with {k.shape}"
        )


def forward(memory, q, k, v, causal, out, name, rows, row_shape):
    """Check the arguments of a forward pass that writes a row for each query, called `name`."""
    inputs(memory, q, k, v, causal)
    out = memory.output("out", out, q.shape)
    rows = memory.output(name, rows, row_shape)
    check_memory({"out": out, name: rows}, {"q": q, "k": k, "v": v})
    return out, rows


def backward(memory, grad_output, q, k, v, causal, saved, grad_q, grad_k, grad_v, others=()):
    """Check the arguments of a backward pass, that has `saved` arrays of the forward by name and shape.

    `others` is written to as well, likewise.
    """
    inputs(memory, q, k, v, causal)
    memory.check("grad_output", grad_output, q.shape)
    for name, (array, shape) in saved.items():
        memory.check(name, array, shape)
    outputs = {
        "grad_q": memory.output("grad_q", grad_q, q.shape),
        "grad_k": memory.output("grad_k", grad_k, k.shape),
        "grad_v": memory.output("grad_v", grad_v, k.shape),
    } | {name: memory.output(name, array, shape) for name, (array, shape) in dict(others).items()}
    read = {"grad_output": grad_output, "q": q, "k": k, "v": v}
    check_memory(outputs, read | {name: array for name, (array, _) in saved.items()})
    return tuple(outputs.values())


def split_heads(memory, x, out):
    """Check the arguments of `split_heads`."""
    return _moved(memory, x, out, (2, 0, 3, 1, 4))


def merge_heads(memory, x, out):
    """Check the arguments of `merge_heads`."""
    return _moved(memory, x, out, (1, 3, 0, 2, 4))


def _moved(memory, x, out, axes):
    memory.check("x", x, (None,) * 5)
    if x.size == 0:
        raise ValueError(f"x must not be empty, got shape {x.shape}")
    return memory.output("out", out, tuple(x.shape[axis] for axis in axes), inputs={"x": x})
