"""The wrong answers that stand beside no mistake of the exercises, and unusual right ones."""

import math

import numpy as np
from wrong_answers import wrong

WRONG = {
    "receptive_field": {
        "type": [("field, distance = 1, 1", "field, distance = 1.0, 1.0")],
        "returns None": [("return field", "")],
    },
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
    "confusion_matrix": {
        "type": [("np.int64", "float")],
        "not initialised": [("np.zeros", "np.empty")],
        "wraps": [
            (
                "for label, answer in zip(labels, answers, strict=True):\n    matrix[label, answer] += 1",
                "pairs = classes * labels + answers\n"
                "matrix += np.bincount(pairs, minlength=classes**2).reshape(classes, classes)",
            )
        ],
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
    }
}


@wrong("receptive_field", "raises")
def field_of_one_pair(layers):
    kernel_size, stride = layers
    return 1 + (kernel_size - 1) * stride


@wrong("receptive_field", "numbers")
def field_of_the_course(layers):
    return 10


@wrong("momentum_kernel", "not a kernel")
def momentum_in_numpy(parameters, gradients, velocity, lr, momentum):
    velocity[:] = momentum * velocity + gradients
    parameters[:] -= lr * velocity


@wrong("confusion_matrix", "raises")
def confusion_always_of_ten(labels, answers, classes):
    counts = np.bincount(labels * 10 + answers, minlength=100)
    return counts.reshape(classes, classes)


@wrong("confusion_matrix", "raises")
def confusion_misses_an_import(labels, answers, classes):
    return math.confusion(labels, answers, classes)
