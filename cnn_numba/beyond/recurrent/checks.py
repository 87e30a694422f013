"""The arguments of an LSTM's functions, declared for all backends: see `cnn_numba.ops.specs`."""

from cnn_numba.ops.specs import Spec

lstm_forward = Spec(
    "x[N T I], weight_ih~[4H I], weight_hh[4H H], bias_ih?[4H], bias_hh?[4H], h0?[N H], c0?[N H]"
    " -> out[N T H], h_n[N H], c_n[N H], cells[N T H], gates[N T 4H]",
    filled="N T I H",
    scratch="N, T, I, H",
)
lstm_backward = Spec(
    "grad_output?~[N T H], weight_hh~[4H H], cells[N T H], gates[N T 4H], c0?[N H], grad_h_n?[N H],"
    " grad_c_n?[N H] -> grad_gates[N T 4H], grad_h0[N H], grad_c0[N H]",
    filled="N T H",
    scratch="N, T, 1, H",
)
lstm_backward_weight = Spec(
    "grad_gates[N T 4H], x[N T I], out[N T H], h0?[N H] -> grad_weight_ih[4H I], grad_weight_hh[4H H]",
    filled="N T H",
    scratch="N, T, I, H",
)
