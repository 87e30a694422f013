"""What several exercises of notebook 25 share: programs in other languages, compiled and launched."""

import functools
import re
from dataclasses import dataclass

import numpy as np

from cnn_course.chapters.other_roads.roads import missing
from cnn_course.chapters.other_roads.roads.complaints import expects_more, fault_of, first_error, line_of
from cnn_course.chapters.other_roads.roads.cuda_cpp import CudaCpp
from cnn_course.engine.checks.evidence import plain
from cnn_course.engine.checks.exercise import Exercise, Verdict, Wrong

# This follows each output array; a program must not write it.
MARGIN, UNTOUCHED = 64, np.float32(-12345)


@dataclass(frozen=True, repr=False)
class RoadExercise(Exercise):
    """An exercise in another language; without its package it cannot be checked.

    Parameters
    ----------
    languages : tuple of str
        Any of these will do; names of `cnn_course.chapters.other_roads.roads.missing`.
    broken : callable, optional
        If the exercise is to repair a program: what the stub returns, given a case's arguments.
    """

    languages: tuple = ()
    broken: object = None

    def __call__(self, attempt):
        """Check `attempt`, or say why that cannot be done here."""
        reasons = [missing(one) for one in self.languages]
        if all(reasons):
            return Verdict(self.name, "unsolved", f"It cannot be checked here. {' '.join(reasons)}")
        return super().__call__(getattr(attempt, "fn", attempt))  # Triton's kernels hold their function

    def names_of(self, attempt, given):
        """Return no names: an attempt takes sizes, or nothing, where the reference takes arrays."""
        return []

    def _verdict(self, attempt):
        if self.broken and callable(attempt) and self._is_as_given(attempt):
            return self._unsolved("The program is still the one you were given.")
        return super()._verdict(attempt)

    def _is_as_given(self, attempt):
        given = self.inputs()[-1].args
        try:
            return _spaceless(attempt(*given[0].shape)) == _spaceless(self.broken(*given[0].shape))
        except Exception:
            return False  # the run of the cases reports it


def _spaceless(value):
    return tuple("".join(part.split()) if isinstance(part, str) else part for part in value)


def without_comments(text):
    """Return a program with a space in the place of each comment."""
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)


@functools.lru_cache(maxsize=4)
def compiled(text, as_opencl=False):
    """Compile CUDA C++; raise `Wrong` with the compiler's first error message."""
    try:
        return CudaCpp(text, as_opencl=as_opencl)
    except Exception as error:
        raise does_not_compile("The compiler", error) from None


def does_not_compile(compiler, error):
    """Return a finding with a compiler's first error message and its line."""
    complaint, line = first_error(error).rstrip("."), line_of(error)
    details = [f"It stopped at this line: `{line}`"] if line else []
    if expects_more(complaint):
        details.append("Often the cause is at the end of the line before: is something missing there?")
    return Wrong("does not compile", f"{compiler} reports: {complaint}.", *details)


def insist_on_text(text, name):
    """Raise `Wrong` if a program is not a text, or has no kernel of this name."""
    if not isinstance(text, str):
        raise Wrong("not a text", f"Return the program as a string. You return a {type(text).__name__}.")
    if not re.search(rf"\b{name}\s*\(", text):
        raise Wrong("another name", f"Call the kernel `{name}`: the launch looks for that name.")
    if re.search(r"//=|\w *// *\d+ *[;,)]", text):
        message = "In C `//` begins a comment. Write `/`: between two ints it rounds down."
        raise Wrong("// for /", message)


def insist_on_parameters(code, name, *wanted):
    """Raise `Wrong` if a kernel's parameters differ from what the launch passes, which may crash Python.

    Parameters
    ----------
    code : str
        Without comments.
    name : str
    *wanted : str
        Names, with a star before those of arrays of float; all others are ints.
    """
    found = re.search(rf"\b{name}\s*\(([^)]*)", code)[1].split(",")
    kinds = [_kind_of(parameter) for parameter in found]
    if kinds != ["*" if one.startswith("*") else "int" for one in wanted]:
        given = ", ".join(f"`float {one}`" if one.startswith("*") else f"`int {one}`" for one in wanted)
        message = f"The launch passes {given}: `{name}` must have parameters of these types, in this order."
        raise Wrong("other parameters", message)


def _kind_of(parameter):
    if "*" in parameter:
        return "*" if re.search(r"\bfloat\b", parameter) else "another"
    return "int" if re.search(r"\b(u?int|unsigned)\b(?!.*\blong\b)", parameter) else "another"


def launched(road, name, grid, block, given, size, *numbers, before=0):
    """Launch a kernel that fills `size` numbers, and return them; raise `Wrong` if it writes past them.

    `before` is how many numbers lie in memory before the input.
    """
    d_given = road.array(np.concatenate([np.zeros(before, np.float32), given.ravel()]))
    d_given = d_given[before:] if before else d_given
    d_out = road.array(np.concatenate([np.full(size, np.nan, np.float32), np.full(MARGIN, UNTOUCHED)]))
    try:
        road.launch(name, grid, block, d_given, d_out, *numbers)
        out = road.host(d_out)
    except Exception as error:
        raise Wrong(*_fault(error)) from None
    if not (out[size:] == UNTOUCHED).all():
        raise Wrong("writes past the edge", f"It writes past the end of `out`, which has {size} numbers.")
    return out[:size]


OUT_OF_BOUNDS = "It accesses memory outside of its arrays, global or shared."


def _fault(error):
    kind = fault_of(error)
    if kind == "address":
        return "out of bounds", OUT_OF_BOUNDS
    if kind == "barrier":
        return "divergent barrier", "Some threads wait at a barrier forever, because others never reach it."
    return "fails", f"The launch fails: {plain(str(error)).strip().splitlines()[0]}"


THREADS, WARP, MOST_THREADS = 256, 32, 1024
