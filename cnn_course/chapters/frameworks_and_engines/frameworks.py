"""Other frameworks in notebook 26: importing them, comparing their results, reading their programs."""

import importlib
import json
import math
import re
import tempfile
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np

from cnn_numba import extras
from cnn_numba.beyond.norm.layers import BatchNorm2d
from cnn_numba.nn.layers import Conv2d, Linear, MaxPool2d
from cnn_numba.nn.models import Sequential


def load_packages(*names: str) -> list[ModuleType | None]:
    """Import packages; print a line and return None for one that is missing or fails.

    Examples
    --------
    >>> load_packages("json", "no_such_package")  # doctest: +ELLIPSIS
    no_such_package is not installed, so its cells do nothing: pip install ...
    [<module 'json' from ...>, None]
    """
    found = []
    for name in names:
        module = None
        if extras.present(name):
            try:
                module = importlib.import_module(name)
            except ImportError as error:  # Keras without its backend
                print(f"{name} cannot be imported ({error}), so its cells do nothing")
        else:
            print(f"{name} is not installed, so its cells do nothing: {extras.command(name)}")
        found.append(module)
    return found


def parameters_of(model, prefix="") -> dict[str, np.ndarray]:
    """Return copies of a model's parameters by name; with the prefix ``"grad_"``, of their gradients."""
    return {
        f"{layer.name}.{key}": getattr(layer, prefix + key).copy()
        for layer in model.layers
        for key in layer.parameter_shapes()
    }


def agree(ours: dict, theirs: dict, tolerance=1e-5) -> bool:
    """Return whether the arrays of another framework equal ours, except for rounding.

    Parameters
    ----------
    ours, theirs : dict of str to array_like
    tolerance : float
        The largest error allowed in an array, relative to our largest number.

    Examples
    --------
    >>> agree({"a": np.array([1.0, 2.0])}, {"a": [1.0, 2.00001]})
    True
    """
    pairs = [(our, np.asarray(theirs[name])) for name, our in ours.items()]
    return all(
        our.shape == their.shape and abs(their - our).max() < tolerance * abs(our).max()
        for our, their in pairs
    )


def compare(ours: dict, theirs: dict) -> None:
    """Print for each of our arrays whether the other equals it, except for rounding; see `agree`."""
    for name, our in ours.items():
        same = agree({name: our}, theirs)
        print(f"{name:15} {our.shape!s:16} {'the same' if same else 'NOT the same'}")


# --- channels last ------------------------------------------------------------------------------------------


def to_keras(parameters, shape) -> list[np.ndarray]:
    """Return parameters in the order and the layouts of a channels-last Keras network.

    Parameters
    ----------
    parameters : dict of str to ndarray
        Weight and bias alternately, of convolutions and then of dense layers.
    shape : tuple (C, H, W)
        Of the flattened features.
    """
    turned, flattened = [], False
    for array in map(np.asarray, parameters.values()):
        if array.ndim == 2:
            first, flattened = not flattened, True
            if first:
                array = array.reshape(-1, *shape).transpose(0, 2, 3, 1).reshape(len(array), -1)
        turned.append(array.transpose(2, 3, 1, 0) if array.ndim == 4 else array.T)
    return turned


def from_keras(arrays, like, shape) -> dict[str, np.ndarray]:
    """Return a Keras network's parameters, or their gradients, with our names and layouts.

    Parameters
    ----------
    arrays : list of array_like
        In the order of `to_keras`.
    like : dict of str to ndarray
        Our parameters, for their names.
    shape : tuple (C, H, W)
    """
    channels, height, width = shape
    found, flattened = {}, False
    for name, array in zip(like, map(np.asarray, arrays), strict=True):
        if array.ndim == 4:
            array = array.transpose(3, 2, 0, 1)
        elif array.ndim == 2:
            array, first, flattened = array.T, not flattened, True
            if first:
                pixels = array.reshape(-1, height, width, channels)
                array = pixels.transpose(0, 3, 1, 2).reshape(len(array), -1)
        found[name] = array
    return found


# --- programs of XLA ---------------------------------------------------------------------------------------

_BYTES = {"f64": 8, "s64": 8, "u64": 8, "f16": 2, "bf16": 2, "s8": 1, "u8": 1, "pred": 1}  # all others have 4
_LINE = re.compile(r"^\s+(?:ROOT )?%?(\S+) = (\(.*?\)|\S+) ([\w-]+)\((.*)$")
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")
# These move no bytes: they give an existing array another name or form.
_FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "reshape"}
_KINDS = {
    "products": {"convolution", "dot"},
    "pooling": {"reduce-window", "select-and-scatter", "scatter", "iota", "concatenate"},
    "sums": {"reduce"},
}
_MOVES = {"copy", "transpose", "reverse", "slice", "pad", "broadcast"}


class XlaKernel(NamedTuple):
    """A kernel of XLA: its name, its operations, and the bytes that it reads and writes."""

    name: str
    operations: tuple[str, ...]
    bytes: int

    @property
    def kind(self) -> str:
        """The kernel's main purpose."""
        for kind, operations in _KINDS.items():
            if operations & {*self.operations}:
                return kind
        return "copies" if {*self.operations} <= _MOVES else "element by element"


def kernels_of(program: str) -> list[XlaKernel]:
    r"""Read an HLO program, as JAX prints it, and return its kernels in the order in which they run.

    In a program that isn't compiled yet, every instruction counts as a kernel. An array counts once for each
    kernel that reads it, and once for the kernel that writes it.

    Examples
    --------
    >>> text = "ENTRY main {\n  a = f32[2,3] parameter(0)\n  ROOT b = f32[2,3] add(a, a)\n}"
    >>> kernels_of(text)
    [XlaKernel(name='b', operations=('add',), bytes=48)]
    """
    computations, entry, lines = {}, None, []
    for line in program.splitlines():
        if line.endswith("{") and line[0] not in " }" and not line.startswith("HloModule"):
            name = line.removeprefix("ENTRY ").split()[0].lstrip("%")
            lines = computations[name] = []
            entry = name if line.startswith("ENTRY") else entry
        elif found := _LINE.match(line):
            lines.append(_parsed(*found.groups()))
    return _kernels(computations, entry)


def _kernels(computations, name):
    sizes = {result: size for result, size, *_ in computations[name]}
    found = []
    for result, size, operation, operands, called in computations[name]:
        if operation == "call":
            found += _kernels(computations, called)
        elif operation not in _FREE:
            moved = size + sum(sizes.get(operand, 0) for operand in operands)
            found.append(XlaKernel(result, _operations(computations, operation, called), moved))
    return found


def _operations(computations, operation, called):
    """Return the operations of a kernel: itself, or the fused ones."""
    if operation != "fusion":
        return (operation,)
    inside = (_operations(computations, each[2], each[4]) for each in computations[called])
    return tuple(name for names in inside for name in names if name not in _FREE)


def _parsed(name, shape, operation, rest):
    """Return an instruction: name, bytes of the result, operation, operands, and called computation."""
    size = sum(
        _BYTES.get(kind, 4) * math.prod(int(side) for side in sides.split(",") if side)
        for kind, sides in _ARRAY.findall(shape)
    )
    arguments, _, attributes = rest.partition(")")
    operands = {part.split()[-1].lstrip("%") for part in arguments.split(", ") if part.strip()}
    called = re.search(r"(?:calls|to_apply)=%?([\w.-]+)", attributes)
    return name, size, operation, operands, called and called[1]


# --- inference ---------------------------------------------------------------------------------------------


def session(proto, optimised_file=None, level="ALL"):
    """Return an ONNX Runtime session of a graph, on this CPU.

    Parameters
    ----------
    proto : onnx.ModelProto
    optimised_file : path, optional
        Where to write the optimised graph.
    level : {"BASIC", "EXTENDED", "ALL"}
        The optimisation level; ``"ALL"`` includes optimisations for this processor.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level}")
    # Waiting threads needn't keep a core busy.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if optimised_file is not None:
        options.optimized_model_filepath = str(optimised_file)
    return onnxruntime.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])


def optimised(proto, level="EXTENDED"):
    """Return the optimised graph that ONNX Runtime runs, as an `onnx.ModelProto`."""
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        session(proto, Path(folder) / "net.onnx", level)
        return onnx.load(Path(folder) / "net.onnx")


def logits_of(runner, images, batch=500) -> np.ndarray:
    """Return the logits of images from an ONNX Runtime session, computed batch by batch."""
    parts = (images[start : start + batch] for start in range(0, len(images), batch))
    return np.concatenate([runner.run(None, {"x": part})[0] for part in parts])


def folded(network) -> Sequential:
    """Return a network without its batch norms, each folded into the convolution before it.

    Max pooling between them is allowed if all scales are positive.

    Raises
    ------
    ValueError
        If a batch norm cannot be folded.

    Examples
    --------
    >>> from cnn_numba import cifar_convnet_bn
    >>> [layer.kind for layer in folded(cifar_convnet_bn()).layers[:4]]
    ['conv', 'pool', 'relu', 'conv']
    """
    kept = [layer for layer in network.layers if not isinstance(layer, BatchNorm2d)]
    plain = Sequential([_again(layer) for layer in kept], network.input_shape, network.batch_size)
    twins = dict(zip(kept, plain.layers, strict=True))
    for layer, twin in twins.items():
        for key in layer.parameter_shapes():
            getattr(twin, key)[...] = getattr(layer, key)
    for index, norm in enumerate(network.layers):
        if isinstance(norm, BatchNorm2d):
            convolution = _convolution_before(network.layers[:index], norm)
            factor = norm.weight / np.sqrt(norm.running_var + norm.eps)
            twin = twins[convolution]
            twin.weight *= factor[:, None, None, None]
            twin.bias[:] = (twin.bias - norm.running_mean) * factor + norm.bias
    return plain


def _convolution_before(layers, norm):
    *_, last = layers
    if isinstance(last, MaxPool2d) and norm.weight.min() > 0:
        last = layers[-2]
    if not isinstance(last, Conv2d):
        raise ValueError(f"{norm.name} cannot be folded: before it is {last!r}")
    return last


def _again(layer):
    """Return a new layer of the same kind and size."""
    if isinstance(layer, Conv2d):
        return Conv2d(layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride, layer.padding)
    if isinstance(layer, MaxPool2d):
        return MaxPool2d(layer.kernel_size, layer.stride, layer.padding)
    if isinstance(layer, Linear):
        return Linear(layer.in_features, layer.out_features)
    return type(layer)()


def rounded_logits(network, batches, limits, bits) -> np.ndarray:
    """Return the logits of a network whose products have operands with few bits.

    The computation uses floats; integers would give the same results except for rounding.

    Parameters
    ----------
    network : Sequential
        Not changed.
    batches : list of ndarray
    limits : dict of str to float
        Where to clip the inputs of each layer that multiplies, by the layer's name.
    bits : int
        Of an operand, including its sign.
    """
    steps, kept = 2 ** (bits - 1) - 1, network.parameters.copy()
    for layer in network.layers:
        if layer.name in limits:
            rows = layer.weight.reshape(len(layer.weight), -1)
            rows[:] = _rounded(rows, abs(rows).max(axis=1, keepdims=True), steps)
    found = []
    for x in batches:
        for layer in network.layers:
            x = _rounded(x, limits[layer.name], steps) if layer.name in limits else x
            x = layer.forward(x, training=False)
        found.append(x.copy())
    network.parameters[:] = kept
    return np.concatenate(found)


def _rounded(values, limit, steps):
    """Round to `steps` steps up to a limit, and clip there."""
    return (np.clip(np.rint(values / limit * steps), -steps, steps) / steps * limit).astype(np.float32)


def measured_epoch(batch_size) -> float:
    """Return the seconds of an epoch of `mnist_cnn` on the CPU, as `cnn-numba bench epoch` recorded it."""
    path = extras.CHECKOUT / "benchmarks" / "epoch.json"
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path}: the measurements are only in a clone of the repository")
    record = json.loads(path.read_text())
    (seconds,) = (each["medians"]["ours"] for each in record["results"] if each["batch_size"] == batch_size)
    return seconds
