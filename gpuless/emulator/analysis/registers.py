"""An estimate of the registers that a kernel needs on a GPU, for programs that ask the driver."""

from collections import Counter
from itertools import accumulate

from gpuless.emulator.ptx.instructions import destinations, sources

#: Registers that machine code needs in addition, for addresses and the like; the maximum.
_EXTRA, _MOST = 8, 255


def estimate(function):
    """Return the largest number of 32-bit registers that are in use at once, plus a few.

    A register counts from its first mention to its last. NVIDIA's compiler reorders instructions, and may
    need more or fewer.
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
        words = -(-width // 32) if width > 1 else 0  # predicates have separate registers
        change[first[name]] += words
        change[last[name] + 1] -= words
    most = max(accumulate(change[at] for at in sorted(change)), default=0)
    return min(most + _EXTRA, function.limits.get("maxnreg", (_MOST,))[0])
