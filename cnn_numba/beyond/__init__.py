"""What a CNN for MNIST does not need: normalisation, attention, recurrent networks, text, ONNX.

The core imports nothing of it. Here it registers with the core what it adds: operations, models, the data set
of a text and its batches. Kernels are imported when a model first needs them.
"""

from cnn_numba.beyond import models, operations
from cnn_numba.beyond.text import batches, data
from cnn_numba.data.datasets import OTHER_SOURCES, OtherSource
from cnn_numba.nn.models import MODELS
from cnn_numba.ops.backends import register
from cnn_numba.train.steps import OTHER_BATCHES

register(operations.cpu, operations.gpu, operations.reference)
MODELS |= {
    "cifar_convnet_bn": models.cifar_convnet_bn,
    "mnist_rows": models.mnist_rows,
    "text_transformer": models.text_transformer,
}
OTHER_SOURCES[data.TEXT] = OtherSource(tuple(data.VOCABULARY), (data.LENGTH,), data.load_text)
OTHER_BATCHES[data.Windows] = batches.windows_of
