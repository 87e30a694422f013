"""Groups the lines of single threads into the steps of a warp: which lanes execute a line together.

A warp's lanes run in step. If they diverge, the branches run one after the other, in the order of the source,
and the lanes meet again after them, and after each round of a loop. So a place in the source is a tuple that
sorts in the order of execution: the line and the round of each loop around it, then the line itself. In a
device function, the place of the call comes before all of these.
"""

import ast
import functools
import inspect
import itertools
import textwrap
from dataclasses import dataclass, field

WARP = 32
_LAST = 10**9  # sorts after everything in a called function


class Layout:
    """The source of a function: its lines, their statements, and the loops around these.

    Attributes
    ----------
    lines : dict of int to str
        By number in the file, from ``def`` on, without the docstring.
    statement : dict of int to int
        For each line, the line in which its statement begins.
    loops : dict of int to tuple of int
        For each statement, the lines of the loops around it, outermost first; a loop contains itself.
    """

    def __init__(self, function):
        try:
            source, first = inspect.getsourcelines(function)
        except (OSError, TypeError):
            raise ValueError(f"there is no source of {function.__name__} to step through") from None
        text = textwrap.dedent("".join(source))
        (tree,) = ast.increment_lineno(ast.parse(text), first - 1).body
        hidden = range(0)
        if ast.get_docstring(tree) is not None and len(tree.body) > 1:
            hidden = range(tree.body[0].lineno, tree.body[0].end_lineno + 1)
        self.lines = {
            number: line
            for number, line in enumerate(text.rstrip().splitlines(), first)
            if number >= tree.lineno and number not in hidden
        }
        self.statement, self.loops = {}, {}
        self._add(tree.body, ())

    def text(self, line):
        """Return the text of a line; a function without statements has only its first line."""
        return self.lines.get(line, next(iter(self.lines.values()))).strip()

    def _add(self, statements, loops):
        for each in statements:
            body = getattr(each, "body", [])
            inside = (*loops, each.lineno) if isinstance(each, ast.For | ast.While) else loops
            end = max(body[0].lineno, each.lineno + 1) if body else each.end_lineno + 1
            for line in range(each.lineno, end):
                self.statement.setdefault(line, each.lineno)
            self.loops.setdefault(each.lineno, inside)
            self._add(body, inside)
            self._add(getattr(each, "orelse", []), loops)


layout_of = functools.cache(Layout)


@dataclass
class Moment:
    """One execution of a line by a thread.

    Attributes
    ----------
    key : tuple of int
        Equal for lanes that execute the line together; sorts in the order of execution.
    function : function
    line : int
    interval : int
        The number of barriers that the block had passed.
    before, after : dict
        The function's variables.
    back_from : str
        The device function that has just returned to this line; empty if none has.
    next_line : int or None
        Where the thread goes next; None if it has finished.
    """

    key: tuple
    function: object
    line: int
    interval: int
    before: dict
    after: dict = field(default_factory=dict)
    back_from: str = ""
    next_line: int | None = None


class _Frame:
    """A function that a thread executes: its line, and the rounds of the loops around it."""

    def __init__(self, line, prefix):
        self.function, self.prefix, self.layout = line.function, prefix, layout_of(line.function)
        self.line = self.moment = self.key = None
        self.rounds, self.calls = {}, 0

    def goes_on(self, line):
        """Return whether a line continues the current statement."""
        statement = self.layout.statement
        return (
            self.line is not None
            and line.line != self.line.line
            and statement.get(line.line) == statement.get(self.line.line)
            and line.offset > self.line.offset
        )

    def come_to(self, line):
        """Enter a statement; return the line in which it begins."""
        number = self._statement(line)
        loops = self.layout.loops.get(number, ())
        if self.line is not None and number <= self._statement(self.line):
            common = [loop for loop in loops if loop in self.rounds]
            if common:
                self.rounds[common[-1]] += 1
        self.rounds = {loop: self.rounds.get(loop, 0) for loop in loops}
        self.line, self.calls = line, 0
        self.key = (*self.prefix, *(part for pair in self.rounds.items() for part in pair), number)
        return number

    def _statement(self, line):
        return self.layout.statement.get(line.line, line.line)


def moments_of(lines):
    """Return the moments of one thread, and for each of its lines the number of its moment."""
    frames, moments, which = [], [], []
    for line in lines:
        if line.depth == len(frames):
            prefix = ()
            if frames:
                caller = frames[-1]
                prefix = (*caller.key, caller.calls, line.function.__code__.co_firstlineno)
                caller.calls += 1
            frames.append(_Frame(line, prefix))
        frame = frames[-1]
        if line.ends:
            if frame.moment:
                frame.moment.after = line.variables
            frames.pop()
            if frames:
                moments.append(_back(frames[-1], line))
        elif frame.goes_on(line):
            frame.line = line
        else:
            if frame.moment:
                frame.moment.after = line.variables
            number = frame.come_to(line)
            frame.moment = Moment(frame.key, line.function, number, line.interval, line.variables)
            moments.append(frame.moment)
        which.append(len(moments) - 1)
    for moment, following in itertools.pairwise(moments):
        moment.next_line = following.line
    return moments, which


def _back(caller, line):
    """Return the moment at which the caller's line continues after a device function."""
    called = caller.moment
    called.after = called.before
    key = (*caller.key, caller.calls - 1, _LAST)
    caller.moment = Moment(
        key, caller.function, called.line, line.interval, called.before, back_from=line.function.__name__
    )
    return caller.moment


@dataclass
class Turn:
    """One execution of a line by some lanes of a warp.

    Attributes
    ----------
    function, line, interval, back_from
        As in `Moment`.
    lanes : dict of int to Moment
        The executing lanes, by number.
    finished : set of int
        The lanes that have executed their last line.
    """

    function: object
    line: int
    interval: int
    back_from: str
    lanes: dict
    finished: set


def turns_of(line_trace, warp):
    """Return the turns of a warp, and for each thread the turn of each of its lines."""
    threads = line_trace.threads[warp * WARP : (warp + 1) * WARP]
    taken = [moments_of(lines) for lines in threads]
    together: dict = {}
    for lane, (moments, _) in enumerate(taken):
        for moment in moments:
            together.setdefault(moment.key, {})[lane] = moment
    order = {key: number for number, key in enumerate(sorted(together))}
    last = [order[moments[-1].key] for moments, _ in taken if moments]
    turns = []
    for key, number in order.items():
        one = next(iter(together[key].values()))
        finished = {lane for lane, end in enumerate(last) if end < number}
        turns.append(Turn(one.function, one.line, one.interval, one.back_from, together[key], finished))
    which = [[order[moments[each].key] for each in of_line] for moments, of_line in taken]
    return turns, which
