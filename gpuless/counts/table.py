"""The table that shows `Counts`."""

from gpuless.limits import SECTOR
from gpuless.positions import describe_launch
from gpuless.wrapping import aligned


def table(counts):
    """Return `Counts` as a table."""
    launch = describe_launch(counts.kernel, counts.grid, counts.block)
    lines = [f"{launch}: {counts.warps:,} warps in {counts.blocks:,} blocks"]
    classes = {name: each for name, each in counts.by_class.items() if each.warp}
    rows = [(name, f"{each.warp:,}", f"{each.thread:,}") for name, each in classes.items()]
    rows.append(("all", f"{counts.warp_instructions:,}", f"{counts.thread_instructions:,}"))
    lines += ["", *aligned([("instructions", "of warps", "of threads"), *rows])]
    lines += _global_lines(counts) + _shared_lines(counts) + _local_lines(counts)
    lines += ["", *aligned(_other_rows(counts))]
    return "\n".join(lines)


def _global_lines(counts):
    rows = []
    for name, array in counts.by_array.items():
        for what, each in zip(("loads", "stores", "atomics"), array[:3], strict=True):
            least = {"loads": array.sectors_read, "stores": array.sectors_written}.get(what, 0)
            rows += [_global_row(f"{name} {what}".strip(), each, SECTOR * least)] if each.requests else []
    if not rows:
        return []
    head = ("global memory", "requests", "bytes asked", "sectors", "per request", "bytes moved", "least")
    return ["", *aligned([head, *rows, _global_row("all", counts.global_memory, counts.least_bytes)])]


def _global_row(name, traffic, least):
    moved = f"{traffic.sectors:,}", f"{traffic.sectors_per_request:.2f}", f"{traffic.bytes_moved:,}"
    return *_asked(name, traffic), *moved, f"{least:,}" if least else ""


def _asked(name, traffic):
    return name, f"{traffic.requests:,}", f"{traffic.bytes_asked:,}"


def _shared_lines(counts):
    parts = {"loads": counts.shared_loads, "stores": counts.shared_stores, "atomics": counts.shared_atomics}
    rows = []
    for name, each in parts.items():
        served = f"{each.wavefronts:,}", f"{each.wavefronts_per_request:.2f}", f"{each.conflicts:,}"
        rows += [(*_asked(name, each), *served)] if each.requests else []
    head = ("shared memory", "requests", "bytes asked", "wavefronts", "per request", "conflicts")
    return ["", *aligned([head, *rows])] if rows else []


def _local_lines(counts):
    parts = {"loads": counts.local_loads, "stores": counts.local_stores}
    rows = [_asked(name, each) for name, each in parts.items() if each.requests]
    return ["", *aligned([("local memory", "requests", "bytes asked"), *rows])] if rows else []


def _other_rows(counts):
    rows = []
    if counts.flops:
        types = " and ".join(counts.flops_by_type)
        rows.append((f"floating point operations ({types})", f"{counts.flops:,}"))
    if counts.flops and counts.bytes_moved:
        rows.append(("of these for each byte moved", f"{counts.flops_per_byte:.2f}"))
    rows.append(("active lanes of an instruction", f"{counts.lanes:.2f}"))
    rows.append(("branches, divergent ones", f"{counts.branches:,}, {counts.divergent_branches:,}"))
    if counts.barriers:
        rows.append(("barriers of warps, of blocks", f"{counts.barriers:,}, {counts.block_barriers:,}"))
    if counts.shuffles:
        rows.append(("shuffles", f"{counts.shuffles:,}"))
    rows += [(f"{name}: memory not counted", f"{number:,}") for name, number in counts.uncounted.items()]
    return rows
