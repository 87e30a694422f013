"""The checks that the cpu and the gpu backend share: they return the outputs, made if None."""


def forward(memory, x, out):
    """Check the arguments of an activation."""
    memory.check("x", x, None)
    return memory.output("out", out, x.shape, inputs={"x": x}, may_be=["x"])


def backward(memory, grad_output, out, grad_input):
    """Check the arguments of its backward pass."""
    memory.check("grad_output", grad_output, None)
    memory.check("out", out, grad_output.shape)
    inputs = {"grad_output": grad_output, "out": out}
    return memory.output("grad_input", grad_input, grad_output.shape, inputs=inputs, may_be=inputs)


def bias_relu_forward(memory, x, bias, out):
    """Check the arguments of `bias_relu_forward`."""
    memory.check("x", x, None)
    if x.ndim < 2:
        raise ValueError(f"x must have shape (N, C, ...), got {x.shape}")
    memory.check("bias", bias, (x.shape[1],))
    return memory.output("out", out, x.shape, inputs={"x": x, "bias": bias}, may_be=["x"])


def gelu_backward(memory, grad_output, x, grad_input):
    """Check the arguments of `gelu_backward`, which takes the input of the forward pass."""
    memory.check("grad_output", grad_output, None)
    memory.check("x", x, grad_output.shape)
    inputs = {"grad_output": grad_output, "x": x}
    return memory.output("grad_input", grad_input, grad_output.shape, inputs=inputs, may_be=inputs)


def add_forward(memory, a, b, out):
    """Check the arguments of `add_forward`."""
    memory.check("a", a, None)
    memory.check("b", b, a.shape)
    inputs = {"a": a, "b": b}
    return memory.output("out", out, a.shape, inputs=inputs, may_be=inputs)
