from numba import cuda, float32

from wrong_answers import derive, wrong

# As in the notebook.
TILE = 8
WIDE = 2 * TILE


# --- matmul_kernel ---

matmul_kernel = derive(
    "matmul_kernel",
    matmul_along_the_rows_of_b=("b transposed", ("b[k, column]", "b[column, k]")),
    matmul_down_the_columns_of_a=("a transposed", ("a[row, k]", "a[k, row]")),
    matmul_over_the_rows=("wrong length", ("range(a.shape[1])", "range(a.shape[0])")),
    matmul_without_the_last=("one short", ("range(a.shape[1])", "range(a.shape[1] - 1)")),
    matmul_overwrites=(
        "last product only",
        ("out[row, column] = total", ""),
        ("total +=", "out[row, column] ="),
    ),
    matmul_adds=("added, not multiplied", ("a[row, k] * b[k, column]", "a[row, k] + b[k, column]")),
    matmul_into_garbage=(
        "uninitialised read",
        ("out[row, column] = total", ""),
        ("total +=", "out[row, column] +="),
    ),
    matmul_without_guard=(
        "writes past the edge",
        ("if row < out.shape[0] and column < out.shape[1]:", "if True:"),
    ),
    matmul_takes_rows_from_x=(
        "x and y exchanged",
        ("column, row = cuda.grid(2)", "row, column = cuda.grid(2)"),
    ),
    matmul_in_float64=("float64", ("float32(0)", "0.0")),
)


@wrong("matmul_kernel", "raises")
@cuda.jit
def matmul_of_whole_rows(a, b, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = (a[row] * b[:, column]).sum()


# --- matmul_tiled_kernel ---

matmul_tiled_kernel = derive(
    "matmul_tiled_kernel",
    tiled_but_read_from_memory=(
        "not from the tile",
        ("a_tile[y, k] *", "a[min(row, a.shape[0] - 1), min(start + k, a.shape[1] - 1)] *"),
    ),
    tiled_copied_by_threads_with_results=(
        "copies for itself only",
        ("in_a = row < a.shape[0]", "in_a = row < out.shape[0] and column < out.shape[1]"),
        ("and column < b.shape[1]", "and row < out.shape[0] and column < out.shape[1]"),
    ),
    tiled_without_the_second_barrier=(
        "missing barrier",
        (
            "    total += a_tile[y, k] * b_tile[k, x]\ncuda.syncthreads()",
            "    total += a_tile[y, k] * b_tile[k, x]",
        ),
    ),
    tiled_without_the_first_barrier=(
        "missing barrier",
        ("cuda.syncthreads()\nfor k in range(TILE):", "for k in range(TILE):"),
    ),
    tiled_leaves_the_tail=(
        "tail not zeroed",
        (
            "a_tile[y, x] = a[row, start + x] if in_a else float32(0)",
            "if in_a:\n    a_tile[y, x] = a[row, start + x]",
        ),
        (
            "b_tile[y, x] = b[start + y, column] if in_b else float32(0)",
            "if in_b:\n    b_tile[y, x] = b[start + y, column]",
        ),
    ),
    tiled_zeroes_one_of_two=(
        "tail not zeroed",
        (
            "b_tile[y, x] = b[start + y, column] if in_b else float32(0)",
            "if in_b:\n    b_tile[y, x] = b[start + y, column]",
        ),
    ),
    tiled_rounds_down=(
        "tail left out",
        ("range(0, a.shape[1], TILE)", "range(0, a.shape[1] // TILE * TILE, TILE)"),
    ),
    tiled_takes_one_step=("first tile only", ("range(0, a.shape[1], TILE)", "range(0, TILE, TILE)")),
    tiled_turns_the_tile=("tile turned", ("b_tile[k, x]", "b_tile[x, k]")),
    tiled_begins_anew=(
        "last step only",
        ("total = float32(0)", ""),
        ("for k in range(TILE):", "total = float32(0)\nfor k in range(TILE):"),
    ),
    tiled_returns_early=(
        "divergent barrier",
        (
            "total = float32(0)",
            "total = float32(0)\nif row >= out.shape[0] or column >= out.shape[1]:\n    return",
        ),
    ),
    tiled_guards_the_store_only=(
        "reads past the edge",
        ("row < a.shape[0] and start + x < a.shape[1]", "start + x < a.shape[1]"),
        ("start + y < b.shape[0] and column < b.shape[1]", "start + y < b.shape[0]"),
    ),
    tiled_guards_the_loads_only=(
        "writes past the edge",
        ("if row < out.shape[0] and column < out.shape[1]:", "if True:"),
    ),
)


@wrong("matmul_kernel", "done more than once")
@cuda.jit
def matmul_of_whole_columns(a, b, out):
    column, _ = cuda.grid(2)
    if column < out.shape[1]:
        for row in range(out.shape[0]):
            total = float32(0)
            for k in range(a.shape[1]):
                total += a[row, k] * b[k, column]
            out[row, column] = total


@wrong("matmul_tiled_kernel", "without")
@cuda.jit
def tiled_without_tiles(a, b, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = float32(0)
        for k in range(a.shape[1]):
            total += a[row, k] * b[k, column]
        out[row, column] = total


# --- matmul_2x2_kernel ---

matmul_2x2_kernel = derive(
    "matmul_2x2_kernel",
    four_exchanged=(
        "sums exchanged",
        ("column + x + TILE, t01", "column + x + TILE, t10"),
        ("column + x, t10", "column + x, t01"),
    ),
    four_of_one_row=("row repeated", ("a1 *", "a0 *", 2)),
    four_of_one_column=("column repeated", ("* b1", "* b0", 2)),
    four_of_the_first_tile=("first tile only", ("range(0, a.shape[1], TILE)", "range(0, TILE, TILE)")),
    four_read_anew=(
        "read for each product",
        ("a0, a1 = a_tile[y, k], a_tile[y + TILE, k]\nb0, b1 = b_tile[k, x], b_tile[k, x + TILE]", ""),
        ("a0", "a_tile[y, k]", 2),
        ("a1", "a_tile[y + TILE, k]", 2),
        ("b0", "b_tile[k, x]", 2),
        ("b1", "b_tile[k, x + TILE]", 2),
    ),
    four_neighbours=(
        "results not apart",
        ("a_tile[y, k], a_tile[y + TILE, k]", "a_tile[2 * y, k], a_tile[2 * y + 1, k]"),
        ("b_tile[k, x], b_tile[k, x + TILE]", "b_tile[k, 2 * x], b_tile[k, 2 * x + 1]"),
        ("row + y + TILE, column + x + TILE,", "row + 2 * y + 1, column + 2 * x + 1,"),
        ("row + y + TILE, column + x,", "row + 2 * y + 1, column + 2 * x,"),
        ("row + y, column + x + TILE,", "row + 2 * y, column + 2 * x + 1,"),
        ("row + y, column + x,", "row + 2 * y, column + 2 * x,"),
    ),
    four_neighbours_in_a_row=(
        "results not apart",
        ("b_tile[k, x], b_tile[k, x + TILE]", "b_tile[k, 2 * x], b_tile[k, 2 * x + 1]"),
        ("column + x + TILE,", "column + 2 * x + 1,", 2),
        ("column + x,", "column + 2 * x,", 2),
    ),
    four_without_the_second_barrier=(
        "missing barrier",
        (
            "    t10, t11 = t10 + a1 * b0, t11 + a1 * b1\ncuda.syncthreads()",
            "    t10, t11 = t10 + a1 * b0, t11 + a1 * b1",
        ),
    ),
    four_only_the_diagonal=(
        "never written",
        ("put(out, row + y, column + x + TILE, t01)", ""),
        ("put(out, row + y + TILE, column + x, t10)", ""),
    ),
    four_stored_without_guard=(
        "writes past the edge",
        ("put(out, row + y, column + x, t00)", "out[row + y, column + x] = t00"),
        ("put(out, row + y, column + x + TILE, t01)", "out[row + y, column + x + TILE] = t01"),
        ("put(out, row + y + TILE, column + x, t10)", "out[row + y + TILE, column + x] = t10"),
        ("put(out, row + y + TILE, column + x + TILE, t11)", "out[row + y + TILE, column + x + TILE] = t11"),
    ),
)


@wrong("matmul_2x2_kernel", "without")
@cuda.jit
def four_from_global_memory(a, b, out):
    row = cuda.blockIdx.y * WIDE + cuda.threadIdx.y
    column = cuda.blockIdx.x * WIDE + cuda.threadIdx.x
    for i in range(row, min(row + WIDE, out.shape[0]), TILE):
        for j in range(column, min(column + WIDE, out.shape[1]), TILE):
            if i < row + WIDE and j < column + WIDE:
                total = float32(0)
                for k in range(a.shape[1]):
                    total += a[i, k] * b[k, j]
                out[i, j] = total


# --- dense_kernel ---

dense_kernel = derive(
    "dense_kernel",
    dense_with_a_bias_for_each_image=("bias per row", ("bias[column]", "bias[row]")),
    dense_without_bias=("bias left out", ("bias[column]", "float32(0)")),
    dense_adds_the_bias_in_the_loop=(
        "bias for each product",
        ("bias[column]", "float32(0)"),
        ("weight[column, k]", "weight[column, k] + bias[column]"),
    ),
    dense_adds_the_bias_last=(
        "bias after ReLU",
        ("bias[column]", "float32(0)"),
        ("out[row, column] = total", "out[row, column] = total + bias[column]"),
    ),
    dense_without_relu=("ReLU left out", ("total = float32(0) if total <= float32(0) else total", "pass")),
    dense_always_with_relu=("ReLU always", ("if relu:", "if True:")),
    dense_with_relu_the_wrong_way_round=("ReLU the wrong way round", ("if relu:", "if not relu:")),
    dense_with_relu_in_the_loop=(
        "ReLU of each product",
        ("x[row, k] * weight[column, k]", "max(x[row, k] * weight[column, k], float32(0))"),
    ),
    dense_with_relu_in_the_loop_if_asked=(
        "ReLU of each product",
        (
            "total += x[row, k] * weight[column, k]",
            "product = x[row, k] * weight[column, k]\ntotal += max(product, float32(0)) if relu else product",
        ),
    ),
    dense_of_the_absolute_value=(
        "absolute value",
        ("float32(0) if total <= float32(0) else total", "abs(total)"),
    ),
    dense_reads_down_the_weights=("weight not transposed", ("weight[column, k]", "weight[k, column]")),
    dense_reads_down_and_hides_it=(
        "weight not transposed",
        ("weight[column, k]", "weight[k, column]"),
        ("float32(0) if total <= float32(0) else total", "total if total > 0 else float32(0)"),
    ),
    dense_without_guard=(
        "writes past the edge",
        ("row < out.shape[0] and column < out.shape[1]", "column < out.shape[1]"),
    ),
    dense_sums_into_the_bias=(
        "changes input",
        ("total = bias[column]", ""),
        ("total +=", "bias[column] +="),
        (
            "total = float32(0) if total <= float32(0) else total",
            "bias[column] = max(bias[column], float32(0))",
        ),
        ("out[row, column] = total", "out[row, column] = bias[column]"),
    ),
)
