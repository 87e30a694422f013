"""The sentences of the errors that end a launch in the simulator, made from their fields."""

from gpuless.limits import WARP
from gpuless.positions import describe_lanes, describe_position
from gpuless.simulator.foreign import is_about_indices, is_about_integers


def place(where):
    """Return a `Place` as two lines: source and thread."""
    site, line = where.site, ""
    if site:
        inside = "" if site.function == where.kernel else f", device function {site.function}"
        line = f"{inside}, line {site.line}{site.text and ': ' + site.text}"
    thread = f"{where.launch.block_called(where.block)}, {where.launch.thread_called(where.thread)}"
    return f"in kernel {where.kernel}{line}", thread


def unsupported(error):
    """Return the message of an `UnsupportedPython`."""
    sentence = f"{error.code} {error.reason}" if error.code else error.reason
    if error.where is None:
        return sentence
    refused = "the compiler refuses this: " if error.of_compiler else ""
    return f"{error.where}: {refused}{sentence}\n    {error.where.source}"


def explained(error):
    """Return an exception's message, with what to do if a float is used as an integer."""
    message = str(error)
    if is_about_indices(message):
        message = "an index must be an integer"
    elif not is_about_integers(message):
        return message
    return f"{message}; if it comes from `/`, which gives a float, use `//`"


def divergence(found, sites=True):
    """Return which thread of a `Divergence` waits where, and for which; without `sites`, omit lines."""
    thread, other = (f"thread {describe_position(each, found.launch.block)}" for each in found.threads)
    here = f" ({found.sites[0]})" if sites else ""
    if found.operation:
        return _in_warp(found, thread, here, str(found.sites[1]) if sites else "")
    rule = "every thread of a block must reach the same barriers"
    if found.rounds:
        name, mine, theirs = found.rounds
        return (
            f"{thread} waits at a barrier{here} in the round {name} = {mine} of a loop, and {other} in the "
            f"round {name} = {theirs}: {rule} in the same rounds"
        )
    elsewhere = f"waits at {found.sites[1] if sites else 'another'}"
    instead = elsewhere if found.sites[1] else "has finished"
    return f"{thread} waits at a barrier{here} and {other} {instead}: {rule}"


def _in_warp(found, thread, here, there):
    warp, lane = divmod(found.threads[0], WARP)
    who = f"{thread} (lane {lane} of warp {warp})"
    mask = f"{found.operation}{here} with mask {found.mask:#x}"
    if not found.lanes:
        return f"{who} calls {mask}, which does not name it"
    instead = f"waits at {there}" if there else "waits elsewhere"
    theirs = "" if found.other_mask is None else f" with mask {found.other_mask:#x}"
    missing = f"{describe_lanes(found.lanes)}, and lane {found.threads[1] % WARP}"
    return f"{who} waits at {mask}, which names {missing} {instead}{theirs}"
