"""Notebook 23: its text about outputs and the recorded training, and its pictures."""

import re
from pathlib import Path

import numpy as np
import pytest
import stored
from numba import cuda
from solutions import solution_of

from cnn_course.chapters.attention import diagrams, exercises as check, films, pictures, text_training
from cnn_course.engine import notebooks
from cnn_course.engine.stepper import step
from cnn_numba.beyond.text.data import TEXT
from cnn_numba.data import load
from cnn_numba.pretrained import text_transformer
from cnn_numba.train.loop import evaluate

NOTEBOOK = Path(__file__).parents[3] / "notebooks" / "23_attention.ipynb"


def shown(cell_id):
    return stored.all_shown(NOTEBOOK.name, cell_id)


def test_scores_spread_with_the_root_of_d_and_softmax_picks_one():
    found = re.findall(r"d = +(\d+): .* scores +([\d.]+); .* gets (\d+)%, .* (\d+)%", shown("scale"))
    assert len(found) == 5
    for d, spread, undivided, divided in found:
        assert float(spread) == pytest.approx(int(d) ** 0.5, rel=0.1)
        assert int(divided) < 20
        assert int(d) < 256 or int(undivided) > 90


def test_growth_with_the_length_of_the_text():
    found = re.findall(r"([\d.]+) times, bytes moved ([\d.]+) times, operations ([\d.]+)", shown("growth"))
    (table, table_l1, table_work), (tiled, tiled_l1, tiled_work) = ([*map(float, row)] for row in found)
    assert tiled == 8.0
    assert round(table, -1) == 50
    assert (round(table_l1), round(tiled_l1)) == (64, 14)
    assert tiled_work == pytest.approx(table_work, rel=0.05)


def test_the_modelled_speed_up_without_the_table():
    naive, tiled = (
        [float(time) * {"ms": 1000, "us": 1}[unit] for time, unit in re.findall(r"([\d.]+) (ms|us) \(", line)]
        for line in shown("article-times").splitlines()[2:4]
    )
    times = [slow / fast for slow, fast in zip(naive, tiled, strict=True)]
    assert len(times) == 3
    assert (round(min(times)), round(max(times))) == (25, 37)


def test_each_frame_of_the_film_is_the_softmax_of_the_keys_so_far():
    rng = np.random.default_rng(3)
    scores, values = [0.0, -2.0, 1.5, 0.5, 95.0, 94.0], rng.normal(size=(6, 5))
    states = films.online_states(scores, values)
    for n, state in enumerate(states, 1):
        weights = np.exp(np.array(scores[:n]) - max(scores[:n]))
        np.testing.assert_allclose(state.weights, weights, rtol=1e-5, atol=1e-30)
        np.testing.assert_allclose(state.total, weights.sum(), rtol=1e-5)
        np.testing.assert_allclose(state.average, weights @ values[:n], rtol=1e-4, atol=1e-6)
        assert state.largest == np.float32(max(scores[:n]))


def test_the_film_has_the_registers_of_the_kernel():
    kernel = solution_of("attention", "tiled_attention_kernel")
    rng = np.random.default_rng(4)
    k, v = rng.normal(size=(2, 5, 4)).astype(np.float32)
    q = rng.normal(size=(1, 4)).astype(np.float32)
    launched = step(kernel)[1, 8](*map(cuda.to_device, (q, k, v)), cuda.device_array((1, 4), np.float32))
    steps = [each.registers for each in launched.steps if each.text.strip() == "largest = new"]
    states = films.online_states(k @ q[0] / 2, v)
    assert len(steps) == len(states)
    for registers, state in zip(steps, states, strict=True):
        for name in ("largest", "factor", "total"):
            assert registers[name][0] == pytest.approx(getattr(state, name), rel=1e-5)


def test_the_film_shows_a_query_that_two_keys_rescale():
    output = shown("online-film")
    assert "multiplied by 0.59 at key 2 and 0.34 at key 4" in output
    own, kernel = re.search(r"begins with (.+), the kernel's with (.+)\.\]", output).groups()
    assert own == kernel
    (text,) = (cell.source for cell in notebooks.read(NOTEBOOK).cells if cell.id == "online-film-text")
    assert "keys 2 and 4" in text


def test_the_short_training_learns_something():
    first, last = map(float, re.findall(r"\d\.\d", shown("train")))
    assert first > np.log(96)
    assert last < 3


def test_the_record_matches_the_text():
    record = text_training.recorded()
    history = record["history"]
    assert record["every"] * len(record["losses"]) == 2575
    assert len(history) == 5
    assert history[-1]["test_loss"] > history[-1]["train_loss"] + 0.2
    assert 0.6 <= history[-1]["test_accuracy"] < 0.61
    assert record["losses"][-1] < 1.1
    assert "116,576" in shown("model")


def test_the_stored_weights_match_the_record():
    """They are stored in half the bits."""
    model, data = text_transformer(batch_size=73), load(TEXT)
    loss, accuracy = evaluate(model, data.test_images, data.test_labels)
    last = text_training.recorded()["history"][-1]
    assert loss == pytest.approx(last["test_loss"], abs=0.01)
    assert accuracy == pytest.approx(last["test_accuracy"], abs=0.005)


def test_the_heads_look_where_the_text_says():
    first, second = (
        [int(share) for share in re.findall(r"head \d (\d+)%", shown(cell))]
        for cell in ("look", "look-second")
    )
    assert max(first) == first[1] >= 45
    assert np.mean(second) < np.mean(first)


def test_the_tables_of_the_check_have_a_future_that_is_far_above():
    tables = [case.args[0] for case in check.causal_softmax_kernel.inputs()]
    assert any(np.triu(table, k=1).max() > np.tril(table).max() + 100 for table in tables)


def test_picture_descriptions_match_the_data():
    weights = np.tril(np.ones((2, 3, 3))) / np.arange(1, 4)[:, None]
    alt = pictures.weights_picture(weights, "a b", "Caption.").alt
    assert "2 square tables of weights over the 3 characters 'a b'" in alt
    assert "head 1 42%" in alt
    kinds = "least bytes", "bytes moved", "operations"
    counts = {name: {kind: [1, 8] for kind in kinds} for name in "ab"}
    assert "from 4 to 8 positions" in pictures.growth_picture([4, 8], counts).alt


@pytest.mark.parametrize(
    ("draw", "says"),
    [
        (diagrams.head_picture, "scores (m x n)"),
        (diagrams.heads_picture, "four heads of 16 features"),
        (diagrams.transformer_picture, "The network has two such blocks"),
    ],
)
def test_diagrams_are_described_and_agree_with_the_network(draw, says):
    assert says in draw().alt
    network = text_transformer()
    (attention, *more) = (layer for layer in network.every_layer if layer.kind == "attention")
    assert (attention.features, attention.heads, len(more)) == (64, 4, 1)
