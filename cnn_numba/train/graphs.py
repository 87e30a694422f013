"""Many launches recorded as one CUDA graph.

A step of the course's network is ten kernels of a few microseconds each; launching one from Python
takes longer than that. A CUDA graph, recorded once for each batch size, launches all of them at once.
"""

import functools
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import Any

from cnn_numba import device
from cnn_numba.train.phases import Phase


class GraphsUnavailable(RuntimeError):
    """A step cannot be recorded here; the message says why."""


def record(function: Callable[[], object]) -> Callable[[], object]:
    """Record the launches of a function as a CUDA graph; return a function that replays it.

    The graph is launched on the stream that is current now.

    Parameters
    ----------
    function : callable
        Launches kernels and does nothing else. Each kernel has been launched before, so it is compiled and
        loaded. The arrays must live as long as the graph.

    Raises
    ------
    GraphsUnavailable
        In the simulator, and if the CUDA driver or `cuda.core` cannot record.
    """
    if device.simulated():
        raise GraphsUnavailable("the simulator has none")
    try:
        from cuda.core import Stream

        stream = Stream.from_handle(int(device.current_stream()))
        side = device.stream()
        builder = stream.create_graph_builder()
        builder.begin_building()
        try:
            with device.recording(builder.stream, Stream.from_handle(int(side))):
                function()
            graph = builder.end_building().complete()
        finally:
            # This also ends a recording that the driver gave up, for which `end_building` raises. Nothing
            # can be launched on the stream before the recording ends.
            with suppress(Exception):
                builder.close()
        return functools.partial(graph.launch, stream)
    except Exception as error:
        # The function has run before, so any error now is the recording's.
        raise GraphsUnavailable(str(error) or type(error).__name__) from error


class Replay:
    """Runs a function of launches: for each batch size first directly, then recorded as graphs and replayed.

    Parameters
    ----------
    function : callable
        As in `record`, called with the batch size. It yields each phase after launching it.
    after : callable
        Called with each phase after its launches; in a replay only with those in `cuts`.
    cuts : collection of Phase
        The phases after which the host has work to do: one graph ends there and the next begins.
    log : callable
        Called once with a line of text if there can be no graphs; from then on the function runs directly.
    enabled : bool
        False runs it directly from the start.
    """

    def __init__(
        self,
        function: Callable[[int], Iterator[Phase]],
        after: Callable[[Phase], object] = lambda phase: None,
        cuts: Collection[Phase] = (),
        log: Callable[[str], object] = lambda line: None,
        enabled: bool = True,
    ) -> None:
        self.function, self.after, self.cuts = function, after, cuts
        self.log, self.enabled = log, enabled
        self.graphs: dict[int, Any] = {}
        self.compiled: set[int] = set()

    def __call__(self, count: int) -> None:
        """Run or replay the function for a batch of `count`."""
        # The first call compiles the kernels, which cannot be recorded.
        if self.enabled and count in self.compiled and count not in self.graphs:
            self._record(count)
        if count in self.graphs:
            for graph, phase in self.graphs[count]:
                graph()
                if phase is not None:
                    self.after(phase)
        else:
            for phase in self.function(count):
                self.after(phase)
            self.compiled.add(count)

    def _record(self, count):
        phases, parts, end = self.function(count), [], None

        def part():
            nonlocal end
            end = next((phase for phase in phases if phase in self.cuts), None)

        try:
            while not parts or end is not None:
                parts.append((record(part), end))
        except GraphsUnavailable as error:
            self.enabled = False
            # Within the handler: `benchmarks/epoch_gpu.py` asks which error is being handled.
            self.log(f"No CUDA graphs here ({error}): each kernel is launched separately, which is slower")
        else:
            self.graphs[count] = parts
