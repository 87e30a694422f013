"""Sequential, and the course's networks."""

import itertools
import math
import weakref
from collections.abc import Iterator, Sequence

import numpy as np

from cnn_numba.arguments import MOST_ELEMENTS, integer, settings, shown, sizes
from cnn_numba.device import Array, to_host
from cnn_numba.nn.chains import ConvChain, chained
from cnn_numba.nn.layer import Absent, Layer, UnsupportedPrecision, layer_list
from cnn_numba.nn.layers import Conv2d, Flatten, Linear, MaxPool2d, ReLU
from cnn_numba.ops.backends import BackendLike, backend
from cnn_numba.ops.shapes import layout_advice


def _absence(model, name):
    """Return why a model has no layers any more, or not yet."""
    if model._taken:
        return f"{model.name} can't be used any more: {model._taken}. Make new layers for each model"
    return f"{type(model).__name__} has no {name} yet: call super().__init__ first"


class Sequential:
    """Layers one after another, with all parameters in one array and all gradients in another.

    Parameters
    ----------
    layers : list of Layer
        A layer is in one model at a time: a model whose layer is built into another one can't be used any
        more.
    input_shape : tuple (C, H, W)
        Shape of one sample.
    batch_size : int
        The largest batch it will see; buffers are allocated for it, once.
    device : {"cpu", "gpu", "reference"} or Backend
        The backend of all operations. The reference computes in float64. On the GPU all arrays are device
        arrays. A ReLU after a convolution or dense layer is computed in that layer's pass.
    seed : int
        The seed of the initial weights.
    name : str
        Its name in checkpoints and `summary`.
    precision : {"float32", "tf32", "float16", "bfloat16"}
        What the operands of products, in convolutions and dense layers, are rounded to. Sums and arrays are
        always float32 (in the reference float64).

    Attributes
    ----------
    parameters, gradients : ndarray or device array, shape (P,)
        The arenas. Every layer's weight and bias are views into them.
    every_layer : list of Layer
        The layers, and those that they are made of.
    buffers : ndarray or device array, shape (B,)
        Arrays that are saved with the parameters but not trained, such as running statistics.

    Raises
    ------
    ValueError
        If the shapes of neighbouring layers do not fit (the message names the layer), a layer is in the model
        twice, or the precision is none of the four.

    Examples
    --------
    >>> layers = [Conv2d(1, 2, 3), MaxPool2d(2), Flatten(), Linear(18, 10)]
    >>> model = Sequential(layers, (1, 8, 8), batch_size=4)
    >>> model.forward(np.zeros((3, 1, 8, 8), np.float32)).shape
    (3, 10)
    >>> model.parameters.size
    210
    """

    parameters: Array
    gradients: Array
    buffers: Array
    # The instance has these until one of its layers is built into another model; `_taken` says which.
    layers: list[Layer] = Absent(_absence)  # type: ignore[assignment]
    every_layer: list[Layer] = Absent(_absence)  # type: ignore[assignment]
    passes: list[Layer | ConvChain] = Absent(_absence)  # type: ignore[assignment]
    _taken = ""

    def __init__(
        self,
        layers: Sequence[Layer],
        input_shape: tuple[int, ...],
        batch_size: int = 64,
        device: BackendLike = "cpu",
        seed: int = 0,
        name: str = "sequential",
        precision: str = "float32",
    ) -> None:
        layers = layer_list(layers)
        self.every_layer = [inner for layer in layers for inner in layer.modules()]
        seed = integer(seed, "seed", maximum=None)
        if not isinstance(name, str):
            raise TypeError(f"name must be a str, got {shown(name)}")
        settings(precision=precision)
        self.layers, self.input_shape = layers, sizes(input_shape, "input_shape", minimum=1)
        self.batch_size = integer(batch_size, "batch_size", minimum=1)
        self.name, self.precision, self.backend = name, precision, backend(device)
        self.device = self.backend.name
        names = self._names_by_id()
        self.shapes = self._propagate_shapes(names)
        self._check_precision(names)
        arenas, entries = self._allocate_arenas()
        # From here on the layers are this model's.
        self._take_layers(names)
        self._initialise(arenas, entries, np.random.default_rng(seed))
        first = next((index for index, layer in enumerate(self.layers) if layer.parameter_count), 0)
        for index, (layer, shape) in enumerate(zip(self.layers, self.shapes, strict=False)):
            # Up to the first layer with parameters, nobody needs the gradient of the input.
            layer.build(shape, self.backend, needs_grad_input=index > first)
        for layers in (self.layers, *(layer.layers for layer in self.every_layer)):
            self._fuse(layers)
        #: The layers, and a `ConvChain` in place of those that are computed at once.
        self.passes = chained(self.layers, self.backend)

    def _check_precision(self, names):
        for layer in self.every_layer:
            if self.precision not in layer.precisions:
                can = f"computes in {', '.join(layer.precisions)} only, got precision {shown(self.precision)}"
                raise UnsupportedPrecision(f"{self.name}, {names[id(layer)]}: {layer!r} {can}")

    def _names_by_id(self):
        """Return a name for each layer; ValueError if one is in the model twice."""
        counts, names = {}, {}
        for layer in self.every_layer:
            counts[layer.kind] = counts.get(layer.kind, 0) + 1
            name = f"{layer.kind}{counts[layer.kind]}"
            if id(layer) in names:
                where = f"in the model twice, as {names[id(layer)]} and as {name}"
                raise ValueError(f"{layer!r} is {where}: it has one set of buffers, so make two layers")
            names[id(layer)] = name
        return names

    def _propagate_shapes(self, names):
        """Return the shape of the input and of every layer's output."""
        shapes = [(self.batch_size, *self.input_shape)]
        for layer in self.layers:
            try:
                shapes.append(layer.output_shape(shapes[-1]))
            except ValueError as error:
                raise ValueError(f"{self.name}, {names[id(layer)]}: {error}") from None
        return shapes

    def _allocate_arenas(self):
        """Allocate one array each for parameters, gradients and buffers; return them with what they hold."""
        entries: dict[str, list] = {"parameters": [], "gradients": [], "buffers": []}
        for layer in self.every_layer:
            shapes = layer.parameter_shapes()
            entries["parameters"] += [(layer, key, shape) for key, shape in shapes.items()]
            entries["gradients"] += [(layer, f"grad_{key}", shape) for key, shape in shapes.items()]
            entries["buffers"] += [(layer, key, shape) for key, shape in layer.buffer_shapes().items()]
        counts = {name: sum(math.prod(shape) for _, _, shape in entries[name]) for name in entries}
        if (count := counts["parameters"]) > MOST_ELEMENTS:
            raise ValueError(f"{self.name} has {count} parameters; the kernels count up to {MOST_ELEMENTS}")
        return {name: np.zeros(count, self.backend.dtype) for name, count in counts.items()}, entries

    def _take_layers(self, names):
        """Make the layers this model's; take all layers from a model that has one of them.

        Such a model would compute with parameters that its optimiser doesn't change. A cell of a notebook
        that is run again may build its layers again: nobody uses the first model any more.
        """
        for layer in self.every_layer:
            other = layer._owner and layer._owner()
            # A copied layer has the other's owner.
            if other is not None and any(layer is each for each in vars(other).get("every_layer", ())):
                other._taken = f"its {layer!r} was built into another model, {self.name}"
                for name in ("layers", "every_layer", "passes"):
                    vars(other).pop(name, None)
            layer._owner, layer.name, layer.precision = weakref.ref(self), names[id(layer)], self.precision

    def _initialise(self, arenas, entries, generator):
        """Give the layers views of the arenas, and the parameters their first values."""
        self._set_arenas(arenas, entries)
        for layer in self.every_layer:
            layer.initialise(generator)
        if self.backend.on_device:
            self._set_arenas({name: self.backend.bring(arena) for name, arena in arenas.items()}, entries)

    def _set_arenas(self, arenas, entries):
        for name, arena in arenas.items():
            setattr(self, name, arena)
            start = 0
            for layer, key, shape in entries[name]:
                size = math.prod(shape)
                setattr(layer, key, arena[start : start + size].reshape(shape))
                start += size

    @staticmethod
    def _fuse(layers):
        """Let a convolution or dense layer also compute the ReLU after it."""
        for layer, following in itertools.pairwise([None, *layers, None]):
            relu_follows = isinstance(following, ReLU)
            if isinstance(layer, (Conv2d, Linear)):
                layer.relu = relu_follows
            if relu_follows:
                following.fused = getattr(layer, "relu", False)

    def forward(self, x: Array, training: bool = False, until: Layer | None = None) -> Array:
        """Run the layers in turn.

        Parameters
        ----------
        x : ndarray or device array, shape (n, C, H, W)
            With the backend's dtype, in its memory; n between 1 and `batch_size`.
        training : bool
            Whether normalisation uses the batch's statistics.
        until : Layer, optional
            Run only the layers before this one, which is not in a chain, and return its input.

        Returns
        -------
        ndarray or device array, shape (n, classes)
            The logits, in a buffer that the next call overwrites.
        """
        settings(training=training)
        try:
            self.backend.check("x", x, (None, *self.input_shape), self.layers[0].input_dtype)
        except ValueError as error:
            raise ValueError(f"{error}{self._advice(x.shape)}") from None
        if not 1 <= (n := x.shape[0]) <= self.batch_size:
            how = f": pass fewer, or build it with batch_size={n}" if n else ""
            raise ValueError(f"{self.name} was built for 1 to {self.batch_size} samples, got {n}{how}")
        for each in self._before(until):
            x = each.forward(x, training)
        return x

    def _advice(self, shape):
        """Return the end of a message about a batch of this shape: what to do with it."""
        batch = 1, *self.input_shape
        if len(shape) < len(batch) and (1,) * (len(batch) - len(shape)) + shape == batch:
            return f": a single sample is a batch of one, x.reshape{batch}"
        return layout_advice(shape, self.input_shape[0])

    def _before(self, layer):
        if layer is None:
            return self.passes
        if layer not in self.passes:
            kind = f"a layer of {self.name} outside of its chains"
            raise ValueError(f"until must be {kind}, got {shown(layer)}")
        return self.passes[: self.passes.index(layer)]

    def backward(self, grad_logits: Array) -> None:
        """Run the layers' backward passes in reverse, which fills `gradients`.

        `grad_logits`, shape (n, classes), is the gradient of the loss with respect to the last logits.
        """
        for _ in self.backward_by_layer(grad_logits):
            pass

    def backward_by_layer(self, grad_logits: Array, until: Layer | None = None) -> Iterator[Layer]:
        """Run `backward` layer by layer, and yield each layer when its gradients are written.

        With `until` run only the layers before that one, from the gradient of its input.
        """
        passes, gradient = self._before(until), grad_logits
        # The last layer would blame its own arrays for the shape. It may have no output yet, or keep none.
        shape = getattr(getattr(passes[-1], "output", None), "shape", None) if passes else None
        if shape is not None and getattr(grad_logits, "shape", None) != shape:
            raise ValueError(
                f"grad_logits must have the shape of the logits, {shape}, got {shown(grad_logits)}"
            )
        for place, each in reversed([*enumerate(passes)]):
            grad_input = each.backward(gradient)
            yield from reversed(each.layers) if isinstance(each, ConvChain) else [each]
            if grad_input is None:
                if any(isinstance(one, ConvChain) or one.parameter_count for one in passes[:place]):
                    raise TypeError(f"{each.name}.backward returned no gradient for the layers before it")
                break
            gradient = grad_input

    def __repr__(self):
        if not hasattr(self, "parameters"):  # a debugger shows what is being built
            return object.__repr__(self)
        names = ", ".join(layer.name for layer in vars(self).get("layers", ()))
        return f"<Sequential {self.name}: {names or 'no layers'}; {self.parameters.size:,} parameters>"

    def __reduce_ex__(self, protocol):
        raise TypeError(
            f"{self.name} can't be copied or pickled: its layers hold views of its arrays. Build a second "
            "one and copy parameters and buffers into it, or use save_checkpoint and load_model"
        )

    @property
    def predictions(self) -> int:
        """The number of predictions for a sample: one, or one for each position of a text."""
        return self.shapes[-1][0] // self.batch_size

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Return the class probabilities, shape (n, classes), float64, of a batch `x` on the host."""
        logits = to_host(self.forward(self.backend.bring(x)))
        any_labels = np.zeros(len(logits), np.int32)  # the probabilities do not depend on them
        return backend("reference").ops.loss.cross_entropy_forward(logits, any_labels)[1]

    def summary(self) -> str:
        """Return a table of the layers, their output shapes and parameter counts.

        Examples
        --------
        >>> print(Sequential([Flatten(), Linear(4, 2)], (1, 2, 2)).summary())
        sequential, batches of 64
        layer     description   output         parameters
        input                   (64, 1, 2, 2)
        flatten1  Flatten()     (64, 4)
        linear1   Linear(4, 2)  (64, 2)                10
        total                                          10
        """
        rows = [("layer", "description", "output", "parameters"), ("input", "", str(self.shapes[0]), "")]
        for layer, shape in zip(self.layers, self.shapes[1:], strict=True):
            count = layer.parameter_count
            rows.append((layer.name, repr(layer), str(shape), f"{count:,}" if count else ""))
        rows.append(("total", "", "", f"{self.parameters.size:,}"))
        a, b, c, d = (max(map(len, column)) for column in zip(*rows, strict=True))
        lines = [f"{row[0]:{a}}  {row[1]:{b}}  {row[2]:{c}}  {row[3]:>{d}}".rstrip() for row in rows]
        return "\n".join([f"{self.name}, batches of {self.batch_size}", *lines])


def mnist_cnn(
    batch_size: int = 64, device: BackendLike = "cpu", seed: int = 0, precision: str = "float32"
) -> Sequential:
    """Build the course's network: two convolutions, each with max pooling, and two dense layers.

    The second pooling has 64 x 5 x 5 = 1600 outputs. Arguments are as for `Sequential`.

    Examples
    --------
    >>> mnist_cnn().parameters.size
    225034
    """
    layers: list[Layer] = [Conv2d(1, 32, 3), MaxPool2d(2), Conv2d(32, 64, 3), MaxPool2d(2)]
    layers += [Flatten(), Linear(1600, 128), ReLU(), Linear(128, 10)]
    return Sequential(layers, (1, 28, 28), batch_size, device, seed, "mnist_cnn", precision)


def mnist_cnn_deep(
    batch_size: int = 64, device: BackendLike = "cpu", seed: int = 0, precision: str = "float32"
) -> Sequential:
    """Build three convolutions with ReLU, two of them pooled, and two dense layers.

    Arguments are as for `Sequential`.

    Examples
    --------
    >>> mnist_cnn_deep().parameters.size
    93322
    """
    layers: list[Layer] = [Conv2d(1, 32, 3), ReLU(), MaxPool2d(2), Conv2d(32, 64, 3), ReLU(), MaxPool2d(2)]
    layers += [Conv2d(64, 64, 3), ReLU(), Flatten(), Linear(576, 64), ReLU(), Linear(64, 10)]
    return Sequential(layers, (1, 28, 28), batch_size, device, seed, "mnist_cnn_deep", precision)


def cifar_convnet(
    batch_size: int = 64, device: BackendLike = "cpu", seed: int = 0, precision: str = "float32"
) -> Sequential:
    """Build the network for 32 x 32 colour images: two padded convolutions, pooled, and two dense layers.

    Arguments are as for `Sequential`.

    Examples
    --------
    >>> cifar_convnet().parameters.size
    2122186
    """
    layers: list[Layer] = [Conv2d(3, 32, 3, padding=1), ReLU(), MaxPool2d(2)]
    layers += [Conv2d(32, 64, 3, padding=1), ReLU(), MaxPool2d(2)]
    layers += [Flatten(), Linear(4096, 512), ReLU(), Linear(512, 10)]
    return Sequential(layers, (3, 32, 32), batch_size, device, seed, "cifar_convnet", precision)


#: The networks by their names for ``cnn-numba train --model``; `cnn_numba.beyond` adds more.
MODELS = {"mnist_cnn": mnist_cnn, "mnist_cnn_deep": mnist_cnn_deep, "cifar_convnet": cifar_convnet}
