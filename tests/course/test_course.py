"""The course's machinery: exercise checks, pictures, the ledger, and the notebooks tool."""

import base64
import io
import itertools
import os
import re
import threading
import time

import nbformat
import numpy as np
import pytest
from numba import njit
from PIL import Image

from cnn_course.chapters.convolution_on_the_cpu import exercises as convolution_on_the_cpu
from cnn_course.engine import notebooks, plots
from cnn_course.engine.checks.exercise import (
    CheckFailed,
    Exercise,
    Verdict,
    Wrong,
    avoids,
    case,
    is_blank,
)
from cnn_course.engine.checks.uninitialised import twins
from cnn_course.engine.ledger import Ledger, Rung, duration
from cnn_numba.ops.conv.reference import conv_cpu

# --- exercise checks ---------------------------------------------------------------------------------------


def scaled_sum(x, weights, scale=1.0):
    return scale * (x * weights)


def two_arrays(rng):
    shapes = [(2, 3), (4, 4), (5, 2), (3, 3)]
    return [case(rng.normal(size=shape), rng.normal(size=shape), scale=2.5) for shape in shapes]


exercise = Exercise(
    "scaled_sum",
    reference=scaled_sum,
    cases=two_arrays,
    mistakes={
        "added": ("You add where `*` is meant.", lambda x, weights, scale=1.0: scale * (x + weights)),
        "unscaled": (
            "The scale is missing.",
            lambda x, weights, scale=1.0: x * weights,
            ("scale * ", ""),
            "return x * weights",
        ),
    },
)


def mistake_of(attempt):
    verdict = exercise(attempt)
    assert verdict.status == "wrong"
    return verdict.mistake


def test_slips_are_kept_apart_from_what_a_check_needs():
    assert exercise.slips == {"added": [], "unscaled": [("scale * ", ""), "return x * weights"]}
    assert all(callable(function) for _, *functions in exercise.mistakes.values() for function in functions)


def test_right_answers_are_solved():
    assert exercise(scaled_sum).status == "solved"
    assert exercise(njit(scaled_sum)).status == "solved"
    # Another order of the same sums must not fail.
    assert exercise(lambda x, weights, scale: (x * scale) * weights).status == "solved"


def test_stubs_are_unsolved_and_do_not_raise():
    def with_docstring(x, weights, scale):
        """Do it."""
        ...

    def passing(x, weights, scale):
        pass

    def with_a_start(x, weights, scale):
        out = np.zeros(x.shape)
        out[0] = 1
        return ...

    stubs = [with_docstring, passing, with_a_start, njit(passing), ...]
    assert [exercise(stub).status for stub in stubs] == ["unsolved"] * 5


def test_blank_functions_are_recognised():
    def returns_none(x):
        return None

    def sets(x):
        x[0] = 1

    assert is_blank(returns_none)
    assert not is_blank(sets)
    assert not is_blank(len)


def test_a_function_to_repair_is_unsolved_while_it_behaves_as_at_the_start():
    def broken(x, weights, scale=1.0):
        return x - weights

    repair = Exercise("scaled_sum", scaled_sum, two_arrays, exercise.mistakes, starts_as=broken)
    assert repair(lambda x, weights, scale: -(weights - x)).status == "unsolved"
    assert repair(lambda x, weights, scale: x + weights * scale).status == "wrong"
    assert repair(scaled_sum).status == "solved"


def test_known_mistakes_are_named():
    assert mistake_of(lambda x, weights, scale: scale * x + scale * weights) == "added"
    assert mistake_of(lambda x, weights, scale: x * weights) == "unscaled"
    assert "`*`" in exercise(lambda x, weights, scale: scale * (x + weights)).message


def test_a_mistake_in_some_cases_only_is_named_too():
    def sometimes(x, weights, scale):
        return scale * (x + weights) if x.shape == (5, 2) else scale * x * weights

    assert mistake_of(sometimes) == "added"


def test_two_mistakes_at_once_are_named_as_neither():
    assert mistake_of(lambda x, weights, scale: x + weights) == "numbers"


def test_an_exception_is_shown_with_its_line():
    def fails(x, weights, scale):
        total = x * weights
        return total[99]

    verdict = exercise(fails)
    assert verdict.mistake == "raises"
    assert "IndexError: index 99 is out of bounds" in verdict.message
    assert verdict.details[0] == "Line 3 of your function: `return total[99]`"
    assert "shape (2, 3)" in verdict.details[1]


def test_an_exception_in_compiled_code_is_shown_too():
    @njit
    def fails(x, weights, scale):
        return np.linalg.inv(x)

    assert "raised" in exercise(fails).message


def test_a_long_message_is_cut():
    def fails(x, weights, scale):
        raise RuntimeError("word " * 500)

    assert len(exercise(fails).message) < 300


def test_the_wrong_number_of_parameters_is_an_exception_like_another():
    verdict = exercise(lambda x: x)
    assert verdict.message.startswith("Your function raised TypeError")
    assert len(verdict.details) == 1  # no line: the call did not get that far


def test_a_call_instead_of_the_function_is_recognised():
    verdict = exercise(np.ones(3))
    assert verdict.mistake == "not a function"
    assert "`scaled_sum`" in verdict.message


@pytest.mark.parametrize(
    ("attempt", "mistake"),
    [
        (lambda x, weights, scale: print(end=""), "returns None"),
        (lambda x, weights, scale: [1.0, 2.0], "type"),
        (lambda x, weights, scale: (scale * x * weights).astype(int), "type"),
        (lambda x, weights, scale: (scale * x * weights).astype(complex), "type"),
        (lambda x, weights, scale: (scale * x * weights).sum(), "type"),
        (lambda x, weights, scale: (scale * x * weights)[:, 1:], "shape"),
        (lambda x, weights, scale: scale * x, "ignores input"),
        (lambda x, weights, scale: scale * weights, "ignores input"),
        (lambda x, weights, scale: np.full(x.shape, 7.0), "constant"),
        (lambda x, weights, scale: (scale * x * weights).T, "transposed"),
        (lambda x, weights, scale: -scale * x * weights, "negated"),
        (lambda x, weights, scale: np.flip(scale * x * weights), "reversed"),
        (lambda x, weights, scale: 3 * scale * x * weights, "factor"),
        (lambda x, weights, scale: scale * x * weights + 1e-3, "numbers"),
        (lambda x, weights, scale: np.full(x.shape, np.nan) * x * weights, "constant"),
    ],
)
def test_general_findings(attempt, mistake):
    assert mistake_of(attempt) == mistake


def test_ignored_input_is_named():
    assert "`weights`" in exercise(lambda x, weights, scale: scale * x).message


def test_changed_input_is_named_even_if_the_numbers_are_right():
    def in_place(x, weights, scale):
        weights *= scale
        return x * weights

    verdict = exercise(in_place)
    assert verdict.mistake == "changes input"
    assert "`weights`" in verdict.message


def test_attempts_do_not_see_each_others_inputs():
    before = repr(exercise.inputs())
    exercise(lambda x, weights, scale: x.fill(0))
    assert repr(exercise.inputs()) == before


def test_nan_never_passes():
    def partly(x, weights, scale):
        out = scale * x * weights
        out[-1] = np.nan
        return out

    verdict = exercise(partly)
    assert verdict.mistake == "numbers"
    assert "3 of 6 entries are NaN" in " ".join(verdict.details)


def test_nan_where_the_reference_has_nan_is_right():
    root = Exercise("f", lambda x: np.sqrt(x), lambda rng: [(np.array([4.0, -1.0]),)])
    assert root(lambda x: np.where(x < 0, np.nan, np.abs(x) ** 0.5)).status == "solved"
    assert root(lambda x: np.abs(x) ** 0.5).status == "wrong"


def test_the_place_of_wrong_entries_is_described():
    def last_row(x, weights, scale):
        out = scale * x * weights
        out[-1] += 1
        return out

    def rim(x, weights, scale):
        out = scale * x * weights
        out[1:-1, 1:-1] += 1
        return np.where(out == scale * x * weights, out + 1, scale * x * weights)

    assert "The wrong entries all lie in the last row." in exercise(last_row).details
    assert "The wrong entries all lie on the border." in exercise(rim).details


def test_square_shapes_alone_are_noticed():
    def square(x, weights, scale):
        out = scale * x * weights
        return out if x.shape[0] == x.shape[1] else out + x

    assert "right for square shapes and wrong for all others" in " ".join(exercise(square).details)


def test_a_result_repeated_in_one_case_only_is_not_constant():
    cases = [(np.array([-8.0, -6.0]),), (np.array([1.0, 2.0, 4.0]),)]
    check = Exercise("f", np.max, lambda rng: cases)
    assert check(lambda x: np.max(x, initial=0.0)).mistake == "numbers"
    assert check(lambda x: np.float64(4.0)).mistake == "constant"


def test_first_wrong_entry_is_shown_with_both_values():
    count = Exercise("f", lambda x: x + 1.0, lambda rng: [(np.array([1.0, 2.0, 3.0]),)])
    verdict = count(lambda x: x + np.array([1.0, 1.0, 5.0]))
    assert verdict.message == "Entry 2 is 8 where 4 is right."
    assert "1 of 3 entries is wrong." in verdict.details


def test_expected_exceptions():
    def root(x):
        if x < 0:
            raise ValueError(x)
        return x**0.5

    def refuses_wrongly(x):
        if x < 0:
            raise KeyError(x)
        return x**0.5

    check = Exercise("root", root, lambda rng: [(4.0,), (-1.0,)])
    assert check(root).status == "solved"
    assert check(lambda x: abs(x) ** 0.5).mistake == "not refused"
    assert check(refuses_wrongly).mistake == "wrong error"


def test_tuples_are_compared_part_by_part():
    check = Exercise("f", lambda x: (x.max(), x.argmax()), lambda rng: [(rng.normal(size=5),)])
    assert check(lambda x: (x.max(), int(x.argmax()))).status == "solved"
    assert check(lambda x: x.max()).mistake == "type"
    wrong = check(lambda x: (x.max(), x.argmin()))
    assert wrong.mistake == "numbers"
    assert "That is the second of the 2 results." in wrong.details
    assert "That is the first of the 2 results." in check(lambda x: (x[:1], x.argmax())).details


def test_dtype_is_checked_if_declared():
    check = Exercise("f", lambda x: x * 2, lambda rng: [(np.ones(3, np.float32),)], dtype=np.float32)
    assert check(lambda x: x + x).status == "solved"
    assert check(lambda x: x.astype(np.float64) * 2).mistake == "type"


def filling(attempt, x):
    out = np.full(x.shape, np.nan, np.float32)
    attempt(x, out)
    return out


def test_a_run_may_give_an_output_to_fill():
    seven = [(np.arange(1, 8, dtype=np.float32),)]
    check = Exercise("f", lambda x: 2 * x, lambda rng: seven, run=filling)

    def right(x, out):
        out[:] = 2 * x

    def drops_the_tail(x, out):
        out[:4] = 2 * x[:4]

    assert check(right).status == "solved"
    assert "3 of 7 entries are NaN: never written, or computed as `0 / 0`?" in check(drops_the_tail).details


def test_a_run_may_have_its_own_findings():
    def run(attempt, x):
        raise Wrong("race", "Two threads write to the same entry.")

    verdict = Exercise("f", np.negative, lambda rng: [(np.ones(2),)], run=run)(lambda x: -x)
    assert (verdict.mistake, verdict.message) == ("race", "Two threads write to the same entry.")


def test_avoids_sees_names_keywords_and_strings():
    properties = (avoids("sort", "kind=", "'stable'"),)
    check = Exercise("f", np.sort, lambda rng: [(rng.normal(size=4),)], properties=properties)
    assert check(lambda x: np.sort(x)).mistake == "shortcut"
    assert check(lambda x: x[np.argsort(x, kind=None)]).mistake == "shortcut"
    assert check(lambda x: x[np.argsort(x, 0, "stable")]).mistake == "shortcut"
    assert check(lambda x: x[np.argsort(x)]).status == "solved"


def test_strict_mode_raises_unless_solved(monkeypatch):
    monkeypatch.setenv("CNN_NUMBA_STRICT", "1")
    assert exercise(scaled_sum).status == "solved"
    with pytest.raises(CheckFailed, match=r"not right yet: scaled_sum\s+The scale is missing"):
        exercise(lambda x, weights, scale: x * weights)
    with pytest.raises(CheckFailed, match="not solved yet"):
        exercise(...)
    monkeypatch.setenv("CNN_NUMBA_STRICT", "0")
    assert exercise(...).status == "unsolved"


STRANGE = [
    None,
    [[1], [1, 2]],
    "text",
    {},
    3,
    np.float32(2),
    (1, 2),
    (np.ones(3), 2),
    np.ones(3, "U1"),
    object(),
]


@pytest.mark.parametrize("turn", range(len(STRANGE)))
def test_strange_results_get_a_verdict_and_no_exception(turn):
    def strange(*args, **kwargs):
        following = next(answers)
        if following is None and turn % 2:
            raise RuntimeError("now and then")
        return following

    pair = Exercise(
        "f", lambda x: (x.max(), x.argmax()), lambda rng: [(rng.normal(size=n),) for n in (3, 4, 5, 6)]
    )
    refusing = Exercise("f", lambda x: [1][x], lambda rng: [(1,), (0,), (2,)])
    for check in (exercise, pair, refusing, *vars(convolution_on_the_cpu).values()):
        if isinstance(check, Exercise):
            answers = itertools.cycle(STRANGE[turn:] + STRANGE[:turn])
            assert check(strange).status == "wrong"


def test_verdicts_read_as_text_and_as_html():
    verdict = Verdict("f", "wrong", "You add `a < b` & more.", ("Seen.",), "added")
    assert str(verdict) == "✘ not right yet: f\n  You add `a < b` & more.\n  Seen."
    html = verdict._repr_html_()
    assert "You add <code>a &lt; b</code> &amp; more." in html
    stars = Verdict("f", "wrong", "It is *minus* `a * b * c`, not 2 * 3 * 4.", (), "sign")._repr_html_()
    assert "It is <em>minus</em> <code>a * b * c</code>, not 2 * 3 * 4." in stars
    # Readable in light and dark themes: the text has the page's colour, the background is translucent.
    assert not re.search(r"[; \"]color:", html)
    assert "rgba(" in html


# --- memory that nobody has written ---


def into_empty(x, weights, scale):
    out = np.empty(x.shape)
    out += scale * x * weights
    return out


def into_empty_like(x, weights, scale):
    out = np.empty_like(x)
    out[1:] = scale * x[1:] * weights[1:]
    return out


@njit
def started():
    return np.empty(1)


def begin(shape):
    return allocate(shape)


def by_a_helper(x, weights, scale):
    return begin(x.shape) + scale * x * weights


def by_a_compiled_helper(x, weights, scale):
    return started()[0] + scale * x * weights


def by_an_import_inside(x, weights, scale):
    import numpy

    return numpy.empty(x.shape) + scale * x * weights


def by_integers(x, weights, scale):
    first = np.empty(1, np.uint8)
    return np.where(first, 0, scale * x * weights)


@njit
def compiled_into_empty(x, weights, scale):
    out = np.empty(x.shape)
    out += scale * x * weights
    return out


def written_first(x, weights, scale):
    out = np.empty_like(x)
    out[...] = scale * x * weights
    return out


allocate = np.empty
OUT_OF_MEMORY = [
    into_empty,
    into_empty_like,
    by_a_helper,
    by_a_compiled_helper,
    by_an_import_inside,
    by_integers,
    compiled_into_empty,
]


@pytest.mark.parametrize("attempt", OUT_OF_MEMORY, ids=lambda attempt: attempt.__name__)
def test_uninitialised_memory_is_found_whatever_it_holds(attempt):
    verdict = exercise(attempt)
    assert verdict.mistake == "not initialised"
    # With zeros this one would be wrong as well: it leaves out an element.
    assert ("Start from `np.zeros`" in verdict.message) == (attempt is not into_empty_like)


@pytest.mark.parametrize("attempt", [written_first, njit(written_first)], ids=["plain", "compiled"])
def test_an_empty_array_that_is_written_first_is_no_mistake(attempt):
    assert exercise(attempt).status == "solved"


def test_looking_for_uninitialised_memory_leaves_numpy_alone():
    real = np.empty, np.empty_like

    def scale_of_somebody_else():
        assert (np.empty, np.empty_like) == real
        return 2.5

    def attempt(x, weights, scale):
        assert scale == scale_of_somebody_else()
        return into_empty(x, weights, scale)

    assert exercise(attempt).mistake == "not initialised"
    assert (np.empty, np.empty_like) == real


def test_a_custom_run_gets_the_twins_too():
    def adds(x, out):
        total = np.empty(x.shape)
        total += 2 * x
        out[:] = total

    seven = [(np.arange(1, 8, dtype=np.float32),)]
    check = Exercise("f", lambda x: 2 * x, lambda rng: seven, run=filling)
    assert check(adds).mistake == "not initialised"


@pytest.mark.parametrize("dtype", ["f2", "f8", "c8", "i1", "i8", "u2", "?"])
def test_twins_differ_in_every_kind_of_number(dtype):
    def start():
        return np.empty(3, dtype)

    zeroed, poisoned = (twin() for twin in twins(start))
    assert zeroed.dtype == poisoned.dtype == dtype
    assert not zeroed.any()
    assert (poisoned != zeroed).all()


def test_twins_are_made_only_of_functions_that_mention_empty():
    assert twins(scaled_sum) == twins(np.negative) == twins(...) == ()
    assert len(twins(by_a_helper)) == 2


# --- the checks of the notebooks ---


def test_convolution_by_hand_accepts_slices_as_its_text_says():
    def slices(image, kernel):
        kh, kw = kernel.shape
        out = np.zeros((image.shape[0] - kh + 1, image.shape[1] - kw + 1))
        for i in range(out.shape[0]):
            for j in range(out.shape[1]):
                out[i, j] = (image[i : i + kh, j : j + kw] * kernel).sum()
        return out

    assert convolution_on_the_cpu.conv_by_hand(slices).status == "solved"


def test_whole_numbers_come_in_small_types_as_well():
    def doubled(x):
        return x + x

    double = Exercise("f", lambda x: 2 * x.astype(int), lambda rng: [(np.arange(size),) for size in (9, 200)])
    assert double(doubled).mistake == "wraps"
    assert "`x` of uint8" in double(doubled).details[0]
    assert double(lambda x: 2 * x.astype(np.int64)).status == "solved"


def test_if_nothing_is_right_squares_are_not_blamed():
    def noise(x):
        return 2 * x + np.cos(np.arange(x.size)).reshape(x.shape)

    double = Exercise("f", lambda x: 2 * x, lambda rng: [(rng.normal(size=s),) for s in ((2, 3), (4, 3))])
    assert "square" not in " ".join(double(noise).details)


def test_an_exception_for_shapes_not_square_is_noticed():
    def refuses(image, kernel):
        if kernel.shape[0] != kernel.shape[1]:
            raise RuntimeError("only square ones")
        return conv_cpu(image, kernel)

    verdict = convolution_on_the_cpu.conv_by_hand(refuses)
    assert verdict.mistake == "raises"
    assert "right for square `kernel` and wrong for all others" in verdict.details[-1]


@pytest.mark.parametrize("text", ["{}", "no such lag: {!r}", "delay={}.", "lag ({}) of {n}"])
def test_autocorrelation_takes_any_message_that_holds_the_delay(text):
    def attempt(signal, delay=None):
        n = len(signal)
        if delay is not None and not -n < delay < n:
            raise ValueError(text.format(delay, n=n))
        return np.correlate(signal, signal, mode="full")[n - 1 + (delay or 0) :]

    assert convolution_on_the_cpu.autocorrelation(attempt).status == "solved"


def test_verdicts_are_the_same_every_time():
    def attempt(x, weights, scale):
        return scale * x * weights + 1e-3

    assert str(exercise(attempt)) == str(exercise(attempt))


# --- pictures ----------------------------------------------------------------------------------------------


def opened(picture):
    return Image.open(io.BytesIO(picture.png))


def test_picture_is_small_has_alt_text_and_caption():
    fig, axes = plots.figure(1, 2)
    plots.show_image(axes[0], np.random.default_rng(0).normal(size=(28, 28)), "noise")
    axes[1].plot(range(10))
    picture = plots.picture(fig, caption="A < B & C", alt='A "noisy" image')
    html = picture._repr_html_()
    assert 'alt="A &quot;noisy&quot; image"' in html
    assert "<figcaption" in html
    assert "A &lt; B &amp; C" in html
    assert base64.b64encode(picture.png).decode() in html
    assert len(picture.png) < 40_000
    assert opened(picture).size == (1036, 374)
    assert str(picture) == 'Figure. A < B & C\n[A "noisy" image]'


def test_picture_needs_both_texts():
    fig, _ = plots.figure()
    with pytest.raises(ValueError, match="needs a caption and a description"):
        plots.picture(fig, caption="Something.", alt=" ")


def test_a_rare_colour_survives_the_palette():
    fig, ax = plots.figure()
    plots.show_image(ax, np.random.default_rng(0).normal(size=(60, 60)), cmap="RdBu")
    ax.plot(30, 30, "o", color=plots.GREEN)
    pixels = np.asarray(opened(plots.picture(fig, "c", "a")).convert("RGB")).reshape(-1, 3).astype(int)
    green = [int(plots.GREEN[i : i + 2], 16) for i in (1, 3, 5)]
    assert np.abs(pixels - green).max(axis=1).min() < 12


def test_picture_has_its_own_background():
    fig, _ = plots.figure()
    corner = opened(plots.picture(fig, "c", "a")).convert("RGB").getpixel((0, 0))
    paper = tuple(int(plots.PAPER[i : i + 2], 16) for i in (1, 3, 5))
    assert max(abs(a - b) for a, b in zip(corner, paper, strict=True)) <= 3


@pytest.mark.parametrize(("count", "height"), [(2, 2.6), (3, 2.6), (4, 2.0)])
def test_a_title_over_an_image_is_not_cut(count, height):
    fig, axes = plots.figure(1, count, size=(7.2, height))
    for ax in axes:
        plots.show_image(ax, np.eye(28), "threads forwards")
    drawn = np.asarray(opened(plots.picture(fig, "c", "a")).convert("L")).astype(int)
    assert np.ptp(drawn[:2]) < 8
    assert np.ptp(drawn[:30]) > 100


def luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


def test_ink_and_colours_have_enough_contrast():
    def contrast(colour):
        return (luminance(plots.PAPER) + 0.05) / (luminance(colour) + 0.05)

    assert contrast(plots.INK) > 7
    assert min(contrast(colour) for colour in plots.COLOURS) > 2
    assert len({*plots.COLOURS}) == len(plots.COLOURS)


def test_style_leaves_matplotlibs_own_alone():
    import matplotlib

    before = dict(matplotlib.rcParams)
    plots.figure(2, 2)
    assert dict(matplotlib.rcParams) == before


def test_numbers_are_written_in_pixels_and_nan_stays_empty():
    _, ax = plots.figure()
    plots.show_image(ax, [[0.0, 1.0], [np.nan, 2.5]], numbers=True)
    assert [text.get_text() for text in ax.texts] == ["0", "1", "2.5"]
    # Dark digits on light pixels and the other way round.
    assert ax.texts[0].get_color() == "white"
    assert ax.texts[2].get_color() == plots.INK


def test_signed_images_have_white_at_zero():
    _, ax = plots.figure()
    plots.show_image(ax, [[-1.0, 3.0]], cmap="RdBu")
    assert ax.images[0].get_clim() == (-3.0, 3.0)
    _, ax = plots.figure()
    plots.show_image(ax, np.zeros((2, 2)), cmap="RdBu")
    assert ax.images[0].get_clim() == (-1.0, 1.0)


def test_pictures_can_be_drawn_in_threads():
    drawn = {}

    def draw(number):
        fig, ax = plots.figure()
        ax.plot(np.arange(5) * number)
        ax.set_title(f"$y = {number} x$")
        drawn[number] = plots.picture(fig, f"line {number}", "a line").png

    threads = [threading.Thread(target=draw, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    again = dict(drawn)
    for number in range(6):
        draw(number)
    assert len(again) == 6
    assert drawn == again


# --- ledger ------------------------------------------------------------------------------------------------


def test_speedups_are_against_the_baseline_on_the_same_work():
    ledger = Ledger("sums", baseline="slow")
    ledger.rungs = [Rung("slow", "small", 8.0), Rung("fast", "small", 2.0), Rung("fast", "large", 50.0)]
    assert [ledger.speedup(rung) for rung in ledger.rungs] == [1.0, 4.0, None]
    assert ledger.rows()[1:] == [("fast", "small", "2 s", "4x"), ("fast", "large", "50 s", "-")]


def test_time_warms_up_and_takes_the_median(monkeypatch):
    calls = []
    lengths = itertools.cycle([0.5, 0.1, 0.3])

    class Clock:
        now = 0.0

    def work(x):
        calls.append(x)
        Clock.now += 100.0 if len(calls) == 1 else next(lengths)
        return x

    monkeypatch.setattr(time, "perf_counter", lambda: Clock.now)
    ledger = Ledger("t", baseline="a")
    assert ledger.time("a", work, 1.0, work="w", repeats=3) == pytest.approx(0.3)
    assert len(calls) == 4


@pytest.mark.parametrize(("length", "calls"), [(2.0, 1), (0.5, 2)])
def test_a_long_call_is_timed_once(monkeypatch, length, calls):
    seconds = itertools.count(step=length)
    monkeypatch.setattr(time, "perf_counter", lambda: next(seconds))
    made = []
    seconds = Ledger("t", "a").time("a", lambda x: made.append(x) or x, 1, work="w", repeats=1)
    assert (seconds, len(made)) == (length, calls)


def test_a_rung_timed_again_is_replaced():
    ledger = Ledger("t", baseline="a")
    for _ in range(2):
        ledger.time("a", np.sum, np.ones(3), work="w", repeats=1)
    ledger.time("a", np.sum, np.ones(4), work="other", repeats=1)
    assert [(rung.name, rung.work) for rung in ledger.rungs] == [("a", "w"), ("a", "other")]


@pytest.mark.parametrize(
    "wrong",
    [lambda x: x + 1e-2, lambda x: x * np.nan, lambda x: x[:1], lambda x: x[None]],
    ids=["off", "nan", "short", "another axis"],
)
def test_a_wrong_rung_raises(wrong):
    ledger = Ledger("t", baseline="right")
    ledger.time("right", np.array, np.ones(3), work="w", repeats=1)
    with pytest.raises(ValueError, match="'wrong' and 'right'"):
        ledger.time("wrong", wrong, np.ones(3), work="w", repeats=1)
    assert len(ledger.rungs) == 1


def test_ledger_reads_as_text_html_and_picture():
    ledger = Ledger("sums & more", baseline="slow")
    ledger.rungs = [Rung("slow", "n < 5", 8.0), Rung("fast", "n < 5", 0.002)]
    assert str(ledger).splitlines() == [
        "sums & more",
        "rung  work   time  against slow",
        "slow  n < 5   8 s            1x",
        "fast  n < 5  2 ms        4,000x",
    ]
    html = ledger._repr_html_()
    assert "sums &amp; more" in html
    assert "n &lt; 5" in html
    picture = ledger.picture("n < 5", caption="Four thousand.")
    assert "slow, fast" in picture.alt
    with pytest.raises(ValueError, match="'slow' was not timed on 'n < 6'"):
        ledger.picture("n < 6", caption="Nothing.")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (75, "75 s"),
        (1.0, "1 s"),
        (0.9996, "1000 ms"),
        (0.0123, "12.3 ms"),
        (4.5e-6, "4.5 us"),
        (3e-9, "3 ns"),
    ],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


# --- the notebooks tool ------------------------------------------------------------------------------------


@pytest.fixture
def notebook():
    v4 = nbformat.v4
    details = "<details><summary>{}</summary>\n\n{}\n\n</details>"
    code = "```python\ndef double(x):\n    return 2 * x\n```"
    hints = details.format("Hint 1", "Add.") + "\n" + details.format("Hint 2", "Add it to itself.")
    return v4.new_notebook(
        metadata={"kernelspec": {"name": "my-env", "display_name": "mine"}, "widgets": {"state": {}}},
        cells=[
            v4.new_markdown_cell("Double.", id="double-text"),
            v4.new_code_cell(
                "def double(x): ...", id="double-stub", metadata={"tags": ["a"], "scrolled": True}
            ),
            v4.new_code_cell("print(double(2))\nprint(double(3))", id="double-check"),
            v4.new_markdown_cell(hints, id="double-hints"),
            v4.new_markdown_cell(details.format("Solution", code), id="double-solution"),
        ],
    )


def test_exercises_are_found_with_hints_and_solution(notebook):
    (found,) = notebooks.exercises(notebook)
    assert found.name == "double"
    assert found.hints == ("Add.", "Add it to itself.")
    assert found.solution == "def double(x):\n    return 2 * x"


def test_solved_puts_the_solution_into_the_stub(notebook):
    assert notebooks.solved(notebook).cells[1].source == "def double(x):\n    return 2 * x"


def test_canonical_form_is_stable_and_generic(notebook):
    text = notebooks.canonical(notebook)
    assert text == notebooks.canonical(nbformat.reads(text, as_version=4))
    assert text.endswith("}\n")
    assert not {"my-env", "widgets", "scrolled"} & set(re.findall(r"[\w-]+", text))
    assert '"tags"' in text


def test_main_runs_and_stores_outputs(notebook, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CNN_NUMBA_STRICT", "1")
    notebook.cells[2].source += "\nimport os, sys\nprint('CNN_NUMBA_STRICT' in os.environ, sys.executable)"
    path = tmp_path / "notebooks" / "n.ipynb"
    path.parent.mkdir()
    path.write_text(notebooks.canonical(notebook))
    before = dict(os.environ)
    notebooks.main([str(path)])
    assert dict(os.environ) == before
    stored = notebooks.read(path)
    # The cell for Colab has come before it.
    assert stored.cells[3].execution_count == 3
    (output,) = stored.cells[3].outputs
    lines = output.text.splitlines()
    assert lines[:2] == ["None", "None"]
    # Outputs are those of an unsolved notebook outside strict mode, and name no path of this machine.
    assert lines[2].startswith("False .venv")
    assert path.read_text() == notebooks.canonical(stored)
    assert "kB" in capsys.readouterr().out


def test_format_rewrites_without_running(notebook, tmp_path):
    path = tmp_path / "n.ipynb"
    path.write_text(nbformat.writes(notebook).replace("\n", ""))
    notebooks.main(["--format", str(path)])
    assert path.read_text() == notebooks.canonical(notebooks.read(path))
    assert notebooks.read(path).cells[2].execution_count is None
