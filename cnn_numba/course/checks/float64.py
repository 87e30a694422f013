"""Whether a kernel computes in float64: asked of the code that it is compiled to.

The source does not tell: a bare ``0.0`` that is only stored costs nothing, ``total = 0`` before a loop of
``total += x[i]`` makes every addition one of float64, and which is which the compiler decides. Where kernels
are compiled (on a GPU, be it emulated) the PTX is at hand; where they are simulated and there is a compiler,
`gpuless.inspector` asks it. Where there is none, on macOS say, what the simulator has seen stored must do:
float64 values in float32 arrays, so that a stored ``0.0`` is refused and a sum that begins with an integer
is not.
"""

import linecache
import os
import re
from operator import eq

import numpy as np

from cnn_numba import device
from cnn_numba.course.checks.mistakes import Wrong
from cnn_numba.course.checks.uninitialised import code_of
from gpuless.access import WRITE
from gpuless.inspector import InspectionError, float64_causes, inspect_kernel, read_ptx

_CAUSES = {
    "literal": "A literal such as `0.0` is float64, and so is all that it meets.",
    "integer start": "An integer that a float32 is added to becomes float64.",
    "integer": "An integer and a float32 together are float64.",
    "division": "`/` of an integer is float64, whatever it meets.",
    "function": "A function of an integer is computed in float64.",
    "type": "This asks for float64 by name.",
    "": "An operand of this line, or of a function that it calls, is float64, or an integer that meets a "
    "float32. Write a literal as `float32(0)` and an integer as `float32(n)`.",
}


def refuse_float64(attempt, trials):
    """Raise `Wrong` if a kernel computes in float64, as compiled for the launches of some trials.

    Parameters
    ----------
    attempt : kernel
    trials : list of trials
        With the sanitizer's report, for where there is no compiler.
    """
    for arguments in _by_types(trials):
        signature = _signature(attempt, arguments)
        instructions = _compiled(attempt, signature)
        if instructions is None:
            for trial in trials:
                _refuse_stored(attempt, trial)
            return
        if computing := _computing(instructions):
            _refuse_signature(signature, arguments)
            _refuse(attempt, float64_causes(computing))


# To float64, as `print` has its numbers, and from there to an integer: what is computed of them is another
# instruction, and of integers alone Numba has `kernel_size**2` so.
_CONVERSION = re.compile(r"cvt(\.\w+)?\.(f64\.\w+|[su]\d+\.f64)")
_FROM_INTEGER = re.compile(r"cvt\.\w+\.f64\.[su]\d+")


def _computing(instructions):
    """Return the instructions that compute in float64, without comparisons of integers, as of a `reshape`."""
    doubles = [each for each in instructions if each.kind == "FP64"]
    integers = {_operands(each)[0] for each in doubles if _FROM_INTEGER.fullmatch(each.opcode)}
    return [
        each
        for each in doubles
        if not _CONVERSION.fullmatch(each.opcode)
        and not (each.opcode.startswith("setp") and integers.issuperset(_operands(each)[1:]))
    ]


def _operands(instruction):
    return instruction.operands.split(", ")


def _by_types(trials):
    """Return the arguments of one launch for each combination of types."""
    found = {}
    for trial in trials:
        arguments = trial.case.arrays()
        found.setdefault(tuple(map(_written, arguments)), arguments)
    return found.values()


def _written(value):
    """Return an argument's type as Numba's signatures have it."""
    if not isinstance(value, np.ndarray):
        return str(_dtype(value))
    return f"{value.dtype}[{', '.join([*':' * (value.ndim - 1), '::1'])}]" if value.ndim else str(value.dtype)


def _refuse(attempt, causes):
    """Raise `Wrong` for the first of some causes; the sine's own detour through float64 is none."""
    causes = [cause for cause in causes if cause.kind != "trigonometry"]
    if not causes:
        return
    code = code_of(attempt)
    first = next((cause for cause in causes if cause.kind), causes[0])
    details = [_CAUSES[first.kind]]
    if first.kind:
        details.append(f"{_place(code, first)}: `{first.what}`. Write `{first.remedy}`.")
    elif first.line:
        text = linecache.getline(first.file, first.line).strip()
        details.append(f"{_place(code, first)}" + (f": `{text}`" if text else "."))
    raise Wrong(
        "float64",
        "The numbers are right, but computed in float64, which most GPUs do far more slowly.",
        *details,
    )


def _place(code, cause):
    last = max((line for *_, line in code.co_lines() if line), default=0)
    own = os.path.basename(cause.file) == os.path.basename(code.co_filename)
    if own and code.co_firstlineno <= cause.line <= last:
        return f"Line {cause.line - code.co_firstlineno + 1} of your kernel"
    return f"Line {cause.line} of a function that it calls"


# --- asking the compiler -----------------------------------------------------------------------------------


def _signature(attempt, arguments):
    """Return what a kernel is compiled for at a launch with these arguments: its signature, if it has one."""
    if device.simulated():
        return next(iter(attempt.signatures), f"void({', '.join(map(_written, arguments))})")
    types = tuple(map(attempt.typeof_pyval, arguments))
    if types in attempt.overloads:
        return types
    # It has signatures: the nearest.
    return max(attempt.overloads, key=lambda given: sum(map(eq, given, types)), default=types)


def _refuse_signature(signature, arguments):
    """Raise `Wrong` if it is a signature that makes float64 of what is handed over as float32."""
    if "float64" in str(signature) and "float64" not in map(str, map(_dtype, arguments)):
        raise Wrong(
            "float64",
            "The numbers are right, but computed in float64, which most GPUs do far more slowly.",
            "The signature behind `@cuda.jit` says `float64`, so a float32 number is converted. Write "
            "`float32` there, or leave the signature out: then the arguments decide.",
        )


def _dtype(value):
    return np.asarray(value).dtype


def _compiled(attempt, types):
    """Return the instructions of a kernel for a signature, None where nobody compiles it."""
    if device.simulated():
        return _inspected(attempt, types)
    instructions = read_ptx(attempt.inspect_asm(types)) if types in attempt.overloads else None
    if instructions is not None and not _computing(instructions):
        return instructions
    return _with_lines(attempt, types) or instructions


def _with_lines(attempt, types):
    """Compile a kernel once more, so that its instructions know their lines; None if that fails."""
    from numba.cuda import compile_ptx_for_current_device

    try:
        ptx, _ = compile_ptx_for_current_device(
            attempt.py_func,
            types,
            lineinfo=True,
            fastmath=attempt.targetoptions.get("fastmath") or False,
        )
    except Exception:  # it is only about the words: the kernel has been compiled and has run
        return None
    return read_ptx(ptx)


_missing = []  # why there is no compiler, once it has been asked for and was not there


def _inspected(attempt, signature):
    if _missing:
        return None
    try:
        return inspect_kernel(attempt, signature, disassemble=False).instructions
    except InspectionError as error:
        if "no CUDA compiler" in str(error):
            _missing.append(error)
        return None


# --- asking the simulator ----------------------------------------------------------------------------------


def _refuse_stored(attempt, trial):
    """Raise `Wrong` if a float64 value is stored into a float32 array."""
    trace = trial.report.trace
    narrow = np.array([info.dtype == np.float32 for info in trace.arrays] + [False])[trace.array]
    for row in np.flatnonzero(narrow & (trace.kind == WRITE)):
        if isinstance(trace.values[row], np.float64):
            site = trace.sites[trace.site[row]]
            place = f"Line {site.line - code_of(attempt).co_firstlineno + 1} of your kernel"
            raise Wrong(
                "float64",
                "The numbers are right, but computed in float64, which most GPUs do far more slowly. A "
                "literal such as `0.0` is float64, and so is all that it meets: write `float32(0)`.",
                f"{place}: `{site.text}`" if site.text else f"{place}.",
            )
