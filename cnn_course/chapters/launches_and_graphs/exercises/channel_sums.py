"""An open exercise: faster channel sums, with any number of kernels."""

from dataclasses import dataclass
from functools import partial

import numpy as np

from cnn_course.chapters.launches_and_graphs.slow import GPU, feature_maps, given_time, modelled_time
from cnn_course.engine.checks.evidence import Case, Evidence, Trial
from cnn_course.engine.checks.exercise import Exercise, Wrong, avoids
from cnn_course.engine.checks.kernels import normal
from cnn_course.engine.checks.programs import sanitizers_finding
from cnn_course.engine.checks.surroundings import compiled, launches_taken_over, sanitized
from cnn_course.engine.launch_lists import replaced
from cnn_numba import device
from gpuless.limits import LaunchError
from gpuless.simulator import UnsupportedPython

#: An answer must be this many times faster, by modelled times.
FACTOR = 4

# The initial value of `out`. No sum in a case equals it, so old values and additions to them are visible.
_BEFORE = 500.0


def _filled(attempt, x):
    """Let the attempt overwrite an array; return the result on the host."""
    return device.to_host(_called(attempt, x))


def _called(attempt, x):
    """Let the attempt overwrite a device array; return it."""
    out = device.to_device(np.full(x.shape[1], _BEFORE, np.float32))
    attempt(device.to_device(x), out)
    device.synchronize()
    return out


def _is_safe(attempt):
    """Demand that the sanitizer finds nothing, and that the host adds up nothing."""
    x = normal(np.random.default_rng(0), (3, 2, 40))
    array_type, read = type(device.empty(1)), []
    plainly = array_type.copy_to_host

    def noted(array, *others, **keywords):
        read.append(array)
        return plainly(array, *others, **keywords)

    with launches_taken_over(_examined) as launched, replaced(array_type, "copy_to_host", noted):
        try:
            _called(attempt, x)
        except (LaunchError, UnsupportedPython):  # no sanitizer runs a barrier of several blocks
            return
    if read and (launched or not device.SELECTION.emulated):
        raise Wrong(
            "shortcut", "Your function copies numbers to the host. Let kernels add them up, on the device."
        )
    trial = Trial(Case((x,), {}), None, None, True, [each for each in launched if each.report])
    if found := sanitizers_finding(Evidence(channel_sums, attempt, [trial])):
        raise found


def _examined(launch, plainly):
    """Run a launch under the sanitizer; run Numba's own, such as that of ``out[:] = 0``, compiled."""
    is_numbas = str(launch.kernel.py_func.__module__).startswith("numba.")
    return (compiled if is_numbas else sanitized)(launch, plainly)


def _is_faster(attempt):
    """Demand that the kernels take at most a quarter of the given kernel's modelled time."""
    if not device.SELECTION.emulated:
        return
    yours = modelled_time(lambda: attempt(*feature_maps()))
    if yours == 0:
        raise Wrong("no kernel", "The sums are right, but you launch no kernel: kernels must do the work.")
    if yours * FACTOR > given_time():
        raise Wrong(
            "not faster",
            f"The sums are right. On a {GPU}, your kernels take {yours:.0f} us (modelled), the given kernel "
            f"{given_time():.0f} us. The goal is a quarter of that. Profile your kernel: what limits it now?",
        )


def _added_by(threads, x):
    """Return the sums if so many threads add each image's, one after the other in float32: rounding shows."""
    images = x.sum(axis=2, dtype=np.float32)
    return np.add.accumulate(images.repeat(threads, axis=0), dtype=np.float32)[-1]


@dataclass(frozen=True, repr=False)
class FasterExercise(Exercise):
    """An exercise whose attempt must launch fast kernels, by modelled time."""

    rtol: float = 1e-5

    def _praise(self, trials):
        fast = ", and fast enough." if device.SELECTION.emulated else ". No time was modelled."
        return f"Right on all {len(trials)} test cases{fast}"


channel_sums = FasterExercise(
    "channel_sums",
    reference=lambda x: x.sum(axis=(0, 2), dtype=np.float64).astype(np.float32),
    cases=lambda rng: [
        (normal(rng, shape),)
        for shape in [(1, 1, 3), (2, 3, 5), (3, 2, 40), (5, 7, 300), (1, 4, 2000), (70, 3, 9)]
    ],
    run=_filled,
    properties=(avoids("copy_to_host"), _is_safe, _is_faster),
    mistakes={
        "added to what is there": (
            f"You add to the old contents of `out`, which are {_BEFORE:g} everywhere. Set them to zero "
            "first.",
            lambda x: _BEFORE + x.sum(axis=(0, 2)),
            ("out.copy_to_device(np.zeros(out.size, np.float32))", ""),
        ),
        "nothing in out": (
            "`out` is unchanged: your kernels write to another array. Write to the `out` argument of your "
            "function; `out = ...` would be a new array.",
            lambda x: np.full(x.shape[1], _BEFORE),
            ("out.copy_to_device(np.zeros(out.size, np.float32))", "out = device.zeros(out.size)"),
        ),
        "first image only": (
            "You add up only the first image.",
            lambda x: x[0].sum(axis=1),
            ("(x.shape[1], x.shape[0])", "(x.shape[1], 1)"),
        ),
        "last image only": (
            "Each image overwrites the previous image's sums. If several blocks add to one channel, you need "
            "an atomic operation or a second kernel.",
            lambda x: x[-1].sum(axis=1),
            ("if cuda.threadIdx.x == 0:", "if cuda.threadIdx.x == 0 and image == x.shape[0] - 1:"),
        ),
        "added by every thread": (
            "Your sums are as many times too large as a block has threads: `block_sum` gives the total to "
            "all of them, and each adds it. Let one of them add it.",
            *(partial(_added_by, threads) for threads in (32, 64, 128, 256, 512, 1024)),
            ("if cuda.threadIdx.x == 0:", "if True:"),
        ),
        "one thread of a block": (
            "You add only the first thread's numbers. Sum over the threads of a block first.",
            lambda x: x[..., ::128].sum(axis=(0, 2)),
            ("total = block_sum(total)", "pass"),
        ),
    },
)
