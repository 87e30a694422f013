"""Where things lie: the arena, and the record that a running block hands to its warps."""

#: All memory of the emulated GPU lies between two multiples of this; the first also is one.
ARENA_SPAN = 1 << 40
#: Nothing can be used this far before it and after it: to an address in it lanes add 32-bit numbers, times 8
#: at most, with a sign or without.
ARENA_BEFORE, ARENA_BEHIND = 1 << 34, (1 << 35) + (1 << 30)
#: The addresses that are taken from the operating system, wherever they begin.
ARENA_TAKEN = 2 * ARENA_SPAN + ARENA_BEFORE + ARENA_BEHIND
#: Addresses of a block's shared memory, more than any GPU has; those that it has not asked for are of no use.
SHARED_SPAN = 1 << 18
#: At the beginning of the arena lie shared and local memory; isspacep uses this to find out what is global.
PRIVATE_SPAN = 1 << 39
#: Where that begins, so that what is next to address 0 is of no use, and what lies between it and the others.
PRIVATE_MARGIN = 1 << 30
#: What lies between parts of it: lanes may be some way apart.
PRIVATE_GAP = 32 << 20
#: What nobody has written holds this: NaN for floats of every width, near the largest number for integers.
POISON = 0x7FFF7FFF
MAX_WARPS = 32
BARRIERS = 17  # those of a block, and that of its cluster

#: The fields of the record of a block, with their widths in bytes.
_FIELDS = (
    ("params", 8),
    ("arena", 8),
    ("shared", 8),
    ("shared.room", 8),  # bytes there that can be used
    ("local", 8),
    ("globals", 8),
    ("local.size", 8),  # of a warp
    *((f"{name}.{axis}", 4) for name in ("ctaid", "nctaid") for axis in "xyz"),
    ("dynamic_smem_size", 4),
    ("smid", 4),
    ("workspace", 8),
    ("stack.area", 8),  # where the stacks of the warps are
    ("scheduler", 8),  # the stack pointer of the thread that runs the warps
    ("host", 8),  # a function of the host's, for what cannot be done here
    ("thread", 8),  # which thread runs a kernel with it, 0 if none does
    ("launch", 8),  # which launch's
    ("fault", 8),  # the address that could not be used
    ("ended", 8),  # blocks of the launch that have been run with it to their end
    ("warp", 4),  # the one that is running
    ("misaligned", 4),  # whether an address was not a multiple of what was accessed there
    ("jump", 512),  # where a fault is left for: a ``sigjmp_buf``
    ("alive", 4),  # warps that have not come to their end
    ("progress", 4),  # grows with whatever a warp has waited for
    ("stacks", 8 * MAX_WARPS),  # the stack pointers of warps that wait
    ("arrived", 4 * BARRIERS),  # threads at each barrier
    ("generation", 4 * BARRIERS),  # how often each has been passed
    ("tally", 4 * BARRIERS),  # what `bar.red` adds up
    ("outcome", 4 * BARRIERS),
    # Only where a block is run once more to see what it does:
    ("at", 4 * MAX_WARPS),  # the number of the instruction that a warp has come to
    ("mask", 4 * MAX_WARPS),  # the lanes that are there
    ("addresses", 8 * 32),  # what they are about to access
    ("counts", 8),  # only where the work of warps is counted: the numbers of the thread that runs the block
)
#: The fields of a launch, which all workers share.
_LAUNCH_FIELDS = (
    ("params", 8),
    ("globals", 8),
    *((f"nctaid.{axis}", 4) for axis in "xyz"),
    ("dynamic_smem_size", 4),
    ("blocks", 8),
    ("chunk", 8),  # blocks that a worker takes at once
    ("next", 8),  # the first that nobody has taken
    ("workspace", 8),  # where blocks of a cooperative launch count who has come to a barrier; 0 in others
    ("stop", 4),
)


def _offsets(fields):
    places, at = {}, 0
    for name, size in fields:
        at = -(-at // min(size, 8)) * min(size, 8) if size < 8 or size == 8 else at
        places[name] = at
        at += size
    return places, -(-at // 64) * 64


def named(places, prefix):
    """Return the places of fields by names that a template can have."""
    return {f"{prefix}_{name.replace('.', '_')}": at for name, at in places.items()}


OFFSET, BLOCK_SIZE = _offsets(_FIELDS)
LAUNCH, LAUNCH_SIZE = _offsets(_LAUNCH_FIELDS)
#: Bytes of a warp's stack.
STACK = 1 << 18
#: Bytes that a block's local memory can have: 512 KB for each of 1024 threads, and some for calls.
LOCAL_SPAN = 544 << 20
#: Behind the shared memory of a worker lie the stacks of its warps, its local memory, and the next worker's.
STACKS_AT = SHARED_SPAN + PRIVATE_GAP
LOCAL_AT = STACKS_AT + STACK * MAX_WARPS + PRIVATE_GAP
WORKER_SPAN = LOCAL_AT + LOCAL_SPAN + PRIVATE_GAP
#: How many workers there can be.
WORKERS = (PRIVATE_SPAN - PRIVATE_MARGIN) // WORKER_SPAN
