"""`step` shows a launch line by line, with a slider, a film and words."""

import functools
import operator
import reprlib

import numpy as np

from cnn_course.engine import plots
from cnn_course.engine.stepper import drawing, words
from cnn_course.engine.stepper.schedule import WARP
from cnn_course.engine.stepper.steps import OFF, WAITS, steps_of
from gpuless.access import record_lines

#: The most frames of a film. If there are many steps, a notebook stores a still picture.
MOST_FRAMES = 60
_STORED_FRAMES = 24


def step(kernel, block=0, warp=0, most=100_000):
    """Return a kernel whose launch is shown line by line, as the warps of one block execute it.

    Parameters
    ----------
    kernel : kernel or function
    block : int or tuple of int
        Number of the block, x varying fastest; or its x, y, z.
    warp : int
        The warp that is shown first.
    most : int
        The most lines that the threads of the block may execute in all.

    Returns
    -------
    object
        Launched like the kernel: ``step(kernel)[grid, block](*arguments)`` runs the whole launch in the
        simulator and returns a `Stepper`. It raises ValueError if there is no such block or warp, if the
        kernel has no source, or if there are more lines than `most`.

    Notes
    -----
    Lanes of a warp at the same line execute it together. If they diverge, the branches run one after the
    other, in the order of the source, and the lanes meet again after them and after each round of a loop.
    Warps reach a barrier in the order of their numbers; on a GPU in any order.

    Examples
    --------
    >>> import numpy as np
    >>> from numba import cuda
    >>> @cuda.jit
    ... def double(x):
    ...     i = cuda.grid(1)
    ...     if i < x.size:
    ...         x[i] = 2 * x[i]
    >>> stepper = step(double)[1, 4](cuda.to_device(np.ones(3, np.float32)))
    >>> print(stepper)
    1. Line 3: `i = cuda.grid(1)`. Lanes 0 to 3 active. i: 0 to 3.
    2. Line 4: `if i < x.size:`. Lanes 0 to 3 active. Here the lanes part: lanes 0 to 2 to line 5; lane 3 \
to the end.
    3. Line 5: `x[i] = 2 * x[i]`. Lanes 0 to 2 active; lane 3 finished. Reads x[i] in 3 lanes: 1 sector, \
12 of 32 bytes used. Writes x[i] in 3 lanes: 1 sector, 12 of 32 bytes used.
    """
    return _Stepped(record_lines(kernel, block, most), warp)


class _Stepped:
    """The kernel that `step` returns."""

    def __init__(self, recorder, warp):
        self._recorder, self._warp = recorder, warp

    def __getitem__(self, configuration):
        launch = self._recorder[configuration]
        return lambda *arguments: Stepper(launch(*arguments), self._warp)


class Stepper:
    """The steps of a block, shown one at a time. In a notebook it has a slider; arrow keys move it.

    For readers without a kernel, the notebook stores a film of all steps (a still picture if there are many),
    and the steps in words.

    Parameters
    ----------
    line_trace : LineTrace
    warp : int

    Attributes
    ----------
    warp : int
        The warp shown.
    steps : tuple of Step
        The steps of that warp.
    index : int
        The step shown, from 0.
    """

    def __init__(self, line_trace, warp=0):
        self._trace, self._sheets, self._pictures, self._controls = line_trace, {}, {}, None
        self._warps = -(-len(line_trace.threads) // WARP)
        self.show(warp)

    def show(self, warp, index=0):
        """Show a step of a warp, both counted from 0."""
        warp = _checked(warp, "warp", self._warps)
        if warp not in self._sheets:
            steps = steps_of(self._trace, warp)
            self._sheets[warp] = steps, drawing.Sheet(steps, warp, self._warps)
        self.index = _checked(index, "index", len(self._sheets[warp][0]))
        self.warp, (self.steps, self._sheet) = warp, self._sheets[warp]

    @property
    def texts(self) -> list[str]:
        """Each step of the shown warp in words."""
        return [words.described(step, self.warp, self._warps) for step in self.steps]

    @property
    def picture(self) -> plots.Picture:
        """The shown step as a picture."""
        key = self.warp, self.index
        if key not in self._pictures:
            current = self.steps[self.index]
            text = words.described(current, self.warp, self._warps)
            heading = words.heading(current, self.index, len(self.steps), self.warp)
            self._pictures[key] = plots.picture(self._sheet.step(self.index), text, f"{heading}.", colours=64)
        return self._pictures[key]

    def overview(self) -> plots.Picture:
        """Return a picture of all steps of the warp, with the lanes that run each line."""
        fig = drawing.overview(self.steps, self.warp)
        alt = "A row for each step: the line, a square for each lane, and what the accesses cost."
        return plots.picture(fig, self._caption(f"{self._title()}."), alt, colours=32)

    def film(self, first=0, last=None, seconds=1.8) -> plots.Film:
        """Return a film of the warp's steps, with the picture of all of them below.

        Parameters
        ----------
        first, last : int
            The steps from `first` up to, but not including, `last`; by default all.
        seconds : float
            The time for each step.

        Raises
        ------
        ValueError
            If there are no such steps, or more than `MOST_FRAMES`.
        """
        shown = range(len(self.steps))[first:last]
        if not 0 < len(shown) <= MOST_FRAMES:
            raise ValueError(
                f"a film has 1 to {MOST_FRAMES} steps, got first={first} and last={last} of "
                f"{len(self.steps)} steps"
            )
        caption = self._caption(
            f"{self._title()}. Green: registers that have changed. {self._access_colours()}"
        )
        alt = (
            f"{plots.counted(len(shown), 'frame')}, one for each step: the source with its line marked, the "
            "lanes with their states and registers, and the shared arrays."
        )
        frames = [self._sheet.step(index) for index in shown]
        return plots.film(frames, drawing.overview(self.steps, self.warp), caption, alt, seconds, colours=48)

    def _title(self):
        trace = self._trace.trace
        place = np.unravel_index(self._trace.block, trace.grid[::-1])[::-1]
        axes = max(axis for axis in range(3) if axis == 0 or trace.grid[axis] > 1) + 1
        block = self._trace.block if axes == 1 else tuple(map(int, place[:axes]))
        return f"{trace.kernel}, block {block}, warp {self.warp}: {plots.counted(len(self.steps), 'step')}"

    def _access_colours(self):
        """Return the meaning of the colours of accesses and shared arrays."""
        spaces = {access.space for step in self.steps for access in step.accesses}
        parts = [
            "Violet: indices of an access" + ", in another shade for the next sector" * ("global" in spaces)
        ]
        if "shared" in spaces:
            parts[0] += ", red where banks conflict"
            parts.append("In shared memory ? is garbage; blue frames are read, orange ones written")
        return ". ".join(parts) + "."

    def _caption(self, begins):
        """Return a caption with the colours of the states that occur."""
        states = {state for step in self.steps for state in step.states}
        parts = ["Blue lanes run the line"]
        parts += ["grey ones sit it out"] * (OFF in states)
        parts += ["yellow ones wait at the barrier"] * (WAITS in states)
        return f"{begins} {', '.join(parts)}."

    def __repr__(self):
        return "\n".join(f"{number}. {text}" for number, text in enumerate(self.texts, 1))

    def _repr_mimebundle_(self, **options):
        """Return the widget, and a film or picture for readers without a kernel."""
        bundle = self.widget._repr_mimebundle_(**options)
        bundle = bundle[0] if isinstance(bundle, tuple) else bundle
        still = self.film() if len(self.steps) <= _STORED_FRAMES else self.overview()
        listed = "".join(f"<li>{plots.marked_up(text)}</li>" for text in self.texts)
        said = f"<details><summary>The steps in words</summary><ol>{listed}</ol></details>"
        return bundle | {"text/plain": repr(self), "text/html": still._repr_html_() + said}

    @property
    def widget(self):
        """The controls and the picture as one widget, made on first use."""
        return self.controls.widget

    @property
    def controls(self):
        """The `Controls` of the widget."""
        if self._controls is None:
            self._controls = Controls(self)
        return self._controls


class Controls:
    """Slider, buttons and picture of a stepper.

    Attributes
    ----------
    step : ipywidgets.IntSlider
        From 1; the arrow keys move it.
    back, forward : ipywidgets.Button
    warp : ipywidgets.SelectionSlider
    play : ipywidgets.Play
    widget : ipywidgets.VBox
    """

    def __init__(self, stepper):
        import ipywidgets  # only a notebook needs it

        self._stepper = stepper
        self.step = ipywidgets.IntSlider(1, 1, len(stepper.steps), description="step")
        self.warp = ipywidgets.SelectionSlider(
            options=range(stepper._warps), value=stepper.warp, description="warp"
        )
        self.play = ipywidgets.Play(min=1, max=len(stepper.steps), interval=1800, show_repeat=False)
        ipywidgets.jslink((self.play, "value"), (self.step, "value"))
        self._html = ipywidgets.HTML()
        self.back, self.forward = (ipywidgets.Button(description=name) for name in ("back", "forward"))
        for button, distance in ((self.back, -1), (self.forward, 1)):
            button.layout.width = "5.5em"
            button.on_click(functools.partial(self._move, distance))
        row = ipywidgets.HBox([self.step, self.back, self.forward, self.play])
        warps = [self.warp] if stepper._warps > 1 else []
        self.widget = ipywidgets.VBox([row, *warps, self._html])
        self.step.layout.width = "28em"
        self.step.observe(self._redraw, "value")
        self.warp.observe(self._change_warp, "value")
        self._redraw()

    def _move(self, distance, button):
        self.step.value += distance  # the slider clips it

    def _change_warp(self, change):
        self._stepper.show(change["new"])
        count = len(self._stepper.steps)
        self.step.max = self.play.max = count
        if self.step.value == 1:
            self._redraw()
        self.step.value = self.play.value = 1

    def _redraw(self, change=None):
        self._stepper.show(self._stepper.warp, self.step.value - 1)
        # Screen readers read out an alert when it appears, so they announce each step.
        self._html.value = f'<div role="alert">{plots.in_widget(self._stepper.picture)}</div>'


def _checked(value, name, count):
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if not 0 <= number < count:
        raise ValueError(f"{name} must be an integer from 0 to {count - 1}, got {reprlib.repr(value)}")
    return number
