"""The operations, one folder each, with the same functions in every backend of a folder.

`reference` defines what is computed, in plain NumPy and float64: the shapes, the formula and its source, the
errors and examples stand there. `cpu` and `gpu` compute it fast, and their docstrings say what else differs;
what these two refuse alike is in `checks`.
Where a backend needs working space, its functions take a keyword `scratch` besides, which `<name>_scratch`
makes: `backends.with_scratch` hands it to them.
This differs in all of them: arrays are float32 (labels int32) and C-contiguous, in the gpu backends on the
device, and a None is allocated likewise. Another type is refused with a TypeError, another shape or layout
with a ValueError, before anything is computed.
"""
