"""Messages of the checks of notebook 07 about slips without a name."""

import pytest
from test_exercises import FOUND
from wrong_answers import lines_of

TAPS = """
    grad_weight = np.zeros((grad_output.shape[1], x.shape[1], *kernel_size))
    padded = np.pad(x, [(0, 0), (0, 0), (padding, padding), (padding, padding)])
    for kh, kw in np.ndindex(*kernel_size):
        pixels = padded[:, :, kh::stride, kw::stride]
        grad_weight[:, :, kh, kw] = np.einsum("nohw,nihw->oi", grad_output, pixels)
    return grad_weight
"""
SAYS = [
    (
        "linear_backward",
        ("grad_output.T @ x", "grad_output @ x.T"),
        "`@` adds up over the last index of its left side and the first of its right side. Here their sizes "
        "are 2 and 3, and must be the same.",
    ),
    (
        "conv_backward_weight",
        TAPS,
        "A letter of `np.einsum` has two sizes: the arrays have the shapes (1,1,3,2) and (1,1,4,3).",
    ),
    (
        "cross_entropy_gradient",
        ("/ len(labels)", "/ len(labels) + logits[0, 0][0]"),
        "What stands before a `[` here is a number: only arrays have elements.",
    ),
    (
        "cross_entropy_gradient",
        ("/ len(labels)", "/ logits.shape[1]"),
        "Your result is the right one times `logits.shape[0] / logits.shape[1]`.",
    ),
]


@pytest.mark.parametrize(("exercise", "change", "words"), SAYS, ids=[name for name, *_ in SAYS])
def test_a_slip_is_put_into_words(exercise, change, words):
    (found,) = (each for each in FOUND if each.cells.name == exercise)
    assert lines_of(found, change)[0] == words
