from numba import cuda, float32

from wrong_answers import derive, wrong

# --- decode_float16 ---

decode_float16 = derive(
    "decode_float16",
    float16_with_a_bias_of_16=("bias", ("exponent - 15", "exponent - 16")),
    float16_with_a_bias_of_14=("bias", ("exponent - 15", "exponent - 14")),
    float16_with_the_bias_of_float32=("bias", ("exponent - 15", "exponent - 127")),
    float16_without_leading_one=("leading 1 missing", ("(1 + mantissa / 1024)", "(mantissa / 1024)")),
    float16_without_subnormals=("subnormal numbers", ("if exponent == 0:", "if exponent < 0:")),
    float16_with_subnormals_half_as_large=("exponent of subnormal numbers", ("2.0**-14", "2.0**-15")),
    float16_without_infinity=("no infinity", ("if exponent == 31:", "if exponent == 32:")),
    float16_without_sign=("sign", ("-1.0 if", "1.0 if")),
    float16_with_a_mantissa_of_9_bits=("mantissa", ("mantissa / 1024", "mantissa / 512", 2)),
    float16_with_a_mantissa_of_11_bits=("mantissa", ("mantissa / 1024", "mantissa / 2048", 2)),
    float16_flushed_to_zero=("subnormal numbers lost", ("sign * mantissa / 1024 * 2.0**-14", "sign * 0.0")),
    float16_with_the_sign_in_the_exponent=("sign in the exponent", ("bits >> 10 & 31", "bits >> 10")),
    float16_with_the_exponent_in_the_mantissa=("exponent in the mantissa", ("bits & 1023", "bits")),
    float16_of_nine_bits=("width of the fields", ("bits & 1023", "bits & 511")),
    float16_of_the_eleventh_bit=("width of the fields", ("bits & 1023", "bits & 1024")),
    float16_of_four_bits=("width of the fields", ("bits >> 10 & 31", "bits >> 10 & 15")),
    float16_with_one_infinity=("infinity without sign", ('sign * float("inf")', 'float("inf")')),
    float16_divided_by_ten_ones=("mantissa", ("mantissa / 1024", "mantissa / 1023", 2)),
)


@wrong("decode_float16", "shortcut")
def float16_by_numpy(bits):
    import numpy

    return float(numpy.uint16(bits).view("float16"))


# --- sum_rows_kernel ---

sum_rows_kernel = derive(
    "sum_rows_kernel",
    rows_added_in_float16=(
        "sum in float16",
        ("total = float32(0)", "total = float16(0)"),
        ("total += float32(x[row, k])", "total = float16(total + x[row, k])"),
    ),
    rows_rounded_at_the_end=("rounded at the end", ("out[row] = total", "out[row] = float16(total)")),
    rows_averaged=("mean", ("out[row] = total", "out[row] = total / float32(x.shape[1])")),
    rows_without_their_last=("last column missing", ("range(x.shape[1])", "range(x.shape[1] - 1)")),
    rows_without_their_first=("first column missing", ("range(x.shape[1])", "range(1, x.shape[1])")),
    rows_overwritten=("last element only", ("total +=", "total =")),
    rows_all_the_first=("same row everywhere", ("x[row, k]", "x[0, k]")),
    rows_of_the_first_block=("first block only", ("cuda.grid(1)", "cuda.threadIdx.x")),
    rows_without_guard=("writes past the edge", ("if row < x.shape[0]:", "if True:")),
    rows_one_element_too_long=("reads past the edge", ("range(x.shape[1])", "range(x.shape[1] + 1)")),
    rows_in_float64=("float64", ("total = float32(0)", "total = 0.0")),
    rows_stored_nowhere=("nothing written", ("out[row] = total", "")),
)


@wrong("sum_rows_kernel", "done more than once")
@cuda.jit
def rows_by_every_thread(x, out):
    for row in range(x.shape[0]):
        total = float32(0)
        for k in range(x.shape[1]):
            total += float32(x[row, k])
        out[row] = total


# --- stochastic_kernel ---

stochastic_kernel = derive(
    "stochastic_kernel",
    chance_left_out=("cut off", ("x[i] + noise", "x[i]")),
    chance_replaced_by_a_half=("nearest", ("random[i] & uint32(0xFFFF)", "uint32(0x8000)")),
    chance_replaced_by_less_than_a_half=("nearest", ("random[i] & uint32(0xFFFF)", "uint32(0x7FFF)")),
    chance_of_all_bits=("all random bits", ("random[i] & uint32(0xFFFF)", "random[i]")),
    chance_of_the_upper_bits=(
        "upper random bits",
        ("random[i] & uint32(0xFFFF)", "random[i] & uint32(0xFFFF0000)"),
    ),
    chance_of_fifteen_bits=("half of the noise", ("uint32(0xFFFF)", "uint32(0x7FFF)")),
    chance_not_cut_off=("not cut off", ("(x[i] + noise) & uint32(0xFFFF0000)", "x[i] + noise")),
    chance_with_the_lower_half=("wrong half", ("uint32(0xFFFF0000)", "uint32(0xFFFF)")),
    chance_by_or=("cut off", ("x[i] + noise", "x[i] | noise")),
    chance_by_exclusive_or=(
        "or instead of plus",
        ("(x[i] + noise) & uint32(0xFFFF0000)", "x[i] ^ noise"),
    ),
    chance_of_the_other_bits=(
        "the other random bits",
        ("random[i] & uint32(0xFFFF)", "random[i] >> uint32(16)"),
    ),
    chance_after_the_cut=(
        "noise added after the cut",
        ("(x[i] + noise) & uint32(0xFFFF0000)", "(x[i] & uint32(0xFFFF0000)) + noise"),
    ),
    chance_taken_away=("taken away", ("x[i] + noise", "x[i] - noise")),
    chance_of_the_first_block=("first block only", ("cuda.grid(1)", "cuda.threadIdx.x")),
    chance_without_guard=("writes past the edge", ("if i < x.size:", "if True:")),
)


# --- unscale_kernel ---

unscale_kernel = derive(
    "unscale_kernel",
    unscaled_by_multiplying=("multiplied", ("/ scale[0]", "* scale[0]")),
    unscaled_not_at_all=("left as they are", ("gradients[i] = gradient", "pass")),
    unscaled_without_a_look=("nothing found", ("cuda.atomic.max(found_inf, 0, 1)", "pass")),
    unscaled_blind_to_nan=(
        "NaN missed",
        ("not abs(gradient) < float32(np.inf)", "abs(gradient) >= float32(np.inf)"),
    ),
    unscaled_with_a_limit=("large is not infinite", ("float32(np.inf)", "float32(1e10)")),
    unscaled_with_the_limit_of_float16=("large is not infinite", ("float32(np.inf)", "float32(65504)")),
    unscaled_blind_to_infinity=(
        "infinity missed",
        ("not abs(gradient) < float32(np.inf)", "gradient != gradient"),
    ),
    unscaled_blind_to_minus_infinity=("minus infinity missed", ("abs(gradient)", "gradient")),
    unscaled_counted=("counted", ("cuda.atomic.max(found_inf, 0, 1)", "cuda.atomic.add(found_inf, 0, 1)")),
    unscaled_blind_to_plus_infinity=(
        "plus infinity missed",
        ("not abs(gradient) < float32(np.inf)", "not gradient > float32(-np.inf)"),
    ),
    unscaled_with_eyes_for_plus_infinity=(
        "plus infinity only",
        ("not abs(gradient) < float32(np.inf)", "gradient == float32(np.inf)"),
    ),
    unscaled_always_found=("found everywhere", ("if not abs(gradient) < float32(np.inf):", "if True:")),
    unscaled_found_undone=(
        "found undone",
        (
            "    cuda.atomic.max(found_inf, 0, 1)",
            "    cuda.atomic.max(found_inf, 0, 1)\nelif i == 0 and found_inf[0] == 1:\n    found_inf[0] = 0",
        ),
    ),
    unscaled_the_wrong_way_round=("the wrong way round", ("not abs(gradient)", "abs(gradient)")),
    unscaled_without_guard=("found everywhere", ("if i < gradients.size:", "if True:")),
    unscaled_by_the_first_block=("race between blocks", ("cuda.grid(1)", "cuda.threadIdx.x")),
)


# --- next_scale ---

next_scale = derive(
    "next_scale",
    scale_of_whole_numbers=("whole numbers only", ("scale / 2", "scale // 2")),
    scale_one_step_late=("one step late", ("good_steps == interval", "good_steps == interval + 1")),
    scale_one_step_early=("one step early", ("good_steps == interval", "good_steps >= interval - 1")),
    scale_with_a_counter_that_goes_on=(
        "counter goes on",
        ("return scale * 2, 0", "return scale * 2, good_steps"),
    ),
    scale_that_keeps_good_steps=("good steps kept", ("return scale / 2, 0", "return scale / 2, good_steps")),
    scale_that_does_not_shrink=("does not shrink", ("return scale / 2, 0", "return scale, 0")),
    scale_that_does_not_grow=("does not grow", ("return scale * 2, 0", "return scale, 0")),
    scale_the_wrong_way_round=("the wrong way round", ("if found_inf:", "if not found_inf:")),
    scale_without_counting=(
        "good steps not counted",
        ("return scale, good_steps", "return scale, good_steps - 1"),
    ),
    scale_counting_from_one=("counts from one", ("return scale / 2, 0", "return scale / 2, 1")),
    scale_counting_from_one_after_growth=("counts from one", ("return scale * 2, 0", "return scale * 2, 1")),
    scale_halved_twice=("halved twice", ("return scale / 2, 0", "return scale / 4, 0")),
)


@wrong("next_scale", "grows at every step")
def scale_grows_at_once(scale, good_steps, found_inf, interval):
    if found_inf:
        return scale / 2, 0
    return scale * 2, good_steps + 1
