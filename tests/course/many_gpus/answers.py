"""The wrong answers that stand beside no mistake of the exercises, and unusual right ones."""

import numpy as np
from wrong_answers import wrong

WRONG = {
    "share_of": {
        "shortcut": [
            [
                ("each, rest = divmod(n, size)", "part = np.array_split(np.arange(n), size)"),
                ("first = rank * each + min(rank, rest)", "first = int(sum(len(p) for p in part[:rank]))"),
                ("first + each + (rank < rest)", "first + len(part[rank])"),
            ]
        ]
    },
    "combined_gradient": {
        "float32": [
            [
                (
                    "counts[busy] @ gradients[busy]",
                    "counts[busy].astype(np.float32) @ gradients[busy].astype(np.float32)",
                ),
                ("counts.sum()", "np.float32(counts.sum())"),
            ],
            ("counts[busy] @ gradients[busy]", "(counts[busy] @ gradients[busy]).astype(np.float32)"),
        ],
        "NaN hidden": [[("busy = counts > 0", "gradients = np.nan_to_num(gradients)"), ("[busy]", "", 2)]],
    },
    "ring_all_reduce": {
        "everyone sends first": [("if rank % 2 == 0:", "if True:")],
        "everyone receives first": [("if rank % 2 == 0:", "if False:")],
        "waits for ever": [
            (
                "for step in range(size - 1):\n    chunks[(rank - step) % size][:]",
                "for step in range(size - 1 - rank % 2):\n    chunks[(rank - step) % size][:]",
            )
        ],
        "sends alone": [("range(size - 1)", "range(max(1, size - 1))", 2)],
        "too many sends": [("range(size - 1)", "range(100)", 2)],
        "one step too many": [
            ("range(size - 1)", "range(size if size > 1 else 0)", 2),
            ("range(size - 1)", "range(size)", 2),
        ],
        "not in place": [("n = len(array)", "n, array = len(array), array.copy()")],
        "sends too much": [
            ("exchange(chunks[(rank - step) % size])", "exchange(np.float64(chunks[(rank - step) % size]))")
        ],
        "mixed chunks": [
            ("chunks[(rank - step - 1) % size] +=", "chunks[(rank - step - 2) % size] +="),
            [
                ("chunks[(rank - step - 1) % size] +=", "chunks[(rank + step + 1) % size] +="),
                ("exchange(chunks[(rank - step) % size])", "exchange(chunks[(rank + step) % size])"),
                ("chunks[(rank - step) % size][:]", "chunks[(rank + step) % size][:]"),
                ("exchange(chunks[(rank + 1 - step) % size])", "exchange(chunks[(rank - 1 + step) % size])"),
            ],
        ],
        "raises": [("return incoming", "incoming"), ("k * n // size :", "k * n / size :")],
        "list instead of array": [("chunks[(rank - step) % size][:] =", "chunks[(rank - step) % size] =")],
        "numbers": [("n = len(array)", "n = len(array)\nif rank == 1:\n    array += array")],
    },
}

RIGHT = {
    "combined_gradient": {
        "with zeros for nobody's": """
            weights = np.asarray(counts)[:, None] / np.sum(counts)
            return np.where(weights > 0, gradients * weights, 0).sum(axis=0)
        """
    },
    "ring_all_reduce": {
        "only the last receives first": [("if rank % 2 == 0:", "if rank < size - 1:")],
        "cut by NumPy": [
            (
                "[array[k * n // size : (k + 1) * n // size] for k in range(size)]",
                "np.array_split(array, size)",
            ),
            ("n = len(array)", ""),
        ],
        "begun with the next chunk": [
            ("chunks[(rank - step - 1) % size] +=", "chunks[(rank - step) % size] +="),
            ("exchange(chunks[(rank - step) % size])", "exchange(chunks[(rank + 1 - step) % size])"),
            (
                "chunks[(rank - step) % size][:] = exchange(chunks[(rank + 1 - step) % size])",
                "chunks[(rank + 1 - step) % size][:] = exchange(chunks[(rank + 2 - step) % size])",
            ),
        ],
    },
}


@wrong("ring_all_reduce", "whole arrays")
def ring_of_whole_arrays(rank, size, array, send, receive):
    passing = array.copy()
    for _ in range(size - 1):
        if rank % 2:
            incoming = receive()
            send(passing)
        else:
            send(passing)
            incoming = receive()
        array += incoming
        passing = incoming


@wrong("combined_gradient", "numbers")
def combined_of_the_largest(gradients, counts):
    return gradients[np.argmax(counts)]
