"""What a CNN for MNIST doesn't need: more layers, text, ONNX, training in 16 bits and with several workers.

The core imports nothing from here. Importing this package registers its additions with the core: operations,
models, the data set of text and its batches, and options of `fit`. Kernels are imported on first use.
"""

from cnn_numba.beyond import models, operations
from cnn_numba.beyond.precision.scaling import LossScaler
from cnn_numba.beyond.text import batches, data
from cnn_numba.beyond.workers.timeline import Timeline
from cnn_numba.data.sources import SOURCES, Source
from cnn_numba.nn.models import MODELS
from cnn_numba.ops.backends import register
from cnn_numba.train.batches import OTHER_BATCHES
from cnn_numba.train.extensions import EXTENSIONS

register(operations.cpu, operations.gpu, operations.reference)
MODELS |= {
    "cifar_convnet_bn": models.cifar_convnet_bn,
    "mnist_rows": models.mnist_rows,
    "text_transformer": models.text_transformer,
}
SOURCES[data.TEXT] = Source(
    title="the text",
    folder="",
    image_shape=(data.LENGTH,),
    classes=tuple(data.VOCABULARY),
    read=data.load_text,
)
OTHER_BATCHES[data.Windows] = batches.windows_of
EXTENSIONS |= {"scaler": LossScaler, "timeline": Timeline}
