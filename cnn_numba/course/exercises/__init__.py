"""The checks of each notebook's exercises: a module a notebook, of the notebook's name."""
