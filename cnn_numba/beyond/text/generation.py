"""Text generation: predict a character, append it, repeat."""

import numpy as np

from cnn_numba.arguments import instance, integer, settings, shown
from cnn_numba.beyond.text.data import LENGTH, VOCABULARY, decode, encode
from cnn_numba.device import to_host
from cnn_numba.nn.models import Sequential


def generate(
    model: Sequential, prompt: str, length: int = 400, temperature: float = 0.7, seed: int = 0
) -> str:
    """Continue a prompt.

    From the last 64 characters the network computes logits of the next one. They are divided by the
    temperature, and the next character is drawn with the probabilities that follow.

    Parameters
    ----------
    model : Sequential
        Such as `text_transformer`, whose attention is causal: the padding after the last character doesn't
        affect the ones before.
    prompt : str
        At least one character, all in `VOCABULARY`.
    length : int
        Characters to add.
    temperature : float
        1 keeps the network's probabilities; below 1 likely characters become likelier; 0 takes the likeliest.
    seed : int
        The same seed gives the same text.

    Returns
    -------
    str
        The prompt and its continuation.

    Examples
    --------
    >>> from cnn_numba.beyond.models import text_transformer
    >>> len(generate(text_transformer(batch_size=1), "Once", length=10))
    14
    """
    instance(model, "model", Sequential)
    if model.input_shape != (LENGTH,) or model.shapes[-1][1] != len(VOCABULARY):
        raise ValueError(f"{model.name} doesn't predict characters: use text_transformer")
    if not isinstance(prompt, str) or not prompt:
        raise ValueError(f"prompt must have at least one character, got {shown(prompt)}")
    length, (temperature,) = integer(length, "length"), settings(temperature=temperature)
    generator = np.random.default_rng(integer(seed, "seed", maximum=None))
    text = encode(prompt).astype(np.int32).tolist()
    window = np.zeros((1, LENGTH), np.int32)
    for _ in range(length):
        seen = text[-LENGTH:]
        window[0, : len(seen)] = seen
        logits = to_host(model.forward(model.backend.bring(window)))[len(seen) - 1].astype(np.float64)
        character = logits.argmax()
        if temperature > 0:
            exponentials = np.exp((logits - logits.max()) / temperature)
            character = generator.choice(len(logits), p=exponentials / exponentials.sum())
        text.append(int(character))
    return decode(np.array(text))
