"""The speed of the emulated GPU: compared with simulators, on the course's kernels, and when it compiles.

All times are a CPU's, and say nothing about a GPU's.
"""

import statistics
import tempfile

from benchmarks.processes import answer_of
from benchmarks.records import new_record
from benchmarks.simulator import SCRIPT

_BLOCKS = 1 << 14  # of 64 threads, for the emulated GPU; the simulators get two


def bench_emulator(rounds=3, epoch=True):
    """Time kernels on the emulated GPU and in both simulators, in turns; then large ones on the GPU alone.

    Parameters
    ----------
    rounds : int
        The number of turns of each.
    epoch : bool
        Whether to train for an epoch, too, which takes a minute or two.

    Returns
    -------
    dict
        Nanoseconds of processor time per thread; the speed of the course's kernels; seconds of compiling,
        with an empty and with a full cache; seconds of an epoch.
    """
    figures = {"threads": _beside_the_simulators(rounds), "work": _work(), "compilation": _compilation()}
    if epoch:
        figures["epoch"] = _run("emulator_kernels.epoch()")
        text = (
            "an epoch of mnist_cnn, batch 64: {wall:.1f} s; with its test {processor:.1f} s of processor time"
        )
        print(text.format(**figures["epoch"]))
    return new_record("emulator", **figures)


def markdown(record):
    """Return a record as the two tables of ``docs/emulated-gpu.md``.

    Parameters
    ----------
    record : dict
        As `bench_emulator` returns it, with the epoch.

    Returns
    -------
    str
    """
    compilation, epoch = record["compilation"], record["epoch"]
    first, later = compilation["first"], compilation["later"]
    lines = [
        f"{record['machine']['processor']}, {record['machine']['threads']} threads, {record['date']}:",
        "",
        "| nanoseconds of processor time a thread | emulated GPU | our simulator | Numba's simulator |",
        "|---|--:|--:|--:|",
    ]
    for each in record["threads"]:
        times = (f"{each['medians'][who]:,.{digits}f}" for who, digits in _WHO.items())
        lines.append(f"| {each['kernel']} | {' | '.join(times)} |")
    lines += ["", "| | |", "|---|--:|"]
    lines += [f"| {each['measure']} | {each['median']:.2f} {each['unit']} |" for each in record["work"]]
    ratio, each = first["own"] / first["numba"], (later["numba"] + later["own"]) / later["kernels"]
    lines += [
        f"| compiling, beside Numba's own part | {ratio:.2f} times as long |",
        f"| a kernel from disk, with Numba's part | {1e3 * each:.0f} ms |",
        f"| an epoch of `mnist_cnn`, batch 64, by the clock | {epoch['wall']:.0f} s |",
    ]
    return "\n".join(lines)


_WHO = {"emulated": 2, "simulated": 0, "numba": 0}


def _beside_the_simulators(rounds):
    """Return for each kind of kernel the nanoseconds per thread in every turn, and the medians."""
    samples = {"emulated": [], "simulated": [], "numba": []}
    for _ in range(rounds):
        samples["emulated"].append(_run(f"simulator_kernels.measure(blocks={_BLOCKS})"))
        samples["simulated"].append(_run("simulator_kernels.measure()", GPULESS="simulator"))
        samples["numba"].append(answer_of([str(SCRIPT)], NUMBA_ENABLE_CUDASIM="1"))
    results = []
    for kind in samples["numba"][0]:
        if kind == "first launch":
            continue
        found = {
            who: [1e3 * statistics.median(turn[kind]) for turn in turns] for who, turns in samples.items()
        }
        medians = {who: statistics.median(times) for who, times in found.items()}
        results.append({"kernel": kind, "samples": found, "medians": medians})
        text = "{emulated:6.2f} ns per thread; in our simulator {simulated:8.0f}, in Numba's {numba:10.0f}"
        print(f"{kind:13} {text.format(**medians)}", flush=True)
    return results


def _work():
    results = []
    for name, (samples, unit) in _run("emulator_kernels.measure()").items():
        results.append(
            {"measure": name, "unit": unit, "samples": samples, "median": statistics.median(samples)}
        )
        print(f"{name:22} {results[-1]['median']:6.2f} {unit}", flush=True)
    return results


def _compilation():
    """Return the times of compiling kernels: with an empty cache, and in a later process."""
    with tempfile.TemporaryDirectory() as folder:
        first, later = (_run("emulator_kernels.compilation()", GPULESS_CACHE=folder) for _ in range(2))
    each = [1e3 * later[who] / later["kernels"] for who in ("numba", "own")]
    print(
        f"compiling {first['kernels']} kernels: Numba {first['numba']:.1f} s, the emulated GPU "
        f"{first['own']:.1f} s; from disk {each[0]:.0f} and {each[1]:.0f} ms per kernel"
    )
    return {"first": first, "later": later}


def _run(measured, **variables):
    """Run a function of `benchmarks` in a separate process; return its result."""
    code = f"import json; import gpuless; gpuless.select(); from benchmarks import {measured.split('.')[0]}"
    changes = {"GPULESS": "emulator", "NUMBA_ENABLE_CUDASIM": "0"} | variables
    return answer_of(["-c", f"{code}; print(json.dumps({measured}))"], **changes)
