"""Steps in words: below the picture, and for readers who cannot see it."""

import numpy as np

from cnn_course.engine.plots import counted
from cnn_course.engine.stepper.steps import DONE, OFF, RUNS, WAITS


def lanes_called(lanes) -> str:
    """Return lanes in words, in ascending order, with ranges.

    >>> lanes_called([3]), lanes_called([0, 1, 2, 3, 8, 31]), lanes_called([])
    ('lane 3', 'lanes 0 to 3, 8 and 31', 'no lane')
    """
    runs: list[list[int]] = []
    for lane in lanes:
        if runs and runs[-1][1] == lane - 1:
            runs[-1][1] = lane
        else:
            runs.append([lane, lane])
    if not runs:
        return "no lane"
    parts = [str(first) if first == last else f"{first} to {last}" for first, last in runs]
    listed = " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
    return f"lane{'s' if len(lanes) > 1 else ''} {listed}"


def number(value) -> str:
    """Return a number in at most six characters or so: integers whole, others to three digits.

    >>> number(1024), number(np.float32(0.1)), number(1 / 3), number(np.nan), number(True), number(-1e-7)
    ('1024', '0.1', '0.333', 'nan', 'True', '-1e-07')
    """
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, int | np.integer):
        return str(int(value))
    return f"{value:.3g}"


def heading(step, index, count, warp) -> str:
    """Return the heading of a step."""
    inside = f" of {step.function.__name__}"
    return f"Step {index + 1} of {count}: warp {warp}, line {step.line}{inside}"


def described(step, warp, warps) -> str:
    """Return sentences about what happens in a step of a warp; the block has `warps` of them."""
    back = f", back from {step.back_from}" if step.back_from else ""
    parts = [f"Line {step.line}: `{step.text}`{back}.", _who(step)]
    if step.waits_for:
        parts.append(_waiting(step, warp, warps))
    parts += [cost(access) for access in step.accesses]
    parts += [f"{name}: {_values(step, name, sorted(lanes))}." for name, lanes in step.changed.items()]
    if len(set(step.next_lines.values())) > 1:
        parts.append(_parting(step))
    return " ".join(parts)


def _parting(step):
    """Return where diverging lanes go."""
    ways: dict = {}
    for lane, line in step.next_lines.items():
        ways.setdefault(line, []).append(lane)
    parts = [
        f"{lanes_called(lanes)} {'to the end' if line is None else f'to line {line}'}"
        for line, lanes in ways.items()
    ]
    return f"Here the lanes part: {'; '.join(parts)}."


def _who(step):
    """Return which lanes run, and the state of the others."""
    active = step.lanes(RUNS, WAITS)
    parts = [f"{lanes_called(active)} active"]
    if off := step.lanes(OFF):
        parts.append(f"{lanes_called(off)} sit{'s' if len(off) == 1 else ''} it out")
    if done := step.lanes(DONE):
        parts.append(f"{lanes_called(done)} finished")
    return ("; ".join(parts) + ".").capitalize()


def _waiting(step, warp, warps):
    """Return which warps or lanes wait for each other."""
    if not step.at_barrier:
        return f"The lanes exchange values ({step.waits_for})."
    if warps == 1:
        return f"The barrier: warp {warp} is the only one of the block, so nobody waits."
    if warp == warps - 1:
        return "The barrier: all warps have arrived and continue."
    coming = f"warp {warp + 1}" if warp + 2 == warps else f"warps {warp + 1} to {warps - 1}"
    return f"The barrier: {_warps(warp)}; {coming} {'has' if warp + 2 == warps else 'have'} yet to come."


def _warps(warp):
    return f"warps 0 to {warp} wait" if warp else "warp 0 waits"


def cost(access) -> str:
    """Return a sentence about a request of a warp, and its cost."""
    lanes = counted(len(access.elements), "lane")
    asked = f"{access.kind.capitalize()} {access.expression} in {lanes}"
    if access.space == "global":
        moved = (
            f"{counted(access.sectors, 'sector')}, {access.bytes_asked} of {32 * access.sectors} bytes used"
        )
        return f"{asked}: {moved}."
    if access.serialised > 1:
        return f"{asked} (shared): {access.serialised} lanes update one word, one after the other."
    if access.degree > 1:
        return f"{asked} (shared): {access.degree}-way bank conflict."
    return f"{asked} (shared): no bank conflict."


def _values(step, name, lanes):
    """Return the new values of a variable."""
    values = [step.registers[name][lane] for lane in lanes]
    texts = [number(value) for value in values]
    if len(set(texts)) == 1:
        return texts[0] if len(lanes) == 1 else f"{texts[0]} in {counted(len(lanes), 'lane')}"
    is_run = all(isinstance(value, int) and value == values[0] + place for place, value in enumerate(values))
    if is_run and len(values) > 2:
        return f"{texts[0]} to {texts[-1]}"
    if len(texts) > 8:
        return f"between {number(min(values))} and {number(max(values))}"
    return ", ".join(texts)
