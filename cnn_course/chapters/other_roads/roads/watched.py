"""Watches a kernel in OpenCL C: which places of its local array each work-item accesses, and when.

The kernel is compiled as CUDA C++ with watched.h in front, whose array records its accesses.
"""

import re
from typing import NamedTuple

import numpy as np

from cnn_course.chapters.other_roads.roads import source
from cnn_course.chapters.other_roads.roads.cuda_cpp import CudaCpp

ITEMS, NOTES = 64, 512
READ, WRITTEN, OUTSIDE = range(3)
_ARRAY = re.compile(r"__local\s+float\s+(\w+)\s*\[([^\]]+)\]\s*;")


class Touch(NamedTuple):
    """One work-item reads or writes one place."""

    barriers: int
    """How many barriers it has passed."""
    place: int
    how: int
    """`READ`, `WRITTEN` or `OUTSIDE`."""
    item: int


class Watched(NamedTuple):
    """What one group of 64 work-items did."""

    array: str
    """Its name, as in the kernel."""
    size: str
    """How many places it has, as in the kernel."""
    barriers: list
    """How many each work-item passed."""
    touches: list


def watch(text: str, name: str, x: np.ndarray, n: int) -> Watched | None:
    """Run one group of a kernel of `x`, `out` and `n`.

    Parameters
    ----------
    text : str
        In OpenCL C, with one array of float in local memory.
    name : str
    x : ndarray
    n : int
        Given to the kernel as the size of `x`.

    Returns
    -------
    Watched or None
        None if watched.h does not support the use of the array, or if the launch fails.
    """
    if text.count("__local") != 1 or not (found := _ARRAY.search(text)):
        return None
    words = source("opencl_words.h").replace(
        "__syncthreads()", "(__syncthreads(), barriers_passed[threadIdx.x]++)"
    )
    text = _ARRAY.sub(r"__shared__ Watched<\2> \1;", text)
    try:
        road = CudaCpp(source("watched.h") + words + text, as_opencl=True)
        road.launch(name, 1, ITEMS, road.array(x), road.empty(x.size), n)
        passed, notes = road.array(np.zeros(ITEMS, np.int32)), np.zeros((ITEMS, NOTES, 3), np.int32)
        notes = road.array(notes)
        road.launch("copy_notes", 1, ITEMS, passed, notes)
        passed, notes = road.host(passed), road.host(notes)
    except Exception:
        return None  # if the kernel itself fails too, the check reports that
    item, number = np.nonzero(notes[..., 0] >= 0)
    touches = [Touch(*map(int, notes[i, k]), int(i)) for i, k in zip(item, number, strict=True)]
    return Watched(found[1], found[2].strip(), passed.tolist(), touches)


def race(watched: Watched) -> tuple[Touch, Touch] | None:
    """Return a write and another work-item's touch of the same place between the same barriers, if any."""
    written = {(touch.barriers, touch.place): touch for touch in watched.touches if touch.how == WRITTEN}
    for touch in watched.touches:
        other = written.get((touch.barriers, touch.place))
        if other and other.item != touch.item:
            return other, touch
    return None
