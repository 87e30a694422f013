"""PyTorch's side of comparisons: the same network, trained with the same recipe."""

import numpy as np

from benchmarks.transformer_twins import transformer_twins
from cnn_numba import extras
from cnn_numba.beyond.norm import layers as norms
from cnn_numba.beyond.recurrent import layers as recurrent
from cnn_numba.device import to_host
from cnn_numba.nn import layers
from cnn_numba.train.optim import SCHEDULES


def need_pytorch():
    """Raise an error if PyTorch is not installed, before minutes of measuring; it is not imported."""
    extras.need("torch", "A comparison with PyTorch")


def pytorch_twin(model, initialise=True):
    """Build the same network in PyTorch.

    Parameters
    ----------
    model : Sequential
    initialise : bool
        Copy the model's parameters; otherwise it keeps PyTorch's random ones.

    Returns
    -------
    torch.nn.Sequential

    Examples
    --------
    >>> from cnn_numba.nn.models import MODELS
    >>> pytorch_twin(MODELS["mnist_cnn"]())[0]
    Conv2d(1, 32, kernel_size=(3, 3), stride=(1, 1))
    """
    import torch
    from torch import nn

    twins = {
        layers.Conv2d: lambda our: nn.Conv2d(
            our.in_channels, our.out_channels, our.kernel_size, our.stride, our.padding
        ),
        layers.MaxPool2d: lambda our: nn.MaxPool2d(our.kernel_size, our.stride, our.padding),
        layers.AvgPool2d: lambda our: nn.AvgPool2d(our.kernel_size, our.stride, our.padding),
        layers.Linear: lambda our: nn.Linear(our.in_features, our.out_features),
        norms.BatchNorm2d: lambda our: nn.BatchNorm2d(our.num_features, our.eps, our.momentum),
        norms.LayerNorm: lambda our: nn.LayerNorm(our.normalized_shape, our.eps),
        layers.Flatten: lambda our: nn.Flatten(),
        layers.ReLU: lambda our: nn.ReLU(),
        layers.Sigmoid: lambda our: nn.Sigmoid(),
        layers.Tanh: lambda our: nn.Tanh(),
        layers.GELU: lambda our: nn.GELU(),
        recurrent.Rows: lambda our: nn.Flatten(1, 2),
        recurrent.LSTM: _lstm_twin,
    }
    twins |= transformer_twins(twins)
    twin = nn.Sequential(*(twins[type(layer)](layer) for layer in model.layers))
    twin.to(getattr(torch, model.parameters.dtype.name))
    if initialise:
        # Parameters are in the same order as in the arena, under other names.
        parameters = torch.from_numpy(to_host(model.parameters).copy())
        nn.utils.vector_to_parameters(parameters, twin.parameters())
    return twin


def _lstm_twin(our):
    """Return PyTorch's LSTM with a single output, like our layer, and our names for its parameters, too."""
    from torch import nn

    class LstmTwin(nn.LSTM):
        def forward(self, x):
            out, (h_n, _) = super().forward(x)
            return out if our.return_sequences else h_n[0]

        def __getattr__(self, name):
            return super().__getattr__(f"{name}_l0" if name in our.parameter_shapes() else name)

    return LstmTwin(our.input_size, our.hidden_size, batch_first=True)


class TorchTraining:
    """PyTorch's side of a comparison: the data in memory as tensors, no DataLoader.

    Parameters
    ----------
    model : Sequential
    data : data.Dataset
    recipe : dict
    initialise : bool
        As in `pytorch_twin`.
    device : {"cpu", "cuda"}
        The device of network and data.
    """

    def __init__(self, model, data, recipe, initialise=True, device="cpu"):
        import torch

        self.torch, self.data, self.recipe, self.device = torch, data, recipe, device
        self.network = pytorch_twin(model, initialise).to(device)
        self.optimizer = self.make_optimizer()
        self.parts = {
            part: (torch.from_numpy(images).to(device), torch.from_numpy(labels).long().to(device))
            for part, images, labels in (
                ("train", data.train_images, data.train_labels),
                ("test", data.test_images, data.test_labels),
            )
        }

    def make_optimizer(self, **options):
        """Return Adam for the network's parameters."""
        betas = self.recipe["beta1"], self.recipe["beta2"]
        return self.torch.optim.Adam(self.network.parameters(), self.recipe["lr"], betas, **options)

    def logits(self, images):
        """Return the network's logits of images, shape (n, C, H, W), uint8, which it normalises."""
        x = images.float().div_(255)
        if (self.data.mean, self.data.std) != (0.0, 1.0):
            x.sub_(self.data.mean).div_(self.data.std)
        return self.network(x)

    def loss(self, images, labels):
        """Return the mean loss of a batch."""
        share = self.recipe["label_smoothing"]
        return self.torch.nn.functional.cross_entropy(self.logits(images), labels, label_smoothing=share)

    def step(self, indices):
        """Take one step on the images at `indices`, a tensor."""
        images, labels = self.parts["train"]
        self.optimizer.zero_grad()
        self.loss(images[indices], labels[indices]).backward()
        self.optimizer.step()

    def epoch(self, order, first_step=0, total_steps=1):
        """Train on the batches of `order`."""
        schedule = SCHEDULES[self.recipe["schedule"]]
        order = self.torch.from_numpy(np.concatenate(list(order))).to(self.device)
        for step, indices in enumerate(order.split(self.recipe["batch_size"]), start=first_step):
            self.optimizer.param_groups[0]["lr"] = schedule(self.recipe["lr"], step, total_steps)
            self.step(indices)

    def accuracy(self):
        """Return the accuracy on the test images."""
        images, labels = self.parts["test"]
        self.network.eval()
        with self.torch.no_grad():
            correct = sum(
                int((self.logits(some).argmax(1) == right).sum())
                for some, right in zip(images.split(256), labels.split(256), strict=True)
            )
        self.network.train()
        return correct / len(labels)


class Eager(TorchTraining):
    """PyTorch on the GPU, operation by operation."""

    def __init__(self, model, data, recipe):
        super().__init__(model, data, recipe, device="cuda")

    def make_optimizer(self, **options):
        """Return the Adam with a single kernel."""
        return super().make_optimizer(fused=True, **options)


class Compiled(Eager):
    """PyTorch with its compiler, forward and backward."""

    def __init__(self, model, data, recipe):
        super().__init__(model, data, recipe)
        self.torch.compiler.reset()
        # The last batch is smaller: each of the two sizes gets its own code.
        self.loss = self.torch.compile(self.loss, mode="max-autotune", dynamic=False)

    def step(self, indices):
        """Take one step on the images at `indices`, a tensor."""
        self.torch.compiler.cudagraph_mark_step_begin()
        super().step(indices)


class Captured(Eager):
    """PyTorch with each whole step as a CUDA graph, including gathering and update."""

    def __init__(self, model, data, recipe):
        super().__init__(model, data, recipe)
        self.graphs = {}

    def make_optimizer(self, **options):
        """Return the Adam that can be captured."""
        return super().make_optimizer(capturable=True, **options)

    def step(self, indices):
        """Take one step on the images at `indices`, a tensor."""
        if len(indices) not in self.graphs:
            self.graphs[len(indices)] = self._capture(indices.clone())
        fixed, graph = self.graphs[len(indices)]
        fixed.copy_(indices)
        graph.replay()

    def _capture(self, indices):
        """Capture a step that reads `indices`, after some uncaptured ones on another stream."""
        cuda = self.torch.cuda
        stream = cuda.Stream()
        stream.wait_stream(cuda.current_stream())
        with cuda.stream(stream):
            for _ in range(3):
                super().step(indices)
        cuda.current_stream().wait_stream(stream)
        self.optimizer.zero_grad()  # so that the graph allocates its own gradients
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            super().step(indices)
        return indices, graph
