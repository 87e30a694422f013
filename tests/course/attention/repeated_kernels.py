import numpy as np

from cnn_course.chapters.attention.naive import attention_scores_kernel
from cnn_course.engine.checks.kernels import launch, normal, output


def heads(rng):
    """Launch with spare threads, with the mask and without, and with a NaN among the features."""
    cases = []
    for queries, keys, causal in [(5, 7, False), (6, 6, True), (1, 9, False)]:
        q, k = normal(rng, (2, queries, 3)), normal(rng, (2, keys, 3))
        q[0, 0, 1] = np.nan
        grid = -(-keys // 4) + 1, -(-queries // 2) + 1, 2
        out = output((2, queries, keys))
        cases.append(launch(grid, (4, 2, 1), q, k, np.float32(0.5), np.bool_(causal), out))
    return cases


KERNELS = [("naive-scores", "scores_kernel", attention_scores_kernel, heads)]
