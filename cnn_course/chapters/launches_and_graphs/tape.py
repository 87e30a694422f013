"""A tape: a model of a CUDA graph in Python, which also works without a GPU.

`record` records a function's launches without running them, `Tape.replay` launches them again with the same
arguments, and anything that a graph can't contain raises an error with the reason. A tape saves no time;
`cnn_numba.train.graphs` makes a real graph. `ToyTraining` is a small training run to record.
"""

from contextlib import ExitStack, contextmanager

import numpy as np
from numba import cuda

from cnn_course.engine.launch_lists import replaced
from cnn_numba import device
from cnn_numba.nn.layers import CrossEntropyLoss, Flatten, Linear
from cnn_numba.nn.models import Sequential
from cnn_numba.ops.gather.gpu import advance_kernel
from cnn_numba.train.optim import SGD
from gpuless.simulator import foreign


class CannotRecord(RuntimeError):
    """Something that no graph can contain.

    Parameters
    ----------
    what : {"reads on the host", "copies from the host", "allocates", "waits", "launched apart", \
            "computes apart"}
    name : str
        The function that was called.
    """

    def __init__(self, what, name):
        super().__init__(f"{name} {_REASONS[what]}")
        self.what, self.name = what, name


_REASONS = {
    "reads on the host": "copies numbers to the host, and while a step is recorded there are none yet",
    "copies from the host": "copies the host's current data, but no replay runs on the host",
    "allocates": "allocates memory: do that before the recording",
    "waits": "waits for the GPU, which runs nothing while a step is recorded",
    "computes apart": "computes with a device array, which only kernels can do: on a GPU it's an error",
    "launched apart": "launches on the default stream, not on the recorded one: use device.launch",
}
_SHOWN = {"__getitem__": "kernel[...]", "__setitem__": "array[...] = ...", "__add__": "array + ..."}
_FORBIDDEN = {
    device: {
        "to_host": "reads on the host",
        "to_device": "copies from the host",
        "copy": "copies from the host",
        "empty": "allocates",
        "zeros": "allocates",
        "pinned": "allocates",
        "synchronize": "waits",
    },
    cuda: {
        "to_device": "copies from the host",
        "device_array": "allocates",
        "device_array_like": "allocates",
        "pinned_array": "allocates",
        "synchronize": "waits",
    },
}


class Tape:
    """A recorded function; `record` makes it.

    Attributes
    ----------
    launches : list of device.Launch
    """

    def __init__(self, launches):
        self.launches = launches

    def __len__(self):
        return len(self.launches)

    def replay(self):
        """Launch everything again, with the recorded arguments."""
        for launch in self.launches:
            launch.run()


def record(function, *arguments) -> Tape:
    """Record a function's launches, without running them.

    Parameters
    ----------
    function : callable
    *arguments
        The arguments of its call.

    Raises
    ------
    CannotRecord
        If it does anything that a CUDA graph can't contain.

    Examples
    --------
    >>> from cnn_numba.ops.gather.gpu import advance
    >>> cursor = device.zeros(1, np.int32)
    >>> tape = record(advance, cursor)
    >>> int(device.to_host(cursor)[0])
    0
    >>> for _ in range(3):
    ...     tape.replay()
    >>> int(device.to_host(cursor)[0])
    3
    >>> record(lambda: device.to_host(cursor))
    Traceback (most recent call last):
        ...
    cnn_course.chapters.launches_and_graphs.tape.CannotRecord: to_host copies numbers to the host, and ...
    """
    launches, read = [], []
    array_type = type(device.empty(1))
    forbidden = {
        **_FORBIDDEN,
        array_type: {
            "copy_to_host": "reads on the host",
            "copy_to_device": "copies from the host",
            "__setitem__": "copies from the host",
            "__add__": "computes apart",
        },
        type(advance_kernel): {"__getitem__": "launched apart"},
    }
    with arithmetic_refused(), ExitStack() as stack:
        for owner, names in forbidden.items():
            for name in names.keys() & set(dir(owner)):  # a GPU's arrays have no addition
                what = names[name]
                stack.enter_context(replaced(owner, name, _refusal(name, what)))
        stack.enter_context(replaced(array_type, "__getitem__", _noting(array_type.__getitem__, read)))
        stack.enter_context(device.observe_launches(launches.append))
        function(*arguments)
    if read:
        raise CannotRecord("reads on the host", "array[i]")
    return Tape(launches)


@contextmanager
def arithmetic_refused():
    """Replace Python's TypeError for arithmetic on device arrays by `CannotRecord`."""
    array_type = type(device.empty(1))
    try:
        yield
    except TypeError as error:
        if not foreign.names_type(error, array_type):
            raise
        raise CannotRecord("computes apart", _SHOWN["__add__"]) from None


def _noting(plainly, read):
    """Return the indexing method, recording in `read` each single element, which is copied to the host."""

    def part(array, index):
        found = plainly(array, index)
        if not device.is_device_array(found):
            read.append(index)
        return found

    return part


def _refusal(name, what):
    shown = _SHOWN.get(name, name)

    def refuse(*arguments, **keywords):
        raise CannotRecord(what, shown)

    return refuse


class ToyTraining:
    """A training run of one dense layer, small enough for the simulator, with everything a step needs.

    Parameters
    ----------
    images : ndarray, shape (N, 1, H, W), uint8
    labels : ndarray, shape (N,), int32
    order : ndarray, shape (M,), int64
        The indices of the images, in the order of their use.
    lrs : sequence of float
        The learning rate of each step.
    batch_size : int

    Attributes
    ----------
    images, labels, order, rates, cursor, totals : device array
        `rates` has a row for each step, `cursor` has the step's number, `totals` the sum of the losses and
        the number of right answers.
    x, y : device array
        Arrays for a batch.
    model, loss, sgd : Sequential, CrossEntropyLoss, SGD
        The weights begin at zero.
    order_on_host, lrs, number, total_loss : ndarray, list, int, float
        On the host, for a step without a graph.
    """

    mean, std = 0.0, 1.0

    def __init__(self, images, labels, order, lrs, batch_size):
        classes, pixels = int(labels.max()) + 1, int(np.prod(images.shape[1:]))
        layers = [Flatten(), Linear(pixels, classes)]
        self.model = Sequential(layers, images.shape[1:], batch_size, "gpu", name="toy")
        device.copy(self.model.parameters, np.zeros(self.model.parameters.size, np.float32))
        self.loss, self.sgd = CrossEntropyLoss(batch_size, classes, "gpu"), SGD(self.model)
        self.images, self.labels = device.to_device(images), device.to_device(labels)
        self.order, self.batch_size = device.to_device(order), batch_size
        self.rates = device.to_device(self.sgd.rates(lrs))
        self.cursor, self.totals = device.zeros(1, np.int32), device.zeros(2, np.float64)
        self.x, self.y = device.empty((batch_size, *images.shape[1:])), device.empty(batch_size, np.int32)
        self.order_on_host, self.lrs, self.number, self.total_loss = order, list(lrs), 0, 0.0
