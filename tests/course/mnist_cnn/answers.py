"""The wrong answers that stand beside no mistake of the exercises, and unusual right ones."""

from wrong_answers import wrong

WRONG = {
    "momentum_kernel": {
        "writes past the edge": [("if i < parameters.size:", "if True:")],
        "first block only": [("cuda.grid(1)", "cuda.threadIdx.x")],
        "changes input": [("v = momentum * velocity[i] +", "gradients[i] += momentum * velocity[i]\nv =")],
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
        """
    },
}


@wrong("momentum_kernel", "not a kernel")
def momentum_in_numpy(parameters, gradients, velocity, lr, momentum):
    velocity[:] = momentum * velocity + gradients
    parameters[:] -= lr * velocity
