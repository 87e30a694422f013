"""Reads the messages of other languages' compilers and drivers; no other file does."""

import re


def first_error(error: Exception) -> str:
    r"""Return a compiler's first error message; the whole message if no error is marked.

    >>> first_error(ValueError("3 notes\nkernel.cu(3): error: identifier x is undefined\nand more"))
    'identifier x is undefined'
    >>> first_error(ValueError("error: a.cl:3:1: expected ')'"))
    "expected ')'"
    """
    # PoCL's compiler puts the file's name before each message.
    found = re.search(r"error: *(?:\S+:\d+:\d+: *)?(.*)", str(error))
    return found[1] if found else str(error)


def last_line(error: Exception) -> str:
    """Return the last line of a compiler's message, without the location."""
    return [line for line in str(error).splitlines() if not line.endswith(" location")][-1]


def line_of(error: Exception) -> str:
    r"""Return the line of the program that a compiler shows below its first error; "" if there is none.

    >>> line_of(ValueError('kernel.cu(3): error: expected a ";"\n      x[1] = y;\n      ^\n'))
    'x[1] = y;'
    >>> line_of(ValueError("error: a.cl:3:1: expected ')'"))
    ''
    """
    found = re.search(r"error:[^\n]*\n([^\n]+)\n *\^", str(error))
    return found[1].strip() if found else ""


def expects_more(complaint: str) -> bool:
    """Return whether a compiler's error message says that something is missing."""
    return complaint.startswith("expected a")


def fault_of(error: Exception) -> str:
    """Return which fault of a launch a driver reports: "address", "barrier", or "" for all else.

    >>> fault_of(ValueError("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal access")), fault_of(ValueError("?"))
    ('address', '')
    """
    text = str(error)
    if "ILLEGAL_ADDRESS" in text or "MISALIGNED" in text:
        return "address"
    return "barrier" if "TIMEOUT" in text or "barrier" in text else ""


def needs_too_much_shared(error: Exception) -> bool:
    """Return whether an assembler reports that a block needs too much shared memory."""
    return "too much shared data" in str(error)
