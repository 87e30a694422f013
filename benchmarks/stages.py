"""The stages of a chain of layers, and the time of a call, for `layers` and `ladder`."""

import statistics
import time
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from cnn_numba.ops.fused import cpu
from cnn_numba.ops.fused.checks import Convolution
from cnn_numba.ops.fused.cpu_backward import backward_stage
from cnn_numba.ops.fused.cpu_forward import forward_stage
from cnn_numba.ops.fused.cpu_stage import Stage as Plan, stage_at
from cnn_numba.ops.shared.jit import serial_jit

SECONDS_EACH, FEWEST, MOST = 0.5, 3, 100  # of a call: seconds in all, and samples


class Stage(NamedTuple):
    """A convolution with its ReLU and pooling, and its arrays in a training step."""

    name: str
    x: np.ndarray
    convolution: Convolution
    out: np.ndarray
    gradient: np.ndarray
    """Of `out`."""
    needs_input: bool
    """Whether its backward pass returns the gradient of `x`."""

    def flops(self) -> tuple[int, int]:
        """Return the useful operations forward and backward, two for a multiply-add.

        Not counted are, forward, pixels that no pooling window covers; backward, zero gradients, which three
        pixels of a window have, and all pixels of a dead ReLU.
        """
        pixels = self.out.size * (4 if self.convolution.pool else 1)
        alive = np.count_nonzero(self.gradient[self.out > 0] if self.convolution.relu else self.gradient)
        each = 2 * self.convolution.weight[0].size
        return each * pixels, each * alive * (1 + self.needs_input)


def stages_of(chain, gradient) -> list[Stage]:
    """Return the stages of a chain with the arrays of its last forward pass, and of a backward pass.

    Parameters
    ----------
    chain : ConvChain
    gradient : ndarray
    """
    stages, x = [], chain.x
    for (conv, pool), each in zip(chain.stages, chain.convolutions(), strict=True):
        out = cpu.conv_chain_forward(x, [each])
        name = conv.name + (" + pooling" if pool else "")
        stages.append(Stage(name, x, each, out, out, bool(stages) or chain.needs_grad_input))
        x = out
    for index in reversed(range(len(stages))):
        stages[index] = stage = stages[index]._replace(gradient=gradient)
        _, gradient = cpu.conv_chain_backward(gradient, stage.x, [stage.convolution])
    return stages


def calls_of(stages: list[Stage], winograd: bool = True):
    """Return functions that run stages forward and backward as a separate chain.

    Parameters
    ----------
    stages : list of Stage
        Consecutive ones.
    winograd : bool
        Whether to use Winograd's method for suitable stages.
    """
    x, last, convolutions = stages[0].x, stages[-1], [stage.convolution for stage in stages]
    scratch = cpu.conv_chain_scratch(x.shape, convolutions, stages[0].needs_input)
    if not winograd:
        scratch.plan[..., Plan._fields.index("winograd")] = 0
    out, grads = np.empty_like(last.out), [tuple(map(np.empty_like, each[:2])) for each in convolutions]
    grad_input: Any = np.empty_like(x) if stages[0].needs_input else False

    def forward():
        return cpu.conv_chain_forward(x, convolutions, out, scratch=scratch)

    def backward():
        return cpu.conv_chain_backward(last.gradient, x, convolutions, grads, grad_input, scratch=scratch)

    return forward, backward


@serial_jit
def _run_stage(memory, plan, index, batch, back, needs_input):
    for n in range(batch):
        stage = stage_at(plan, 0, index)
        if back:
            backward_stage(memory, stage, n, needs_input)
        else:
            forward_stage(memory, stage, n)


def time_stages(chain, stages: list[Stage]) -> dict[tuple[str, str], float]:
    """Return the median processor time of each stage in its chain's memory, by name and direction.

    The chain must just have run. Packing and unpacking of images and weights are not included.
    """
    memory, plan, found = chain.scratch.memory, chain.scratch.plan, {}
    for index, stage in enumerate(stages):
        for direction in ("forward", "backward"):
            how = direction == "backward", stage.needs_input
            call = partial(_run_stage, memory, plan, index, len(stage.x), *how)
            found[stage.name, direction] = median_seconds(call)
    return found


def median_seconds(call, fewest: int = FEWEST, warm_up: int = 1) -> float:
    """Return the median processor time of a call."""
    for _ in range(warm_up):
        call()
    samples: list[float] = []
    while len(samples) < fewest or (sum(samples) < SECONDS_EACH and len(samples) < MOST):
        begun = time.process_time()
        call()
        samples.append(time.process_time() - begun)
    return statistics.median(samples)
