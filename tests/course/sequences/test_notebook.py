"""Notebook 22: its text about the stored outputs, and its pictures."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from cnn_course.chapters.sequences import article_sizes, pictures
from cnn_course.engine import notebooks
from cnn_numba import device

ROOT = Path(__file__).parents[3]
NOTEBOOK = ROOT / "notebooks" / "22_sequences.ipynb"


def shown(cell_id):
    """Return the outputs of a cell as text."""
    (cell,) = (cell for cell in notebooks.read(NOTEBOOK).cells if cell.id == cell_id)
    return "\n".join(output.get("text") or output.data["text/plain"] for output in cell.outputs)


# --- what the text says of the stored outputs --------------------------------------------------------------


def test_a_plain_recurrence_forgets_and_an_open_cell_does_not():
    plain, closed, usual, open_ = (
        float(number) for number in re.findall(r" (\de[-+]\d\d)[;.]", shown("forget"))
    )
    assert plain < 1e-6
    assert plain < closed < 10 * plain
    assert 0.005 < usual < 0.015
    assert 15_000 < usual / plain < 25_000
    assert open_ > 1


def test_a_step_is_a_product_and_a_cell():
    step = ["matmul_small_kernel", "lstm_cell_forward_kernel"]
    names = re.findall(r"\w+_kernel", shown("launches"))
    assert names == ["matmul_small_kernel", "lstm_start_kernel", *4 * step]
    assert shown("launches").rstrip().endswith("True")


def test_the_sizes_match_the_article():
    assert article_sizes.ARTICLE == (64, 100, 512, 256)
    beforehand, waiting = article_sizes.ARTICLE.beforehand, article_sizes.ARTICLE.waiting
    assert f"{beforehand:,} multiply-adds beforehand, {waiting:,} step after step" in shown("sizes")
    assert (round(beforehand / 1e9, 1), round(waiting / 1e9, 1)) == (3.4, 1.7)
    assert "302 launches; the same as on the CPU: True" in shown("sizes")


def test_launches_wait_for_the_host_and_a_graph_does_not():
    record = article_sizes.recorded()
    assert record["modelled"]
    assert record["sizes"] == article_sizes.ARTICLE._asdict()
    launches, graphs = ([found[way] for found in record["results"].values()] for way in ("launches", "graph"))
    assert {figures["kernels"] for figures in launches} == {302}
    assert max(f["microseconds"] for f in launches) < 1.01 * min(f["microseconds"] for f in launches)
    t4, a100, h100 = (f["microseconds"] for f in graphs)
    assert t4 > 1.25 * a100 > 1.25**2 * h100
    parts = graphs[-1]["parts"]
    assert 0.14 < parts["product of all inputs"] / sum(parts.values()) < 0.19  # a sixth, the text says


@pytest.mark.exhaustive("test_launches_wait_for_the_host_and_a_graph_does_not: what the command has written")
@pytest.mark.slow
def test_the_command_writes_such_a_record(tmp_path):
    if not device.SELECTION.emulated:
        pytest.skip("times are modelled on the emulated GPU alone")
    sizes = article_sizes.Sizes(2, 3, 8, 4)
    record = article_sizes.measure(tmp_path / "record.json", sizes, gpus=("T4",))
    assert json.loads((tmp_path / "record.json").read_text()) == record
    assert record["results"]["T4"]["graph"]["parts"]["cells"] > 0
    assert "T4, one graph" in pictures.sizes_picture(record).alt


def test_mixed_up_axes_mix_the_samples():
    assert re.findall(r": (\d+)[,.]", shown("influence")) == ["6", "36"]


def test_a_third_of_an_epoch_reads_most_digits():
    assert int(re.search(r"reads (\d+)%", shown("short"))[1]) > 85


def test_the_record_is_as_good_as_the_text_says():
    record = json.loads((ROOT / "benchmarks" / "accuracy-mnist_rows.json").read_text())
    assert record["recipe"] == {"lr": 0.003, "schedule": "one-cycle", "epochs": 3, "batch_size": 64}
    assert len(record["accuracies"]["ours"]) == 3
    assert all(run[-1] > 0.985 for run in record["accuracies"]["ours"])


def test_the_certainty_of_the_network_after_each_row():
    output = shown("certainty")
    for label, row in (("7", 21), ("1", 24), ("8", 18)):
        assert f"the {label} is recognised from row {row} on" in output
    assert "the 3 is recognised not even at the end, and taken for a 2" in output


def test_the_forget_gates_stay_open():
    assert "forget 0.7" in shown("gates-picture")


# --- pictures ----------------------------------------------------------------------------------------------


def test_picture_descriptions_match_the_data():
    assert "line at the top" in pictures.cell_picture().alt
    assert "one 2e-01" in pictures.reach_picture({"one": np.array([0.2, 0.5, 1.0])}).alt
    assert "both: 2" in pictures.influence_picture({"both": np.eye(2), "none": np.zeros((2, 2))}).alt
    assert "They end at 50.00%, 75.00%" in pictures.accuracy_picture([[0.1, 0.5], [0.2, 0.75]], "Two.").alt
    gates = np.tile(np.repeat([0.25, 0.5, 0.0, 1.0], 3), (28, 1))
    assert "input 0.25, forget 0.50, output 1.00" in pictures.gates_picture(np.ones((28, 28)), gates).alt


def test_the_row_from_which_a_digit_is_recognised():
    images, certainty = np.ones((2, 28, 28)), np.zeros((2, 28, 10))
    certainty[0, :5, 1], certainty[0, 5:, 7], certainty[1, :, 4] = 1, 1, 1
    alt = pictures.certainty_picture(images, certainty, np.array([7, 4])).alt
    assert "the 7 is recognised from row 6 on, the 4 is recognised from row 1 on" in alt
    assert "taken for a 4" in pictures.certainty_picture(images, certainty, np.array([7, 5])).alt
