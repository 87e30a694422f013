import math

from numba import cuda, float32

from wrong_answers import derive, wrong

# --- lstm_cell_kernel ---

_SIGMOID_O = "sigmoid(sums[n, j + 3 * hidden])"
_TANH_G = "math.tanh(sums[n, j + 2 * hidden])"

lstm_cell_kernel = derive(
    "lstm_cell_kernel",
    cell_with_gates_side_by_side=(
        "gates side by side",
        ("sums[n, j]", "sums[n, 4 * j]"),
        ("gates[n, j]", "gates[n, 4 * j]"),
        *(
            (f"sums[n, j + {k}hidden]", f"sums[n, 4 * j + {i}]")
            for i, k in ((1, ""), (2, "2 * "), (3, "3 * "))
        ),
        *(
            (f"gates[n, j + {k}hidden]", f"gates[n, 4 * j + {i}]")
            for i, k in ((1, ""), (2, "2 * "), (3, "3 * "))
        ),
    ),
    cell_with_output_before_content=(
        "other order of the gates",
        (_TANH_G, "math.tanh(sums[n, j + 3 * hidden])"),
        (
            f"math.tanh(sums[n, j + 3 * hidden]), {_SIGMOID_O}",
            "math.tanh(sums[n, j + 3 * hidden]), sigmoid(sums[n, j + 2 * hidden])",
        ),
        (
            "gates[n, j + 2 * hidden], gates[n, j + 3 * hidden] = g, o",
            "gates[n, j + 2 * hidden], gates[n, j + 3 * hidden] = o, g",
        ),
    ),
    cell_of_four_sigmoids=("content through a sigmoid", (_TANH_G, "sigmoid(sums[n, j + 2 * hidden])")),
    cell_of_four_tanh=(
        "gates through tanh",
        (
            "sigmoid(sums[n, j]), sigmoid(sums[n, j + hidden])",
            "math.tanh(sums[n, j]), math.tanh(sums[n, j + hidden])",
        ),
        (_SIGMOID_O, "math.tanh(sums[n, j + 3 * hidden])"),
    ),
    cell_lets_in_by_the_forget_gate=(
        "input and forget gate exchanged",
        ("f * c[n, j] + i * g", "i * c[n, j] + f * g"),
    ),
    cell_with_forget_before_input=(
        "input and forget gate exchanged",
        ("i, f = sigmoid", "f, i = sigmoid"),
        ("= i, f", "= f, i"),
    ),
    cell_without_memory=("old cell forgotten", ("f * c[n, j] + i * g", "i * g")),
    cell_lets_all_in=("input gate left out", ("i * g", "g")),
    cell_keeps_all=("forget gate left out", ("f * c[n, j]", "c[n, j]")),
    cell_shown_as_it_is=("cell not squashed", ("o * math.tanh(new)", "o * new")),
    cell_shows_the_old_one=("hidden state of the old cell", ("math.tanh(new)", "math.tanh(c[n, j])")),
    cell_shows_everything=("output gate left out", ("o * math.tanh(new)", "math.tanh(new)")),
    cell_stores_the_sums=(
        "sums stored as gates",
        ("= i, f", "= sums[n, j], sums[n, j + hidden]"),
        ("= g, o", "= sums[n, j + 2 * hidden], sums[n, j + 3 * hidden]"),
    ),
    cell_without_guard=("writes past the edge", ("if n < h.shape[0] and j < hidden:", "if n < h.shape[0]:")),
    cell_with_axes_exchanged=("never written", ("j, n = cuda.grid(2)", "n, j = cuda.grid(2)")),
    cell_in_float64=("float64", ("f * c[n, j]", "1.0 * f * c[n, j]")),
    cell_that_is_not_stored=("never written", ("cell[n, j] = new", "")),
)


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


# --- last_states ---


last_states = derive(
    "last_states",
    states_as_in_the_article=("not turned", ("x.transpose(1, 0, 2)", "x")),
    states_of_the_last_row=(
        "not turned",
        ("_, h_n, _, _, _ =", "out, *_ ="),
        ("x.transpose(1, 0, 2)", "x"),
        ("return h_n", "return out[-1]"),
    ),
    states_of_cut_numbers=("reshaped", ("x.transpose(1, 0, 2)", "x.reshape(x.shape[1], x.shape[0], -1)")),
    states_of_the_last_sample=(
        "last sample",
        ("_, h_n, _, _, _ =", "out, *_ ="),
        ("return h_n", "return out[-1]"),
    ),
    states_after_the_first_step=(
        "first step",
        ("_, h_n, _, _, _ =", "out, *_ ="),
        ("return h_n", "return out[:, 0]"),
    ),
    states_after_every_step=("all steps", ("_, h_n, _, _, _ =", "h_n, *_ =")),
    states_read_backwards=(
        "backwards in time",
        ("x.transpose(1, 0, 2)", "x[::-1].transpose(1, 0, 2)"),
    ),
    cells_for_states=("cell for the hidden state", ("_, h_n, _, _, _ =", "_, _, h_n, _, _ =")),
    states_of_all_axes_turned=("raises", ("x.transpose(1, 0, 2)", "x.T")),
    states_that_are_forgotten=("returns None", ("return h_n", "")),
)


# --- lstm_cell_backward_kernel ---

lstm_cell_backward_kernel = derive(
    "lstm_cell_backward_kernel",
    back_without_slopes=(
        "slopes left out",
        (" * i * (one - i)", ""),
        (" * f * (one - f)", ""),
        (" * (one - g * g)", ""),
        (" * o * (one - o)", ""),
    ),
    back_with_four_sigmoids=("content with a sigmoid's slope", ("(one - g * g)", "g * (one - g)")),
    back_without_the_input_gates_slope=("slope of one gate left out", (" * i * (one - i)", "")),
    back_without_the_contents_slope=("slope of one gate left out", (" * (one - g * g)", "")),
    back_without_the_output_gates_slope=("slope of one gate left out", (" * o * (one - o)", "")),
    back_with_a_slope_not_squared=("slope not squared", ("squashed * squashed", "squashed")),
    back_without_the_output_gate=(
        "output gate left out",
        ("grad_h[n, j] * o *", "grad_h[n, j] *"),
    ),
    back_to_the_output_gate_from_the_cell=(
        "output gate from the cell",
        ("grad_h[n, j] * squashed", "dc * squashed"),
    ),
    back_from_the_step_after_alone=(
        "nothing through the hidden state",
        ("grad_cell[n, j] + grad_h[n, j] * o * (one - squashed * squashed)", "grad_cell[n, j]"),
    ),
    back_from_this_step_alone=("nothing from the step after", ("grad_cell[n, j] + ", "")),
    back_past_the_tanh=(
        "slope of the cell's tanh left out",
        (" * (one - squashed * squashed)", ""),
    ),
    back_through_the_old_cell=("old cell squashed", ("math.tanh(cell[n, j])", "math.tanh(c[n, j])")),
    back_to_forget_with_the_new_cell=(
        "new cell for the forget gate",
        ("dc * c[n, j]", "dc * cell[n, j]"),
    ),
    back_past_the_forget_gate=("forget gate left out", ("grad_c[n, j] = dc * f", "grad_c[n, j] = dc")),
    back_with_i_and_g_exchanged=(
        "input gate and content exchanged",
        ("dc * g * i", "dc * i * i"),
        ("dc * i * (one - g * g)", "dc * g * (one - g * g)"),
    ),
    back_without_guard=("writes past the edge", ("if n < c.shape[0] and j < hidden:", "if n < c.shape[0]:")),
    back_with_axes_exchanged=("never written", ("j, n = cuda.grid(2)", "n, j = cuda.grid(2)")),
    back_in_float64=("float64", ("float32(1)", "1.0")),
)


# --- backward_through_time ---

_LOOP = "reversed(range(gates.shape[1]))"

backward_through_time = derive(
    "backward_through_time",
    time_without_its_first_step=(
        "first step left out",
        ("np.empty_like", "np.zeros_like"),
        (_LOOP, "range(gates.shape[1] - 1, 0, -1)"),
    ),
    time_without_its_last_step=(
        "last step left out",
        ("np.empty_like", "np.zeros_like"),
        (_LOOP, "reversed(range(gates.shape[1] - 1))"),
    ),
    time_runs_forwards=("forwards", (_LOOP, "range(gates.shape[1])")),
    time_without_hidden_states=(
        "hidden state not followed",
        ("grad_h = grad_gates[:, t] @ weight_hh", "grad_h = zeros"),
    ),
    time_with_the_same_gradient=("hidden state not followed", ("grad_h = grad_gates[:, t] @ weight_hh", "")),
    time_with_a_loss_in_every_step=(
        "last gradient in every step",
        ("grad_h = grad_gates[:, t] @ weight_hh", "grad_h = grad_h_n + grad_gates[:, t] @ weight_hh"),
    ),
    time_adds_up=(
        "gradients summed up",
        ("grad_h = grad_gates[:, t] @ weight_hh", "grad_h = grad_h + grad_gates[:, t] @ weight_hh"),
    ),
    time_without_cells=(
        "cell not followed",
        ("cells[:, t], grad_h, grad_c)", "cells[:, t], grad_h, zeros)"),
    ),
    time_wraps_round=("wraps round", ("cells[:, t - 1] if t else zeros", "cells[:, t - 1]")),
    time_with_the_cell_after=("cell after the step", ("cells[:, t - 1] if t else zeros", "cells[:, t]")),
    time_multiplies_by_the_transpose=("raises", ("@ weight_hh", "@ weight_hh.T")),
    time_into_the_gates=("changes input", ("np.empty_like(gates)", "gates")),
    time_returns_the_last_gradient=("shape", ("return grad_gates", "return grad_h")),
)
