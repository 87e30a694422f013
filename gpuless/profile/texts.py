"""Lines, times and amounts of memory, formatted for reports."""

import linecache
import os


def line_text(file: str, line: int) -> str:
    """Return a source line's number and text."""
    text = linecache.getline(file, line).strip()
    return f"line {line}: `{text}`" if text else f"line {line} of {os.path.basename(file) or 'a library'}"


def time(microseconds: float) -> str:
    """Return a time as text.

    >>> time(3.21), time(812.42), time(54210.0)
    ('3.21 us', '812 us', '54.2 ms')
    """
    if microseconds >= 10_000:
        return f"{microseconds / 1e3:.3g} ms" if microseconds < 1e6 else f"{microseconds / 1e6:.3g} s"
    return f"{microseconds:.3g} us" if microseconds < 1000 else f"{microseconds:.0f} us"


def amount(bytes_: float) -> str:
    """Return an amount of memory as text.

    >>> amount(1234.0), amount(8.4e6)
    ('1.23 kB', '8.4 MB')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if bytes_ >= size:
            return f"{bytes_ / size:.3g} {unit}"
    return f"{bytes_:.0f} B"
