"""Train for three steps; print the width of vectors and the losses."""

import numpy as np

from cnn_numba import Adam, CrossEntropyLoss, mnist_cnn, train_step
from cnn_numba.ops.shared.simd import WIDTH

model, loss = mnist_cnn(batch_size=5), CrossEntropyLoss(5, 10)
optimizer = Adam(model, lr=1e-3)
x = np.random.default_rng(0).random((5, 1, 28, 28), np.float32)
losses = [train_step(model, loss, optimizer, x, np.arange(5, dtype=np.int32))[0].mean() for _ in range(3)]
print(WIDTH, *losses)
