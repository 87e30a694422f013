"""The judge that reports the sanitizer's finding, with a repair if one is known."""

import numpy as np

from cnn_course.engine.checks import wording
from cnn_course.engine.checks.evidence import Wrong
from cnn_course.engine.checks.repairs import WARP_BARRIER, Repairs, solves
from cnn_course.engine.checks.wording import name_of, own_line
from gpuless.limits import WARP

# The methods of `Repairs` that may repair a finding.
_REPAIRS = {
    "writes past the edge": ("comparison", "loop", "axes", "sizes", "guard"),
    "reads past the edge": ("comparison", "loop", "axes", "sizes", "guard"),
    "negative index": ("guard",),
    "missing barrier": ("barriers", "atomic"),
    "lost update": ("atomic",),
}
# A check's launch never computes such a large index itself: it was read past another edge.
_GARBAGE = 1 << 20


def sanitizers_finding(evidence):
    """Report the sanitizer's most telling finding in the first launch that has one."""
    allows_negative = evidence.exercise.from_the_end and not evidence.failed
    for trial in evidence.traced:
        finding = most_telling(trial.report.findings, {"negative index"} if allows_negative else ())
        if finding is not None:
            return _explained(evidence, trial, finding)
    return None


def most_telling(findings, allowed=()):
    """Return the most probable cause of all findings; None if all are allowed."""
    findings = [finding for finding in findings if name_of(finding) not in allowed]
    if "reads past the edge" in map(name_of, findings):
        findings = [finding for finding in findings if not _is_at_garbage(finding)]
    names = list(wording.WORDS)
    return min(findings, key=lambda finding: names.index(name_of(finding)), default=None)


def _is_at_garbage(finding):
    """Return whether a write past the edge has an index that was read past another edge."""
    return name_of(finding) == "writes past the edge" and any(
        isinstance(part, int) and abs(part) > _GARBAGE for part in finding.index
    )


def _explained(evidence, trial, finding):
    """Return a finding for the learner: its meaning, what was seen and where, and what to change."""
    attempt, trace = evidence.attempt, trial.report.trace
    message = wording.explained(attempt, finding, trace)
    seen = wording.seen(wording.as_called(attempt, finding))
    if finding.kind == "never written":
        info = next(info for info in trace.arrays if info.name == finding.array)
        if pair := wording.two_at_one_element(trial, info):
            message, seen = wording.SAME_INDEX, f"{seen} {pair}."
        else:
            seen = wording.seen_unwritten(finding)
    given = len(finding.index or ())
    if finding.kind == "out of bounds" and not finding.in_view and given < len(finding.shape):
        message, way, repairs = wording.too_few_indices(finding.array, len(finding.shape), given), "", []
    else:
        way, repairs = _repair(evidence, finding, _launches(evidence.traced, trial, finding))
    message = wording.REPAIRED.get(way, message).format(array=f"`{finding.array}`")
    # Lines to change are shown with the change.
    changed = {repair.line for repair in repairs}
    sites = [site for site in (finding.site, finding.other_site) if site]
    lines = [wording.line_of(attempt, site) for site in sites if own_line(attempt, site) not in changed]
    advice = map(wording.advised, repairs)
    return Wrong(name_of(finding), message, seen, *dict.fromkeys(lines), *advice, evidence.where(trial))


def _launches(traced, trial, finding):
    """Return the launches of a check: first that of the finding, then the last one with a similar finding."""
    alike = [
        other
        for other in traced
        if any((each.kind, each.array) == (finding.kind, finding.array) for each in other.report.findings)
    ]
    return list({id(each.case): each.case for each in (trial, *alike[-1:], *traced)}.values())


def _repair(evidence, finding, cases):
    """Return the kind of repair that makes a kernel right, "" if none does, and the changes."""
    attempt = evidence.attempt
    if evidence.is_stand_in or not finding.site:
        return "", []
    places = (own_line(attempt, site) for site in (finding.site, finding.other_site) if site)
    lines = [line for line in places if line is not None]
    repairs = Repairs(attempt, solves(evidence, cases), _in_one_warp(finding, cases))
    for way in _REPAIRS.get(name_of(finding), ()):
        if found := getattr(repairs, way)(lines, finding.array):
            return "barriers of a warp" if found[0].new == WARP_BARRIER else found[0].why or way, found
    return "", []


def _in_one_warp(finding, cases):
    """Return whether a missing barrier concerns only one warp, though some launch has blocks of several."""
    if finding.kind != "missing barrier" or max(np.prod(case.block) for case in cases) <= WARP:
        return False
    shape = finding.launch.block[::-1]
    one, other = (
        np.ravel_multi_index(each[::-1], shape) // WARP for each in (finding.thread, finding.other_thread)
    )
    return bool(one == other)
