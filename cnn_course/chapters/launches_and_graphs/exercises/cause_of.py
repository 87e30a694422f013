"""Three slow kernels: the cause, and the line that limits each."""

from cnn_course.chapters.launches_and_graphs.slow import ANSWERS
from cnn_course.engine.checks.exercise import Exercise, Wrong, avoids

#: What a report would show for each cause.
CAUSES = {
    "far apart": "Lanes that read far apart keep `L1` busy, and a load moves up to 32 sectors per request.",
    "few blocks": "Too few blocks leave every unit idle: nothing in `busy` would be near 100%, and the "
    "limiter would be latency.",
    "one address": "If many threads changed the same number, `atomics` would be busy all the time.",
    "float64": "Arithmetic in float64 would show as a busy `float64` unit. Is it in `report.busy`?",
    "bank conflicts": "Bank conflicts need shared memory. Does this kernel use any?",
    "divergence": "Divergence needs a branch that only some lanes of a warp take. Where would it be?",
}


def _pair(attempt, kernel):
    """Return the attempt's cause and line for a kernel."""
    answer = attempt(kernel)
    if not isinstance(answer, (tuple, list)) or len(answer) != 2:
        given = f"a value of type `{type(answer).__name__}`"
        raise Wrong("not a pair", f"For `{kernel}`, return a cause and a line. You return {given}.")
    return answer


def _named(attempt, kernel, part):
    """Return the number of the cause, or whether the line is right."""
    cause, line = _pair(attempt, kernel)
    if cause is ... or line is ...:
        return ...
    if not isinstance(cause, str) or not isinstance(line, str):
        raise Wrong("not text", f"For `{kernel}`, both the cause and the line must be strings.")
    if cause not in CAUSES:
        names = ", ".join(f"`{name}`" for name in CAUSES)
        raise Wrong("unknown cause", f"`{cause}` is not in the list. The causes are: {names}.")
    right_cause, right_line = ANSWERS[kernel]
    if cause != right_cause:
        message = f"`{kernel}` has another problem. {CAUSES[cause]}"
        raise Wrong(f"no {cause}", message, "Compare `report.limiter` and `report.busy`.")
    if _plain(line) != _plain(right_line):
        message = f"The cause of `{kernel}` is right, but the line isn't. Where does most of the time go?"
        raise Wrong("another line", message, "`report.lines` sorts the lines by their time.")
    return list(CAUSES).index(cause) if part == "cause" else 0


def _plain(line):
    return "".join(line.partition("#")[0].strip("` ").split())


cause_of = Exercise(
    "cause_of",
    reference=lambda kernel, part: list(CAUSES).index(ANSWERS[kernel][0]) if part == "cause" else 0,
    cases=lambda rng: [(kernel, part) for kernel in ANSWERS for part in ("cause", "line")],
    run=_named,
    properties=(avoids("ANSWERS"),),
)
