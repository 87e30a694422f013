"""The operations, one folder each, with the same functions in every backend of a folder.

`reference` defines an operation in plain NumPy and float64: its docstrings give the shapes, the formula and
its source, the errors and examples. `cpu` and `gpu` are fast; their docstrings say only what differs.
`checks` declares the arguments of all three. A function of one backend only, such as those that let a CUDA
graph repeat a step, has its contract there.

A function writes its results into the arrays that it is given, such as `out` or `grad_input`, and returns
them; None allocates a new array. A section "Returns" is there only if something else is returned. `grad_x` is
always the gradient of the loss with respect to `x`.

Every function checks its arguments before it computes anything: a wrong type is a TypeError, shapes that do
not match are a ValueError. A section "Raises" lists only further errors.

If a backend needs working space, its functions also take a keyword `scratch`, made by `<name>_scratch`;
`scratch.with_scratch` passes it on. `reference` takes real numbers of any dtype, computes in float64, and
allocates float64. In `cpu` and `gpu` arrays are float32 (labels int32), C-contiguous, in `gpu` on the device.
"""
