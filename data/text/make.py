"""Make course.txt, the text that a small Transformer learns to write: the prose of the notebooks.

It was run once, and its result is kept, so that later changes of the notebooks change no figure. To run it
again: ``python data/text/make.py``. What is not prose is left out: code, tables, formulas, pictures, links'
addresses. Characters beyond ASCII become what is nearest to them, or are left out as well.
"""

import html
import json
import re
import unicodedata
from pathlib import Path

ROOT = Path(__file__).parents[2]
NEAREST = {
    "\N{MULTIPLICATION SIGN}": "x",
    "\N{MINUS SIGN}": "-",
    "\N{EN DASH}": "-",
    "\N{EM DASH}": "-",
    "\N{RIGHT SINGLE QUOTATION MARK}": "'",
    "\N{LEFT SINGLE QUOTATION MARK}": "'",
    "\N{LEFT DOUBLE QUOTATION MARK}": '"',
    "\N{RIGHT DOUBLE QUOTATION MARK}": '"',
    "\N{HORIZONTAL ELLIPSIS}": "...",
}
NOT_PROSE = (
    r"```.*?```",  # blocks of code
    r"\$\$.*?\$\$",  # formulas
    r"<!--.*?-->",
    r"<[^>\n]+>",  # HTML
    r"^\s*\|.*$",  # tables
    r"!\[[^\]]*\]\([^)]*\)",  # pictures
)


def prose(markdown):
    """Return the longer paragraphs of a cell as plain text, one a line."""
    for pattern in NOT_PROSE:
        markdown = re.sub(pattern, " ", markdown, flags=re.DOTALL if "```" in pattern else re.MULTILINE)
    markdown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown)  # links
    markdown = re.sub(r"^\s*(#+|[-*>]|\d+\.)\s+", "", markdown, flags=re.MULTILINE)  # headings and lists
    markdown = re.sub(r"[*`$]", "", html.unescape(markdown))
    paragraphs = (" ".join(each.split()) for each in re.split(r"\n\s*\n", markdown))
    return [ascii_only(each) for each in paragraphs if len(each) > 280]


def ascii_only(text):
    """Return a text in ASCII."""
    text = "".join(NEAREST.get(character, character) for character in text)
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()


def main():
    """Write course.txt."""
    paragraphs = []
    for path in sorted((ROOT / "notebooks").glob("[01]*.ipynb")):
        cells = json.loads(path.read_text())["cells"]
        texts = ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        paragraphs += [each for text in texts for each in prose(text)]
    (ROOT / "data" / "text" / "course.txt").write_text("\n".join(dict.fromkeys(paragraphs)) + "\n")


if __name__ == "__main__":
    main()
