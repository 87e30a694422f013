"""Signatures and launches of kernels, for both compilers."""

from typing import NamedTuple, get_type_hints


class Launch(NamedTuple):
    """A kernel with its launch configuration; `shared`: bytes of dynamic shared memory."""

    kernel: object
    grid: tuple
    block: tuple
    shared: int


def as_written(argument):
    """Return a type as written in signatures; compilers print arrays as ``array(float32, 1d, C)``."""
    if not hasattr(argument, "layout"):
        return str(argument)
    axes = [":"] * argument.ndim
    if argument.layout in "CF":
        axes[-1 if argument.layout == "C" else 0] = "::1"
    return f"{argument.dtype}[{', '.join(axes)}]"


def arguments_of(kernel, signature, compiler):
    """Return the argument types of a signature, given as text or as types; check them against the kernel.

    `compiler`: has the modules `sigutils` and `types`, and the function `typeof`.
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
    """Evaluate a signature; its text may name a NamedTuple that annotates a parameter of the kernel."""
    if not isinstance(signature, str):
        return signature
    annotations = get_type_hints(kernel.py_func).values()
    tuples = {kind.__name__: _tuple_type(kind, compiler) for kind in annotations if hasattr(kind, "_fields")}
    return eval(signature, {}, {**vars(compiler.types), **tuples})


def _tuple_type(kind, compiler):
    """Return a compiler's type for a NamedTuple whose fields are annotated as numbers."""
    return compiler.typeof(kind(*(field() for field in get_type_hints(kind).values())))
