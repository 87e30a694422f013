from numba import cuda, float32

from cnn_course.chapters.the_machine.exercises import THREADS
from wrong_answers import derive, wrong

# --- warps_needed ---

_WARP = "(32 * bytes_a_thread)"

warps_needed = derive(
    "warps_needed",
    rounds_down=("rounded down", ("math.ceil(", "int(")),
    adds_one_to_what_it_rounds_down=("one too many", ("math.ceil(", "1 + int(")),
    forgets_the_multiprocessors=("whole GPU", (" / sms", "")),
    counts_threads=("threads", (_WARP, "bytes_a_thread")),
    counts_bytes=("bytes, not warps", (f" / {_WARP}", "")),
    counts_bytes_of_the_gpu=("bytes, not warps", (f" / {_WARP}", ""), (" / sms", "")),
    takes_four_bytes=("always as many bytes", (_WARP, "128")),
    takes_one_byte=("always as many bytes", (_WARP, "32")),
    counts_whole_warps_of_threads=("threads", ("return math", "return 32 * math")),
    takes_cycles_for_time=("cycles for nanoseconds", ("latency / clock", "latency")),
    multiplies_by_the_clock=("clock upside down", ("latency / clock", "latency * clock")),
    forgets_the_latency=("latency left out", ("latency / clock", "1 / clock")),
    returns_a_fraction=("type", ("math.ceil(", "float(")),
    returns_a_constant=("numbers", ("return math.ceil(in_flight / (32 * bytes_a_thread))", "return 12")),
)

# --- warp_sums_kernel ---

warp_sums_kernel = derive(
    "warp_sums_kernel",
    syncs_before_the_loop_only=(
        "missing barrier",
        (
            "for step in (16, 8, 4, 2, 1):\n    cuda.syncwarp()",
            "cuda.syncwarp()\nfor step in (16, 8, 4, 2, 1):",
        ),
    ),
    syncs_after_each_step=(
        "missing barrier",
        ("cuda.syncwarp()\nif", "if"),
        ("    line[t] += line[t + step]", "    line[t] += line[t + step]\ncuda.syncwarp()"),
    ),
    syncs_inside_the_branch=(
        "divergent warp",
        ("cuda.syncwarp()\n", ""),
        ("    line[t] += line[t + step]", "    cuda.syncwarp()\n    line[t] += line[t + step]"),
    ),
    syncs_the_block=("waits for the block", ("cuda.syncwarp()", "cuda.syncthreads()")),
    names_the_barrier=("not called", ("cuda.syncwarp()", "cuda.syncwarp")),
    starts_at_8=("first half only", ("(16, 8, 4, 2, 1)", "(8, 4, 2, 1)")),
    ends_at_2=("last step missing", ("(16, 8, 4, 2, 1)", "(16, 8, 4, 2)")),
    takes_the_first=("first element only", ("(16, 8, 4, 2, 1)", "(32,)"), ("t % 32 < step", "t % 32 < 0")),
    divides=("mean", ("out[i // 32] = line[t]", "out[i // 32] = line[t] / float32(32)")),
    lets_every_lane_write=("write-write race", ("if t % 32 == 0:", "if t % 32 < 2:")),
    writes_where_it_stands=("writes past the edge", ("out[i // 32]", "out[i]")),
    adds_in_float64=("float64", ("out[i // 32] = line[t]", "out[i // 32] = 0.1 * line[t] * 10")),
)


@wrong("warp_sums_kernel", "numbers")
@cuda.jit
def shuffles_nothing(x, out):
    line = cuda.shared.array(THREADS, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    line[t] = x[i]
    cuda.syncwarp()
    if t % 32 == 0:
        out[i // 32] = line[t] + line[t + 1]
