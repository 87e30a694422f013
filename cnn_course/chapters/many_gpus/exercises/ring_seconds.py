"""`ring_seconds`: the time of a ring."""

from cnn_course.engine.checks.exercise import Exercise


def _seconds(size, size_in_bytes, latency, bandwidth):
    """Add up the time step by step."""
    chunk = size_in_bytes / size
    return float(sum(latency + chunk / bandwidth for _ in range(2) for _ in range(size - 1)))


ring_seconds = Exercise(
    "ring_seconds",
    reference=_seconds,
    cases=lambda rng: [
        *((2, 900_136, 1e-5, 1e9), (4, 900_136, 1e-5, 1e9), (8, 4e8, 3.4e-6, 4.5e11)),
        *((1, 900_136, 1e-5, 1e9), (3, 1000, 1e-3, 2e6), (1024, 4e8, 9.6e-6, 1.25e10)),
    ],
    rtol=1e-9,
    mistakes={
        "whole arrays": (
            "You count whole arrays. Each step sends one of W chunks: `{size_in_bytes} / {size}`.",
            lambda size, n, latency, bandwidth: 2 * (size - 1) * (latency + n / bandwidth),
            ("size_in_bytes / size / bandwidth", "size_in_bytes / bandwidth"),
        ),
        "both steps": (
            "You count sending and receiving one after the other, as in exercise 3. Every worker does both "
            "at the same time here.",
            lambda size, n, latency, bandwidth: 2 * _seconds(size, n, latency, bandwidth),
            ("2 * (size - 1)", "4 * (size - 1)"),
        ),
        "latency a phase": (
            "You count one latency for each phase. Each of its W - 1 steps has one.",
            lambda size, n, latency, bandwidth: 2 * (latency + (size - 1) * n / size / bandwidth),
            lambda size, n, latency, bandwidth: 2 * latency + 2 * (size - 1) * n / size / bandwidth,
            (
                "2 * (size - 1) * (latency + size_in_bytes / size / bandwidth)",
                "2 * (latency + (size - 1) * size_in_bytes / size / bandwidth)",
            ),
        ),
        "latency divided": (
            "You divide the latency too: only the bytes are divided by the number of chunks and by the "
            "bandwidth.",
            lambda size, n, latency, bandwidth: 2 * (size - 1) * (latency + n) / size / bandwidth,
            lambda size, n, latency, bandwidth: 2 * (size - 1) * (latency + n / size) / bandwidth,
            ("(latency + size_in_bytes / size / bandwidth)", "(latency + size_in_bytes / size) / bandwidth"),
        ),
        "whole bytes": (
            "You round the bytes of a chunk. Divide with `/`: `//` rounds down.",
            lambda size, n, latency, bandwidth: 2 * (size - 1) * (latency + n // size / bandwidth),
            lambda size, n, latency, bandwidth: 2 * (size - 1) * (latency + -(-n // size) / bandwidth),
            ("size_in_bytes / size /", "size_in_bytes // size /"),
        ),
        "one phase": (
            "That is one phase. There are two, with W - 1 steps each.",
            lambda size, n, latency, bandwidth: _seconds(size, n, latency, bandwidth) / 2,
            ("2 * (size - 1)", "(size - 1)"),
        ),
        "no parentheses": (
            "Each step takes latency and time for a chunk: parentheses, `2 * ({size} - 1) * ({latency} + "
            "...)`.",
            lambda size, n, latency, bandwidth: 2 * (size - 1) * latency + n / size / bandwidth,
            ("(latency + size_in_bytes / size / bandwidth)", "latency + size_in_bytes / size / bandwidth"),
        ),
        "no parentheses round size - 1": (
            "`2 * {size} - 1` is one step more than `2 * ({size} - 1)`.",
            lambda size, n, latency, bandwidth: (2 * size - 1) * (latency + n / size / bandwidth),
            ("2 * (size - 1)", "(2 * size - 1)"),
        ),
        "chunks of W - 1": (
            "You cut W - 1 chunks. There is one for each worker: `{size_in_bytes} / {size}`.",
            lambda size, n, latency, bandwidth: 2 * (size - 1) * (latency + n / (size - 1) / bandwidth),
            lambda size, n, latency, bandwidth: 2 * (size - 1) * (latency + n / max(size - 1, 1) / bandwidth),
            ("size_in_bytes / size /", "size_in_bytes / max(size - 1, 1) /"),
            ("size_in_bytes / size /", "size_in_bytes / (size - 1) /"),
        ),
        "one step too many": (
            "You count W steps in a phase. There are W - 1, and none at all for a single worker.",
            lambda size, n, latency, bandwidth: 2 * size * (latency + n / size / bandwidth),
            ("2 * (size - 1)", "2 * size"),
        ),
        "latency once": (
            "Count the latency in every step, not once: each step must wait for the one before.",
            lambda size, n, latency, bandwidth: latency + 2 * (size - 1) * n / size / bandwidth,
            (
                "2 * (size - 1) * (latency + size_in_bytes / size / bandwidth)",
                "latency + 2 * (size - 1) * size_in_bytes / size / bandwidth",
            ),
        ),
        "no latency": (
            "You leave out the latency. With many workers, it dominates.",
            lambda size, n, latency, bandwidth: 2 * (size - 1) * n / size / bandwidth,
            ("latency + size_in_bytes", "size_in_bytes"),
        ),
        "all one after another": (
            "You add up the times of all workers. They send at the same time: a step takes as long as one "
            "chunk.",
            lambda size, n, latency, bandwidth: size * _seconds(size, n, latency, bandwidth),
            ("2 * (size - 1)", "2 * size * (size - 1)"),
        ),
        "times the bandwidth": (
            "You multiply. Bytes divided by bytes per second are seconds.",
            lambda size, n, latency, bandwidth: 2 * (size - 1) * (latency + n / size * bandwidth),
            ("/ bandwidth", "* bandwidth"),
        ),
        "bits": (
            "You count 8 bits for each byte. Both numbers are in bytes here.",
            lambda size, n, latency, bandwidth: 2 * (size - 1) * (latency + 8 * n / size / bandwidth),
            ("size_in_bytes / size", "8 * size_in_bytes / size"),
        ),
    },
)
