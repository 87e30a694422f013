"""A tree of sums in OpenCL C."""

import contextlib
import functools
import os
import re

import numpy as np

from cnn_course.chapters.other_roads.exercises.common import (
    RoadExercise,
    compiled,
    does_not_compile,
    insist_on_parameters,
    insist_on_text,
    launched,
    without_comments,
)
from cnn_course.chapters.other_roads.roads import missing, source, watched
from cnn_course.chapters.other_roads.roads.opencl import OpenCL
from cnn_course.engine.checks.exercise import Wrong
from cnn_course.engine.checks.kernels import normal
from cnn_numba import device

GROUP, ROUNDS = 64, 6

# Besides the twelve lines that the notebook shows: types of OpenCL C, and version 2.0's name of a barrier.
_TYPES = """
typedef unsigned char uchar; typedef unsigned short ushort; typedef unsigned int uint;
typedef unsigned long ulong;
#define work_group_barrier barrier
"""
_INSTEAD_OF = {
    "__shared__": "`__local`",
    "__global__": "`__kernel`",
    "threadIdx": "`get_local_id`",
    "blockIdx": "`get_group_id`",
    "blockDim": "`get_local_size`",
    "gridDim": "`get_num_groups`",
    "__syncthreads": "`barrier(CLK_LOCAL_MEM_FENCE)`",
    "__device__": "no word at all",
}


def _block_sums(x, tree=lambda part: part.sum(), tail=0.0):
    groups = -(-x.size // GROUP)
    full = np.full(groups * GROUP, tail)
    full[: x.size] = x
    return np.array([tree(part) for part in full.reshape(groups, GROUP)])


def _run_block_sums(attempt, x):
    """Compile and run the kernel as CUDA C++, which reports faults safely, then in OpenCL."""
    text = attempt()
    insist_on_text(text, "block_sums")
    # OpenCL C has these words without underscores, too.
    code = re.sub(r"\b(kernel|global|local)\b", r"__\1", without_comments(text))
    _insist_on_words(code)
    insist_on_parameters(code, "block_sums", "*x", "*out", "n")
    code = _TYPES + code
    if not device.simulated():
        _refuse_what_is_seen(code)
    if not re.search(r"\b(for|while|do)\b.*barrier|barrier.*barrier.*barrier", code, re.DOTALL):
        raise _no_barrier("Between two rounds of the tree there is no `barrier`")
    groups, result = -(-x.size // GROUP), None
    if not device.simulated():
        road = compiled(source("opencl_words.h") + code, as_opencl=True)
        result = launched(road, "block_sums", groups, GROUP, x, groups, x.size)
    if result is None or (not missing("OpenCL") and np.allclose(result, _block_sums(x), atol=1e-4)):
        result = launched(_built(text), "block_sums", (groups * GROUP,), (GROUP,), x, groups, x.size)
    return result


def _insist_on_words(code):
    for word, instead in _INSTEAD_OF.items():
        if re.search(rf"\b{word}\b", code):
            raise Wrong("a word of CUDA", f"`{word}` is CUDA's word: in OpenCL it is {instead}.")
    for parameter in re.search(r"\bblock_sums\s*\(([^)]*)", code)[1].split(","):
        if "*" in parameter and "__global" not in parameter:
            raise Wrong(
                "no global memory",
                f"`{parameter.strip()}` does not say which memory it points to. The caller's arrays lie in "
                "global memory: write `__global`.",
            )
    if re.search(r"\bint\b[^;()]*\bhalf\b", code):
        raise Wrong("half", "`half` is the name of a type in OpenCL. Give the variable another name.")
    if "__local" not in code:
        raise Wrong("no local memory", "The tree must be in local memory: `__local float partial[64];`.")
    if re.search(r"\bif\s*\([^;{}]*\)\s*(\{[^{}]*)?barrier", code):
        raise Wrong(
            "divergent barrier",
            "A `barrier` is inside an `if`, and some work-items never reach it. This device does not wait "
            "for them, but others may. Put the `barrier` after the `if`.",
        )
    if any("CLK_LOCAL_MEM_FENCE" not in fence for fence in re.findall(r"barrier\s*\(([^)]*)\)", code)):
        raise Wrong(
            "another fence",
            "A `barrier` must make local memory visible to the others: `barrier(CLK_LOCAL_MEM_FENCE)`.",
        )


def _no_barrier(where):
    return Wrong(
        "missing barrier",
        f"{where}: a work-item adds a number that another may not have written yet. Some devices show the "
        "error, others do not.",
    )


@functools.lru_cache(maxsize=4)
def _watched(code):
    # Of 64 work-items, 40 have a number.
    return watched.watch(code, "block_sums", np.ones(16 * GROUP, np.float32), 40)


def _refuse_what_is_seen(code):
    """Raise `Wrong` if work-items use the local array in a wrong way, even if the sums are right."""
    seen = _watched(code)
    if seen is None:
        return
    for touch in seen.touches:
        if touch.how == watched.OUTSIDE:
            raise Wrong(
                "past the local array",
                f"Work-item {touch.item} touches `{seen.array}[{touch.place}]`, but the array has "
                f"{seen.size} places.",
            )
    if len(set(seen.barriers)) > 1:
        raise Wrong(
            "leaves early",
            "Work-items without a number return before a `barrier`, and put no 0 into the tile. All "
            "work-items of a group must reach each barrier: use the `if` only to choose the number.",
        )
    if found := watched.race(seen):
        writes, touches = found
        what = "writes it, too" if touches.how == watched.WRITTEN else "reads it"
        where = (
            f"Work-item {writes.item} writes `{seen.array}[{writes.place}]`, work-item {touches.item} "
            f"{what}, and there is no `barrier` in between"
        )
        if max(seen.barriers) < ROUNDS + 1:
            raise _no_barrier(where)
        raise Wrong(
            "race", f"{where}. In a round, only the items below `step` may add: the others are only read."
        )
    if sum(touch.item == 0 and touch.how == watched.READ for touch in seen.touches) > GROUP // 2:
        raise Wrong(
            "one item adds", "One work-item adds up all numbers, and 63 wait. A tree takes six rounds."
        )


@functools.lru_cache(maxsize=4)
def _built(text):
    try:
        with _quiet():
            return OpenCL(text)
    except Exception as error:
        raise does_not_compile("OpenCL's compiler", error) from None


@contextlib.contextmanager
def _quiet():
    """Suppress what a C library writes to standard error, such as "3 errors generated"."""
    kept = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


block_sums_source = RoadExercise(
    "block_sums_source",
    reference=_block_sums,
    cases=lambda rng: [(normal(rng, size) + np.float32(1),) for size in (64, 5, 200, 321, 1000)],
    run=_run_block_sums,
    rtol=1e-5,
    languages=("CUDA C++", "OpenCL"),
    mistakes={
        "no guard": (
            "The last group reads past the end of `{x}`: work-items from `n` on must put a 0 into the tile.",
            lambda x: np.where(np.arange(-(-x.size // GROUP)) < x.size // GROUP, _block_sums(x), np.nan),
            ("i < n ? x[i] : 0.0f", "x[i]"),
        ),
        "first group only": (
            "Every group sums up the first group's numbers: use `get_global_id`, not `get_local_id`.",
            lambda x: np.full(-(-x.size // GROUP), _block_sums(x[:GROUP])[0]),
            ("i = get_global_id(0)", "i = get_local_id(0)"),
        ),
        "no tree": (
            "You write the group's first number: nothing has been added to it.",
            lambda x: _block_sums(x, lambda part: part[0]),
            ("if (t < step) partial[t] += partial[t + step];", ""),
        ),
        "one round too few": (
            "The last round is missing: it adds place 1 to place 0.",
            lambda x: _block_sums(x, lambda part: part[::2].sum()),
            ("step > 0", "step > 1"),
        ),
        "one round too many": (
            "Half of the numbers are not in the sum: the first round adds the upper 32 to the lower 32.",
            lambda x: _block_sums(x, lambda part: part[:32].sum()),
            ("int step = 32", "int step = 16"),
        ),
        "whole numbers": (
            "Your local array holds integers: `int` cuts off the fraction. It must be `__local float`.",
            lambda x: _block_sums(np.trunc(x)),
            ("__local float", "__local int"),
        ),
        "not written": (
            "Nothing is written to `out[get_group_id(0)]`.",
            lambda x: np.full(-(-x.size // GROUP), np.nan),
            ("if (t == 0) out[get_group_id(0)] = partial[0];", ""),
        ),
    },
)
