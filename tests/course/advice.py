"""Doing what a verdict advises, to see whether it helps."""

import re


def obeyed(verdict, source):
    """Return a kernel's source with the lines changed as a verdict says; at least one is."""
    lines = source.splitlines()
    advice = re.findall(r"Line (\d+) of your kernel: `(.+?)`\. Write `(.+?)`\.", "\n".join(verdict.details))
    assert advice, verdict
    for number, old, new in advice:
        line = lines[int(number) - 1]
        assert old in line, verdict
        lines[int(number) - 1] = line.replace(old, new, 1)
    return "\n".join(lines) + "\n"
