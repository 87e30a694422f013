"""The history of the modelled time of the reader's training step.

Each time the step is modelled, an entry records what changed and how long the step would take on some GPUs,
as `gpuless.profiling` models it. Entries have no date: the same kernels give the same file. The file is
``steps.json`` in the workbook's folder, and holds only numbers and names.
"""

import json
from collections.abc import Sequence
from typing import NamedTuple

from cnn_course.engine import workbook
from cnn_numba.whole_files import written_whole

#: The name of the entry that the certificate of Part I makes.
PART_ONE = "certificate of Part I"
_LONGEST = 80  # characters of a name
_MOST = 200  # entries
_LARGE = 1e12  # microseconds


class Step(NamedTuple):
    """The modelled time of a training step on a GPU, in microseconds, and its range from `low` to `high`.

    `slowest` is the kernel that takes most of the GPU's time, and `share` its share of that time.
    """

    gpu: str
    microseconds: float
    low: float
    high: float
    slowest: str
    share: float

    def __str__(self):
        times = f"{self.microseconds / 1000:.2g} ms modelled, {self._range}"
        return f"{self.gpu:10}{times}; {self.share:.0%} of the GPU's time in {self.slowest}"

    @property
    def _range(self):
        return f"{self.low / 1000:.2g} to {self.high / 1000:.2g}"

    def in_brief(self) -> str:
        """Return the time and its range as text."""
        return f"{self.microseconds / 1000:.2g} ms on {self.gpu} ({self._range})"


class Entry(NamedTuple):
    """What changed in the step, and its `Step` for each GPU."""

    what: str
    steps: tuple

    def on(self, gpu: str) -> Step | None:
        """Return the step on a GPU, None if it was not modelled for that GPU."""
        return next((step for step in self.steps if step.gpu == gpu), None)


def path():
    """Return the path of the history, which may not exist yet."""
    return workbook.folder() / "steps.json"


def entries() -> list:
    """Return the entries, oldest first; an empty list if the file is missing or unreadable."""
    try:
        found = json.loads(path().read_text(encoding="utf-8"))
        return [entry_of(each) for each in found[:_MOST]]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return []


def begin(steps) -> list:
    """Make the certificate's step the first entry, replacing an earlier certificate's; return all entries."""
    found = entries()
    rest = found[1:] if found and found[0].what == PART_ONE else found
    return _keep([Entry(PART_ONE, tuple(steps)), *rest]) if steps else found


def add(what: str, steps: Sequence[Step]) -> list:
    """Add an entry, unless it has no steps or the last entry has the same ones; return all entries.

    Examples
    --------
    >>> add("nothing was modelled", ()) == entries()
    True
    """
    found, new = entries(), Entry(what[:_LONGEST], tuple(steps))
    if not new.steps or (found and found[-1].steps == new.steps):
        return found
    return _keep([*found[: _MOST - 1], new])


def _keep(found):
    path().parent.mkdir(parents=True, exist_ok=True)
    if path().is_file() and not entries():  # damaged: it may be worth a look
        path().replace(path().with_name("steps.damaged.json"))
    with written_whole(path()) as file:
        file.write(json.dumps([as_plain(each) for each in found], indent=1).encode())
    return found


def as_plain(entry: Entry) -> dict:
    """Return an entry as plain values for JSON."""
    return {"what": entry.what, "steps": [step._asdict() for step in entry.steps]}


def entry_of(plain: dict) -> Entry:
    """Return an entry from plain values of JSON.

    Raises
    ------
    ValueError
        If it is not a valid entry; the message names the part that is wrong.

    Examples
    --------
    >>> entry_of({"what": "a tiled product", "steps": []})
    Traceback (most recent call last):
        ...
    ValueError: steps must be a list of at least one step
    """
    if not isinstance(plain, dict):
        raise ValueError("an entry must be an object")
    what, steps = plain.get("what"), plain.get("steps")
    if not isinstance(what, str) or not 0 < len(what) <= _LONGEST or not what.isprintable():
        raise ValueError(f"what must be a line of 1 to {_LONGEST} letters")
    if not isinstance(steps, list) or not 0 < len(steps) <= 10:
        raise ValueError("steps must be a list of at least one step")
    return Entry(what, tuple(map(_step_of, steps)))


def _step_of(plain):
    """Return a `Step` from plain values, after checking them."""
    if not isinstance(plain, dict) or plain.keys() != {*Step._fields}:
        raise ValueError(f"a step must have {', '.join(Step._fields)}, and nothing else")
    for name in ("gpu", "slowest"):
        text = plain[name]
        if not isinstance(text, str) or not 0 < len(text) <= _LONGEST or not text.isprintable():
            raise ValueError(f"{name} must be a line of 1 to {_LONGEST} letters")
    for name in ("microseconds", "low", "high", "share"):
        number = plain[name]
        # `isfinite` raises for integers that are too large.
        if isinstance(number, bool) or not isinstance(number, (int, float)) or not -_LARGE < number < _LARGE:
            raise ValueError(f"{name} must be a number")
    step = Step(**plain)
    if not 0 < step.low <= step.microseconds <= step.high or not 0 < step.share <= 1:
        raise ValueError("a step must have 0 < low <= microseconds <= high, and a share of at most 1")
    return step


def ratio(found: list) -> dict:
    """Return for each GPU how many times as fast the last entry is as the first; empty for fewer than two.

    Examples
    --------
    >>> slow, fast = (Step("T4", time, time / 2, time * 2, "conv2d_kernel", 0.5) for time in (900.0, 300.0))
    >>> ratio([Entry("before", (slow,)), Entry("after", (fast,))])
    {'T4': 3.0}
    """
    if len(found) < 2:
        return {}
    pairs = [(step, found[-1].on(step.gpu)) for step in found[0].steps]
    return {first.gpu: first.microseconds / last.microseconds for first, last in pairs if last is not None}


def table(found: list) -> str:
    """Return the history as text: a line for each entry, a column for each GPU, in milliseconds."""
    gpus = list(dict.fromkeys(step.gpu for entry in found for step in entry.steps))
    lines = [f"{'your step, ms modelled':40}" + "".join(f"{gpu:>10}" for gpu in gpus)]
    for entry in found:
        steps = [entry.on(gpu) for gpu in gpus]
        times = (f"{step.microseconds / 1000:.3g}" if step else "" for step in steps)
        lines.append(f"{entry.what[:39]:40}" + "".join(f"{time:>10}" for time in times))
    return "\n".join(lines)
