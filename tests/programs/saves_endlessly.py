"""Save checkpoints into a file, one after the other, until killed."""

import sys

from cnn_numba.nn.models import mnist_cnn
from cnn_numba.train.checkpoint import save_checkpoint

model = mnist_cnn()
number = 0
while True:
    model.parameters[:] = number
    save_checkpoint(sys.argv[1], model, progress={"number": number})
    number += 1
    if number == 1:
        print("go", flush=True)
