"""The layout of the emulated GPU's addresses, and of the records of a block and of a launch."""

#: The arena, all memory of the emulated GPU, has this many bytes and begins at a multiple of it.
ARENA_SPAN = 1 << 40
#: Protected addresses before and after it: to an address in it lanes may add a signed or unsigned 32-bit
#: number, times 8 at most.
ARENA_BEFORE, ARENA_BEHIND = 1 << 34, (1 << 35) + (1 << 30)
#: The addresses to reserve from the operating system, so that the arena fits wherever they begin.
ARENA_TAKEN = 2 * ARENA_SPAN + ARENA_BEFORE + ARENA_BEHIND
#: Addresses for a block's shared memory, more than any GPU has; only those that it needs are accessible.
SHARED_SPAN = 1 << 18
#: Shared and local memory are at the beginning of the arena, below this; `isspacep` relies on it.
PRIVATE_SPAN = 1 << 39
#: Protected addresses before them, so that small numbers are no valid addresses, and after them.
PRIVATE_MARGIN = 1 << 30
#: Protected addresses between parts of them: lanes that are off may be some distance away.
PRIVATE_GAP = 32 << 20
#: Memory that nobody has written holds this: NaN for floats of every width, a huge number for integers.
POISON = 0x7FFF7FFF
MAX_WARPS = 32
BARRIERS = 17  # those of a block, and that of its cluster

#: The fields of the record of a block, with their widths in bytes.
_FIELDS = (
    ("params", 8),
    ("arena", 8),
    ("shared", 8),
    ("shared.room", 8),  # accessible bytes there
    ("local", 8),
    ("globals", 8),
    ("local.size", 8),  # of a warp
    *((f"{name}.{axis}", 4) for name in ("ctaid", "nctaid") for axis in "xyz"),
    ("dynamic_smem_size", 4),
    ("smid", 4),
    ("workspace", 8),
    ("stack.area", 8),  # the address of the warps' stacks
    ("scheduler", 8),  # the stack pointer of the thread that runs the warps
    ("host", 8),  # the host's function that serves requests
    ("thread", 8),  # the thread that runs a kernel with this record, 0 if none does
    ("launch", 8),  # the address of its launch
    ("fault", 8),  # the address of a failed access
    ("ended", 8),  # blocks of the launch that this worker has completed
    ("warp", 4),  # the running warp
    ("misaligned", 4),  # whether an address was misaligned
    ("jump", 512),  # where to jump after a fault: a ``sigjmp_buf``
    ("alive", 4),  # warps that have not ended
    ("progress", 4),  # incremented by anything that a warp may wait for
    ("stacks", 8 * MAX_WARPS),  # the stack pointers of warps that wait
    ("arrived", 4 * BARRIERS),  # threads at each barrier
    ("generation", 4 * BARRIERS),  # how often each has been passed
    ("tally", 4 * BARRIERS),  # the running sums of `bar.red`
    ("outcome", 4 * BARRIERS),  # their results
    # Only for tracing code:
    ("at", 4 * MAX_WARPS),  # the number of the instruction that each warp has reached
    ("mask", 4 * MAX_WARPS),  # the lanes that are on
    ("addresses", 8 * 32),  # the addresses that they are about to access
    ("counts", 8),  # only for counting code: the address of the thread's counters
)
#: The fields of a launch, which all workers share.
_LAUNCH_FIELDS = (
    ("params", 8),
    ("globals", 8),
    *((f"nctaid.{axis}", 4) for axis in "xyz"),
    ("dynamic_smem_size", 4),
    ("blocks", 8),
    ("chunk", 8),  # blocks that a worker takes at once
    ("next", 8),  # the first block that no worker has taken
    ("workspace", 8),  # the address of a cooperative launch's workspace, 0 in other launches
    ("stop", 4),  # whether workers must take no more blocks
)


def _offsets(fields):
    places, at = {}, 0
    for name, size in fields:
        at = -(-at // size) * size if size <= 8 else at
        places[name] = at
        at += size
    return places, -(-at // 64) * 64


def named(places, prefix):
    """Return the offsets of fields under names for a format template."""
    return {f"{prefix}_{name.replace('.', '_')}": at for name, at in places.items()}


OFFSET, BLOCK_SIZE = _offsets(_FIELDS)
LAUNCH, LAUNCH_SIZE = _offsets(_LAUNCH_FIELDS)
#: Bytes of a warp's stack.
STACK = 1 << 18
#: Addresses for a block's local memory: 512 KB for each of 1024 threads, and some for calls.
LOCAL_SPAN = 544 << 20
#: After a worker's shared memory come the stacks of its warps, its local memory, and the next worker.
STACKS_AT = SHARED_SPAN + PRIVATE_GAP
LOCAL_AT = STACKS_AT + STACK * MAX_WARPS + PRIVATE_GAP
WORKER_SPAN = LOCAL_AT + LOCAL_SPAN + PRIVATE_GAP
#: The maximum number of workers.
WORKERS = (PRIVATE_SPAN - PRIVATE_MARGIN) // WORKER_SPAN
