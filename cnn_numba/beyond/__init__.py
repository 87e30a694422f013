"""What a CNN for MNIST does not need: training in 16 bits, and with several workers.

The core imports nothing of it. It registers here what it adds to the core.
"""

from cnn_numba.beyond.precision.scaling import LossScaler
from cnn_numba.beyond.workers.timeline import Timeline
from cnn_numba.train.extensions import EXTENSIONS

__all__ = ["LossScaler"]

EXTENSIONS["scaler"] = LossScaler
EXTENSIONS["timeline"] = Timeline
