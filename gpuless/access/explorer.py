"""Sliders for `plot_access`: see how another block size or stride changes the accesses."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from gpuless.access.map import AccessMap
from gpuless.access.plot import plot_access
from gpuless.importing import optional

ALL = "all"


def explore_access(launch: Callable[..., AccessMap], array: str, **choices: Sequence) -> Explorer:
    """Explore which threads read and write an array, for launches that differ in a few numbers.

    Parameters
    ----------
    launch : callable
        Called as ``launch(**values)`` with one value of each choice; returns an `AccessMap`.
    array : str
        Name of the array to draw.
    **choices : sequence
        For each argument of `launch`, the values of its slider; the first is selected at first.

    Returns
    -------
    Explorer
        For display in a notebook; without widgets it is a picture of the first launch.

    Raises
    ------
    ValueError
        If a choice is empty.

    Examples
    --------
    >>> import gpuless
    >>> selection = gpuless.select()  # before numba.cuda is imported
    >>> from gpuless import access_map
    >>> from numba import cuda
    >>> @cuda.jit
    ... def strided(x, stride):
    ...     x[cuda.threadIdx.x * stride] = 1
    >>> def launch(threads, stride):
    ...     return access_map(strided)[1, threads](cuda.device_array(64, np.float32), stride)
    >>> explorer = explore_access(launch, "x", threads=[8, 16, 32], stride=[1, 2])
    >>> explorer.sliders["stride"].value = 2
    >>> explorer.access.total("x").requests
    1
    """
    return Explorer(launch, array, choices)


class Explorer:
    """What `explore_access` returns.

    Attributes
    ----------
    sliders : dict of str to ipywidgets.SelectionSlider
        One for each choice.
    interval : ipywidgets.SelectionSlider
        Selects a barrier interval, or "all".
    by : ipywidgets.ToggleButtons
        What the colours distinguish.
    access : AccessMap
        The launch that is shown.
    """

    def __init__(self, launch: Callable[..., AccessMap], array: str, choices: Mapping[str, Sequence]) -> None:
        # Imported here, as only notebooks need it.
        ipywidgets = optional("ipywidgets", "pictures")

        empty = [name for name, values in choices.items() if not len(values)]
        if empty:
            raise ValueError(f"the choice {empty[0]} has no values")
        self._launch, self._array = launch, array
        self._seen: dict = {}
        self.sliders = {
            name: ipywidgets.SelectionSlider(options=list(values), description=name)
            for name, values in choices.items()
        }
        self.interval = ipywidgets.SelectionSlider(options=[ALL], description="interval")
        self.by = ipywidgets.ToggleButtons(options=["thread", "warp", "block"])
        self._picture, self._table = ipywidgets.Image(format="png"), ipywidgets.HTML()
        controls = [*self.sliders.values(), self.interval, self.by]
        self.widget = ipywidgets.VBox([*controls, self._picture, self._table])
        for slider in self.sliders.values():
            slider.observe(self._relaunch, "value")
        for control in (self.interval, self.by):
            control.observe(self._redraw, "value")
        self._relaunch()

    def _relaunch(self, change=None):
        """Run the launch with the sliders' values, unless it has been run before."""
        values = {name: slider.value for name, slider in self.sliders.items()}
        key = tuple(values.values())
        if key not in self._seen:
            self._seen[key] = self._launch(**values)
        self.access = self._seen[key]
        rows = self.access.touches(self._array)
        intervals = [int(interval) for interval in np.unique(self.access.trace.interval[rows])]
        # Keep the selected interval if this launch has it, too.
        selected, options = self.interval.value, (ALL, *intervals)
        if tuple(self.interval.options) != options:
            self.interval.options = options
            self.interval.value = selected if selected in options else ALL
        self._table.value = self.access._repr_html_()
        self._redraw()

    def _redraw(self, change=None):
        """Draw the launch last run."""
        interval = None if self.interval.value == ALL else self.interval.value
        file = io.BytesIO()
        figure = plot_access(self.access, self._array, by=self.by.value, interval=interval)
        figure.savefig(file, format="png", dpi=110, facecolor=figure.get_facecolor())
        self._picture.value = file.getvalue()

    def _repr_mimebundle_(self, **options):
        """Return the widget, and a picture for readers of the notebook without a kernel."""
        picture = base64.b64encode(self._picture.value).decode()
        alt = f"Who reads and writes {self._array}: " + ", ".join(
            f"{name} = {slider.value}" for name, slider in self.sliders.items()
        )
        bundle = self.widget._repr_mimebundle_(**options)
        bundle = bundle[0] if isinstance(bundle, tuple) else bundle
        static = f'<img alt="{alt}" src="data:image/png;base64,{picture}">{self.access._repr_html_()}'
        return bundle | {"text/plain": alt, "text/html": static}
