"""What only the notebooks import: exercise checks, pictures and the benchmark ledger."""

from pathlib import Path

# A network that ``cnn-numba train`` trained with its default recipe, without the optimiser's state;
# `cnn_numba.train.checkpoint.load_model` reads it.
TRAINED_MNIST_CNN = Path(__file__).with_name("mnist_cnn.npz")
