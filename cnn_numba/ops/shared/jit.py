"""The decorators that the `cpu` backends share; without Numba what they make says so when it is called."""

from gpuless import nvidia

if nvidia.installed("numba"):
    from cnn_numba.ops.shared import compiling as decorators
else:
    from cnn_numba.ops.shared import uncompiled as decorators  # type: ignore[no-redef]

EXACT, FASTMATH = decorators.EXACT, decorators.FASTMATH
serial_jit, parallel_jit = decorators.serial_jit, decorators.parallel_jit
inner_jit, exact_jit, inline_jit = decorators.inner_jit, decorators.exact_jit, decorators.inline_jit


def cores_by_size(parallel_from):
    """Return a decorator that compiles a loop for one core and for all, each when it is first needed.

    The size of the first array says which of them runs: all cores from `parallel_from` elements on. For less,
    waking the others takes longer than the work itself.
    """

    def decorate(loop):
        one_core, all_cores = serial_jit(loop), parallel_jit(loop)

        def run(first, *others):
            return (one_core if first.size < parallel_from else all_cores)(first, *others)

        return run

    return decorate
