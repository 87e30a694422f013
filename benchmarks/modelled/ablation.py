"""The worth of each part of the model: modelled times without it, from the recording of a launch.

Each part is replaced from outside; the model has no switches.
"""

from unittest import mock

import numpy as np

from gpuless.profile import caches, model
from gpuless.profile.units import Costs

_MANY = 10_000  # times as many blocks, so that the last wave does not matter


def without_parts(report) -> dict:
    """Return the modelled microseconds of a report's launch without each part, by part."""
    return {name: part(report.device, report.modelled) for name, part in PARTS.items()}


def _predicted(device, found, shape=None, traffic=None):
    return model.predict(device, found.counts, traffic or found.traffic, shape or found.shape).microseconds


def _without_caches(device, found):
    """Load every sector from memory."""
    traffic = found.traffic
    lines = {key: row.copy() for key, row in traffic.lines.items()}
    for (what, *_), row in lines.items():
        row[caches.L1_HITS] = row[caches.L2_HITS] = 0
        row[caches.MISSED] = row[caches.FETCHED] = row[caches.ALL]
        if what == "load":
            row[caches.L2_LOADS] = row[caches.DRAM] = row[caches.SECTORS]
    totals = sum(lines.values(), np.zeros(len(caches.COLUMNS)))
    return _predicted(device, found, traffic=traffic._replace(lines=lines, totals=totals))


class _NoLatencies(Costs):
    """Costs of instructions without latency."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.latencies = np.zeros_like(self.latencies)


def _without_latency(device, found):
    with mock.patch.object(model, "Costs", _NoLatencies):
        return _predicted(device, found)


def _hard_maximum(customers, demands, elsewhere):
    """Return the throughput without waiting, up to the rate of the busiest station."""
    demands = np.asarray(demands, float)
    return float(min(customers / (elsewhere + demands.sum()), 1 / max(demands.max(), 1e-300)))


def _without_queues(device, found):
    with mock.patch.object(model, "throughput", _hard_maximum):
        return _predicted(device, found)


def _without_waves(device, found):
    """Model a launch of many times as many blocks, and divide its time."""
    many = found.shape._replace(blocks=found.shape.blocks * _MANY)
    return (_predicted(device, found, shape=many) - device.launch) / _MANY + device.launch


def _without_block_start(device, found):
    from gpuless.profile.devices import device as changed

    return _predicted(changed(device, block_start=0), found)


def _without_partial_sectors(device, found):
    return _predicted(device, found, traffic=found.traffic._replace(partial=0.0))


def _without_pages(device, found):
    totals = found.traffic.totals.copy()
    totals[caches.PAGES] = 0
    return _predicted(device, found, traffic=found.traffic._replace(totals=totals, opened=0.0))


def _without_bank_conflicts(device, found):
    shared = {key: (1.0, 2.0, 4.0) for key in found.traffic.shared}
    return _predicted(device, found, traffic=found.traffic._replace(shared=shared))


def _only_the_busiest(customers, demands, elsewhere):
    return float(1 / max(np.max(demands), 1e-300))


def _only_throughput(device, found):
    """Model a roofline: the time of the busiest unit."""
    with mock.patch.object(model, "throughput", _only_the_busiest):
        return _without_waves(device, found)


#: By the part that is left out.
PARTS = {
    "caches: all that is loaded comes from memory": _without_caches,
    "latencies: results are there at once": _without_latency,
    "queues: units wait for nobody until one is always busy": _without_queues,
    "all but the busiest unit, as a roofline has it": _only_throughput,
    "waves: no SM has more to do than another": _without_waves,
    "the start and the end of blocks": _without_block_start,
    "sectors that are written in part": _without_partial_sectors,
    "pages of memory, which take time to open": _without_pages,
    "bank conflicts": _without_bank_conflicts,
}
