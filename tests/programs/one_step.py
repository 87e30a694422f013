"""Take a step; print how much machine code there is, the loss, and the imported modules."""

import sys

import numpy as np
from numba.core.codegen import JitEngine

modules, add_module = [], JitEngine.add_module
JitEngine.add_module = lambda engine, module: (modules.append(module), add_module(engine, module))[1]

from cnn_numba import Adam, CrossEntropyLoss, mnist_cnn, train_step  # noqa: E402

model, loss = mnist_cnn(batch_size=5), CrossEntropyLoss(5, 10)
x, labels = np.ones((5, 1, 28, 28), np.float32), np.arange(5, dtype=np.int32)
losses, _ = train_step(model, loss, Adam(model), x, labels)
print(len(modules), float(losses.sum()).hex(), *sorted(sys.modules))
