"""The article's autocorrelation, to be repaired."""

import itertools
import re

import numpy as np

from cnn_course.engine.checks.evidence import call
from cnn_course.engine.checks.exercise import Exercise, Wrong, avoids, case
from cnn_numba.ops.conv.reference import correlate_cpu

# The mistakes: the repair that is missing, and the slip that puts the mistake into the solution.
_REPAIRS = {
    "reversed": (
        "the signal meets its reversed self: that is the convolution x * x",
        ('np.correlate(signal, signal, mode="full")', "np.convolve(signal, signal)"),
    ),
    "default slice": (
        "without a delay the result does not start at lag 0, the centre of `full`",
        ("delay = 0", "delay = n // 2 - (n - 1)"),
    ),
    "int only": (
        "a delay that is a NumPy integer is ignored",
        ("if delay is None:", "if not isinstance(delay, int):"),
    ),
    "unchecked": (
        "not every delay outside -(n - 1) to n - 1 is refused with a ValueError; n is one of them",
        ("if not -n < delay < n:", "if False:"),
    ),
}


def _article(left):
    """Return `correlate_cpu` with some of the article's mistakes left in it."""

    def correlate(signal, delay=None):
        n = len(signal)
        full = np.correlate(signal, signal[::-1] if "reversed" in left else signal, mode="full")
        given = isinstance(delay, int) if "int only" in left else delay is not None
        if not given:
            return full[n // 2 if "default slice" in left else n - 1 :]
        if "unchecked" not in left and not -n < delay < n:
            raise ValueError(f"delay {delay} for a signal of {n} samples")
        return full[n - 1 + delay :]

    return correlate


def _partly_repaired():
    """Return all answers that repair some of the four mistakes but not all."""
    mistakes = {}
    for count in range(1, len(_REPAIRS)):
        for left in itertools.combinations(_REPAIRS, count):
            texts, slips = zip(*map(_REPAIRS.get, left), strict=True)
            mistakes[" + ".join(left)] = f"Still to repair: {'; '.join(texts)}.", _article(left), list(slips)
    return mistakes


def _signals(rng):
    """Draw signals of odd and even length, with every kind of delay, right and wrong."""
    x = {n: rng.normal(size=n) for n in (1, 5, 8, 13)}
    cases = [case(x[5]), case(x[8]), case(x[13]), case(x[1])]
    cases += [case(x[8], 3), case(x[5], delay=0), case(x[13], 12), case(x[8], delay=-2), case(x[5], -4)]
    cases += [case(x[8], np.int64(2)), case(x[13], np.int32(-5)), case(x[5], delay=np.uint8(1))]
    return [*cases, case(x[5], 5), case(x[8], -8), case(x[13], np.int64(40)), case(x[5], -30)]


def _circular(signal, delay=None):
    n = len(signal)
    lags = range(0 if delay is None else delay, n)
    return np.array([signal @ np.roll(signal, -d) for d in lags])


def _names_the_delay(attempt):
    """Demand that the message of the ValueError contains the delay, as a separate number."""
    for delay in (40, -30):
        refusal = call(attempt, case(np.arange(5.0), delay))
        if not re.search(rf"(?<![\d.-]){delay}(?!\d)", str(refusal.error)):
            raise Wrong(
                "delay not named",
                "The numbers are right, and you raise the ValueError when you should. But its message "
                "doesn't name the delay: put `delay` into it.",
                f"Seen with `delay` = {delay}: the message is `{refusal.error}`.",
            )


autocorrelation = Exercise(
    "autocorrelation",
    reference=correlate_cpu,
    cases=_signals,
    starts_as=_article(tuple(_REPAIRS)),
    properties=(avoids("correlate_cpu"), _names_the_delay),
    mistakes={
        **_partly_repaired(),
        "normalised": (
            "You divide by the value at lag 0, a common convention. Here r[0] is the energy of the signal.",
            lambda signal, delay=None: correlate_cpu(signal, delay) / (signal @ signal),
            ("full[n - 1 + delay :]", "full[n - 1 + delay :] / np.sum(signal**2)"),
        ),
        "averaged": (
            "You divide by the number of samples. Just sum the products here.",
            lambda signal, delay=None: correlate_cpu(signal, delay) / len(signal),
            ("full[n - 1 + delay :]", "full[n - 1 + delay :] / signal.size"),
        ),
        "circular": (
            "Your signal wraps around. Treat it as zero outside its samples.",
            _circular,
            [
                (
                    'full = np.correlate(signal, signal, mode="full")',
                    "around = fft.irfft(np.abs(fft.rfft(signal)) ** 2, n)",
                ),
                ("full[n - 1 + delay :]", "np.array([around[d % n] for d in range(delay, n)])"),
            ],
        ),
        "all lags": (
            "Without a delay you return the negative lags too. Start the result at lag 0.",
            lambda signal, delay=None: correlate_cpu(signal, 1 - len(signal) if delay is None else delay),
            ("delay = 0", "delay = 1 - n"),
        ),
        "mean removed": (
            "You subtract the mean first, as in statistics. Use the signal itself here.",
            lambda signal, delay=None: correlate_cpu(signal - signal.mean(), delay),
            ("n = len(signal)", "n = len(signal)\nsignal = signal - np.mean(signal)"),
        ),
    },
)
