"""`cnn-numba predict`, `sample` and `export`."""

import errno
import io
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, features

from cnn_numba import cli, data
from cnn_numba.beyond.models import text_transformer
from cnn_numba.data import digits
from cnn_numba.nn.models import cifar_convnet, mnist_cnn
from cnn_numba.pretrained import MNIST_CNN
from cnn_numba.train.checkpoint import load_model, save_checkpoint


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Train the network for a few steps: enough to tell most digits apart."""
    from cnn_numba.train.loop import fit
    from cnn_numba.train.optim import Adam

    mnist = data.load()
    little = replace(mnist, train_images=mnist.train_images[:6400], train_labels=mnist.train_labels[:6400])
    folder = tmp_path_factory.mktemp("run")
    network = mnist_cnn()
    fit(network, little, Adam(network, lr=3e-3), epochs=1, out=folder, progress=False)
    return folder / "checkpoint.npz"


def pictures(folder):
    """Write the first clear digits of the test set in many forms; return path and label of each."""
    mnist = data.load()
    guises = {
        "plain.png": lambda image: image,
        "inverted.png": lambda image: Image.fromarray(255 - np.asarray(image)),
        "large.png": lambda image: image.resize((1000, 1000), Image.Resampling.BICUBIC),
        "wide.jpg": lambda image: Image.fromarray(
            np.pad(255 - np.asarray(image), ((3, 3), (60, 9)), constant_values=255)
        ),
        "colour.png": lambda image: Image.merge("RGB", [image, image, image.point(lambda value: value // 2)]),
        "clear.png": lambda image: Image.merge("RGBA", [Image.new("L", image.size)] * 3 + [image]),
        "deep.png": lambda image: Image.fromarray(np.asarray(image).astype(np.uint16) * 257),
        "palette.gif": lambda image: image.convert("P"),
        "float.tiff": lambda image: Image.fromarray(np.asarray(image).astype(np.float32) / 255),
    }
    for index, (name, guise) in enumerate(guises.items()):
        path = folder / name
        guise(Image.fromarray(mnist.test_images[index, 0])).save(path)
        yield path, int(mnist.test_labels[index])


def answers(checkpoint):
    """Return the line that names the network that reads the pictures."""
    return f"cnn-numba: the network in {checkpoint} answers\n"


def test_predict_reads_every_kind_of_picture(run, trained, tmp_path):
    written = list(pictures(tmp_path))
    code, out, err = run("predict", "--checkpoint", trained, *(path for path, _ in written))
    assert (code, err) == (0, answers(trained))
    lines = out.splitlines()
    assert len(lines) == len(written)
    right = 0
    for line, (path, label) in zip(lines, written, strict=True):
        assert line.startswith(f"{path}: ")
        guesses = line.removeprefix(f"{path}: ").split("; not sure")[0].split(", ")
        assert len(guesses) == 3
        chances = [float(guess.split("(")[1].rstrip("%)")) for guess in guesses]
        assert chances == sorted(chances, reverse=True)
        assert 0 <= chances[-1] <= chances[0] <= 100
        right += guesses[0].startswith(f"{label} ")
    # The eighth or ninth digit of the test set is hard even for a network trained to the end.
    assert right >= len(written) - 1


def test_predict_names_unreadable_files_and_reads_the_rest(run, trained, tmp_path):
    (good, label), *_ = pictures(tmp_path)
    Image.new("L", (40, 40), 200).save(tmp_path / "blank.png")
    (tmp_path / "text.png").write_text("no picture")
    bad = [tmp_path / f"{name}.png" for name in ("blank", "text")]
    code, out, err = run("predict", *bad, good, "--checkpoint", trained)
    assert code == 1
    assert out.startswith(f"{good}: {label} (")
    _, blank, text = err.splitlines()
    assert blank == f"cnn-numba: {bad[0]}: there is no digit in the picture: it is blank"
    assert text == f"cnn-numba: {bad[1]}: not a picture in a format that is read: {', '.join(digits.FORMATS)}"


def test_predict_names_a_file_that_cannot_be_opened_once(run, tmp_path, monkeypatch):
    path = tmp_path / "one.png"
    Image.new("L", (40, 40), 200).save(path)

    def refuse(path, **_):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Image, "open", refuse)
    code, _, err = run("predict", path, "--checkpoint", MNIST_CNN)
    assert (code, err) == (1, f"{answers(MNIST_CNN)}cnn-numba: {path}: Permission denied\n")


def test_predict_says_when_it_is_not_sure(run, tmp_path):
    sevens = data.load().test_images[[0, 0], 0]
    Image.fromarray(255 - sevens[0]).save(tmp_path / "one.png")
    Image.fromarray(255 - np.hstack(sevens)).save(tmp_path / "two.png")
    paths = tmp_path / "one.png", tmp_path / "two.png"
    code, out, _ = run("predict", *paths, "--checkpoint", MNIST_CNN)
    one, two = out.splitlines()
    assert code == 0
    assert one.startswith(f"{paths[0]}: 7 (")
    assert "not sure" not in one
    assert two.endswith("; not sure: something else stands beside the digit")


def test_predict_escapes_the_letters_of_a_name_that_stdout_lacks(tmp_path, monkeypatch):
    path = tmp_path / "ü.png"
    Image.fromarray(data.load().test_images[0, 0]).save(path)
    printed = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(printed, "ascii"))
    with pytest.raises(SystemExit) as caught:
        cli.main(["predict", str(path), "--checkpoint", str(MNIST_CNN)])
    assert caught.value.code == 0
    assert printed.getvalue().decode().startswith(f"{tmp_path}/\\xfc.png: 7 (")


def test_predict_shows_what_the_network_sees(run, tmp_path):
    paths = [tmp_path / "one.png", tmp_path / "two.png"]
    for path, digit in zip(paths, data.load().test_images[:2, 0], strict=True):
        Image.fromarray(digit).save(path)
    code, out, _ = run("predict", *paths, "--checkpoint", MNIST_CNN, "--show")
    assert code == 0
    lines = out.splitlines()
    assert [lines.index(next(line for line in lines if line.startswith(str(path)))) for path in paths] == [
        0,
        15,
    ]
    for path, shown in zip(paths, (lines[1:15], lines[16:]), strict=True):
        assert "\n".join(shown) == digits.as_text(digits.prepare_digit(path))


def test_predict_shows_colours(run, tmp_path):
    recipe = {"dataset": "cifar10"}
    save_checkpoint(tmp_path / "net.npz", cifar_convnet(batch_size=1), progress={"recipe": recipe})
    Image.new("RGB", (50, 50), (255, 255, 255)).save(tmp_path / "white.png")
    code, out, _ = run("predict", tmp_path / "white.png", "--checkpoint", tmp_path / "net.npz", "--show")
    assert code == 0
    assert out.splitlines()[1:] == ["█" * 32] * 16


@pytest.mark.parametrize("kind", ["picture", "text", "npy", "objects", "cut off"])
def test_predict_does_not_advise_loading_other_files(run, tmp_path, kind):
    path = tmp_path / "x.png"
    if kind == "picture":
        Image.new("L", (28, 28)).save(path)
    elif kind == "text":
        path.write_text("no checkpoint")
    elif kind == "cut off":
        path.write_bytes(MNIST_CNN.read_bytes()[:5000])
    else:
        with open(path, "wb") as file:
            if kind == "npy":
                np.save(file, np.zeros(3))
            else:
                np.savez(file, about=np.array([{}], dtype=object))
    (good, _), *_ = pictures(tmp_path)
    code, out, err = run("predict", good, "--checkpoint", path)
    assert (code, out) == (1, "")
    assert err.endswith(
        "x.png is damaged or not a checkpoint of this project: not a complete .npz file of plain arrays\n"
    )
    assert err.count("\n") == 1


def test_predict_of_a_missing_picture_is_a_wrong_argument(run, trained, tmp_path):
    code, _, err = run("predict", tmp_path / "nowhere.png", "--checkpoint", trained)
    assert code == 2
    assert "nowhere.png" in err
    assert err.count("\n") == 1


def test_predict_without_a_network_says_how_to_get_one(run, tmp_path):
    (good, _), *_ = pictures(tmp_path)
    code, _, err = run("predict", good, "--checkpoint", "checkpoint.npz")
    assert code == 1
    assert "checkpoint.npz; train a network with: cnn-numba train, or name one by --checkpoint" in err
    (tmp_path / "broken.npz").write_bytes(b"broken")
    code, _, err = run("predict", good, "--checkpoint", tmp_path / "broken.npz")
    assert code == 1
    assert "broken.npz is damaged or not a checkpoint" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("progress", "value", "message"),
    [
        ({}, np.nan, "parameters: 225034 of 225034 are NaN or infinite"),
        (
            {"recipe": {"std": 0}},
            0,
            "recipe: std must be at least 1.17549e-38 and at most 3.40282e+38, got 0",
        ),
        ({"recipe": {"mean": "x"}}, 0, "recipe: mean must be a number, got 'x'"),
        (
            {"recipe": {"mean": [0.1, 0.2]}},
            0,
            "recipe: mean must be one number or one for each of 1 channels",
        ),
        ({"recipe": [1]}, 0, "the recipe must be an object, got [1]"),
    ],
)
def test_predict_rejects_a_broken_network(run, tmp_path, progress, value, message):
    model = mnist_cnn(batch_size=1)
    model.parameters[:] = value
    save_checkpoint(tmp_path / "net.npz", model, progress=progress)
    (good, _), *_ = pictures(tmp_path)
    code, out, err = run("predict", good, "--checkpoint", tmp_path / "net.npz")
    assert (code, out) == (1, "")
    where = ", " if message.startswith("recipe: ") else ": "
    assert err.startswith(f"cnn-numba: {tmp_path / 'net.npz'}{where}{message}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("build", "dataset", "names"),
    [(cifar_convnet, "cifar10", "cat"), (mnist_cnn, "fashion-mnist", "Sneaker")],
)
def test_predict_names_the_classes_of_other_data_sets(run, tmp_path, build, dataset, names):
    save_checkpoint(tmp_path / "net.npz", build(batch_size=1), progress={"recipe": {"dataset": dataset}})
    rng = np.random.default_rng(2)
    Image.fromarray(rng.integers(0, 256, (50, 80, 3), dtype=np.uint8)).save(tmp_path / "photo.png")
    code, out, err = run("predict", tmp_path / "photo.png", "--checkpoint", tmp_path / "net.npz")
    assert (code, err) == (0, answers(tmp_path / "net.npz"))
    known = data.classes(dataset)
    assert names in known
    guesses = [guess.rsplit(" (", 1)[0] for guess in out.split("; not sure")[0].split(": ", 1)[1].split(", ")]
    assert set(guesses) <= set(known)


@pytest.mark.parametrize("recipe", [{}, {"dataset": "my digits"}, {"dataset": "cifar10"}, {"dataset": 7}])
def test_predict_numbers_the_classes_of_other_people_s_digits(run, tmp_path, recipe):
    save_checkpoint(tmp_path / "net.npz", mnist_cnn(batch_size=1), progress={"recipe": recipe})
    (good, _), *_ = pictures(tmp_path)
    code, out, err = run("predict", good, "--checkpoint", tmp_path / "net.npz")
    assert (code, err) == (0, answers(tmp_path / "net.npz"))
    answer = out.strip().removeprefix(f"{good}: ")
    assert re.fullmatch(r"\d \(.*%\), \d \(.*%\), \d \(.*%\); not sure: no answer reaches 90%", answer)


def test_predict_lowers_its_threshold_for_label_smoothing(run, tmp_path):
    (good, _), *_ = pictures(tmp_path)
    recipe = {"dataset": "mnist", "label_smoothing": 0.1}
    save_checkpoint(tmp_path / "net.npz", mnist_cnn(batch_size=1), progress={"recipe": recipe})
    _, out, _ = run("predict", good, "--checkpoint", tmp_path / "net.npz")
    assert out.strip().endswith("; not sure: no answer reaches 60%")


@pytest.mark.parametrize(
    ("recipe", "named"), [({}, "an unknown data set"), ({"dataset": "my birds"}, "my birds")]
)
def test_predict_of_a_foreign_data_set_gives_one_line(run, tmp_path, recipe, named):
    save_checkpoint(tmp_path / "net.npz", cifar_convnet(batch_size=1), progress={"recipe": recipe})
    (good, _), *_ = pictures(tmp_path)
    code, out, err = run("predict", good, "--checkpoint", tmp_path / "net.npz")
    assert (code, out) == (1, "")
    assert f"net.npz was trained on {named}; predict knows the pictures of mnist" in err
    assert err.count("\n") == 1


@pytest.mark.skipif(not features.check("avif"), reason="this Pillow reads no AVIF")
def test_predict_names_a_damaged_avif(run, trained, tmp_path):
    whole = io.BytesIO()
    Image.fromarray(np.arange(1600, dtype=np.uint8).reshape(40, 40)).save(whole, "AVIF")
    content = whole.getvalue()
    (tmp_path / "cut.avif").write_bytes(content[:-20])  # a SyntaxError out of Pillow
    (tmp_path / "garbled.avif").write_bytes(content[:-100] + bytes(100))  # a RuntimeError
    code, out, err = run("predict", tmp_path / "cut.avif", tmp_path / "garbled.avif", "--checkpoint", trained)
    assert (code, out) == (1, "")
    assert [line.split(": ")[1] for line in err.splitlines()[1:]] == [
        str(tmp_path / name) for name in ("cut.avif", "garbled.avif")
    ]


def test_predict_normalises_as_the_training_did(run, tmp_path):
    model = mnist_cnn(seed=3)
    save_checkpoint(tmp_path / "plain.npz", model, progress={"recipe": {"dataset": "mine"}})
    recipe = {"dataset": "mine", "mean": [0.5], "std": [0.5]}
    save_checkpoint(tmp_path / "normalised.npz", model, progress={"recipe": recipe})
    picture = tmp_path / "digit.png"
    Image.fromarray(data.load("mnist").test_images[0, 0]).save(picture)
    said = [
        run("predict", str(picture), "--checkpoint", str(tmp_path / name))[1]
        for name in ("plain.npz", "normalised.npz")
    ]
    assert all("%" in answer for answer in said)
    assert said[0] != said[1]


def test_sample_writes_on(tmp_path, run):
    path = tmp_path / "net.npz"
    save_checkpoint(path, text_transformer(batch_size=1))
    arguments = "sample", "A thread", "--checkpoint", path, "--length", 5
    written = run(*arguments)
    assert written[0] == 0
    assert written[1].startswith("A thread")
    assert run(*arguments) == written
    wrong = run("sample", "caf\xe9", "--checkpoint", path)
    assert wrong == (
        1,
        "",
        "cnn-numba: the text must be printable ASCII and newlines, got '\xe9' at index 3\n",
    )
    code, _, error = run("sample", "--checkpoint", tmp_path / "no.npz")
    assert code == 1
    assert "train a network with: cnn-numba train --model text_transformer" in error


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--length", "9" * 20, f"{'9' * 20} is more than 2147483647"),
        ("--temperature", "inf", "inf is not a number of at least 0 and at most"),
        ("--temperature", "-1", "-1.0 is not a number of at least 0"),
    ],
)
def test_a_wrong_number_to_sample_by_is_a_wrong_argument(run, option, value, message):
    code, out, err = run("sample", option, value)
    assert (code, out) == (2, "")
    assert err.startswith(f"cnn-numba: Invalid value for '{option}': {message}")


def test_export_writes_a_file_that_reads_digits(run, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    mnist = data.load("mnist")
    network = load_model(MNIST_CNN)
    save_checkpoint("net.npz", network, progress={"recipe": {"mean": mnist.mean, "std": mnist.std}})
    code, out, err = run("export", "--checkpoint", "net.npz", "--pixels")
    assert (code, err) == (0, "")
    assert out == "net.onnx: mnist_cnn, 11 nodes; it takes x, uint8, of shape (N, 1, 28, 28)\n"
    assert {path.name for path in tmp_path.iterdir()} == {"net.npz", "net.onnx"}
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    (logits,) = session.run(None, {"x": mnist.test_images[:100]})
    assert (logits.argmax(axis=1) == mnist.test_labels[:100]).mean() >= 0.98


def test_a_failed_export_gives_one_line_and_leaves_the_files(run, tmp_path, monkeypatch):
    pytest.importorskip("onnx")
    save_checkpoint(tmp_path / "net.npz", mnist_cnn(batch_size=1))
    save_checkpoint(tmp_path / "text.npz", text_transformer(1), progress={"recipe": {"mean": 0, "std": 1}})
    (tmp_path / "broken.npz").write_bytes(b"broken")
    before = sorted(path.name for path in tmp_path.iterdir())
    for status, message, arguments in [
        (1, "there is no no.npz; train a network with: cnn-numba train", ["no.npz"]),
        (1, "broken.npz is damaged or not a checkpoint", ["broken.npz"]),
        (
            1,
            "net.npz does not say how its pixels were normalised",
            ["net.npz", "--pixels"],
        ),
        (1, "inputs of shape (64,), which aren't images", ["text.npz", "--pixels"]),
        (1, ". is a folder; give the checkpoint in it", [".", "--out", "net.onnx"]),
        (2, "net.npz is the checkpoint", ["net.npz", "--out", "./net.npz"]),
    ]:
        code, out, err = run("export", "--checkpoint", *arguments)
        assert (code, out, err.count("\n")) == (status, "", 1), err
        assert message in err
    (tmp_path / "net.onnx").write_text("an earlier one")
    monkeypatch.setattr("os.replace", lambda *names: (_ for _ in ()).throw(OSError("disk full")))
    assert run("export", "--checkpoint", "net.npz")[::2] == (1, "cnn-numba: disk full\n")
    assert (tmp_path / "net.onnx").read_text() == "an earlier one"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*before, "net.onnx"])


def test_export_without_onnx_says_how_to_get_it(run, tmp_path, monkeypatch):
    save_checkpoint(tmp_path / "net.npz", mnist_cnn(batch_size=1))
    monkeypatch.setattr("cnn_numba.extras.find_spec", lambda package: None)
    code, _, err = run("export", "--checkpoint", "net.npz")
    assert (code, err.count("\n")) == (1, 1)
    assert err.endswith(
        "needs onnx, which is not installed: pip install --editable ./gpuless --editable '.[roads]'\n"
    )


def test_before_a_training_the_network_of_the_package_answers(run):
    pytest.importorskip("onnx")
    Image.fromarray(data.load("mnist").test_images[0, 0]).save("seven.png")
    usual = Path("runs/mnist_cnn/checkpoint.npz")
    said = f"cnn-numba: there is no {usual} here, so the network that comes with the package is used"
    code, out, err = run("predict", "seven.png")
    assert (code, out[:14], err.count("\n")) == (0, "seven.png: 7 (", 1)
    assert err.startswith(said)
    code, out, err = run("export", "--pixels")
    assert (code, out.startswith("mnist_cnn.onnx: ")) == (0, True)
    assert err.startswith(said)
    code, out, err = run("sample", "--length", "5")
    assert (code, len(out)) == (0, len("A kernel") + 5 + 1)
    assert "comes with the package writes; train your own with: cnn-numba train --model text_tr" in err
    # A trained or named network is used instead.
    usual.parent.mkdir(parents=True)
    usual.write_bytes(b"broken")
    code, out, err = run("predict", "seven.png")
    assert (code, out) == (1, "")
    assert f"{usual} is damaged" in err
    usual.unlink()
    code, out, err = run("predict", "seven.png", "--checkpoint", usual)
    assert (code, out) == (1, "")
    assert f"there is no {usual}; train a network" in err
