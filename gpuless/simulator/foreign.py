r"""Parse the messages of Python, NumPy, Numba and NVIDIA's compiler about a kernel: the only file that does.

All others use the resulting `Cause`.
"""

import re
from typing import NamedTuple

from gpuless.causes import Cause


def cause_of(error):
    """Return the cause of an exception: its own, or the one in a message of Python or NumPy; None if unknown.

    >>> cause_of(AttributeError("'KernelArray' object has no attribute 'mean'"))
    Cause(kind='no attribute', name='mean', types=())
    """
    return error.cause if hasattr(error, "cause") else _cause_in(str(error))


def _cause_in(text):
    found = ((make, match) for pattern, make in _MESSAGES if (match := pattern.search(text)))
    return next((make(match) for make, match in found), None)


# The simulator's classes of arrays, which Python's messages name.
_ARRAYS = "KernelArray|IntegerArray|RecordArray|TracedArray"
_MESSAGES = tuple(
    (re.compile(pattern), make)
    for pattern, make in (
        (rf"'(?:{_ARRAYS})' object has no attribute '(\w+)'", lambda found: Cause("no attribute", found[1])),
        (r"Kernel launch configuration was not specified", lambda found: Cause("not configured")),
        (r"must be a sequence of integers", lambda found: Cause("launch sizes")),
        (r"module 'numba\.cuda\S*' has no attribute '(\w+)'", lambda found: Cause("not in cuda", found[1])),
        (
            r"^((?:Cuda|Warp|Atomic|Shared|Local)\.\w+)\(\) (?:missing|takes|got) ",
            lambda found: Cause("arguments", found[1]),
        ),
        (
            r"^matmul: .* core dimension .*\(size (\d+) is different from (\d+)\)",
            lambda found: Cause("product", "@", (found[2], found[1])),
        ),
        (
            r"unsupported operand .*'NoneType'|^Cannot cast ufunc .* output from dtype\('O'\)"
            r"|^'NoneType' object is not (subscriptable|iterable)",
            lambda found: Cause("none"),
        ),
        (
            r"^invalid index to scalar"
            r"|^'(int|float|numpy\.\w+)' object (is not subscriptable|does not support item assignment)",
            lambda found: Cause("number"),
        ),
        (
            r"with remapped shapes",
            lambda found: Cause("einsum", "einsum", tuple(re.findall(r"(\([\d,]*\))->\(", found.string))),
        ),
        (r"^.*with a sequence", lambda found: Cause("sequence")),
        (rf"truth value of an array|{_ARRAYS}", lambda found: Cause("whole array")),
    )
)


def is_about_indices(text):
    """Return whether NumPy says that an index isn't an integer."""
    return text.startswith("only integers, slices")


def is_about_integers(text):
    """Return whether Python says that a value isn't an integer."""
    return "object cannot be interpreted as an integer" in text


def is_about_host_arrays(warning):
    """Return whether Numba warns of an array that it copies to the device and back."""
    return "Host array used" in str(warning)


def names_type(error, kind):
    """Return whether Python's message names a type, as in "unsupported operand type(s) for +"."""
    return kind.__name__ in str(error)


# --- Numba -------------------------------------------------------------------------------------------------


def compiler_cause(text):
    """Return the cause in Numba's message about a kernel, which may be a page long; None if not recognised.

    >>> compiler_cause("Cannot unify float32 and array(float32, 1d, C) for 'k.2', defined at ...")
    Cause(kind='no common type', name='k', types=('float32', 'array'))
    """
    if cause := _cause_in(text):
        return cause
    found = [(match.start(), make, match) for pattern, make in _REASONS if (match := pattern.search(text))]
    if not found:
        return None
    _, make, match = min(found, key=lambda each: each[0])  # later ones are about Numba's own functions
    return make(*match.groups())


_REASONS = tuple(
    (re.compile(pattern), make)
    for pattern, make in (
        (
            r"Cannot unify (.+?) and (.+?) for '(.+?)'",
            lambda one, other, name: Cause(
                "no common type", name.partition(".")[0], (type_kind(one), type_kind(other))
            ),
        ),
        (
            r"Unknown attribute '(\w+)' of type (.+)",
            lambda name, owner: Cause("no attribute", name, (type_kind(owner),)),
        ),
        (r"Untyped global name '(\w+)'", lambda name: Cause("not usable", name)),
        (r"name '(\w+)' is not defined", lambda name: Cause("not defined", name)),
        (
            r"found for signature:\s*>>> (\w+)\((.*)\)",
            lambda name, types: Cause("not applied", name, tuple(map(type_kind, _split(types)))),
        ),
    )
)
_KINDS = (
    (r"array\(", "array"),
    (r"Literal\[int\]|u?int\d+", "integer"),
    (r"float\d+", "{0}"),
    (r"bool|Literal\[bool\]", "truth value"),
    (r"unicode_type|Literal\[str\]", "string"),
    (r"none|omitted", "None"),
    (r"(?:Uni)?Tuple", "tuple"),
    (r"(?:reflected )?list", "list"),
    (r"Function|Dispatcher|type\(CUDADispatcher", "function"),
    (r"Module", "module"),
)


def type_kind(name):
    """Return a plain name for one of Numba's types; an unknown one keeps its name.

    >>> type_kind("array(float32, 1d, C)"), type_kind("uint8"), type_kind("float32"), type_kind("stack")
    ('array', 'integer', 'float32', 'stack')
    """
    for pattern, kind in _KINDS:
        if found := re.match(pattern, name.strip()):
            return kind.format(found[0])
    return name.strip()


def _split(types):
    """Yield types separated by commas; commas in brackets don't separate."""
    depth, start = 0, 0
    for place, sign in enumerate(f"{types},"):
        depth += (sign in "([<") - (sign in ")]>")
        if sign == "," and not depth:
            if types[start:place].strip():
                yield types[start:place]
            start = place + 1


def compiler_line(text, file):
    """Return the line of a file in Numba's message; None if there is none.

    >>> compiler_line('File "kernels.py", line 7: ...', "kernels.py")
    7
    """
    found = re.search(rf'{re.escape(file)}"?(?: \(|, line )(\d+)', text)
    return int(found[1]) if found else None


def is_about_bad_ir(error):
    """Return whether NVIDIA's compiler rejects IR; it says no more."""
    return str(error).startswith("ERROR_INVALID_IR")


def is_about_axes(text):
    """Return whether Numba says that a shape is unpacked into the wrong number of names.

    >>> is_about_axes("('wrong tuple length for $64load_attr.9: ', 'expected 3, got 2')")
    True
    """
    return "wrong tuple length" in text


class RefusalText(NamedTuple):
    """What the compiler says about a kernel."""

    reason: str
    """Its first reason, in a line."""
    cause: Cause | None
    places: tuple
    """As (file, line, function), the outermost first."""


def read_refusal(text):
    """Parse Numba's message about a kernel that it refuses."""
    found = re.findall(r'File "(.+?)", line (\d+):\s*def (\w+)', text)
    places = tuple((file, int(line), name) for file, line, name in found)
    if "NRT required" in text or "_ol_array_allocate" in text:
        return RefusalText("it would need memory for a new array", None, places)
    if missing := re.search(r"No implementation of function .*? found for signature:\s*>>> (.+)", text):
        return RefusalText(f"there is no {missing[1]}", compiler_cause(missing[0]), places)
    text = re.sub(r".* does not compile for compute capability [\d.]+: ", "", text)
    reason = next(line.strip() for line in text.splitlines() if line.strip() and "Failed in" not in line)
    return RefusalText(reason, compiler_cause(reason), places)
