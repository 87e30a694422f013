import numpy as np

from wrong_answers import derive, wrong

# --- share_of ---

share_of = derive(
    "share_of",
    share_without_the_rest=("rest left out", ("+ min(rank, rest)", ""), ("each + (rank < rest)", "each")),
    share_rounded_up=(
        "rounded up",
        ("each, rest = divmod(n, size)", "each = -(-n // size)"),
        ("rank * each + min(rank, rest)", "min(rank * each, n)"),
        ("first + each + (rank < rest)", "min(first + each, n)"),
    ),
    share_last_takes_the_rest=(
        "rest to the last",
        ("+ min(rank, rest)", ""),
        ("first + each + (rank < rest)", "n if rank == size - 1 else first + each"),
    ),
    share_first_takes_the_rest=(
        "rest to the first",
        ("+ min(rank, rest)", "+ (rest if rank else 0)"),
        ("(rank < rest)", "(rest if rank == 0 else 0)"),
    ),
    share_the_last_take_more=(
        "the last ones more",
        ("min(rank, rest)", "max(0, rank - (size - rest))"),
        ("(rank < rest)", "(rank >= size - rest)"),
    ),
    share_begins_too_early=("begin not moved", ("+ min(rank, rest)", "")),
    share_as_a_length=("length returned", ("first + each", "each")),
    share_to_the_last_one=("last one inside", ("(rank < rest)", "(rank < rest) - 1")),
    share_cut_at_fractions=(
        "cut at fractions",
        ("each, rest = divmod(n, size)", ""),
        ("rank * each + min(rank, rest)", "n * rank // size"),
        ("first + each + (rank < rest)", "n * (rank + 1) // size"),
    ),
    share_by_numpy=(
        "shortcut",
        ("each, rest = divmod(n, size)", "part = np.array_split(np.arange(n), size)"),
        (
            "first = rank * each + min(rank, rest)",
            "first = int(sum(len(p) for p in part[:rank]))",
        ),
        ("first + each + (rank < rest)", "first + len(part[rank])"),
    ),
)

# --- combined_gradient ---

combined_gradient = derive(
    "combined_gradient",
    combined_as_a_mean=(
        "plain mean",
        ("counts[busy] @ gradients[busy] / counts.sum()", "np.nan_to_num(gradients).mean(axis=0)"),
    ),
    combined_as_a_mean_with_nan=(
        "plain mean",
        ("counts[busy] @ gradients[busy] / counts.sum()", "gradients.mean(axis=0)"),
    ),
    combined_as_a_mean_of_the_busy=(
        "mean of those with images",
        ("counts[busy] @ gradients[busy] / counts.sum()", "gradients[busy].mean(axis=0)"),
    ),
    combined_as_a_sum=(
        "plain sum",
        ("counts[busy] @ gradients[busy] / counts.sum()", "gradients[busy].sum(axis=0)"),
    ),
    combined_not_divided=("not divided", ("/ counts.sum()", "")),
    combined_by_the_workers=("divided by the workers", ("counts.sum()", "len(counts)")),
    combined_by_the_busy_workers=("divided by the busy workers", ("counts.sum()", "busy.sum()")),
    combined_in_float32=(
        "float32",
        (
            "counts[busy] @ gradients[busy]",
            "counts[busy].astype(np.float32) @ gradients[busy].astype(np.float32)",
        ),
        ("counts.sum()", "np.float32(counts.sum())"),
    ),
    combined_in_float32_and_converted=(
        "float32",
        ("counts[busy] @ gradients[busy]", "(counts[busy] @ gradients[busy]).astype(np.float32)"),
    ),
    combined_with_nan=(
        "NaN of nobody's images",
        ("counts[busy] @ gradients[busy]", "counts @ gradients"),
    ),
    combined_upside_down=(
        "weighted the wrong way",
        ("counts[busy] @ gradients[busy] / counts.sum()", "(1 / counts[busy]) @ gradients[busy]"),
    ),
    combined_without_any_nan=(
        "NaN hidden",
        ("busy = counts > 0", "gradients = np.nan_to_num(gradients)"),
        ("[busy]", "", 2),
    ),
)

# --- ring_all_reduce ---

ring_all_reduce = derive(
    "ring_all_reduce",
    ring_sends_first=("everyone sends first", ("if rank % 2 == 0:", "if True:")),
    ring_receives_first=("everyone receives first", ("if rank % 2 == 0:", "if False:")),
    ring_of_pairs=(
        "waits for ever",
        (
            "for step in range(size - 1):\n    chunks[(rank - step) % size][:]",
            "for step in range(size - 1 - rank % 2):\n    chunks[(rank - step) % size][:]",
        ),
    ),
    ring_alone=("sends alone", ("range(size - 1)", "range(max(1, size - 1))", 2)),
    ring_without_end=("too many sends", ("range(size - 1)", "range(100)", 2)),
    ring_adds_to_what_it_sent=(
        "wrong chunk",
        ("chunks[(rank - step - 1) % size] +=", "chunks[(rank - step) % size] +="),
    ),
    ring_of_one_chunk=(
        "always the same chunk",
        ("chunks[(rank - step - 1) % size] +=", "chunks[(rank - 1) % size] +="),
        ("exchange(chunks[(rank - step) % size])", "exchange(chunks[rank])"),
    ),
    ring_of_w_steps=("one step too many", ("range(size - 1)", "range(size if size > 1 else 0)", 2)),
    ring_of_few_steps=("one step too few", ("range(size - 1)", "range(size - 2)", 2)),
    ring_adds_twice=(
        "adds in the second phase",
        ("chunks[(rank - step) % size][:] =", "chunks[(rank - step) % size] +="),
    ),
    ring_never_adds=(
        "nothing added up",
        ("chunks[(rank - step - 1) % size] +=", "chunks[(rank - step - 1) % size][:] ="),
    ),
    ring_sends_originals=(
        "sends its original",
        ("def exchange", "mine = [chunk.copy() for chunk in chunks]\n\ndef exchange"),
        ("exchange(chunks[(rank - step) % size])", "exchange(mine[(rank - step) % size])"),
    ),
    ring_of_one_phase=(
        "first phase only",
        (
            "for step in range(size - 1):\n    chunks[(rank - step) % size][:]",
            "for step in range(0):\n    chunks[(rank - step) % size][:]",
        ),
    ),
    ring_hands_round_unfinished=(
        "nothing added up",
        ("chunks[(rank - step) % size][:]", "chunks[(rank - step - 1) % size][:]"),
        ("exchange(chunks[(rank + 1 - step) % size])", "exchange(chunks[(rank - step) % size])"),
    ),
    ring_as_a_mean=("mean", ("n = len(array)", "n = len(array)\narray /= size")),
    ring_of_even_chunks=(
        "remainder left out",
        ("array[k * n // size : (k + 1) * n // size]", "array[k * (n // size) : (k + 1) * (n // size)]"),
    ),
    ring_beside_the_array=("not in place", ("n = len(array)", "n, array = len(array), array.copy()")),
    ring_in_float64=(
        "sends too much",
        ("exchange(chunks[(rank - step) % size])", "exchange(np.float64(chunks[(rank - step) % size]))"),
    ),
    ring_of_wrong_places=(
        "mixed chunks",
        ("chunks[(rank - step - 1) % size] +=", "chunks[(rank - step - 2) % size] +="),
    ),
    ring_backwards=(
        "mixed chunks",
        ("chunks[(rank - step - 1) % size] +=", "chunks[(rank + step + 1) % size] +="),
        ("exchange(chunks[(rank - step) % size])", "exchange(chunks[(rank + step) % size])"),
        ("chunks[(rank - step) % size][:]", "chunks[(rank + step) % size][:]"),
        ("exchange(chunks[(rank + 1 - step) % size])", "exchange(chunks[(rank - 1 + step) % size])"),
    ),
    ring_of_any_w_steps=("one step too many", ("range(size - 1)", "range(size)", 2)),
    ring_from_step_1=("one step too few", ("range(size - 1)", "range(1, size - 1)", 2)),
    ring_into_the_list=(
        "list instead of array",
        ("chunks[(rank - step) % size][:] =", "chunks[(rank - step) % size] ="),
    ),
    ring_sums_into_the_list=(
        "first phase beside the array",
        (
            "chunks[(rank - step - 1) % size] +=",
            "chunks[(rank - step - 1) % size] = chunks[(rank - step - 1) % size] +",
        ),
    ),
    ring_sums_into_a_name=(
        "first phase beside the array",
        (
            "chunks[(rank - step - 1) % size] +=",
            "part = chunks[(rank - step - 1) % size] +",
        ),
    ),
    ring_counts_worker_1_twice=(
        "numbers",
        ("n = len(array)", "n = len(array)\nif rank == 1:\n    array += array"),
    ),
)


@wrong("ring_all_reduce", "whole arrays")
def ring_of_whole_arrays(rank, size, array, send, receive):
    passing = array.copy()
    for _ in range(size - 1):
        if rank % 2:
            incoming = receive()
            send(passing)
        else:
            send(passing)
            incoming = receive()
        array += incoming
        passing = incoming


# --- ring_seconds ---

ring_seconds = derive(
    "ring_seconds",
    seconds_of_whole_arrays=(
        "whole arrays",
        ("size_in_bytes / size / bandwidth", "size_in_bytes / bandwidth"),
    ),
    seconds_of_one_phase=("one phase", ("2 * (size - 1)", "(size - 1)")),
    seconds_of_w_steps=("one step too many", ("2 * (size - 1)", "2 * size")),
    seconds_without_parentheses=(
        "no parentheses",
        ("(latency + size_in_bytes / size / bandwidth)", "latency + size_in_bytes / size / bandwidth"),
    ),
    seconds_of_one_more=("no parentheses round size - 1", ("2 * (size - 1)", "(2 * size - 1)")),
    seconds_of_fewer_chunks=(
        "chunks of W - 1",
        ("size_in_bytes / size /", "size_in_bytes / max(size - 1, 1) /"),
    ),
    seconds_of_fewer_chunks_alone=(
        "chunks of W - 1",
        ("size_in_bytes / size /", "size_in_bytes / (size - 1) /"),
    ),
    seconds_with_one_latency=(
        "latency once",
        (
            "2 * (size - 1) * (latency + size_in_bytes / size / bandwidth)",
            "latency + 2 * (size - 1) * size_in_bytes / size / bandwidth",
        ),
    ),
    seconds_without_latency=("no latency", ("latency + size_in_bytes", "size_in_bytes")),
    seconds_one_after_another=("all one after another", ("2 * (size - 1)", "2 * size * (size - 1)")),
    seconds_multiplied=("times the bandwidth", ("/ bandwidth", "* bandwidth")),
    seconds_of_bits=("bits", ("size_in_bytes / size", "8 * size_in_bytes / size")),
)


@wrong("combined_gradient", "numbers")
def combined_of_the_largest(gradients, counts):
    return gradients[np.argmax(counts)]
