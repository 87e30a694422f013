"""Apply the advice of a verdict, to see whether it helps."""

import re
import textwrap

_ADVICE = re.compile(
    r"Line (\d+) of your kernel: `(.+?)`\. "
    r"Write `(.+?)`(?: (instead|before it|around it|around it and the lines below it))?\.(?:\n|$)"
)


def advice_of(verdict):
    """Return the changes: tuples (line, old text, new text, where), the last line first."""
    found = _ADVICE.findall("\n".join(verdict.details))
    return sorted(((int(line), *rest) for line, *rest in found), reverse=True, key=lambda each: each[0])


def obeyed(verdict, source):
    """Return a kernel's source with at least one line changed as a verdict advises."""
    lines = source.splitlines()
    assert advice_of(verdict), verdict
    for number, old, new, where in advice_of(verdict):
        assert old in lines[number - 1], verdict
        _change(lines, number - 1, old, new, where)
    return "\n".join(lines) + "\n"


def _change(lines, place, old, new, where):
    margin = _margin(lines[place])
    if where in ("", "instead"):
        lines[place] = lines[place].replace(old, new, 1)
        return
    end = place
    if where.startswith("around"):
        # A statement goes on where lines are deeper; what follows stands where it does.
        follows = (
            (lambda line: _margin(line) >= margin)
            if "below" in where
            else (lambda line: _margin(line) > margin)
        )
        end = next((k for k in range(place + 1, len(lines)) if not follows(lines[k])), len(lines))
    block = textwrap.indent("\n".join(lines[place:end]), "    ").splitlines()
    lines[place:end] = [" " * margin + new, *block]


def _margin(line):
    return len(line) - len(line.lstrip()) if line.strip() else 1000
