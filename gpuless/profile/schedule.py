"""A schedule of a program's GPU work: when the host's calls, kernels, graphs and copies begin and end.

The host makes one call after the other, and goes on unless it waits for the GPU. Operations of a stream run
in order, and nodes of a graph after those that they depend on. Kernels of several streams run at the same
time if their blocks fit on the SMs, and share the units there: a later kernel gets what earlier ones leave.
Copies use the bus one at a time in each direction.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, NamedTuple

from gpuless.profile import costs

#: Kinds of events, on the GPU and on the host.
KERNEL, COPY, SET = "kernel", "copy", "set"
LAUNCH, WAIT = "launch", "wait"
ON_GPU = (KERNEL, COPY, SET)
HOST = "host"  # in place of a stream's name


class Lane(NamedTuple):
    """A stream: its name, whether it is the legacy default stream, and whether that one waits for it."""

    name: str
    legacy: bool = False
    blocking: bool = True


class Asked(NamedTuple):
    """A request of the program.

    `kind`: "kernel", "copy", "set", "graph", "event" or "empty"; on the host "call", "wait" or "wait for
    event"; `stream`: its `Lane`; `host`: microseconds of the host's call; `duration`, `low`, `high`:
    microseconds on the GPU; `share`: of the GPU's room for blocks; `busy`: by unit, the share of its time on
    all SMs if nothing else runs; `engine`: a copy's direction over the bus, "" if it doesn't use the bus;
    `waits`: whether the host waits for it; `event`: the one recorded or waited for; `after`: the numbers of
    the nodes that a node depends on; `nodes`: of a graph.
    """

    kind: str
    name: str = ""
    stream: Lane | None = None
    host: float = 0.0
    duration: float = 0.0
    low: float = 0.0
    high: float = 0.0
    share: float = 1.0
    busy: Any = MappingProxyType({})
    engine: str = ""
    waits: bool = False
    event: Any = None
    after: tuple = ()
    nodes: tuple = ()
    report: Any = None
    size: int = 0


class Event(NamedTuple):
    """An event of a `Timeline`; times are in microseconds.

    `stream`: the name of the stream, or "host"; `kind`: "kernel", "copy" or "set", and on the host "launch",
    a call that gives the GPU work, or "wait"; `asked`: when the GPU receives the request; `in_graph`: whether
    it is a node of a graph; `size`: bytes of a copy; `report`: a kernel's `gpuless.profile.report.Report`.
    """

    name: str
    begin: float
    duration: float
    stream: str
    kind: str
    asked: float
    in_graph: bool = False
    size: int = 0
    report: Any = None

    @property
    def end(self) -> float:
        """When it ends."""
        return self.begin + self.duration


class Scenario(NamedTuple):
    """Which durations of `Asked` to use, "duration", "low" or "high", and a factor for the host's."""

    durations: str = "duration"
    host: float = 1.0


MODELLED = Scenario()
LOW, HIGH = Scenario("low", costs.HOST_LOW), Scenario("high", costs.HOST_HIGH)


def schedule(asked: list[Asked], scenario: Scenario = MODELLED) -> tuple[list[Event], float]:
    """Return the events of a program's requests, and when all of them are done."""
    machine = _Machine(scenario)
    for each in asked:
        machine.do(each)
    return machine.events, max([machine.host, *machine.ready.values()])


def tracks(events: list[Event]) -> dict[str, list[Event]]:
    """Return the events of each stream, the host first; events that overlap, as in graphs, get tracks."""
    found: dict[str, list[Event]] = {HOST: []}
    for event in events:
        name, number = event.stream, 1
        while found.get(name) and found[name][-1].end > event.begin:
            number += 1
            name = f"{event.stream} ({number})"
        found.setdefault(name, []).append(event)
    return {name: found[name] for name in sorted(found, key=lambda name: (name != HOST, name))}


_CALLS = {
    KERNEL: "launch",
    "graph": "launch a graph",
    COPY: "copy",
    "wait for event": "let it wait for an event",
}


class _Machine:
    """A host and a GPU, and until when each part of them is occupied."""

    def __init__(self, scenario):
        self.scenario, self.host, self.events = scenario, 0.0, []
        self.ready, self.moments, self.engines, self.running = {}, {}, {}, _SMs()

    def do(self, asked):
        """Execute a request of the host."""
        if asked.stream is not None:
            self.ready.setdefault(asked.stream, 0.0)
        if asked.kind == "wait":
            self._wait(asked)
            return
        self._call(asked)
        if asked.kind == "wait for event":
            self._reach(asked.stream, self.moments.get(asked.event, 0.0))
        elif asked.kind == "graph":
            self._graph(asked)
        elif asked.kind != "call":
            gap = costs.STREAM_GAP if asked.kind in ON_GPU else 0.0
            earliest = max(self.host + costs.SUBMIT, self._after(asked.stream, gap))
            self._reach(asked.stream, self._run(asked, earliest, asked.stream.name))
        if asked.waits:
            self._wait(Asked("wait", "copy", asked.stream))

    def _call(self, asked):
        begin, self.host = self.host, self.host + asked.host * self.scenario.host
        if asked.host:
            name = f"{_CALLS.get(asked.kind, '')} {asked.name}".strip()
            self.events.append(Event(name, begin, self.host - begin, HOST, LAUNCH, begin))

    def _wait(self, asked):
        """Let the host wait for an event, for a stream, or for everything."""
        begin = self.host
        if asked.event is not None:
            end = self.moments.get(asked.event, 0.0)
        elif asked.stream is not None:
            end = self._after(asked.stream)
        else:
            end = max(self.ready.values(), default=0.0)
        self.host = max(begin, end) + costs.WAKE * self.scenario.host
        self.events.append(Event(f"wait {asked.name}".strip(), begin, self.host - begin, HOST, WAIT, begin))

    def _graph(self, asked):
        """Run the nodes of a graph in their order, which respects their dependencies."""
        begin = max(self.host + costs.SUBMIT, self._after(asked.stream, costs.STREAM_GAP))
        ends = []
        for node in asked.nodes:
            before = max((ends[number] for number in node.after), default=None)
            earliest = begin if before is None else before
            if before is not None and node.kind in ON_GPU:
                earliest += costs.GRAPH_GAP
            ends.append(self._run(node, earliest, asked.stream.name, in_graph=True))
        self._reach(asked.stream, max(ends, default=begin))

    def _run(self, asked, earliest, stream, in_graph=False):
        """Run a request on the GPU; return when it ends."""
        if asked.kind not in ON_GPU:
            if asked.event is not None:
                self.moments[asked.event] = earliest
            return earliest
        duration, begin = getattr(asked, self.scenario.durations), earliest
        if asked.kind == KERNEL:
            begin, duration = self.running.place(earliest, duration, asked, self.host)
        elif asked.engine:
            begin = max(earliest, self.engines.get(asked.engine, 0.0))
            self.engines[asked.engine] = begin + duration
        about = asked.kind, self.host + costs.SUBMIT, in_graph, asked.size, asked.report
        self.events.append(Event(asked.name, begin, duration, stream, *about))
        return begin + duration

    def _after(self, stream, gap=0.0):
        """Return when a stream can go on.

        The legacy default stream and the others wait for each other, except for non-blocking ones.
        """
        others = (end for other, end in self.ready.items() if _wait_for_each_other(stream, other))
        end = max([self.ready[stream], *others])
        return end + gap if end else end

    def _reach(self, stream, moment):
        self.ready[stream] = max(self.ready[stream], moment)


def _wait_for_each_other(one, other):
    return (one.legacy and other.blocking) or (other.legacy and one.blocking)


class _Running(NamedTuple):
    """A kernel that occupies its share of the SMs until it ends."""

    begin: float
    end: float
    share: float
    busy: Any


_LEAST = 0.05  # share of its speed that a kernel keeps if others saturate a unit


class _SMs:
    """Which kernels occupy the SMs, and until when."""

    def __init__(self):
        self._taken, self._last = [], 0.0

    def place(self, earliest, duration, asked, now):
        """Return when a kernel begins, and how long it takes beside those that are not over `now`."""
        begin = earliest
        if earliest < self._last:
            self._taken = [each for each in self._taken if each.end > now]
            moments = sorted(each.end for each in self._taken if each.end > earliest)
            free = 1 + 1e-9 - asked.share
            for begin in [earliest, *moments]:
                slowed = self._slowed(begin, duration, asked.busy)
                if self._most(begin, begin + slowed) <= free:
                    break
            duration = slowed
        self._last = max(self._last, begin + duration)
        self._taken.append(_Running(begin, begin + duration, asked.share, asked.busy))
        return begin, duration

    def _most(self, begin, end):
        """Return the largest share of the SMs that is occupied between two moments."""
        moments = [begin, *(each.begin for each in self._taken if begin < each.begin < end)]
        return max(sum(each.share for each in self._at(moment)) for moment in moments)

    def _at(self, moment):
        return [each for each in self._taken if each.begin <= moment < each.end]

    def _slowed(self, begin, duration, busy):
        """Return how long a kernel takes beside others, which it doesn't slow down."""
        moment, left = begin, duration
        for end in sorted({time for each in self._taken for time in (each.begin, each.end) if time > begin}):
            others = self._at(moment)
            free = {unit: 1 - sum(each.busy.get(unit, 0.0) for each in others) for unit in busy}
            speed = max(_LEAST, min([1.0, *(free[unit] / busy[unit] for unit in busy if busy[unit])]))
            if moment + left / speed <= end:
                return moment + left / speed - begin
            moment, left = end, left - (end - moment) * speed
        return moment + left - begin
