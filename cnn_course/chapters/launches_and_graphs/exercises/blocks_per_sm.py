"""How many blocks of a kernel a multiprocessor holds."""

from functools import partial

from cnn_course.engine.checks.exercise import Exercise
from gpuless.inspector import occupancy

CC = (9, 0)


def _up(number, unit):
    return -(-number // unit) * unit


def _down(number, unit):
    return number // unit * unit


def _blocks(
    threads, registers, shared, *, fill=_up, round_registers=_up, reserved=1024, leave_out=(), choose=min
):
    """Work out the blocks of an SM as the notebook's text does; every keyword is a way to go wrong."""
    warps = fill(threads, 32) // 32
    registers = round_registers(registers, 8)
    limits = {
        "warps": 64 // warps,
        "blocks": 32,
        "registers": 65536 // (32 * warps * registers),
        "shared": 228 * 1024 // max(shared + reserved, 1),
    }
    return choose(value for name, value in limits.items() if name not in leave_out)


_SETTINGS = [
    *((256, 64, 0), (256, 40, 8192), (128, 32, 16384), (32, 24, 0), (1024, 72, 0), (512, 32, 1024)),
    *((128, 128, 49152), (250, 100, 4096), (100, 37, 0), (64, 16, 2048), (384, 49, 0), (128, 40, 12800)),
    *((128, 79, 0), (256, 33, 0), (128, 255, 0), (256, 16, 31744), (100, 16, 10240)),
]


blocks_per_sm = Exercise(
    "blocks_per_sm",
    reference=lambda threads, registers, shared: occupancy(CC, threads, registers, shared).blocks,
    cases=lambda rng: _SETTINGS,
    rtol=1e-12,
    mistakes={
        "largest limit": (
            "You take the largest limit. A block needs all resources at once: the smallest one decides.",
            partial(_blocks, choose=max),
            ("return min(", "return max("),
        ),
        "registers left out": (
            "You leave the registers out: an SM has 65536, and all warps of a block take some.",
            partial(_blocks, leave_out=("registers",)),
            ("32, by_registers, by_shared", "32, by_shared"),
        ),
        "shared memory left out": (
            "You leave the shared memory out: an SM has 228 KB for all of its blocks.",
            partial(_blocks, leave_out=("shared",)),
            ("by_registers, by_shared", "by_registers"),
        ),
        "warps left out": (
            "You leave the warps out: an SM has places for 64, however little else they need.",
            partial(_blocks, leave_out=("warps",)),
            ("min(64 // warps, 32,", "min(32,"),
        ),
        "blocks left out": (
            "You leave out that an SM takes 32 blocks at most. Small blocks run into that first.",
            partial(_blocks, leave_out=("blocks",)),
            ("64 // warps, 32,", "64 // warps,"),
        ),
        "registers not rounded": (
            "Round the registers of a thread up: the GPU gives them out in eights, so 33 cost 40.",
            partial(_blocks, round_registers=lambda registers, unit: registers),
            ("registers = -(-registers // 8) * 8", ""),
        ),
        "registers rounded down": (
            "You round the registers down. A thread that needs 33 gets 40, not 32.",
            partial(_blocks, round_registers=_down),
            ("-(-registers // 8) * 8", "registers // 8 * 8"),
        ),
        "warps rounded down": (
            "You round the warps of a block down. 100 threads take four: the last 4 threads need one, too.",
            partial(_blocks, fill=_down),
            ("-(-threads // 32)", "threads // 32"),
        ),
        "reserve forgotten": (
            "You forget the 1024 bytes of shared memory that the system takes for each block.",
            partial(_blocks, reserved=0),
            ("228 * 1024 // (shared + 1024)", "228 * 1024 // shared if shared else 32"),
        ),
        "threads not in warps": (
            "Count warps, not threads: a block of 100 threads has 4 warps, and takes as much as 128 threads.",
            lambda threads, registers, shared: min(
                2048 // threads,
                32,
                65536 // (-(-registers // 8) * 8 * threads),
                228 * 1024 // (shared + 1024),
            ),
            [("64 // warps", "2048 // threads"), ("registers * 32 * warps", "registers * threads")],
        ),
        "warps returned": (
            "You return warps. Return blocks.",
            lambda threads, registers, shared: (
                occupancy(CC, threads, registers, shared).blocks * -(-threads // 32)
            ),
            ("return min(", "return warps * min("),
        ),
        "fraction returned": (
            "You return the occupancy. Return the number of blocks.",
            lambda threads, registers, shared: occupancy(CC, threads, registers, shared).fraction,
            (
                "min(64 // warps, 32, by_registers, by_shared)",
                "warps * min(64 // warps, 32, by_registers, by_shared) / 64",
            ),
        ),
    },
)
