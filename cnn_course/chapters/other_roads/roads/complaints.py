"""What compilers and drivers of other languages say: the one file that looks into their messages."""

import re


def first_error(error: Exception) -> str:
    r"""Return a compiler's first complaint; all that it says if no complaint is marked as an error.

    >>> first_error(ValueError("3 notes\nkernel.cu(3): error: identifier x is undefined\nand more"))
    'identifier x is undefined'
    >>> first_error(ValueError("error: a.cl:3:1: expected ')'"))
    "expected ')'"
    """
    # PoCL's compiler names a file before each complaint.
    found = re.search(r"error: *(?:\S+:\d+:\d+: *)?(.*)", str(error))
    return found[1] if found else str(error)


def line_of(error: Exception) -> str:
    r"""Return the line of the program that a compiler shows below its first complaint; "" if there is none.

    >>> line_of(ValueError('kernel.cu(3): error: expected a ";"\n      x[1] = y;\n      ^\n'))
    'x[1] = y;'
    >>> line_of(ValueError("error: a.cl:3:1: expected ')'"))
    ''
    """
    found = re.search(r"error:[^\n]*\n([^\n]+)\n *\^", str(error))
    return found[1].strip() if found else ""


def fault_of(error: Exception) -> str:
    """Return what a driver says of a launch: "address", "barrier", or "" for all else.

    >>> fault_of(ValueError("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal access")), fault_of(ValueError("?"))
    ('address', '')
    """
    text = str(error)
    if "ILLEGAL_ADDRESS" in text or "MISALIGNED" in text:
        return "address"
    return "barrier" if "TIMEOUT" in text or "barrier" in text else ""


def wants_too_much_shared(error: Exception) -> bool:
    """Return whether an assembler says that a block would need more shared memory than it may have."""
    return "too much shared data" in str(error)
