"""The wrong answers that stand beside no mistake of the exercises, and unusual right ones."""

from wrong_answers import wrong

WRONG = {
    "momentum_kernel": {
        "writes past the edge": [("if i < parameters.size:", "if True:")],
        "first block only": [("cuda.grid(1)", "cuda.threadIdx.x")],
        "changes input": [("v = momentum * velocity[i] +", "gradients[i] += momentum * velocity[i]\nv =")],
        "one thread for all": [
            """
            if cuda.grid(1) == 0:
                for i in range(parameters.size):
                    velocity[i] = momentum * velocity[i] + gradients[i]
                    parameters[i] -= lr * velocity[i]
            """
        ],
    },
    "adam_step": {
        "changes input": [
            [("return parameters -", "parameters -="), ("+ eps), m, v", "+ eps)\nreturn parameters, m, v")]
        ],
        "type": [("+ eps), m, v", "+ eps)")],
    },
    "adam_kernel": {
        "float64": [("float32(1) - beta1", "1 - beta1")],
        "writes past the edge": [("if i < parameters.size:", "if True:")],
        "first block only": [("cuda.grid(1)", "cuda.threadIdx.x")],
    },
}

RIGHT = {
    "momentum_kernel": {
        "in place": """
            i = cuda.grid(1)
            if i < parameters.size:
                velocity[i] *= momentum
                velocity[i] += gradients[i]
                parameters[i] -= lr * velocity[i]
        """,
        "a grid-stride loop": """
            for k in range(cuda.grid(1), gradients.size, cuda.gridsize(1)):
                velocity[k] = momentum * velocity[k] + gradients[k]
                parameters[k] -= lr * velocity[k]
        """,
    },
    "adam_step": {
        "the corrections in the rate and in eps": """
            m = beta1 * m + (1 - beta1) * gradients
            v = beta2 * v + (1 - beta2) * gradients**2
            root = np.sqrt(1 - beta2**step)
            rate = lr * root / (1 - beta1**step)
            return parameters - rate * m / (np.sqrt(v) + root * eps), m, v
        """
    },
    "adam_kernel": {
        "a step from the old mean towards the gradient": """
            i = cuda.grid(1)
            if i < parameters.size:
                g = gradients[i]
                m[i] = g + beta1 * (m[i] - g)
                v[i] = g * g + beta2 * (v[i] - g * g)
                parameters[i] -= lr * (m[i] / correction1) / (math.sqrt(v[i] / correction2) + eps)
        """
    },
}


@wrong("momentum_kernel", "not a kernel")
def momentum_in_numpy(parameters, gradients, velocity, lr, momentum):
    velocity[:] = momentum * velocity + gradients
    parameters[:] -= lr * velocity
