"""A function of launches as one CUDA graph.

A step of the course's network is a dozen or so kernels of a few microseconds each, and to launch one from
Python takes longer than that. A CUDA graph holds all of them, recorded once for each size of batch, and costs
one launch.
"""

import functools
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import Any

from cnn_numba import device


class GraphsUnavailable(RuntimeError):
    """Why a step cannot be recorded here."""


def record(function: Callable[[], object]) -> Callable[[], object]:
    """Record what a function launches as a CUDA graph; return what launches it on the stream current now.

    Parameters
    ----------
    function : callable
        Only launches kernels, each of which has been launched before, so that it is compiled and loaded. The
        arrays it uses must live as long as the graph.

    Raises
    ------
    GraphsUnavailable
        In the simulator, and where the CUDA driver or `cuda.core` cannot record.
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
            # Ends a recording that failed as well, which `end_building` refuses to do if the driver has
            # given it up; until then nothing could be launched on the stream.
            with suppress(Exception):
                builder.close()
        return functools.partial(graph.launch, stream)
    except Exception as error:
        # The function has run before: whatever goes wrong now is the recording's fault.
        raise GraphsUnavailable(str(error) or type(error).__name__) from error


class Replay:
    """A function of launches that becomes graphs for each argument: run, then recorded, then replayed.

    Parameters
    ----------
    function : callable
        Called with the batch's size, as in `record`. It yields the name of each phase that it has launched.
    after : callable
        Called with the name of a phase that has been launched; of those that are replayed, only with `cuts`.
    cuts : collection of str
        The phases after which the host has something to do: there one graph ends and the next begins.
    log : callable
        Called once with a line of text if there can be no graphs; then the function is called as it is.
    enabled : bool
        False calls it as it is from the start.
    """

    def __init__(
        self,
        function: Callable[[int], Iterator[str]],
        after: Callable[[str], object] = lambda phase: None,
        cuts: Collection[str] = (),
        log: Callable[[str], object] = lambda line: None,
        enabled: bool = True,
    ) -> None:
        self.function, self.after, self.cuts = function, after, cuts
        self.log, self.enabled = log, enabled
        self.graphs: dict[int, Any] = {}
        self.compiled: set[int] = set()

    def __call__(self, count: int) -> None:
        """Do for `count` what the function does."""
        # The first time compiles the kernels, which cannot be recorded.
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
        phases, parts, ends = self.function(count), [], [""]

        def part():
            ends.append(next((phase for phase in phases if phase in self.cuts), None))

        try:
            while ends[-1] is not None:
                parts.append((record(part), ends[-1]))
        except GraphsUnavailable as error:
            self.enabled = False
            self.log(f"No CUDA graphs here ({error}): every kernel is launched by itself, which is slower")
        else:
            self.graphs[count] = parts
