"""How many registers a kernel would take on a GPU: an estimate, for programs that ask the driver."""

from collections import Counter
from itertools import accumulate

from gpuless.emulator.ptx.instructions import destinations, sources

#: What machine code needs besides, for addresses and the like; and the most there can be.
_EXTRA, _MOST = 8, 255


def estimate(function):
    """Return how many registers of 32 bits are in use at once, at most, and a few.

    A register counts from where it is first named to where it is last. NVIDIA's compiler orders instructions
    anew, and may need more or fewer.
    """
    first, last = {}, {}
    for at, item in enumerate(function.body):
        if not isinstance(item, str):
            for name in (*destinations(item), *sources(item)):
                first.setdefault(name, at)
                last[name] = at
    change = Counter()
    for name in first.keys() & function.registers.keys():
        width = function.registers[name]
        words = -(-width // 32) if width > 1 else 0  # predicates have registers of their own
        change[first[name]] += words
        change[last[name] + 1] -= words
    most = max(accumulate(change[at] for at in sorted(change)), default=0)
    return min(most + _EXTRA, function.limits.get("maxnreg", (_MOST,))[0])
