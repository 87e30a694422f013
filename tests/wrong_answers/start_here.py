import numpy as np

from wrong_answers import wrong


@wrong("count_positions", "fence post")
def subtracts(n, k):
    return n - k


@wrong("count_positions", "one per pixel")
def ignores_the_window(n, k):
    return n


@wrong("count_positions", "side by side")
def divides(n, k):
    return n // k


@wrong("count_positions", "overhanging")
def counts_the_full_region(n, k):
    return n + k - 1


@wrong("count_positions", "exchanged")
def exchanges_arguments(n, k):
    return k - n + 1


@wrong("count_positions", "one too many")
def counts_both_ends(n, k):
    count = 0
    for _ in range(0, n - k + 2):
        count += 1
    return count


@wrong("count_positions", "type")
def divides_by_one(n, k):
    return (n - k) / 1 + 1


@wrong("count_positions", "returns None")
def prints_instead(n, k):
    answer = n - k + 1
    answer  # noqa: B018


@wrong("count_positions", "type")
def returns_an_array(n, k):
    return np.arange(n - k + 1.0)


@wrong("count_positions", "raises")
def misspells(n, k):
    return n - K + 1  # noqa: F821


@wrong("count_positions", "numbers")
def returns_a_constant(n, k):
    return 3
