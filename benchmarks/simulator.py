"""The speed of simulators: Numba's, ours, and ours under the sanitizer."""

import statistics
from pathlib import Path

from benchmarks.processes import answer_of
from benchmarks.records import new_record

#: The kernels, for a process that imports nothing of ours.
SCRIPT = Path(__file__).with_name("simulator_kernels.py")
_OURS = """
import json
import gpuless
gpuless.select()
from benchmarks import simulator_kernels
plain, sanitized = simulator_kernels.measure(), simulator_kernels.measure(wrap=gpuless.sanitize)
print(json.dumps({"plain": plain, "sanitized": sanitized}))
"""


def bench_simulator():
    """Time kernels of each kind in Numba's simulator and in ours, and under the sanitizer.

    Each simulator has its own process, one after the other; both run the same kernels on as many threads.

    Returns
    -------
    dict
        Every sample in microseconds of processor time per simulated thread; the medians; and two ratios: how
        many times faster ours is than Numba's, and how many times slower with the sanitizer.
    """
    stock, ours = (answer_of(each, NUMBA_ENABLE_CUDASIM="1") for each in ([str(SCRIPT)], ["-c", _OURS]))
    samples = {"stock": stock, "ours": ours["plain"], "sanitized": ours["sanitized"]}
    results = []
    for kind in stock:
        medians = {who: statistics.median(times[kind]) for who, times in samples.items()}
        faster, cost = medians["stock"] / medians["ours"], medians["sanitized"] / medians["ours"]
        results.append(
            {
                "kernel": kind,
                "samples": {who: times[kind] for who, times in samples.items()},
                "medians": medians,
                "times_faster": faster,
                "sanitizer_cost": cost,
            }
        )
        print(
            f"{kind:13} Numba's {medians['stock']:7.1f} us per thread, ours {medians['ours']:5.1f} us: "
            f"{faster:5.0f} times faster; sanitized {medians['sanitized']:6.1f} us: {cost:4.1f} times slower",
            flush=True,
        )
    return new_record(
        "simulator", unit="microseconds of processor time per simulated thread", results=results
    )
