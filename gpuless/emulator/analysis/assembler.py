"""PTX that NVIDIA's assembler, ptxas, refuses, with its messages; the local memory of a kernel."""

from gpuless.emulator.analysis.variables import called, lay_out, parameter_places, visible_variables
from gpuless.emulator.ptx.instructions import readable
from gpuless.limits import CONSTANT_LIMIT, SHARED_LIMIT, WARP

#: Barriers of a block; bytes of a kernel's parameters since PTX 8.1, and before it.
_BARRIERS, _PARAMETERS, _OLD_PARAMETERS = 16, 32764, 4352


def refusals(source):
    """Yield ptxas's error messages for a module; none if it would assemble."""
    constants = lay_out(source.variables.values(), ("const",))[1]
    if constants > CONSTANT_LIMIT:
        yield f"File uses too much global constant data ({constants} bytes, {CONSTANT_LIMIT} max)"
    for function in source.functions.values():
        for item in function.body:
            if not isinstance(item, str) and item.opcode[0] in ("bar", "barrier"):
                yield from _of_barrier(item)
        if function.kernel:
            yield from _of_kernel(source, function)


def _of_barrier(instruction):
    """Yield errors in the immediate operands of a barrier."""
    if {"warp", "cluster"} & set(instruction.opcode):
        return
    operands = instruction.operands[1:] if "red" in instruction.opcode else instruction.operands
    number, threads = (int(text) if text.isdigit() else 0 for text in [*operands, "", ""][:2])
    if number >= _BARRIERS:
        yield f"Barrier number '{number}' out of range, expected to be in range [0..{_BARRIERS - 1}]"
    if threads % WARP:
        yield f"Number of threads participating in barrier must be in multiple of warp size, not {threads}"


def _of_kernel(source, kernel):
    """Yield a message for each limit that a kernel exceeds."""
    shared = lay_out(visible_variables(source, kernel), ("shared",))[1]
    allowed = _PARAMETERS if source.version >= (8, 1) else _OLD_PARAMETERS
    for what, size, most in (
        ("shared data", shared, SHARED_LIMIT),
        ("parameter space", parameter_places(kernel)[1], allowed),
    ):
        if size > most:
            yield f"Entry function '{readable(kernel.name)}' uses too much {what} ({size} bytes, {most} max)"


def local_size(source, function, known=None):
    """Return the bytes of local memory of a function and its callees, along the largest chain of calls.

    `known`: results so far; a recursive function counts once.
    """
    known = {} if known is None else known
    if function.name not in known:
        known[function.name] = 0
        deeper = (local_size(source, other, known) for other in called(source, function))
        own = lay_out(function.variables.values(), ("local",))[1]
        known[function.name] = own + max(deeper, default=0)
    return known[function.name]
