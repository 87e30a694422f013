"""A recorder of a program's requests to the emulated GPU, with modelled times for other GPUs."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from gpuless.emulator.driver.allocations import DEVICE, place_of
from gpuless.emulator.driver.streams import DEFAULT
from gpuless.emulator.driver.watching import Watcher
from gpuless.emulator.ptx.instructions import readable
from gpuless.emulator.run.lines import argument_names
from gpuless.profile import costs
from gpuless.profile.dependence import dependence_of
from gpuless.profile.launches import all_reports_of
from gpuless.profile.schedule import COPY, KERNEL, SET, Asked, Lane
from gpuless.profile.units import UNITS
from gpuless.profile.windows import sample_of

_TOGETHER = 20  # launches that are modelled together: the jobs of one compiler process
_NON_BLOCKING = 1  # in a stream's flags


class Recorder(Watcher):
    """Records a thread's requests, for several devices at a time.

    `asked`: for each device a list of `Asked`, whose kernels have a report after `finish`; `doubts`: by
    kernel, how many launches use the report of another launch that may have done something else.
    """

    def __init__(self, devices, samples):
        self.devices, self.asked, self._failed = devices, [[] for _ in devices], None
        self._models, self._lanes, self._events, self._costs = _Models(devices, samples), {}, {}, {}
        self._graphs: list[_Graph] = []

    def finish(self):
        """Model the launches; raise the first error of recording or modelling."""
        if self._failed is not None:
            raise self._failed
        reports = self._models.reports()
        self.doubts = sorted(self._models.doubts.items())
        for number, asked in enumerate(self.asked):
            asked[:] = [_timed(each, reports, number) for each in asked]

    # --- The methods of `Watcher` ----------------------------------------------------------------------

    def work(self, stream, work):
        """Record work in a stream."""
        lane = self._lane(stream)
        if work.kind == "graph":
            self._note(Asked("graph", f"of {work.about} nodes", lane, costs.GRAPH_LAUNCH))
            return
        self._put([each._replace(stream=lane) for each in self._asked_for(work)])

    def capture(self, work):
        """Record the host's call for captured work."""
        host = self._launch_cost(work.about().plain) if work.kind == "kernel" else costs.CALL
        self._note(Asked("call", f"{work.kind} to capture", None, host))

    def instantiate(self, nodes):
        """Record the host's call that instantiates a graph."""
        host = costs.INSTANTIATE + nodes * costs.INSTANTIATE_NODE
        self._note(Asked("call", f"instantiate a graph of {nodes} nodes", None, host))

    def begin(self):
        """Begin a graph's nodes."""
        self._graphs.append(_Graph(self._graphs[-1] if self._graphs else None, len(self.devices)))

    def node(self, handle, node):
        """Record a node of the current graph."""
        self._graphs[-1].add(handle, node.after, self._asked_for(node.work))

    def end(self):
        """End the current graph."""
        graph = self._graphs.pop()
        if graph.outer is not None:
            graph.close()
            return
        for asked, nodes in zip(self.asked, graph.nodes, strict=True):
            asked[-1] = asked[-1]._replace(nodes=tuple(nodes))

    def wait_for_event(self, stream, event):
        """Record that a stream waits for an event."""
        self._note(Asked("wait for event", "", self._lane(stream), costs.CALL, event=id(self._kept(event))))

    def synchronize(self, stream=None, event=None):
        """Record that the host waits."""
        lane = stream if stream is None else self._lane(stream)
        last = self.asked[0][-1] if self.asked[0] else None
        if last is not None and last.waits and last.stream == lane:
            return  # the host has already waited for a copy
        name = "for an event" if event is not None else f"for {lane.name if lane else 'the GPU'}"
        self._note(Asked("wait", name, lane, event=None if event is None else id(self._kept(event))))

    # --- Requests --------------------------------------------------------------------------------------

    def _note(self, asked):
        self._put([asked] * len(self.devices))

    def _put(self, asked):
        for each, one in zip(self.asked, asked, strict=True):
            each.append(one)

    def _kept(self, event):
        return self._events.setdefault(id(event), event)  # keeps the event alive, so that its id stays unique

    def _lane(self, stream):
        if stream not in self._lanes:
            if stream is DEFAULT:
                lane = Lane("default stream", legacy=True, blocking=False)
            else:
                number = 1 + sum(not lane.legacy for lane in self._lanes.values())
                lane = Lane(f"stream {number}", blocking=not stream.flags & _NON_BLOCKING)
            self._lanes[stream] = lane
        return self._lanes[stream]

    def _asked_for(self, work):
        """Return the `Asked` of some work, for each device."""
        if work.kind == "kernel":
            return self._kernels(work)
        if work.kind == "copy":
            return [_copy(device, work.about) for device in self.devices]
        if work.kind == "set":
            size = work.about.size
            return [
                _lasting(Asked(SET, "set memory", host=costs.CALL, size=size), costs.set_time(device, size))
                for device in self.devices
            ]
        if work.kind == "event":
            event = id(self._kept(work.about))
            return [Asked("event", "record an event", host=costs.CALL, event=event)] * len(self.devices)
        return [Asked("empty", work.kind, host=costs.CALL)] * len(self.devices)

    def _kernels(self, work):
        if self._failed is None:
            taken = work.about()
            try:
                number = self._models.launched(taken)
                asked = Asked(KERNEL, host=self._launch_cost(taken.plain), report=number)
                return [asked] * len(self.devices)
            except Exception as error:  # `finish` raises it, after the program's own code
                self._failed = error
        return [Asked("empty", "kernel")] * len(self.devices)

    def _launch_cost(self, kernel):
        """Return the microseconds that the host takes to launch a kernel."""
        if kernel not in self._costs:
            names = argument_names(kernel.source)
            known = names or not kernel.function.parameters
            cost = costs.numba_launch([*Counter(names).values()]) if known else costs.OTHER_LAUNCH
            self._costs[kernel] = cost
        return self._costs[kernel]


def times_of(report: Any) -> tuple[float, float, float]:
    """Return the microseconds of a kernel in a timeline: modelled, low and high.

    A report's time includes the gap before the next launch, in a stream that the host keeps full.
    """
    alone = report.microseconds - costs.STREAM_GAP
    return alone, *(alone * bound / report.microseconds for bound in (report.low, report.high))


def _timed(asked, reports, number):
    """Return an `Asked` with the times of its kernels on a device."""
    if asked.nodes:
        return asked._replace(nodes=tuple(_timed(node, reports, number) for node in asked.nodes))
    if asked.kind != KERNEL:
        return asked
    report = reports[asked.report][number]
    share = min(1.0, report.modelled.shape.waves(report.device))
    duration, low, high = times_of(report)
    about = {"name": report.kernel, "share": share, "busy": _busy_of(report), "report": report}
    return asked._replace(duration=duration, low=low, high=high, **about)


def _busy_of(report):
    """Return the share of the time for which each unit works, over all SMs: reports have the busiest SM's."""
    shape, sms = report.modelled.shape, report.device.sms
    bound = report.modelled.prediction.bound
    spread = shape.blocks / (sms * -(-shape.blocks // sms)) if bound in (*UNITS, "fill") else 1.0
    return {unit: share * spread for unit, share in report.busy.items()}


def _copy(device, about):
    source, target = place_of(about.source), place_of(about.target)
    duration = costs.copy_time(device, about.size, source, target, about.peer)
    words = "GPU to GPU" if about.peer else f"{_side(source)} to {_side(target)}"
    engine = words if source != target or about.peer else ""
    asked = Asked(COPY, words, host=costs.CALL, engine=engine, size=about.size)
    # The host itself copies pageable memory to or from a pinned buffer, so it waits.
    return _lasting(asked._replace(waits="pageable" in (source, target)), duration)


def _side(place):
    return "device" if place == DEVICE else "host"


def _lasting(asked, duration):
    return asked._replace(
        duration=duration, low=duration / costs.COPY_RANGE, high=duration * costs.COPY_RANGE
    )


class _Graph:
    """A graph that runs: its nodes for each device, and their numbers by handle.

    A graph within another one begins and ends with an empty node.
    """

    def __init__(self, outer, devices):
        self.outer, self._numbers = outer, {}
        self.nodes = outer.nodes if outer else [[] for _ in range(devices)]
        self._begin = (len(self.nodes[0]) - 1,) if outer else ()

    def add(self, handle, after, asked):
        """Add a node."""
        before = tuple(self._numbers[each] for each in after if each in self._numbers) or self._begin
        self._numbers[handle] = self._add([each._replace(after=before) for each in asked])

    def _add(self, asked):
        for nodes, node in zip(self.nodes, asked, strict=True):
            nodes.append(node)
        return len(self.nodes[0]) - 1

    def close(self):
        """End a graph within another: what depends on it, as a node there, depends on all of its nodes."""
        last = Asked("empty", after=tuple(self._numbers.values()) or self._begin)
        number = self._add([last] * len(self.nodes))
        self.outer._numbers[next(reversed(self.outer._numbers))] = number


class _Models:
    """Reports of launches, shared by launches that do the same.

    Usually the kernel, the shape, the layout of the arrays and the numbers used for branches and addresses
    determine what a launch executes and where it accesses memory. If branches or addresses also depend on
    values in memory, the first `samples` launches of a kind are modelled, and later ones use the last report.
    """

    def __init__(self, devices, samples):
        self._devices, self._samples, self.doubts = devices, samples, Counter()
        self._found, self._dependences = defaultdict(list), {}
        self._sampled, self._reports = [], []

    def launched(self, taken):
        """Return the number of a launch's reports; the launch is about to take place."""
        kernel = taken.plain
        if kernel not in self._dependences:
            self._dependences[kernel] = dependence_of(kernel)
        dependence = self._dependences[kernel]
        found = self._found[self._key(taken, dependence.parameters)]
        enough = self._samples if dependence.on_data else 1
        if enough is not None and len(found) >= enough:
            self.doubts.update([taken.source.function().__name__] * dependence.on_data)
            return found[-1]
        if taken.source is None:
            raise RuntimeError(f"{readable(kernel.name)} was not compiled by Numba: its source is not known")
        found.append(len(self._reports) + len(self._sampled))
        self._sampled.append((taken.source.kernel(), taken, sample_of(taken)))
        if len(self._sampled) == _TOGETHER:
            self.reports()
        return found[-1]

    def reports(self):
        """Return the reports of all sampled launches, each a list with one per device."""
        self._reports += all_reports_of(self._sampled, self._devices)
        self._sampled.clear()
        return self._reports

    def _key(self, taken, decisive):
        """Return a key that is equal for launches that do the same."""
        kernel, given, arrays, values = taken.plain, taken.launched.given(), {}, []
        for i, variable in enumerate(kernel.function.parameters):
            at = kernel.places[variable.name]
            value = taken.arguments[at : at + variable.size]
            if i in given:
                array = given[i]
                number = arrays.setdefault(array.address, len(arrays))
                values.append((number, int.from_bytes(value, "little") - array.address, array.size))
            else:
                values.append(value if i in decisive else None)
        return kernel, taken.grid, taken.block, taken.shared, taken.together, tuple(values)
