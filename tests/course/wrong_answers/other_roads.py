from wrong_answers import derive

# --- block_sums_source ---

_BARRIER = "barrier(CLK_LOCAL_MEM_FENCE);"
_ROUND = "if (t < step) partial[t] += partial[t + step];"

block_sums_source = derive(
    "block_sums_source",
    reads_past_the_end=("no guard", ("i < n ? x[i] : 0.0f", "x[i]")),
    counts_within_the_group=("first group only", ("i = get_global_id(0)", "i = get_local_id(0)")),
    builds_no_tree=("no tree", (_ROUND, "")),
    stops_a_round_early=("one round too few", ("step > 0", "step > 1")),
    begins_a_round_late=("one round too many", ("int step = 32", "int step = 16")),
    keeps_the_sum=("not written", ("if (t == 0) out[get_group_id(0)] = partial[0];", "")),
    forgets_the_barrier_of_the_loop=("missing barrier", (f"{_ROUND}\n{_BARRIER}", _ROUND)),
    has_the_barrier_within_the_if=(
        "divergent barrier",
        (f"{_ROUND}\n{_BARRIER}", f"if (t < step) {{ partial[t] += partial[t + step]; {_BARRIER} }}"),
    ),
    writes_a_sum_for_each_item=(
        "writes past the edge",
        ("if (t == 0) out[get_group_id(0)] = partial[0];", "out[i] = partial[0];"),
    ),
    has_the_tree_in_private_memory=("no local memory", ("__local", "")),
    calls_it_otherwise=("another name", ("void block_sums", "void sums")),
    types_its_step_twice=("does not compile", ("int step", "int step step")),
    declares_a_quarter_of_the_places=("past the local array", ("partial[64]", "partial[16]")),
    begins_a_round_early=("past the local array", ("int step = 32", "int step = 64")),
    adds_one_too_many=("past the local array", ("t < step", "t <= step")),
    lets_all_items_add=("past the local array", (_ROUND, "partial[t] += partial[t + step];")),
    lets_32_items_add_in_each_round=("race", ("t < step", "t < 32")),
    fences_global_memory=("another fence", (_BARRIER, "barrier(CLK_GLOBAL_MEM_FENCE);", 2)),
    forgets_the_first_barrier=("missing barrier", (f"0.0f;\n{_BARRIER}", "0.0f;")),
    sends_home_who_has_no_number=(
        "leaves early",
        ("partial[t] = i < n ? x[i] : 0.0f;", "if (i >= n) return;\npartial[t] = x[i];"),
    ),
    says_shared=("a word of CUDA", ("__local float", "__shared__ float")),
    has_one_item_add=(
        "one item adds",
        (
            f"for (int step = 32; step > 0; step /= 2) {{\n    {_ROUND}\n    {_BARRIER}\n}}",
            "if (t == 0) for (int k = 1; k < 64; k++) partial[0] += partial[k];",
        ),
    ),
    calls_its_step_half=(
        "half",
        ("int step = 32; step > 0; step /= 2", "int half = 32; half > 0; half /= 2"),
    ),
)

# --- standardise_rows ---

_WHERE = "tl.where(there, values - mean, 0.0)"

standardise_rows = derive(
    "standardise_rows",
    counts_the_zeros=("zeros in the variance", (_WHERE, "values - mean")),
    divides_by_the_block=("divided by the block", ("/ columns", "/ BLOCK", 2)),
    divides_the_squares_by_the_block=(
        "divided by the block",
        ("tl.sum(distance * distance, axis=0) / columns", "tl.sum(distance * distance, axis=0) / BLOCK"),
    ),
    standardises_row_0=("first row only", ("tl.program_id(0) * columns + k", "k")),
    divides_by_one_less=(
        "one number less",
        (
            "tl.sum(distance * distance, axis=0) / columns",
            "tl.sum(distance * distance, axis=0) / (columns - 1)",
        ),
    ),
    takes_no_root=("not rooted", ("tl.sqrt(variance + 1e-5)", "(variance + 1e-5)")),
    leaves_the_mean=(
        "mean not taken away",
        ("tl.store(out + place, distance /", "tl.store(out + place, values /"),
    ),
    loads_without_a_mask=("no mask on the load", ("mask=there, other=0.0", "")),
    stores_without_a_mask=("writes past the edge", ("+ 1e-5), mask=there)", "+ 1e-5))")),
    asks_for_a_norm=("raises", ("tl.sqrt", "tl.norm")),
    masks_the_address=(
        "mask on the address",
        (
            "there, place = k < columns, tl.program_id(0) * columns + k",
            "place = tl.program_id(0) * columns + k",
        ),
        ("values = tl.load", "there = place < columns\nvalues = tl.load"),
    ),
    takes_rows_as_long_as_a_block=(
        "row begins elsewhere",
        ("program_id(0) * columns", "program_id(0) * BLOCK"),
    ),
    counts_in_bytes=("row begins elsewhere", ("program_id(0) * columns", "program_id(0) * columns * 4")),
    begins_far_away=(
        "row begins elsewhere",
        ("program_id(0) * columns", "program_id(0) * columns * BLOCK * 100000"),
    ),
    reaches_far_away=("out of bounds", ("tl.store(out + place", "tl.store(out + place + k * 1000000")),
    adds_far_away=("out of bounds", ("tl.store(out + place", "tl.atomic_add(out + place + k * 1000000")),
    stores_nothing=(
        "nothing stored",
        ("tl.store(out + place, distance / tl.sqrt(variance + 1e-5), mask=there)", ""),
    ),
    stores_into_x=("nothing stored", ("tl.store(out", "tl.store(x")),
    leaves_the_small_number_out=("without the 1e-5", ("variance + 1e-5", "variance")),
    adds_a_larger_number=("without the 1e-5", ("1e-5", "1e-3")),
    adds_it_to_the_root=("without the 1e-5", ("tl.sqrt(variance + 1e-5)", "(tl.sqrt(variance) + 1e-5)")),
    takes_the_root_of_numpy=("NumPy", ("tl.sqrt", "np.sqrt")),
)

# --- pooling_program ---

pooling_program = derive(
    "pooling_program",
    rounds_the_blocks_down=("rounded down", ("-(-places // 256)", "places // 256")),
    has_no_guard=("out of bounds", ("    if (i >= channels * h * w) return;\n", "")),
    guards_the_store_alone=(
        "out of bounds",
        ("    if (i >= channels * h * w) return;\n", ""),
        ("out[i] = fmaxf(above, below);", "if (i < channels * h * w) out[i] = fmaxf(above, below);"),
    ),
    takes_no_maximum=("no maximum", ("fmaxf(above, below)", "four[0]")),
    looks_at_one_row=("one row only", ("fmaxf(above, below)", "above")),
    begins_at_zero=("from 0", ("fmaxf(above, below)", "fmaxf(0, fmaxf(above, below))")),
    takes_the_mean=(
        "mean",
        ("fmaxf(above, below)", "(four[0] + four[1] + four[width] + four[width + 1]) / 4"),
    ),
    takes_rows_for_even=(
        "odd width",
        ("(c * height + 2 * row) * width", "c * height * width + 2 * row * 2 * w"),
        ("four[width]", "four[2 * w]"),
        ("four[width + 1]", "four[2 * w + 1]"),
    ),
    takes_all_for_even=(
        "odd width",
        ("(c * height + 2 * row) * width", "(c * 2 * h + 2 * row) * 2 * w"),
        ("four[width]", "four[2 * w]"),
        ("four[width + 1]", "four[2 * w + 1]"),
    ),
    takes_columns_for_even=("odd height", ("(c * height + 2 * row)", "(c * 2 * h + 2 * row)")),
    returns_the_source_alone=("not a program", ("return source, -(-places // 256), 256", "return source")),
    keeps_the_smallest=("smallest", ("fmaxf", "fminf", 3)),
    steps_one_row_down=("windows overlap", ("2 * row", "row")),
    steps_one_column_across=("windows overlap", ("2 * column", "column")),
    forgets_the_channel=("first channel only", ("c * height + 2 * row", "2 * row")),
    looks_a_row_of_out_further=(
        "row of out",
        ("four[width]", "four[w]"),
        ("four[width + 1]", "four[w + 1]"),
    ),
    swaps_blocks_and_threads=(
        "threads of a block",
        ("return source, -(-places // 256), 256", "return source, 256, -(-places // 256)"),
    ),
    shares_blocks_out=("not whole", ("-(-places // 256)", "places / 256 + 1")),
    returns_a_grid=("not whole", ("-(-places // 256)", "(-(-places // 256),)")),
    returns_a_list=(
        "not a program",
        ("return source, -(-places // 256), 256", "return [source, -(-places // 256), 256]"),
    ),
    has_a_name_of_cpp=("no extern", ('extern "C" ', "")),
    forgets_a_semicolon=("does not compile", ("four[1]);", "four[1])")),
)

# --- tune ---

tune = derive(
    "tune",
    forgets_what_does_not_fit=(
        "does not fit",
        ("        if held.blocks == 0:\n            continue\n", ""),
    ),
    takes_any_number_of_threads=(
        "too many threads",
        ("        if one.threads > 1024:\n            continue\n", ""),
    ),
    takes_the_last_of_equals=(
        "last of equals",
        ("append((max(memory, arithmetic), place))", "append((max(memory, arithmetic), -place))"),
        ("is_right(candidates[place])", "is_right(candidates[-place])"),
        ("return place, time", "return -place, time"),
    ),
    counts_waves=("waves", ("-(-blocks // gpu.sms)", "-(-blocks // (gpu.sms * held.blocks))")),
    counts_a_multiply_add_once=("multiply-add as one", ("* 2 * one.tile_m", "* one.tile_m")),
    returns_the_time_first=("tuple swapped", ("return place, time", "return time, place")),
    asks_nobody=("not checked", ("if is_right(candidates[place]):", "if True:")),
    takes_the_slowest=("slowest", ("sorted(ranking)", "sorted(ranking, reverse=True)")),
    adds_both_times=("sum of both", ("max(memory, arithmetic)", "memory + arithmetic")),
    takes_the_shorter=("shorter of both", ("max(memory, arithmetic)", "min(memory, arithmetic)")),
    rounds_the_tiles_down=(
        "rounded down",
        ("-(-m // one.tile_m) * -(-n // one.tile_n)", "max(1, m // one.tile_m) * max(1, n // one.tile_n)"),
        ("-(-blocks // gpu.sms)", "max(1, blocks // gpu.sms)"),
    ),
    shares_blocks_out_in_fractions=("no tail", ("-(-blocks // gpu.sms)", "blocks / gpu.sms")),
    takes_full_speed=("occupancy ignored", (" * min(1, held.warps / 16)", "")),
    reads_a_tile_once=("tile read once", ("(blocks * depth * (", "(blocks * one.tile_k * (")),
    writes_nothing=("results not written", (" + m * n) / gpu", ") / gpu")),
    asks_for_all=(
        "all are checked",
        ("ranking = []", "right = [is_right(one) for one in candidates]\nranking = []"),
        ("if is_right(candidates[place]):", "if right[place]:"),
    ),
)
