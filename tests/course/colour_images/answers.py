"""The wrong answers that stand beside no mistake of the exercises."""

WRONG = {
    "decayed_step_kernel": {
        "writes past the edge": [("if i < parameters.size:", "if True:")],
        "first block only": [("cuda.grid(1)", "cuda.threadIdx.x")],
    },
    "crop_and_flip_kernel": {
        "writes past the edge": [
            ("if i < out.shape[0] and h < out.shape[2] and w < out.", "if h < out.shape[2] and w < out.")
        ],
        "float64": [("/ float32(255)", "* (1 / 255)")],
    },
    "folded_convolution_kernel": {
        "done more than once": [("if k == 0:", "if True:")],
        "writes past the edge": [
            ("if oc < weight.shape[0] and k < weight.shape[1]:", "if k < weight.shape[1]:")
        ],
        "float64": [("gamma[oc] /", "1.0 * gamma[oc] /")],
    },
    "new_last_layer": {
        "frozen layers changed": [
            [
                ("last.weight -= lr * last.grad_weight", "net.parameters -= lr * net.gradients"),
                ("last.bias -= lr * last.grad_bias", ""),
            ],
            """
                last = net.layers[-1]
                last.weight[:], last.bias[:] = weight, bias
                for _ in range(steps):
                    loss.forward(net.forward(x, training=True), labels)
                    net.backward(loss.backward())
                    net.parameters -= lr * net.gradients
            """,
            """
                last = net.layers[-1]
                last.weight[:], last.bias[:] = weight, bias
                optimizer = SGD(net, lr=lr)
                for _ in range(steps):
                    loss.forward(net.forward(x), labels)
                    net.backward(loss.backward())
                    optimizer.step()
            """,
        ],
        "running statistics changed": [
            ("x, training=False", "x"),
            ("training=False", "training=True"),
        ],
        "wrong layer": [
            """
                first = net.layers[0]
                for _ in range(steps):
                    loss.forward(net.forward(x), labels)
                    net.backward(loss.backward())
                    first.weight -= lr * first.grad_weight
                    first.bias -= lr * first.grad_bias
            """,
            """
                first, last = net.layers[0], net.layers[-1]
                last.weight[:], last.bias[:] = weight, bias
                for _ in range(steps):
                    loss.forward(net.forward(x), labels)
                    net.backward(loss.backward())
                    first.weight -= lr * first.grad_weight
                    first.bias -= lr * first.grad_bias
            """,
        ],
        "raises": [("*frozen, last = net.layers", "last, *frozen = net.layers")],
        "gradient of the frozen part": [("last.backward(", "net.backward(")],
        "frozen layers run again": [
            [
                ("for layer in frozen:\n    x = layer.forward(x, training=False)\n", ""),
                ("last.forward(x)", "net.forward(x)"),
            ]
        ],
        "not in place": [
            ("last.weight[:], last.bias[:] = weight, bias", "last.weight, last.bias = weight, bias"),
            (
                "last.weight[:], last.bias[:] = weight, bias",
                "last.weight, last.bias = weight.copy(), bias.copy()",
            ),
            ("last.weight -= lr * last.grad_weight", "last.weight = last.weight - lr * last.grad_weight"),
        ],
    },
}

RIGHT = {
    "crop_and_flip_kernel": {
        "the mirrored place written": """
            w, h, i = cuda.grid(3)
            count, channels, height, width = out.shape
            if i >= count or h >= height or w >= width:
                return
            row, column = h + places[i, 0] - padding, w + places[i, 1] - padding
            target = width - 1 - w if places[i, 2] else w
            for c in range(channels):
                out[i, c, h, target] = 0
                if 0 <= row and row < height and 0 <= column and column < width:
                    out[i, c, h, target] = images[indices[i], c, row, column] * float32(1 / 255)
        """
    },
    "folded_convolution_kernel": {
        "by a power, the last tap stores": [
            (
                "gamma[oc] / math.sqrt(variance[oc] + eps)",
                "gamma[oc] * (variance[oc] + eps) ** float32(-0.5)",
            ),
            ("k == 0", "k == weight.shape[1] - 1"),
        ]
    },
    "new_last_layer": {
        "the whole network once": """
            last = net.layers[-1]
            last.weight[...] = weight
            last.bias[...] = bias
            net.forward(x)
            features = net.layers[-2].output
            for _ in range(steps):
                loss.forward(last.forward(features), labels)
                last.backward(loss.backward())
                last.weight[:] = last.weight - lr * last.grad_weight
                last.bias[:] = last.bias - lr * last.grad_bias
        """,
        "no gradient of the features": [
            ("for _ in range(steps):", "last.needs_grad_input = False\nfor _ in range(steps):")
        ],
        "by hand": """
            net.predict(x)
            features, last = net.layers[-2].output.copy(), net.layers[-1]
            w, b, ones = weight.copy(), bias.copy(), np.eye(len(bias), dtype=np.float32)[labels]
            for _ in range(steps):
                chances = np.exp(features @ w.T + b)
                chances /= chances.sum(axis=1, keepdims=True)
                error = (chances - ones) / len(labels)
                w -= lr * error.T @ features
                b -= lr * error.sum(axis=0)
            last.weight[:], last.bias[:] = w, b
        """,
        "SGD, all other gradients 0": [
            ("for _ in range(steps):", "net.gradients[:] = 0\nsgd = SGD(net, lr=lr)\nfor _ in range(steps):"),
            ("last.weight -= lr * last.grad_weight", "sgd.step()"),
            ("last.bias -= lr * last.grad_bias", ""),
        ],
    },
}
