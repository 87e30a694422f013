"""Wrap text to the width of JupyterLab's outputs, which break longer lines in the middle of a word."""

import re
import textwrap

WIDTH = 90
"""In columns: a window of 1200 pixels with the list of files shows 95."""

# Code, an index, a position: never broken.
_TOGETHER = re.compile(r"`[^`]*`|\[[^\]]*\]|\([\d, ]*\)")
_NO_BREAK = "\N{NO-BREAK SPACE}"


def wrapped(text, width=WIDTH, first="", rest=""):
    """Break a text into lines between words, but not within code in backticks, an index or a position.

    The first line begins with `first`, the others with `rest`. Only a single long word exceeds `width`.

    >>> wrapped("thread 1 of block (0, 1) reads tile[2, 3]", 24, "1. ", "   ")
    ['1. thread 1 of block', '   (0, 1) reads', '   tile[2, 3]']
    """
    text = _TOGETHER.sub(lambda found: found[0].replace(" ", _NO_BREAK), text)
    lines = textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_NO_BREAK, " ") for line in lines]


def aligned(rows, texts=1):
    """Return the rows of a table as lines: `texts` columns aligned left, then numbers aligned right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            text.ljust(width) if i < texts else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
