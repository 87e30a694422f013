"""The glossary in ``notebooks/README.md``, and links to it from where a notebook first uses a term.

A term is a heading of the fourth level there. ``python -m cnn_course.engine.notebooks`` sets these links.
"""

import re
from pathlib import Path

PAGE = "README.md"

_TERM = re.compile(r"^#### (.+)$", re.MULTILINE)
# Not prose: fenced and inline code, formulas, pictures and links, tags, headings, table rules.
_PROTECTED = re.compile(
    r"```.*?```|`[^`\n]*`|\$\$.*?\$\$|\$[^$\n]+\$|!?\[[^\]]*\]\([^)]*\)|<[^>]+>|^#.*?$|^\*\*[^*\n]+\*\*$",
    re.DOTALL | re.MULTILINE,
)
_LINK = re.compile(r"\[([^\]]+)\]\(" + re.escape(PAGE) + r"#[\w-]+\)")


def terms(folder: str | Path) -> list[str]:
    """Return the terms in the glossary of a folder of notebooks; an empty list if it has no glossary."""
    page = Path(folder) / PAGE
    return _TERM.findall(page.read_text(encoding="utf-8")) if page.exists() else []


def anchor(term: str) -> str:
    """Return the part of a link after the ``#`` that leads to a term's heading.

    Examples
    --------
    >>> anchor("Shared memory"), anchor("grid-stride loop")
    ('shared-memory', 'grid-stride-loop')
    """
    return re.sub(r"[^\w\- ]", "", term.lower()).replace(" ", "-")


def link(sources, known):
    """Link the first use of each term, and only that, to its explanation.

    Parameters
    ----------
    sources : list of str
        The text cells of a notebook, in order.
    known : list of str
        The terms.

    Returns
    -------
    list of str
        The cells with their links; earlier links are replaced.

    Examples
    --------
    >>> link(["A `warp` is a warp. Warps run.", "Each warp"], ["warp"])
    ['A `warp` is a [warp](README.md#warp). Warps run.', 'Each warp']
    """
    cells = [_LINK.sub(r"\1", source) for source in sources]
    # Longer ones first: "thread" must not be found within "thread block".
    for term in sorted(known, key=len, reverse=True):
        word = re.compile(rf"(?<![\w-]){re.escape(term)}(?:s|es)?(?![\w-])", re.IGNORECASE)
        for number, source in enumerate(cells):
            linked = _link_first(source, word, f"{PAGE}#{anchor(term)}")
            if linked != source:
                cells[number] = linked
                break
    return cells


def _link_first(source, word, target):
    """Return the text with the first match of `word` in its prose made a link."""
    protected = [match.span() for match in _PROTECTED.finditer(source)]
    for match in word.finditer(source):
        if not any(begin <= match.start() < end for begin, end in protected):
            return f"{source[: match.start()]}[{match[0]}]({target}){source[match.end() :]}"
    return source
