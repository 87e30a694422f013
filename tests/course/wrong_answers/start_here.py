from wrong_answers import derive

# --- count_positions ---

count_positions = derive(
    "count_positions",
    subtracts=("fence post", ("n - k + 1", "n - k")),
    ignores_the_window=("one per pixel", ("n - k + 1", "n")),
    divides=("side by side", ("n - k + 1", "n // k")),
    counts_the_full_region=("overhanging", ("n - k + 1", "n + k - 1")),
    exchanges_arguments=("exchanged", ("n - k", "k - n")),
    counts_both_ends=(
        "one too many",
        ("return n - k + 1", "count = 0\nfor _ in range(0, n - k + 2):\n    count += 1\nreturn count"),
    ),
    divides_by_one=("type", ("n - k", "(n - k) / 1")),
    prints_instead=("returns None", ("return n", "answer = n")),
    returns_an_array=("type", ("n - k + 1", "np.arange(n - k + 1.0)")),
    misspells=("raises", ("n - k", "n - K")),
    returns_a_constant=("numbers", ("n - k + 1", "3")),
)
