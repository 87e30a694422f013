"""The check of a layer that the reader has written: both passes, from their numbers alone."""

import warnings
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

import gpuless
from cnn_course.chapters.capstone.modelling import GPUS, can_model, on_device
from cnn_course.chapters.capstone.watching import TO_HOST, refuse_findings, sanitized, watched
from cnn_course.engine.checks.evidence import Wrong
from cnn_course.engine.checks.exercise import Exercise, Verdict
from cnn_course.engine.checks.kernels import is_unfinished
from cnn_course.engine.checks.launches import normal, output
from cnn_numba import device

SHAPES = (2, 3, 6, 5), (1, 2, 4, 7), (3, 1, 8, 8), (2, 5, 1, 9), (1, 4, 5, 3)
LARGE = (64, 32, 26, 26)
_ELEMENTS, _STEP, _TOLERANCE = 12, 1 / 16, 2e-3


class Layer(NamedTuple):
    """What `your_layer` returns: the function from input shape to output shape, and launchers."""

    out_shape: object
    forward: object
    backward: object


@dataclass(frozen=True, repr=False)
class OwnLayer(Exercise):
    """An exercise whose answer returns any layer without parameters."""

    def _verdict(self, attempt):
        if is_unfinished(attempt):
            return self._unsolved("Return a layer of yours, run the cell, then run this check again.")
        try:
            lines = judge_layer(_layer_of(self.name, attempt))
        except Wrong as found:
            return Verdict(self.name, "wrong", found.message, found.details, found.mistake)
        return Verdict(
            self.name, "solved", "Both passes agree with each other, and the sanitizer finds nothing.", lines
        )


def _layer_of(name, attempt):
    """Return the `Layer` that an attempt returns."""
    wanted = "Return three functions: the shape of the output, the forward and the backward launcher."
    if not callable(attempt) or hasattr(attempt, "py_func"):
        raise Wrong("not a layer", f"The check takes the function `{name}` itself.", wanted)
    try:
        found = attempt()
    except Exception as error:
        raise Wrong("raises", f"Your function raises `{type(error).__name__}`: {error}.") from error
    if not isinstance(found, (tuple, list)) or len(found) != 3 or not all(map(callable, found)):
        raise Wrong("not a layer", wanted)
    return Layer(*found)


def judge_layer(layer: Layer) -> tuple:
    """Check a layer; return its modelled times, as lines.

    Raises
    ------
    Wrong
        If one of the passes is wrong; `mistake` names the error.
    """
    rng, differs, depends = np.random.default_rng(3), False, False
    for shape in SHAPES:
        _shape_of(layer, shape)
    for number, shape in enumerate(SHAPES):
        x = normal(rng, shape)
        out = _forward(layer, x, number == 0)
        differs |= out.shape != x.shape or not np.array_equal(out, x)
        depends |= not np.array_equal(out, _forward(layer, 3 * np.flip(x)))
        if not np.array_equal(out, _forward(layer, x)):
            raise Wrong("not repeatable", "The same input gives another output the second time.")
        weights = normal(rng, out.shape)
        gradient = _backward(layer, weights, x, out, number == 0)
        _check_gradient(layer, x, weights, gradient, rng)
    if not differs:
        raise Wrong("does nothing", "The output is the input. Choose a layer that computes something.")
    if not depends:
        raise Wrong("ignores input", "The output is the same for every input. Let it depend on `x`.")
    return _modelled(layer)


def _shape_of(layer, wanted):
    try:
        shape = tuple(int(size) for size in layer.out_shape(wanted))
    except Exception as error:
        message = f"`out_shape` fails for an input of {wanted}: {error}."
        raise Wrong("not a layer", message) from error
    if min(shape, default=1) < 1:
        advice = "A pooling that rounds up, and uses partial windows at the edge, works for any size."
        raise Wrong("no output", f"For an input of {wanted}, `out_shape` returns {shape}.", advice)
    return shape


def _forward(layer, x, scrutinised=False):
    return _pass("forward", layer.forward, [x, output(_shape_of(layer, x.shape))], scrutinised)


def _backward(layer, grad_output, x, out, scrutinised=False):
    return _pass("backward", layer.backward, [grad_output, x, out, output(x.shape)], scrutinised)


_CALLED = {"forward": ("x", "out"), "backward": ("grad_output", "x", "out", "grad_input")}


def _pass(which, launcher, drawn, scrutinised):
    """Run a pass; with `scrutinised`, first under the sanitizer."""
    try:
        if scrutinised:
            refuse_findings(sanitized(launcher, drawn, TO_HOST))
        (result,) = watched(launcher, drawn, _CALLED[which], TO_HOST).results
    except Wrong as found:
        named = zip(_CALLED[which], drawn, strict=True)
        arguments = ", ".join(f"{name} {getattr(one, 'shape', one)}" for name, one in named)
        message = f"{found.message} That is in the {which} pass."
        raise Wrong(
            found.mistake, message, *found.details, f"It was called as {which}({arguments})."
        ) from found
    if missing := int(np.isnan(result).sum()):
        message = f"The {which} pass leaves {missing} of {result.size} elements unwritten, or NaN."
        raise Wrong("never written", message)
    return result


def _check_gradient(layer, x, weights, gradient, rng):
    """Compare some elements of a gradient with finite differences, where the layer is smooth."""
    measured, returned, places = [], [], []
    for place in rng.permutation(x.size)[:_ELEMENTS]:
        coarse, fine = (_difference(layer, x, weights, place, step) for step in (_STEP, _STEP / 2))
        if abs(coarse - fine) > 0.02 * max(abs(coarse), abs(fine), 0.05):
            continue
        measured.append((4 * fine - coarse) / 3)  # their errors cancel
        returned.append(float(gradient.flat[place]))
        places.append(tuple(int(i) for i in np.unravel_index(place, x.shape)))
    if not measured:
        return
    measured, returned = np.array(measured), np.array(returned)
    largest = max(np.abs(measured).max(), np.abs(returned).max(), 1e-6)
    if np.abs(returned - measured).max() <= _TOLERANCE * largest:
        return
    if np.abs(returned + measured).max() <= _TOLERANCE * largest:
        raise Wrong("negated", "The gradient of your backward pass has the wrong sign.")
    if not returned.any():
        raise Wrong("no gradient", "Your backward pass gives zeros, but the output depends on the input.")
    worst = int(np.abs(returned - measured).argmax())
    element = f"x[{', '.join(map(str, places[worst]))}]"
    message = (
        f"The backward pass doesn't match the forward pass. If `{element}` changes a little, the sum of "
        f"`grad_output * out` changes {measured[worst]:.5g} times as much, but your gradient is "
        f"{returned[worst]:.5g}."
    )
    raise Wrong("wrong gradient", message, f"`x` has shape {x.shape}.")


def _difference(layer, x, weights, place, step):
    """Return the central difference of the weighted sum of the outputs with respect to one element."""
    outs = []
    for sign in (1, -1):
        moved = x.copy()
        moved.flat[place] += np.float32(sign * step)
        outs.append(_forward(layer, moved).astype(np.float64))
    return float((weights * (outs[0] - outs[1])).sum() / (2 * step))


def _modelled(layer):
    """Return the modelled times of both passes on some GPUs, and what limits them."""
    if not can_model():
        return ()
    x = normal(np.random.default_rng(0), LARGE)
    shape = _shape_of(layer, LARGE)
    given = on_device([x, output(shape)])
    lines = []
    weights = device.to_device(normal(np.random.default_rng(1), shape))
    passes = {
        "forward": lambda: layer.forward(*given),
        "backward": lambda: layer.backward(weights, *given, device.zeros(LARGE)),
    }
    for name, work in passes.items():
        with warnings.catch_warnings(), gpuless.profiling(GPUS) as timelines:
            warnings.simplefilter("ignore")
            work()
        reports = [[e.report for e in timeline.events if e.kind == "kernel"] for timeline in timelines]
        times = ", ".join(
            f"{sum(r.microseconds for r in each):.3g} us on {each[0].device.name}" for each in reports
        )
        lines.append(f"{name} on {LARGE}: {times} (modelled)")
        longest = max(reports[0], key=lambda report: report.microseconds)
        lines.append(f"on a {longest.device.name} it is limited by {longest.limiter}")
    return tuple(lines)
