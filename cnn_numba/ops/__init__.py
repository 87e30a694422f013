"""The operations, one folder each, with the same functions in every backend of a folder.

`reference` defines what is computed, in plain NumPy and float64: the shapes, the formula and its source, the
errors and examples stand there. `cpu` and `gpu` compute it fast, and their docstrings say what else differs.
What the arguments of all three must be is declared in `checks`.

A function writes its results into the arrays that it takes for them, `out`, `grad_input` and the like, and
returns them; None allocates, float64 in `reference`. A docstring's section "Returns" is there only where
something else is returned. `grad_x` is always the gradient of the loss with respect to `x`.

Every function checks its arguments before it computes anything: a TypeError for what is of the wrong type, a
ValueError for shapes that do not belong together. A docstring's section "Raises" says only what goes beyond.

Where a backend needs working space, its functions also take a keyword `scratch`, which `<name>_scratch`
makes: `backends.with_scratch` hands it to them. In `cpu` and `gpu` arrays are float32 (labels int32) and
C-contiguous, in `gpu` on the device, and what is None is allocated like that.
"""
