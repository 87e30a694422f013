"""`explore`: a picture with sliders, or a still picture if no widget can be shown."""

from cnn_course.engine.plots import Picture, in_widget


def explore(draw, **choices):
    """Show a picture that is redrawn when its sliders move.

    Parameters
    ----------
    draw : callable
        Called as ``draw(**values)`` with one value of each choice; returns a `Picture`.
    **choices : sequence
        For each argument of `draw`, the values of its slider, which begins at the first.

    Returns
    -------
    Explorer
        Displayed by a notebook, which stores the first picture for readers without a kernel.

    Raises
    ------
    ValueError
        If a choice is empty.

    Examples
    --------
    >>> from cnn_course.engine import plots
    >>> def draw(size):
    ...     fig, ax = plots.figure()
    ...     ax.plot(range(size))
    ...     return plots.picture(fig, f"{size} numbers.", "A straight line.")
    >>> explorer = explore(draw, size=[2, 5])
    >>> explorer.sliders["size"].value = 5
    >>> explorer.picture.caption
    '5 numbers.'
    """
    return Explorer(draw, choices)


class Explorer:
    """What `explore` returns.

    Attributes
    ----------
    sliders : dict of str to ipywidgets.SelectionSlider
        One for each choice.
    picture : Picture
        The one shown now.
    """

    def __init__(self, draw, choices):
        import ipywidgets  # only an explorer needs it

        empty = [name for name, values in choices.items() if not len(values)]
        if empty:
            raise ValueError(f"the choice {empty[0]} has no values")
        self._draw, self._seen = draw, {}
        self.sliders = {
            name: ipywidgets.SelectionSlider(
                options=[(_text(value), value) for value in values], description=name.replace("_", " ")
            )
            for name, values in choices.items()
        }
        self._html = ipywidgets.HTML()
        self.widget = ipywidgets.VBox([*self.sliders.values(), self._html])
        for slider in self.sliders.values():
            slider.style.description_width = "9em"
            slider.layout.width = "28em"
            slider.observe(self._redraw, "value")
        self._redraw()

    def _redraw(self, change=None):
        values = {name: slider.value for name, slider in self.sliders.items()}
        key = tuple(values.values())
        if key not in self._seen:
            self._seen[key] = self._draw(**values)
        self.picture: Picture = self._seen[key]
        self._html.value = in_widget(self.picture)

    def _repr_mimebundle_(self, **options):
        """Return the widget, and the picture for readers without a kernel."""
        bundle = self.widget._repr_mimebundle_(**options)
        bundle = bundle[0] if isinstance(bundle, tuple) else bundle
        return bundle | {"text/plain": repr(self.picture), "text/html": self.picture._repr_html_()}


def _text(value):
    return " x ".join(map(str, value)) if isinstance(value, tuple) else str(value)
