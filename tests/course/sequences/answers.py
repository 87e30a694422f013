"""The wrong answers that stand beside no mistake of the exercises, and unusual right ones."""

import math

from numba import cuda, float32
from wrong_answers import wrong

WRONG = {
    "lstm_cell_kernel": {
        "writes past the edge": [("if n < h.shape[0] and j < hidden:", "if n < h.shape[0]:")],
        "never written": [("j, n = cuda.grid(2)", "n, j = cuda.grid(2)"), ("cell[n, j] = new", "")],
        "float64": [("f * c[n, j]", "1.0 * f * c[n, j]")],
        "NaN produced": [
            (
                "math.tanh(sums[n, j + 2 * hidden])",
                "(math.exp(sums[n, j + 2 * hidden]) - math.exp(-sums[n, j + 2 * hidden]))"
                " / (math.exp(sums[n, j + 2 * hidden]) + math.exp(-sums[n, j + 2 * hidden]))",
            )
        ],
        "too much for a thread": [
            [
                (
                    "if n < h.shape[0] and j < hidden:",
                    "if n < h.shape[0] and j == 0:\n  for j in range(hidden):",
                ),
            ]
        ],
    },
    "last_states": {"raises": [("x.transpose(1, 0, 2)", "x.T")], "returns None": [("return h_n", "")]},
    "lstm_cell_backward_kernel": {
        "writes past the edge": [("if n < c.shape[0] and j < hidden:", "if n < c.shape[0]:")],
        "never written": [("j, n = cuda.grid(2)", "n, j = cuda.grid(2)")],
        "float64": [("float32(1)", "1.0")],
        "too much for a thread": [
            ("if n < c.shape[0] and j < hidden:", "if n < c.shape[0] and j == 0:\n  for j in range(hidden):")
        ],
    },
    "backward_through_time": {
        "raises": [("@ weight_hh", "@ weight_hh.T")],
        "changes input": [("np.empty_like(gates)", "gates")],
        "shape": [("return grad_gates", "return grad_h")],
    },
}

RIGHT = {
    "lstm_cell_kernel": {
        "read back from the outputs": """
            j, n = cuda.grid(2)
            samples, hidden = h.shape
            if j < hidden and n < samples:
                for gate in range(4):
                    value = sums[n, gate * hidden + j]
                    gates[n, gate * hidden + j] = math.tanh(value) if gate == 2 else sigmoid(value)
                cell[n, j] = gates[n, j] * gates[n, 2 * hidden + j] + gates[n, hidden + j] * c[n, j]
                h[n, j] = math.tanh(cell[n, j]) * gates[n, 3 * hidden + j]
        """,
        "by rounds over the grid": """
            x, y = cuda.grid(2)
            across, down = cuda.gridsize(2)
            hidden = h.shape[1]
            for n in range(y, h.shape[0], down):
                for j in range(x, hidden, across):
                    i, f = sigmoid(sums[n, j]), sigmoid(sums[n, j + hidden])
                    g, o = math.tanh(sums[n, j + 2 * hidden]), sigmoid(sums[n, j + 3 * hidden])
                    gates[n, j], gates[n, j + hidden] = i, f
                    gates[n, j + 2 * hidden], gates[n, j + 3 * hidden] = g, o
                    cell[n, j] = f * c[n, j] + i * g
                    h[n, j] = o * math.tanh(cell[n, j])
        """,
    },
    "last_states": {
        "the last of all states": [
            ("_, h_n, _, _, _ =", "out, *_ ="),
            ("x.transpose(1, 0, 2)", "np.ascontiguousarray(np.moveaxis(x, 0, 1))"),
            ("return h_n", "return out[:, -1]"),
        ],
        "sample by sample": """
            samples = range(x.shape[1])
            return np.stack([lstm_forward(x[:, n][None], weight_ih, weight_hh)[1][0] for n in samples])
        """,
    },
    "lstm_cell_backward_kernel": {
        "a slope from the hyperbolic cosine": [
            ("(one - squashed * squashed)", "(one / (math.cosh(cell[n, j]) * math.cosh(cell[n, j])))")
        ]
    },
    "backward_through_time": {
        "collected in a list": """
            samples, steps, size = gates.shape
            before = np.concatenate([np.zeros((samples, 1, size // 4)), cells[:, :-1]], axis=1)
            grad_h, grad_c, collected = grad_h_n, 0.0, []
            for t in range(steps)[::-1]:
                grad_sums, grad_c = cell_backward(gates[:, t], before[:, t], cells[:, t], grad_h, grad_c)
                collected.insert(0, grad_sums)
                grad_h = np.dot(grad_sums, weight_hh)
            return np.stack(collected, axis=1)
        """
    },
}


@wrong("lstm_cell_kernel", "done more than once")
@cuda.jit
def cell_by_every_thread_of_a_row(sums, c, gates, cell, h):
    _, n = cuda.grid(2)
    hidden = h.shape[1]
    if n < h.shape[0]:
        for j in range(hidden):
            i = float32(1) / (float32(1) + math.exp(-sums[n, j]))
            f = float32(1) / (float32(1) + math.exp(-sums[n, j + hidden]))
            g = math.tanh(sums[n, j + 2 * hidden])
            o = float32(1) / (float32(1) + math.exp(-sums[n, j + 3 * hidden]))
            gates[n, j], gates[n, j + hidden] = i, f
            gates[n, j + 2 * hidden], gates[n, j + 3 * hidden] = g, o
            new = f * c[n, j] + i * g
            cell[n, j] = new
            h[n, j] = o * math.tanh(new)
