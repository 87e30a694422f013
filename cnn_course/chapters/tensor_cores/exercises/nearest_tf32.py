"""A complete intrinsic: it rounds a number to tf32 by the instruction for that."""

import re
from dataclasses import dataclass

import numpy as np
from numba import cuda

from cnn_course.chapters.tensor_cores.ptx import generator_of, ir, types, written
from cnn_course.engine.checks.evidence import StandIn
from cnn_course.engine.checks.exercise import Exercise, Verdict, Wrong
from cnn_course.engine.checks.kernels import normal
from cnn_numba import device
from cnn_numba.ops._reference import rounded
from gpuless.simulator import foreign

BLOCK = 32


def _parts(attempt):
    """Return the signature and the code of an intrinsic; raise `Wrong` if they are wrong."""
    made = generator_of(attempt)(None, types.float32)
    if not isinstance(made, tuple) or len(made) != 2 or not callable(made[1]):
        raise Wrong("no pair", "Return two things below `@intrinsic`: the signature, and the code.")
    signature, code = made
    if signature != types.float32(types.float32):
        message = f"Your signature is `{signature}`. A float32 number must come from a float32 number."
        raise Wrong("other types", message)
    return signature, code


def _written(code, signature):
    """Return the value that the code returns; None if only a whole compiler would know."""
    try:
        value = written(code, signature)
    except AttributeError:
        return None
    if value is None:
        raise Wrong(
            "returns None", "Your code returns None. Return the value that the builder gives you last."
        )
    # Only the compiler of a GPU would notice.
    constraint = re.search(r'"cvt\.rna\.tf32\.f32 [^"]*", "([^"]*)"', str(value.function))
    if constraint and device.simulated() and constraint[1][:1] != "=":
        raise Wrong("raises", _REFUSED)
    if constraint and constraint[1].startswith("=f"):
        raise Wrong(
            "register of another type",
            "The constraint `=f` puts the result into a float32 register, but the instruction leaves it in "
            "an integer register, `=r`. The emulated GPU would take this; the compiler of a GPU refuses it.",
        )
    return value


def _applied(attempt, x):
    """Let a kernel apply the intrinsic to each number."""
    signature, code = _parts(attempt)
    value = _written(code, signature)
    if value is not None and isinstance(value.type, ir.IntType):
        raise Wrong(
            "bits returned",
            "Your code returns an integer, but the signature promises a float32. The bits are right: "
            "reinterpret them as a float.",
        )
    if value is not None and value.type != ir.FloatType():
        message = (
            f"Your code returns a `{value.type}`, but the signature promises a float32: `ir.FloatType()`."
        )
        raise Wrong("another type returned", message)
    if device.simulated():
        return _read(value, x)
    out = device.to_device(np.full(x.size, np.nan, np.float32))
    try:
        _applying(attempt)[device.blocks(x.size, BLOCK), BLOCK](device.to_device(x), out)
    except Exception as error:
        if foreign.is_about_bad_ir(error):
            raise Wrong("raises", _REFUSED) from None
        raise
    return device.to_host(out)


_REFUSED = (
    "The compiler refuses your line. Do the constraint and the type of the function agree, in number, order "
    "and type? The result comes first: `=r` goes with `ir.IntType(32)`, and `f` with `ir.FloatType()`."
)


def _applying(attempt):
    @cuda.jit
    def apply_kernel(x, out):
        i = cuda.grid(1)
        if i < x.size:
            out[i] = attempt(x[i])

    return apply_kernel


def _read(value, x):
    """Return what the PTX would compute, for known instructions: the simulator runs no PTX."""
    line = re.search(r'asm .*?"(\S+) [^"]*;', str(value.function)) if value is not None else None
    if line is None or line[1] not in _READ:
        raise NotImplementedError("the simulator runs no PTX, and does not know yours")
    return _as_number(x) if "uitofp" in str(value.function) else _READ[line[1]](x)


def _as_number(x):
    return rounded(x, "tf32").view(np.uint32).astype(np.float32)


def _cut(x):
    return (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def _to_even(x):
    bits = x.view(np.uint32)
    return _cut((bits + np.uint32(0xFFF) + (bits >> 13 & np.uint32(1))).view(np.float32))


#: What the simulator can read.
_READ = {
    "cvt.rn.tf32.f32": _to_even,
    "cvt.rz.tf32.f32": _cut,
    "cvt.rna.tf32.f32": lambda x: rounded(x, "tf32"),
    "mov.b32": lambda x: x,
    "and.b32": _cut,
    "cvt.rni.f32.f32": np.rint,
}


@dataclass(frozen=True, repr=False)
class IntrinsicExercise(Exercise):
    """An exercise whose attempt is an intrinsic: the function below the decorator is read and kept."""

    def __call__(self, attempt):
        """Check an intrinsic as any attempt."""
        if generator_of(attempt):
            attempt.py_func = attempt._defn
        return super().__call__(attempt)

    def _verdict(self, attempt):
        if callable(attempt) and not isinstance(attempt, StandIn) and not generator_of(attempt):
            message = "This is a plain function. Write `@intrinsic` above its `def`."
            return Verdict(self.name, "wrong", message, mistake="not an intrinsic")
        if generator_of(attempt):
            return super()._verdict(_Callable(attempt))
        return super()._verdict(attempt)

    def names_of(self, attempt, given):
        """Return no names: an intrinsic is not called with what its kernel gives it."""
        return []

    def _praise(self, trials):
        return f"Right for all {sum(trial.case.args[0].size for trial in trials)} numbers."


class _Callable:
    """An intrinsic that counts as callable, which Numba's are only in kernels."""

    def __init__(self, attempt):
        self.attempt, self.py_func, self._defn = attempt, attempt.py_func, attempt._defn

    def __call__(self, x):
        return _applied(self.attempt, x)


nearest_tf32 = IntrinsicExercise(
    "nearest_tf32",
    reference=lambda x: rounded(x, "tf32"),
    cases=lambda rng: [
        (np.float32([1 / 3]),),
        (normal(rng, 5),),
        (normal(rng, 40),),
        (np.float32([0, 1, -0.5, 1e6, 1e-6, -3e38]),),
        (np.float32([1 + 2**-11, -1 - 2**-11, 1 + 3 * 2**-11, 1 + 2**-12]),),
    ],
    rtol=1e-7,
    mistakes={
        "not rounded": (
            "Your numbers come out as they went in. The instruction must round them.",
            lambda x: x,
            ("cvt.rna.tf32.f32", "mov.b32"),
        ),
        "converted": (
            "You convert the bits, as if they were an integer, into a float of that value. Reinterpret the "
            "same bits as a float.",
            _as_number,
            ("builder.bitcast(", "builder.uitofp("),
        ),
        "cut off": (
            "You cut off the lower bits, so numbers only get smaller. Round to the nearest.",
            _cut,
            ("cvt.rna.tf32.f32 $0, $1;", "and.b32 $0, $1, 0xFFFFE000;"),
            ("cvt.rna.tf32.f32", "cvt.rz.tf32.f32"),
        ),
        "from the middle to even": (
            "You round ties to even. Here ties go away from zero: `cvt.rna`.",
            _to_even,
            ("cvt.rna.tf32.f32", "cvt.rn.tf32.f32"),
        ),
        "to integers": (
            "You round to integers. tf32 keeps 10 bits after the point.",
            np.rint,
            [("cvt.rna.tf32.f32", "cvt.rni.f32.f32")],
        ),
    },
)
