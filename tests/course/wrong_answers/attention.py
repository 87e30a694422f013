from wrong_answers import derive

# --- causal_softmax_kernel ---

causal_softmax_kernel = derive(
    "causal_softmax_kernel",
    causal_not_at_all=(
        "no mask",
        ("range(1, i + 1)", "range(1, scores.shape[1])"),
        ("in range(i + 1)", "in range(scores.shape[1])"),
        ("if j <= i", "if True"),
    ),
    causal_masks_at_the_end=(
        "masked afterwards",
        ("range(1, i + 1)", "range(1, scores.shape[1])"),
        ("in range(i + 1)", "in range(scores.shape[1])"),
    ),
    causal_without_itself=(
        "itself not seen",
        ("largest = scores[i, 0]", "largest = float32(-math.inf)"),
        ("range(1, i + 1)", "range(i)"),
        ("in range(i + 1)", "in range(i)"),
        ("j <= i", "j < i"),
    ),
    causal_sees_the_next=(
        "one too many",
        ("range(1, i + 1)", "range(1, min(i + 2, scores.shape[1]))"),
        ("in range(i + 1)", "in range(min(i + 2, scores.shape[1]))"),
        ("j <= i", "j <= i + 1"),
    ),
    causal_without_shift=("no shift", ("scores[i, j] - largest", "scores[i, j]", 2)),
    causal_with_the_largest_of_all=(
        "largest of the future",
        ("range(1, i + 1)", "range(1, scores.shape[1])"),
    ),
    causal_not_divided=("not divided", (" / total if", " if")),
    causal_past_only_written=(
        "future not written",
        ("range(scores.shape[1])", "range(i + 1)"),
    ),
    causal_scores_of_zero=(
        "scores of zero",
        ("range(1, i + 1)", "range(1, scores.shape[1])"),
        ("max(largest, scores[i, j])", "max(largest, scores[i, j] if j <= i else float32(0))"),
        ("in range(i + 1)", "in range(scores.shape[1])"),
        (
            "total += math.exp(scores[i, j] - largest)",
            "total += math.exp((scores[i, j] if j <= i else float32(0)) - largest)",
        ),
        (
            "math.exp(scores[i, j] - largest) / total if j <= i else float32(0)",
            "math.exp((scores[i, j] if j <= i else float32(0)) - largest) / total",
        ),
    ),
    causal_the_wrong_way_round=(
        "sees the future only",
        ("largest = scores[i, 0]", "largest = scores[i, i]"),
        ("range(1, i + 1)", "range(i, scores.shape[1])"),
        ("in range(i + 1)", "in range(i, scores.shape[1])"),
        ("j <= i", "j >= i"),
    ),
    causal_without_guard=("writes past the edge", ("if i < scores.shape[0]:", "if True:")),
    causal_of_the_first_block=("never written", ("cuda.grid(1)", "cuda.threadIdx.x")),
    causal_in_float64=("float64", ("total = float32(0)", "total = 0.0")),
    weights_from_minus_2000=(
        "not small enough",
        ("largest = scores[i, 0]\nfor j in range(1, ", "largest = float32(-2000)\nfor j in range("),
    ),
)

# --- online_step ---

online_step = derive(
    "online_step",
    online_without_factor=("not rescaled", ("factor = np.exp(largest - new)", "factor = 1")),
    online_average_left_alone=("average not rescaled", ("factor * average", "average")),
    online_sum_left_alone=("sum not rescaled", ("factor * total", "total")),
    online_upside_down=("factor upside down", ("np.exp(largest - new)", "np.exp(new - largest)")),
    online_by_the_old_largest=(
        "new weights by the old largest",
        ("np.exp(scores - new)", "np.exp(scores - largest)"),
    ),
    online_forgets_the_largest=(
        "largest of the new ones",
        ("max(largest, scores.max())", "scores.max()"),
    ),
    online_divides=(
        "divided already",
        (
            "return new, total, average",
            "return new, total, average / total",
        ),
    ),
    online_plain_values=("values not weighted", ("weights @ values", "values.sum(axis=0)")),
    online_forgets=(
        "earlier keys forgotten",
        ("factor * total + ", ""),
        ("factor * average + ", ""),
    ),
)

# --- tiled_attention_kernel ---

tiled_attention_kernel = derive(
    "tiled_attention_kernel",
    tiled_not_scaled=("not scaled", ("SCALE * dot", "dot")),
    tiled_largest_from_zero=("largest from 0", ("float32(-math.inf)", "float32(0)")),
    tiled_first_tile=("first tile only", ("range(0, k.shape[0], TILE)", "range(0, 1, TILE)")),
    tiled_whole_tiles=(
        "whole tiles only",
        ("range(0, k.shape[0], TILE)", "range(0, k.shape[0] // TILE * TILE, TILE)"),
    ),
    tiled_begins_anew=(
        "last tile only",
        (
            "    copy_rows(k, first, k_tile)",
            "    largest, total = float32(-math.inf), float32(0)\n"
            "    for d in range(D):\n"
            "        average[d] = float32(0)\n"
            "    copy_rows(k, first, k_tile)",
        ),
    ),
    tiled_with_zeros=("zeros take part", ("range(min(TILE, k.shape[0] - first))", "range(TILE)")),
    tiled_without_factor=(
        "not rescaled",
        ("total = total * factor + weight", "total += weight"),
        ("average[d] * factor + ", "average[d] + "),
    ),
    tiled_average_left_alone=("average not rescaled", ("average[d] * factor + ", "average[d] + ")),
    tiled_sum_left_alone=("sum not rescaled", ("total = total * factor + weight", "total += weight")),
    tiled_not_divided=("not divided", ("average[d] / total", "average[d]")),
    tiled_averages_keys=("keys averaged", ("v_tile[j, d]", "k_tile[j, d]")),
    tiled_first_barrier_missing=(
        "missing barrier",
        (
            "copy_rows(v, first, v_tile)\ncuda.syncthreads()",
            "copy_rows(v, first, v_tile)",
        ),
    ),
    tiled_second_barrier_missing=(
        "missing barrier",
        ("    largest = new\ncuda.syncthreads()", "    largest = new"),
    ),
    tiled_without_guard=("writes past the edge", ("if i < q.shape[0]:", "if True:")),
    tiled_in_float64=("float64", ("float32(-math.inf), float32(0)", "float32(-math.inf), 0.0")),
    attends_from_minus_a_billion=("not small enough", ("-math.inf", "-1e9")),
)

# --- softmax_backward_kernel ---

softmax_backward_kernel = derive(
    "softmax_backward_kernel",
    backward_without_average=("average left out", (" - average)", ")")),
    backward_plain_mean=(
        "plain mean",
        ("weights[i, j] * grad_weights[i, j]", "grad_weights[i, j] / float32(weights.shape[1])"),
    ),
    backward_plain_sum=(
        "plain sum",
        ("average += weights[i, j] * grad_weights[i, j]", "average += grad_weights[i, j]"),
    ),
    backward_without_weight=("weight left out", ("= weights[i, j] * (", "= (")),
    backward_the_other_way=(
        "sign",
        ("(grad_weights[i, j] - average)", "(average - grad_weights[i, j])"),
    ),
    backward_average_divided=("average divided", ("- average)", "- average / float32(weights.shape[1]))")),
    backward_own_term=(
        "own term only",
        ("(grad_weights[i, j] - average)", "grad_weights[i, j] * (float32(1) - weights[i, j])"),
    ),
    backward_without_guard=("writes past the edge", ("if i < weights.shape[0]:", "if True:")),
    backward_in_float64=("float64", ("average = float32(0)", "average = 0.0")),
    backward_into_nothing=("nothing written", ("grad_scores[i, j] = ", "result = ")),
)
