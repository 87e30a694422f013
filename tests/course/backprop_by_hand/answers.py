"""The wrong answers that stand beside no mistake of the exercises."""

WRONG = {
    "linear_backward": {
        "type": [("grad_output.T @ x, grad_output.sum(axis=0)", "grad_output.T @ x")],
        "returns None": [("return grad_output", "grad_output")],
        "shortcut": [
            """
            leaves = [torch.tensor(each, requires_grad=True) for each in (x, weight, np.zeros(len(weight)))]
            torch.nn.functional.linear(*leaves).backward(torch.tensor(grad_output))
            return tuple(leaf.grad.numpy() for leaf in leaves)
            """
        ],
        "shape": [("grad_output.sum(axis=0)", "grad_output.sum(axis=0, keepdims=True)")],
        "changes input": [
            (
                "return grad_output @ weight",
                "grad_input = grad_output @ weight\nx *= 0\nx += grad_input\nreturn grad_input",
            )
        ],
    },
    "conv_backward_weight": {
        "not initialised": [[("np.zeros", "np.empty"), ("[:, :, kh, kw] =", "[:, :, kh, kw] +=")]]
    },
    "cross_entropy_gradient": {
        "shortcut": ["return loss.cross_entropy_forward_backward(logits, labels)[1]"],
        "negated": [("gradient / len(labels)", "-gradient / len(labels)")],
        "changes input": [
            (
                "exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))",
                "logits -= logits.max(axis=1, keepdims=True)\nexponentials = np.exp(logits)",
            )
        ],
    },
    "name_the_bug": {
        "no flipped filter": [
            [('"stride ignored"', '"flipped filter"'), ('"D": "flipped filter"', '"D": "stride ignored"')]
        ],
        "no stride ignored": [('"flipped filter"', '"stride ignored"')],
        "no pooled as an average": [('"tie sent twice"', '"pooled as an average"')],
        "no gate left open": [('"tie sent twice"', '"gate left open"')],
        "no last image only": [('"sum over the batch"', '"last image only"')],
        "no sum over the batch": [('"last image only"', '"sum over the batch"')],
        "no padding row skipped": [("names[patient]", '"padding row skipped"')],
        "no tie sent twice": [('"padding row skipped"', '"tie sent twice"')],
        "unknown name": [('"stride ignored"', '"no stride"')],
        "not a name": [("names[patient]", "list(names).index(patient)")],
        "raises": [('"F": "padding row skipped",', "")],
    },
}
