"""Lines that fit into an output of JupyterLab, which breaks longer ones in the middle of a word."""

import re
import textwrap

WIDTH = 90
"""In columns: a window of 1200 pixels with the list of files has 95."""

# Code, an index, a position: they read well in one piece only.
_TOGETHER = re.compile(r"`[^`]*`|\[[^\]]*\]|\([\d, ]*\)")
_NO_BREAK = "\N{NO-BREAK SPACE}"


def wrapped(text, width=WIDTH, first="", rest=""):
    """Break a text between words, and never within code in backticks, an index or a position.

    `first` and `rest` are what the first line and the others begin with. Returns the lines, none longer than
    `width` as far as the words allow it.

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
    """Return rows as lines, with columns: `texts` of them to the left, then numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            text.ljust(width) if i < texts else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
