"""The arguments of attention, declared for all backends: see `cnn_numba.ops.specs`."""

from cnn_numba.ops.specs import Spec

_QUERIES = "q[N H T_q D], k[N H T_k D]"
_INPUTS = f"{_QUERIES}, v[N H T_k D]"
_GRADIENTS = "grad_q[N H T_q D], grad_k[N H T_k D], grad_v[N H T_k D]"


class Attention(Spec):
    """A declaration with queries and keys."""

    def __init__(self, text):
        super().__init__(text, filled="N H T_q T_k D", scratch="N H T_q D, N H T_k D")
        self._q = [argument.name for argument in self.arguments].index("q")

    def __call__(self, memory, *arrays, causal=False, **how):
        """Check the arguments; causal attention needs as many keys as queries."""
        checked = super().__call__(memory, *arrays, causal=causal, **how)
        q, k = checked[self._q : self._q + 2]
        if causal and q.shape != k.shape:
            raise ValueError(
                "causal attention needs as many queries as keys, got q with shape "
                f"{q.shape}, k with {k.shape}"
            )
        return checked


attention_forward = Attention(f"{_INPUTS} -> out[N H T_q D], log_sum_exp[N H T_q]")
attention_backward = Attention(
    f"grad_output~[N H T_q D], {_INPUTS}, out[N H T_q D], log_sum_exp[N H T_q] -> {_GRADIENTS}"
)
attention_weights = Attention(f"{_QUERIES} -> out[N H T_q T_k]")
split_heads = Spec("x[N T P H D] -> out[P N H T D]", filled="N T P H D")
merge_heads = Spec("x[P N H T D] -> out[N T P H D]", filled="P N H T D")
