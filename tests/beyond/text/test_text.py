import numpy as np
import pytest

from cnn_numba import data
from cnn_numba.beyond.models import text_transformer
from cnn_numba.beyond.text import data as texts
from cnn_numba.beyond.text.data import LENGTH, TEXT, VOCABULARY, Windows, decode, encode, read_text
from cnn_numba.data.files import CHECKOUT
from cnn_numba.train.loop import evaluate


def test_the_course_s_text():
    text = (CHECKOUT / "data" / "text" / "course.txt").read_text(encoding="ascii")
    assert 100_000 < len(text) < 200_000
    assert decode(encode(text)) == text
    train, test = read_text()
    assert len(train.text) + len(test.text) == len(text)
    assert 0.05 < len(test.text) / len(text) < 0.2
    # Paragraphs held out are in no training window.
    paragraph = decode(test.text).splitlines()[0]
    assert paragraph in text
    assert paragraph not in decode(train.text)


def test_it_is_loaded_by_name():
    loaded = data.load(TEXT)
    assert loaded.image_shape == data.image_shape(TEXT) == (LENGTH,)
    assert loaded.classes == data.classes(TEXT) == tuple(VOCABULARY)
    assert loaded.train_images is loaded.train_labels
    assert loaded.test_images.stride == LENGTH


@pytest.mark.parametrize(("length", "count"), [(0, 0), (3, 0), (4, 1), (5, 1), (6, 2), (7, 2)], ids=str)
def test_how_many_windows_there_are(length, count):
    """A window of three needs a fourth character, which it is to predict."""
    windows = Windows(np.zeros(length, np.uint8), length=3, stride=2)
    assert len(windows) == count
    assert windows.shape == (count, 3)


def test_a_text_file_of_the_user(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("".join(f"{number} " * 100 + "\n" for number in range(20)))
    own = data.load(TEXT, path)
    assert decode(own.test_images.text).splitlines() == ["9 " * 100, "19 " * 100]
    with pytest.raises(data.DataError, match=r"no\.txt can't be used as a text: No such file or directory$"):
        data.load(TEXT, tmp_path / "no.txt")
    path.write_text("few words\n")
    with pytest.raises(
        data.DataError, match=r"must have ten paragraphs .*, got 10 characters in 1 paragraph$"
    ):
        data.load(TEXT, path)
    for letter in ("ä".encode(), b"\xe4"):
        path.write_bytes(b"a line\n" * 9 + letter)
        with pytest.raises(
            data.DataError,
            match=r"a text: the text must be printable ASCII and newlines, got '.' at index 63$",
        ):
            data.load(TEXT, path)


def test_characters_outside_the_vocabulary_are_named():
    with pytest.raises(ValueError, match="printable ASCII and newlines, got '\\\\t' at index 1"):
        encode("a\tb")


def test_without_a_checkout_the_text_is_in_the_package(monkeypatch, tmp_path):
    package = tmp_path / "cnn_numba" / "beyond" / "text"
    package.mkdir(parents=True)
    (package / "course.txt").write_text("".join(f"{str(i) * 300}\n" for i in range(10)))
    monkeypatch.setattr(texts, "CHECKOUT", tmp_path)
    monkeypatch.setattr(texts, "__file__", str(package / "data.py"))
    train, test = texts.read_text()
    assert (len(train.text), len(test.text)) == (9 * 301, 301)


def test_a_text_is_measured_against_itself():
    windows, model = Windows(np.zeros(300, np.uint8)), text_transformer(batch_size=1)
    for labels in (Windows(np.zeros(300, np.uint8)), np.zeros(3, np.int32), None):
        with pytest.raises(ValueError, match="the data set has its labels within it: pass it for both, got "):
            evaluate(model, windows, labels)
