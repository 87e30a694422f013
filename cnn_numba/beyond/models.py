"""The course's networks with layers beyond the core: batch normalisation, an LSTM, a Transformer."""

from cnn_numba.beyond.embedding.layers import Embedding
from cnn_numba.beyond.norm.layers import BatchNorm2d, LayerNorm
from cnn_numba.beyond.recurrent.layers import LSTM, Rows
from cnn_numba.beyond.text.data import LENGTH, VOCABULARY
from cnn_numba.beyond.transformer import FlattenTokens, TransformerBlock
from cnn_numba.nn.layers import Conv2d, Flatten, Linear, MaxPool2d, ReLU
from cnn_numba.nn.models import Sequential
from cnn_numba.ops.backends import BackendLike


def cifar_convnet_bn(
    batch_size: int = 64, device: BackendLike = "cpu", seed: int = 0, precision: str = "float32"
) -> Sequential:
    """Build three padded convolutions, each followed by max pooling, batch normalisation and ReLU.

    Arguments and result are those of `mnist_cnn`. Normalising after the pooling takes a quarter of the work
    and learns as well.

    Examples
    --------
    >>> cifar_convnet_bn().parameters.size
    114186
    """
    layers = []
    for in_channels, out_channels in ((3, 32), (32, 64), (64, 128)):
        convolution = Conv2d(in_channels, out_channels, 3, padding=1)
        layers += [convolution, MaxPool2d(2), BatchNorm2d(out_channels), ReLU()]
    layers += [Flatten(), Linear(2048, 10)]
    return Sequential(layers, (3, 32, 32), batch_size, device, seed, "cifar_convnet_bn", precision)


def mnist_rows(
    batch_size: int = 64, device: BackendLike = "cpu", seed: int = 0, precision: str = "float32"
) -> Sequential:
    """Build an LSTM that reads a digit row by row, and a dense layer on its last state.

    Arguments and result are those of `mnist_cnn`.

    Examples
    --------
    >>> mnist_rows().parameters.size
    82186
    """
    layers = [Rows(), LSTM(28, 128, return_sequences=False), Linear(128, 10)]
    return Sequential(layers, (1, 28, 28), batch_size, device, seed, "mnist_rows", precision)


def text_transformer(
    batch_size: int = 64, device: BackendLike = "cpu", seed: int = 0, precision: str = "float32"
) -> Sequential:
    """Build a small Transformer that predicts the next character at each of 64 positions.

    Arguments and result are those of `mnist_cnn`. The input is the numbers of characters, (n, 64), int32; the
    logits have one row per character, (n * 64, 96).

    Examples
    --------
    >>> text_transformer().parameters.size
    116576
    """
    features, kinds = 64, len(VOCABULARY)
    blocks = [TransformerBlock(features, heads=4) for _ in range(2)]
    end = LayerNorm(features), FlattenTokens(), Linear(features, kinds)
    layers = [Embedding(kinds, features, LENGTH), *blocks, *end]
    return Sequential(layers, (LENGTH,), batch_size, device, seed, "text_transformer", precision)
