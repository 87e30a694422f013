"""Signatures of kernels, as text or as types, and launches of them, as both compilers have them."""

from typing import NamedTuple, get_type_hints


class Launch(NamedTuple):
    """A kernel with its launch configuration; `shared`: bytes of dynamic shared memory."""

    kernel: object
    grid: tuple
    block: tuple
    shared: int


def as_written(argument):
    """Return a type as signatures have it, which compilers print as ``array(float32, 1d, C)``."""
    if not hasattr(argument, "layout"):
        return str(argument)
    axes = [":"] * argument.ndim
    if argument.layout in "CF":
        axes[-1 if argument.layout == "C" else 0] = "::1"
    return f"{argument.dtype}[{', '.join(axes)}]"


def arguments_of(kernel, signature, compiler):
    """Return the types of a signature given as text or as types, checked against the kernel.

    `compiler`: its modules `sigutils` and `types`, and its function `typeof`.
    """
    names = kernel.py_func.__code__.co_varnames[: kernel.py_func.__code__.co_argcount]
    try:
        types = _types(kernel, signature, compiler)
        arguments, returned = compiler.sigutils.normalize_signature(types)
    except Exception as error:
        raise ValueError(f"the signature {signature!r} cannot be read: {error}") from None
    if returned is not None and str(returned) not in ("none", "void"):
        raise ValueError(f"a kernel returns nothing: write void(...) instead of {signature!r}")
    if len(arguments) != len(names):
        raise ValueError(
            f"the kernel takes {len(names)} arguments ({', '.join(names)}), "
            f"the signature has {len(arguments)}: {signature}"
        )
    return arguments


def _types(kernel, signature, compiler):
    """Return a signature whose text may name a NamedTuple, one that annotates a parameter of the kernel."""
    if not isinstance(signature, str):
        return signature
    annotations = get_type_hints(kernel.py_func).values()
    tuples = {kind.__name__: _tuple_type(kind, compiler) for kind in annotations if hasattr(kind, "_fields")}
    return eval(signature, {}, {**vars(compiler.types), **tuples})


def _tuple_type(kind, compiler):
    """Return a compiler's type of a NamedTuple whose fields are numbers, as they are annotated."""
    return compiler.typeof(kind(*(field() for field in get_type_hints(kind).values())))
