from numba import cuda, float32

from cnn_numba.ops.shared.tensor_cores import to_tf32
from wrong_answers import derive, wrong

# --- held_by ---

_REGISTER = "row // 8 + 2 * (k // 4)"

held_by = derive(
    "held_by",
    exchanges_the_registers=("registers exchanged", (_REGISTER, "2 * (row // 8) + k // 4")),
    counts_down_the_columns=("lanes down the columns", ("4 * (row % 8) + k % 4", "row % 8 + 8 * (k % 4)")),
    gives_a_row_eight_lanes=(
        "eight lanes to a row",
        ("4 * (row % 8) + k % 4", "8 * (row % 4) + k"),
        (_REGISTER, "row // 4"),
    ),
    goes_on_past_lane_31=("lanes past the warp", ("row % 8", "row")),
    forgets_the_lower_half=("two registers", (_REGISTER, "k // 4")),
    adds_one_for_both=("two registers", (_REGISTER, "row // 8 + k // 4")),
    returns_the_register_first=(
        "lane and register exchanged",
        ("return lane, register", "return register, lane"),
    ),
)

# --- warp_product_kernel ---

_UPPER = "out[top, column], out[top, column + 1] ="
_LOWER = "out[top + 8, column], out[top + 8, column + 1] ="

warp_product_kernel = derive(
    "warp_product_kernel",
    rounds_nothing=("not rounded", ("to_tf32(", "(", 6)),
    does_not_round_the_right=(
        "not rounded",
        ("to_tf32(b[k, left]), to_tf32(b[k + 4, left])", "b[k, left], b[k + 4, left]"),
    ),
    exchanges_registers_1_and_2=(
        "registers exchanged",
        ("above[0], below[0], above[1], below[1]", "above[0], above[1], below[0], below[1]"),
    ),
    exchanges_the_right_registers=(
        "halves of the right one exchanged",
        ("to_tf32(b[k, left]), to_tf32(b[k + 4, left])", "to_tf32(b[k + 4, left]), to_tf32(b[k, left])"),
    ),
    begins_each_step_anew=(
        "last step only",
        ("for k in range(", "zero = sums\nfor k in range("),
        ("right, sums)", "right, zero)"),
    ),
    takes_the_right_one_turned=(
        "right one transposed",
        ("b[k, left]", "b[k - first + row, left - row + first]"),
        ("b[k + 4, left]", "b[k - first + row, left - row + first + 4]"),
    ),
    repeats_the_first_step=("first step again", ("above =", "k = first\nabove =")),
    multiplies_the_first_step=("first step only", ("a.shape[1], 8", "8, 8")),
    writes_the_lower_half_first=(
        "halves of the result exchanged",
        (f"{_UPPER} sums[0], sums[1]", f"{_UPPER} sums[2], sums[3]"),
        (f"{_LOWER} sums[2], sums[3]", f"{_LOWER} sums[0], sums[1]"),
    ),
    writes_the_upper_half=("never written", (f"{_LOWER} sums[2], sums[3]", "")),
)


@wrong("warp_product_kernel", "without")
@cuda.jit
def multiplies_without_tensor_cores(a, b, out):
    lane = cuda.threadIdx.x
    for i in range(4):
        row, column = 16 * cuda.blockIdx.y + 4 * i + lane // 8, 8 * cuda.blockIdx.x + lane % 8
        total = float32(0)
        for k in range(a.shape[1]):
            total += to_tf32(a[row, k]) * to_tf32(b[k, column])
        out[row, column] = total


# --- split_tf32 ---

_REST = 'rounded(x - near, "tf32")'

split_tf32 = derive(
    "split_tf32",
    leaves_the_rest_as_it_is=("rest not rounded", (_REST, "x - near")),
    takes_the_rest_the_other_way_round=("sign", ("x - near", "near - x")),
    rounds_the_same_again=("the same twice", ("x - near", "x")),
    does_not_round=("not rounded", ('near = rounded(x, "tf32")', "near = x")),
    rounds_to_bfloat16=("another format", ('"tf32"', '"bfloat16"', 2)),
    returns_the_rest_first=("rest first", (f"return near, {_REST}", f"return {_REST}, near")),
)

# --- turns ---

turns = derive(
    "turns",
    counts_conflicts=("conflicts", ("return max(", "return -1 + max(")),
    takes_bytes=("bytes", ("(pitch * row + word) %", "4 * (pitch * row + word) %")),
    has_sixteen_banks=("sixteen banks", ("% 32", "% 16")),
    takes_a_row_for_each_lane=("all rows", ("range(8)", "range(32)")),
    takes_one_row=("first row only", ("range(8)", "range(1)")),
    counts_banks=("banks", ("return max(banks.count(bank) for bank in banks)", "return len(set(banks))")),
)
