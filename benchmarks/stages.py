"""The stages of a chain of layers, each alone, and the time of a call: for `layers` and `ladder`."""

import statistics
import time
from typing import Any, NamedTuple

import numpy as np

from cnn_numba.ops.fused import cpu
from cnn_numba.ops.fused.checks import Convolution

SECONDS_EACH, FEWEST, MOST = 0.5, 3, 100  # of a call: seconds in all, and samples


class Stage(NamedTuple):
    """A convolution with its ReLU and pooling, and what it was given in a training step."""

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

        Forward, a pixel that no pooling window covers needs none; backward, neither does a gradient that is
        zero, as it is for three pixels of a window and where a ReLU is dead.
        """
        pixels = self.out.size * (4 if self.convolution.pool else 1)
        alive = np.count_nonzero(self.gradient[self.out > 0] if self.convolution.relu else self.gradient)
        each = 2 * self.convolution.weight[0].size
        return each * pixels, each * alive * (1 + self.needs_input)


def stages_of(chain, gradient) -> list[Stage]:
    """Return the stages of a chain as its last forward pass and this gradient of its output meet them.

    Parameters
    ----------
    chain : ConvChain
    gradient : ndarray
    """
    stages, x = [], chain.x
    for conv, pool in chain.links:
        each = Convolution(conv.weight, conv.bias, conv.stride, conv.padding, conv.relu, pool)
        out = cpu.conv_chain_forward(x, [each])
        name = conv.name + (" + pooling" if pool else "")
        stages.append(Stage(name, x, each, out, out, bool(stages) or chain.needs_grad_input))
        x = out
    for index in reversed(range(len(stages))):
        stages[index] = stage = stages[index]._replace(gradient=gradient)
        _, gradient = cpu.conv_chain_backward(gradient, stage.x, [stage.convolution])
    return stages


def calls_of(stage: Stage, winograd: bool = True):
    """Return functions that take a stage forward and backward, as a chain of its own.

    Parameters
    ----------
    stage : Stage
    winograd : bool
        Whether to let it go by Winograd's way where that suits it.
    """
    x, each = stage.x, stage.convolution
    scratch = cpu.conv_chain_scratch(x.shape, [each], stage.needs_input)
    if not winograd:
        scratch.stages[:] = [made._replace(winograd=made.winograd[:0]) for made in scratch.stages]
    out, grads = np.empty_like(stage.out), [(np.empty_like(each.weight), np.empty_like(each.bias))]
    grad_input: Any = np.empty_like(x) if stage.needs_input else False

    def forward():
        return cpu.conv_chain_forward(x, [each], out, scratch=scratch)

    def backward():
        return cpu.conv_chain_backward(stage.gradient, x, [each], grads, grad_input, scratch=scratch)

    return forward, backward


def time_stages(chain, stages: list[Stage]) -> dict[tuple[str, str], float]:
    """Return the median processor time of each stage within its chain, by name and direction."""
    convolutions, made = [stage.convolution for stage in stages], chain.scratch.stages
    out, grads = np.empty_like(stages[-1].out), [tuple(map(np.empty_like, c[:2])) for c in convolutions]
    grad_input = np.empty_like(chain.x) if chain.needs_grad_input else None
    samples: dict[tuple[str, str], list[float]] = {}

    def note(direction, passes, names):
        begun = time.process_time()
        for name, _ in zip(names, passes, strict=True):
            now = time.process_time()
            samples.setdefault((name, direction), []).append(now - begun)
            begun = now

    names = [stage.name for stage in stages]
    for _ in range(MOST):
        note("forward", cpu.forward_by_stage(chain.x, convolutions, made, out), names)
        passes = cpu.backward_by_stage(stages[-1].gradient, convolutions, made, grads, grad_input)
        note("backward", passes, names[::-1])
    return {key: statistics.median(each) for key, each in samples.items()}


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
