"""The arguments of activations, for all backends: see `cnn_numba.ops.specs`."""

from cnn_numba.ops.specs import Spec

forward = Spec("x[...] -> out[...]", may_be="x")
backward = Spec("grad_output[...], out[...] -> grad_input[...]", may_be="grad_output out")
gelu_backward = Spec("grad_output[...], x[...] -> grad_input[...]", may_be="grad_output x")
add_forward = Spec("a[...], b[...] -> out[...]", may_be="a b")
