"""Finds out whether a kernel computes in float64, by its compiled code.

The source does not show it: a bare ``0.0`` that is only stored costs nothing, but ``total = 0`` before a loop
of ``total += x[i]`` makes every addition float64. The compiler decides. If kernels are compiled (for a real
or emulated GPU), there is PTX. If they are simulated and there is a compiler, `gpuless.inspector` asks it.
Without a compiler, as on macOS, only the simulator's stores show it: float64 values in float32 arrays.
Exceptions are a literal, and one operation of a float32 and a literal: the compiler computes these in
float32. A sum that begins with an integer then goes unnoticed.
"""

import ast
import contextlib
import linecache
import operator
import os
import re

import numpy as np

from cnn_course.engine.checks.evidence import Wrong
from cnn_course.engine.checks.source import parsed
from cnn_course.engine.checks.uninitialised import code_of
from cnn_course.engine.checks.wording import line_of
from cnn_numba import device
from gpuless.access import WRITE
from gpuless.inspector import (
    InspectionError,
    NoCompiler,
    float64_beginnings,
    float64_causes,
    inspect_kernel,
    read_ptx,
)

_MESSAGE = "The numbers are right, but computed in float64, which most GPUs do far more slowly."
_CAUSES = {
    "literal": "A Python float, such as `0.0`, `1e-5` or `math.inf`, is float64, and so is what is computed "
    "with it.",
    "outside": "A Python number that is defined outside of the kernel is float64 in it.",
    "integer": "An integer and a float32 together give float64.",
    "mixed": "A variable that is an integer in one place and a float32 in another is float64 in both.",
    "division": "`/` gives float64 where one side is an integer.",
    "function": "A function such as `math.exp` computes in float64 where it is given an integer.",
    "type": "`float` and `np.float64` are names of float64.",
    "argument": "An argument is float64, as the types in brackets after `@cuda.jit` say.",
    # From the source alone:
    "integer start": "An integer that a float32 is added to becomes float64.",
    "": "A number of this line, or of a function that it calls, is float64, or an integer meets a float32.",
}


def computes_in_float64(evidence):
    """Find a kernel that computes in float64 in the launches of its trials."""
    attempt, traced = evidence.attempt, evidence.traced
    for arguments in _by_types(traced) if evidence.exercise.float32 else ():
        instructions, compiled = _compiled(attempt, _signature(attempt, arguments))
        if instructions is None:
            return next(filter(None, (_stored(attempt, trial) for trial in traced)), None)
        if _computing(instructions):
            causes, verb = _causes(compiled, filter(_is_float64, instructions))
            if found := _named(attempt, causes, verb):
                return found
    return None


def float64_in(compiled):
    """Return the finding for a compiled kernel, None if it computes in float32."""
    instructions = read_ptx(compiled.inspect_asm(None))
    if not _computing(instructions):
        return None
    instructions = _with_lines(compiled, compiled.argument_types) or instructions
    return _named(compiled, *_causes(compiled, filter(_is_float64, instructions)))


def _causes(compiled, instructions):
    """Return the causes of float64 instructions, and the advice's verb: the source alone gives guesses."""
    instructions = list(instructions)
    try:
        return float64_beginnings(compiled, {(one.file, one.line) for one in instructions}), "Write"
    except Exception:  # compiled elsewhere, or by a Numba with other internals
        return float64_causes(instructions), "Try"


# From an integer to float64 and back, as in Numba's `kernel_size**2`: the data is not involved.
_OF_INTEGERS = re.compile(r"cvt\.\w+\.(f64\.[su]\d+|[su]\d+\.f64)")


def _is_float64(instruction):
    return instruction.kind == "FP64" and not _OF_INTEGERS.fullmatch(instruction.opcode)


# To float64, as for `print`, and from there to an integer, as in Numba's `kernel_size**2`. Arithmetic with
# the converted numbers is a separate instruction.
_CONVERSION = re.compile(r"cvt(\.\w+)?\.(f64\.\w+|[su]\d+\.f64)")
_FROM_INTEGER = re.compile(r"cvt\.\w+\.f64\.[su]\d+")


def _computing(instructions):
    """Return the instructions that compute in float64, except comparisons of integers, as in a `reshape`."""
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
    """Return an argument's type as Numba's signatures write it."""
    if not isinstance(value, np.ndarray):
        return str(np.asarray(value).dtype)
    return f"{value.dtype}[{', '.join([*':' * (value.ndim - 1), '::1'])}]" if value.ndim else str(value.dtype)


def _named(attempt, causes, verb):
    """Return a finding with causes and advice, except for the float64 inside `sin` and `cos`."""
    causes = [cause for cause in causes if cause.kind != "trigonometry"]
    causes = [cause for cause in causes if cause.kind] or causes[:1]
    if not causes:
        return None
    return Wrong(
        "float64",
        _MESSAGE,
        *dict.fromkeys(_CAUSES[cause.kind] for cause in causes),
        *(_advice(code_of(attempt), cause, verb) for cause in causes),
    )


def _advice(code, cause, verb):
    """Return which line to change and how, or only the line with float64."""
    if cause.kind == "argument":
        return f"The argument is `{cause.what}`."
    place, text = _place(code, cause), linecache.getline(cause.file, cause.line).strip()
    if cause.kind == "division" and f"int({cause.what})" in text:
        whole = ast.parse(cause.what, mode="eval").body
        whole.op = ast.FloorDiv()
        return f"{place}: `int({cause.what})`. {verb} `{ast.unparse(whole)}`."
    if cause.kind:
        return f"{place}: `{cause.what}`. {verb} `{cause.remedy}`."
    return f"{place}: `{text}`" if text else f"{place}."


def _place(code, cause):
    last = max((line for *_, line in code.co_lines() if line), default=0)
    own = os.path.basename(cause.file) == os.path.basename(code.co_filename)
    if own and code.co_firstlineno <= cause.line <= last:
        return f"Line {cause.line - code.co_firstlineno + 1} of your kernel"
    return f"In {_function_at(cause.file, cause.line)}"


def _function_at(file, line):
    """Return the name of the function that contains a line, as code."""
    try:
        nodes = ast.walk(ast.parse("".join(linecache.getlines(file))))
    except SyntaxError:  # a notebook's magic commands
        nodes = ()
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    around = [node.name for node in functions if node.lineno <= line <= node.end_lineno]
    return f"`{around[-1]}`" if around else "a function that it calls"


# --- asking the compiler -----------------------------------------------------------------------------------


def _signature(attempt, arguments):
    """Return the types for which a launch with these arguments is compiled: a signature, if there is one."""
    if device.simulated():
        return next(iter(attempt.signatures), f"void({', '.join(map(_written, arguments))})")
    types = tuple(map(attempt.typeof_pyval, arguments))
    if types in attempt.overloads:
        return types
    # Of several signatures, the nearest one.
    return max(attempt.overloads, key=lambda given: sum(map(operator.eq, given, types)), default=types)


def _compiled(attempt, types):
    """Return a kernel's instructions for a signature, None without a compiler, and its overload."""
    if device.simulated():
        return _inspected(attempt, types), None
    compiled = attempt.overloads.get(types)
    instructions = read_ptx(attempt.inspect_asm(types)) if compiled else None
    if instructions is not None and not _computing(instructions):
        return instructions, compiled
    return _with_lines(attempt, types) or instructions, compiled


def _with_lines(attempt, types):
    """Compile a kernel again with line numbers; return its instructions, None if that fails."""
    from numba.cuda import compile_ptx_for_current_device

    try:
        ptx, _ = compile_ptx_for_current_device(
            attempt.py_func,
            types,
            lineinfo=True,
            fastmath=getattr(attempt, "targetoptions", {}).get("fastmath") or False,
        )
    except Exception:  # lines only improve the message: the kernel has been compiled and has run
        return None
    return read_ptx(ptx)


_missing = []  # the error, once no compiler was found


def _inspected(attempt, signature):
    if _missing:
        return None
    try:
        return inspect_kernel(attempt, signature, disassemble=False).instructions
    except NoCompiler as error:
        _missing.append(error)
    except InspectionError:
        pass
    return None


# --- asking the simulator ----------------------------------------------------------------------------------


def _stored(attempt, trial):
    """Find a float64 value that is stored into a float32 array."""
    trace = trial.report.trace
    narrow = np.array([info.dtype == np.float32 for info in trace.arrays] + [False])[trace.array]
    for row in np.flatnonzero(narrow & (trace.kind == WRITE)):
        if isinstance(trace.values[row], np.float64):
            site = trace.sites[trace.site[row]]
            line = site.line - code_of(attempt).co_firstlineno + 1
            if any(_is_without_float64(node, trace.values[row]) for node in _stored_by(attempt, line)):
                continue
            return Wrong(
                "float64",
                _MESSAGE,
                "A float64 is stored as float32. Where does it come from? A literal such as `0.0` is one, "
                "and so is a Python number from outside of the kernel: write `float32(0)`.",
                line_of(attempt, site),
            )
    return None


def _stored_by(attempt, line):
    """Return the expressions that a line may store."""
    tree, found = parsed(attempt), []
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.Assign) and node.lineno == line:
            value = node.value
            found += (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,)
    return found


def _is_without_float64(node, stored):
    """Return whether the compiler needs no float64 to store an expression as float32.

    It needs none for a literal, nor for one operation of a float32 and a literal that float32 can hold: the
    result is the same if rounded twice, so the compiler uses float32.
    """
    if not isinstance(node, ast.BinOp):
        return _literal(node) == stored
    left, right = _literal(node.left), _literal(node.right)
    if type(node.op) not in _OPERATIONS or (left is None) == (right is None):
        return False
    literal = np.float64(left if right is None else right)
    compute, other_on_the_left, other_on_the_right = _OPERATIONS[type(node.op)]
    with np.errstate(all="ignore"):
        if right is None:
            other = np.float64(np.float32(other_on_the_right(stored, literal)))
            computed = compute(literal, other)
        else:
            other = np.float64(np.float32(other_on_the_left(stored, literal)))
            computed = compute(other, literal)
        return bool(np.float32(literal) == literal and computed == stored)


#: An operation, and how to get its left and its right operand from the result and the other operand.
_OPERATIONS = {
    ast.Add: (operator.add, operator.sub, operator.sub),
    ast.Sub: (operator.sub, operator.add, lambda result, literal: literal - result),
    ast.Mult: (operator.mul, operator.truediv, operator.truediv),
    ast.Div: (operator.truediv, operator.mul, lambda result, literal: literal / result),
}


def _literal(node):
    """Return the number of a literal, None for other expressions."""
    with contextlib.suppress(ValueError):
        value = ast.literal_eval(node)
        return value if isinstance(value, (int, float)) else None
    return None
