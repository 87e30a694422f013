"""Three operations in one kernel, which passes over memory once."""

import numpy as np

from cnn_course.engine.checks.exercise import Wrong
from cnn_course.engine.checks.kernels import KernelExercise, examine, launch, normal, output
from gpuless.access import access_map
from gpuless.simulator import argument_names


def _channels(x, scale, pixels):
    return np.arange(x.size) // pixels % scale.size


def _scaled(x, scale, shift, pixels):
    channel = _channels(x, scale, pixels)
    return x * scale[channel] + shift[channel]


def _by_neighbour(x, scale, shift, pixels):
    channel = np.arange(x.size) % scale.size
    return np.maximum(x * scale[channel] + shift[channel], 0)


def _never_begins_again(x, scale, shift, pixels):
    """Take channels past the last one, where anything may be, for those of the next samples."""
    beyond = np.arange(x.size) >= pixels * scale.size
    return np.where(beyond, np.nan, np.maximum(_scaled(x, scale, shift, pixels), 0))


def _shift_first(x, scale, shift, pixels):
    channel = _channels(x, scale, pixels)
    return np.maximum((x + shift[channel]) * scale[channel], 0)


def _feature_maps(rng):
    """Draw feature maps of several channels, flat, with threads to spare."""
    return [
        launch(
            grid,
            block,
            normal(rng, samples * channels * pixels),
            normal(rng, channels),
            normal(rng, channels),
            pixels,
            output(samples * channels * pixels),
        )
        for grid, block, samples, channels, pixels in [
            (1, 8, 1, 1, 5),
            (3, 8, 1, 3, 7),
            (2, 32, 2, 2, 11),
            (3, 32, 3, 5, 6),
            (5, 16, 2, 4, 9),
        ]
    ]


def _one_read_one_write(attempt):
    """Demand that each element travels once in each direction."""
    case = launch(3, 16, *(normal(np.random.default_rng(5), n) for n in (36, 3, 3)), 6, output(36))
    trace = examine(attempt, case).report.trace
    names = argument_names(attempt.py_func, 5)
    number = {info.name: place for place, info in enumerate(trace.arrays) if info.space == "global"}
    access = access_map(trace)
    out_reads, x_reads = access.reads(number[names[4]]), access.reads(number[names[0]])
    out_writes = access.writes(number[names[4]])
    if out_reads.any():
        raise Wrong(
            "through memory",
            f"The numbers are right, but `{names[4]}` is read as well: what lies between two operations goes "
            "to memory and comes back. Keep it in a variable, which is a register, and store once.",
        )
    if out_writes.max() > 1:
        raise Wrong(
            "written twice",
            f"The numbers are right, but an element of `{names[4]}` is written {int(out_writes.max())} "
            "times. Work the value out first, and store it once.",
        )
    if x_reads.max() > 1:
        raise Wrong(
            "read twice",
            f"The numbers are right, but an element of `{names[0]}` is read {int(x_reads.max())} times. Load "
            "it once, into a variable.",
        )


scale_shift_relu_kernel = KernelExercise(
    "scale_shift_relu_kernel",
    reference=lambda x, scale, shift, pixels: np.maximum(_scaled(x, scale, shift, pixels), 0),
    cases=_feature_maps,
    float32=True,
    properties=(_one_read_one_write,),
    mistakes={
        "not rectified": (
            "Scale and shift are right, and the ReLU is missing.",
            _scaled,
            ("float32(0) if value <= float32(0) else value", "value"),
        ),
        "shift left out": (
            "The shift is missing.",
            lambda x, scale, shift, pixels: np.maximum(x * scale[_channels(x, scale, pixels)], 0),
            (" + shift[channel]", ""),
        ),
        "scale left out": (
            "The scale is missing.",
            lambda x, scale, shift, pixels: np.maximum(x + shift[_channels(x, scale, pixels)], 0),
            ("x[i] * scale[channel]", "x[i]"),
        ),
        "shift first": (
            "You shift first and scale the sum: the product comes before the sum.",
            _shift_first,
            ("x[i] * scale[channel] + shift[channel]", "(x[i] + shift[channel]) * scale[channel]"),
        ),
        "ReLU first": (
            "You rectify `{x}`, and then scale and shift. The ReLU comes last.",
            lambda x, scale, shift, pixels: _scaled(np.maximum(x, 0), scale, shift, pixels),
            [("x[i]", "max(x[i], float32(0))"), ("float32(0) if value <= float32(0) else value", "value")],
        ),
        "channel of the neighbours": (
            "Your channel changes with each element. `{pixels}` of them share one: divide by `{pixels}` "
            "first.",
            _by_neighbour,
            ("i // pixels % scale.size", "i % scale.size"),
        ),
        "channels never begin again": (
            "You go past the last channel. The next sample begins with the first: `% {scale}.size`.",
            _never_begins_again,
            # `value if value > 0 else 0`, of garbage.
            lambda *given: np.nan_to_num(_never_begins_again(*given)),
            ("i // pixels % scale.size", "i // pixels"),
            [
                ("i // pixels % scale.size", "i // pixels"),
                ("float32(0) if value <= float32(0) else value", "value if value > 0 else float32(0)"),
            ],
        ),
        "absolute value": (
            "You drop the sign. What is negative must become 0.",
            lambda *given: np.abs(_scaled(*given)),
            ("float32(0) if value <= float32(0) else value", "abs(value)"),
        ),
    },
)
