"""A timeline as a trace file in Chrome's "Trace Event Format" (Google), which Perfetto opens.

Times are in microseconds.
"""

from __future__ import annotations

import json
from typing import Any

from gpuless.profile.files import write_whole
from gpuless.profile.schedule import HOST, tracks

_HOST, _GPU = 1, 2  # processes


def write(timeline: Any, path: Any) -> None:
    """Write the trace of a `Timeline`."""
    write_whole(path, json.dumps(trace_of(timeline)))


def trace_of(timeline: Any) -> dict:
    """Return the content of a timeline's trace file."""
    device = timeline.device.name
    found = [
        _named(_HOST, 0, "process_name", "host (modelled)"),
        _named(_GPU, 0, "process_name", f"{device} (modelled)"),
    ]
    for number, (name, events) in enumerate(tracks(timeline.events).items()):
        process = _HOST if name == HOST else _GPU
        found += [_named(process, number, "thread_name", name), _sorted(process, number)]
        found += [_complete(event, process, number) for event in events]
    between = [round(timeline.low, 3), round(timeline.high, 3)]
    about = {"modelled by": "gpuless", "GPU": device, "total us": round(timeline.microseconds, 3)}
    return {"traceEvents": found, "displayTimeUnit": "ns", "otherData": about | {"between us": between}}


def _named(process, thread, what, name):
    return {"ph": "M", "pid": process, "tid": thread, "ts": 0, "name": what, "args": {"name": name}}


def _sorted(process, thread):
    about = {"ph": "M", "pid": process, "tid": thread, "ts": 0, "name": "thread_sort_index"}
    return about | {"args": {"sort_index": thread}}


def _complete(event, process, thread):
    """Return an event as a trace's "complete event", which has a begin and a duration."""
    about = {"bytes": event.size} if event.size else {}
    if event.report is not None:
        report = event.report
        about |= {"grid": list(report.grid), "block": list(report.block), "limited by": report.limiter}
        about |= {"in graph": event.in_graph}
    found = {"ph": "X", "pid": process, "tid": thread, "name": event.name, "cat": event.kind}
    return found | {"ts": round(event.begin, 3), "dur": round(event.duration, 3), "args": about}
