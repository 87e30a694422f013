"""One core or all of them: for little work, waking the others takes longer than the work itself."""

from cnn_numba.ops.shared.jit import parallel_jit, serial_jit


def cores_by_size(parallel_from):
    """Return a decorator that compiles a loop for one core and for all, each when it is first needed.

    The size of the first array says which of them runs: all cores from `parallel_from` elements on.
    """

    def decorate(loop):
        one_core, all_cores = serial_jit(loop), parallel_jit(loop)

        def run(first, *others):
            return (one_core if first.size < parallel_from else all_cores)(first, *others)

        return run

    return decorate
