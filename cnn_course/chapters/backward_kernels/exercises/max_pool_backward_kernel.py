"""The gradient of max pooling, sent to the winning pixels."""

import numpy as np

from cnn_course.chapters.backward_kernels.exercises.common import THREADS, blocks
from cnn_course.engine.checks.exercise import Wrong
from cnn_course.engine.checks.kernels import KernelExercise, examine, inout, launch, normal
from cnn_numba.ops.pool.reference import max_pool2d_backward, max_pool2d_forward
from gpuless.access import READ


def _pooled(rng):
    """Draw and pool planes, with separate windows first, then overlapping ones; nothing is square."""
    for planes, (h, w), kernel, stride in [
        (1, (4, 6), 2, 2),
        (2, (5, 4), 3, 1),
        (3, (6, 5), 2, 2),
        (2, (5, 8), 3, 2),
        (3, (9, 7), 3, 2),
    ]:
        out, argmax = max_pool2d_forward(rng.normal(size=(1, planes, h, w)), kernel, stride)
        grad_output, zeros = normal(rng, out.shape[1:]), np.zeros((planes, h, w), np.float32)
        arrays = grad_output, argmax[0].astype(np.int32), inout(zeros)
        yield launch(blocks(grad_output.size), THREADS, *arrays)


def _pool_gradient(grad_output, argmax, grad_input):
    shape = 1, *grad_input.shape
    return max_pool2d_backward(np.asarray(grad_output, np.float64)[None], argmax[None], shape)[0]


def _sent(grad_output, planes, rows, columns, grad_input, add=True):
    """Send each gradient to a pixel; drop those whose pixel doesn't exist."""
    result = np.zeros(grad_input.shape)
    planes, rows, columns = np.broadcast_arrays(planes, rows, columns)
    inside = (rows < result.shape[1]) & (columns < result.shape[2])
    place = planes[inside], rows[inside], columns[inside]
    if add:
        np.add.at(result, place, grad_output[inside])
    else:
        result[place] = grad_output[inside]
    return result


def _sent_elsewhere(where):
    """Return a mistake's function: the gradients go where ``where(argmax, grad_input)`` says."""

    def function(grad_output, argmax, grad_input):
        planes = np.arange(len(argmax))[:, None, None]
        return _sent(grad_output, planes, *where(argmax, grad_input), grad_input)

    return function


def _of_the_first_block(grad_output, argmax, grad_input):
    first = np.arange(grad_output.size).reshape(grad_output.shape) < THREADS
    once = _pool_gradient(np.where(first, grad_output, 0), argmax, grad_input)
    return blocks(grad_output.size) * once


def _shares_a_plane(attempt):
    """Demand that several threads send the gradients of a plane."""
    trace = examine(attempt, next(_pooled(np.random.default_rng(0)))).report.trace
    if len(np.unique(trace.thread[trace.kind != READ])) == 1:
        raise Wrong(
            "one thread",
            "The numbers are right, but one thread sends all gradients of a plane, one after the other. Give "
            "each output its own thread: thread `i` takes output `i` of all.",
        )


max_pool_backward_kernel = KernelExercise(
    "max_pool_backward_kernel",
    reference=_pool_gradient,
    cases=_pooled,
    properties=(_shares_a_plane,),
    mistakes={
        "overwrites": (
            "A pixel that wins several windows keeps one of their gradients. Add all: `cuda.atomic.add`.",
            lambda grad_output, argmax, grad_input: _sent(
                grad_output,
                np.arange(len(argmax))[:, None, None],
                *np.divmod(argmax, grad_input.shape[2]),
                grad_input,
                add=False,
            ),
            (
                "cuda.atomic.add(grad_input, pixel, grad_output[plane, oh, ow])",
                "grad_input[pixel] = grad_output[plane, oh, ow]",
            ),
        ),
        "width of the output": (
            "Positions count along rows of the *input* plane: divide by its width, `{grad_input}.shape[2]`.",
            _sent_elsewhere(lambda argmax, grad_input: np.divmod(argmax, argmax.shape[2])),
            ("grad_input.shape[2]", "grad_output.shape[2]"),
        ),
        "height for width": (
            "You divide the position by the plane's height. A row has as many pixels as the plane is wide.",
            _sent_elsewhere(lambda argmax, grad_input: np.divmod(argmax, grad_input.shape[1])),
            ("grad_input.shape[2]", "grad_input.shape[1]"),
        ),
        "row and column exchanged": (
            "Row and column are exchanged: `{argmax} // width` is the row, `{argmax} % width` the column.",
            _sent_elsewhere(lambda argmax, grad_input: np.divmod(argmax, grad_input.shape[2])[::-1]),
            ("where // width, where % width", "where % width, where // width"),
        ),
        "place of the output": (
            "The gradients go to the output's own position. `{argmax}` says which pixel has won.",
            _sent_elsewhere(lambda argmax, grad_input: np.indices(argmax.shape)[1:]),
            ("where // width, where % width", "oh, ow"),
        ),
        "first plane only": (
            "All gradients go to plane 0. Use the output's plane as the first index of `{grad_input}`.",
            lambda grad_output, argmax, grad_input: _sent(
                grad_output, 0, *np.divmod(argmax, grad_input.shape[2]), grad_input
            ),
            ("pixel = plane, where", "pixel = 0, where"),
        ),
        "winners counted": (
            "You add 1 for each window won. Add the window's gradient instead.",
            lambda grad_output, argmax, grad_input: _pool_gradient(
                np.ones_like(grad_output), argmax, grad_input
            ),
            ("pixel, grad_output[plane, oh, ow]", "pixel, float32(1)"),
        ),
        "first block only": (
            "All blocks send the gradients of the first one. `cuda.grid(1)` counts over all blocks.",
            _of_the_first_block,
            ("cuda.grid(1)", "cuda.threadIdx.x"),
        ),
    },
)
