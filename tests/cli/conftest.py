"""Fixtures for the tests of several commands."""

from dataclasses import replace

import numpy as np
import pytest

from cnn_numba import cli, data


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Return a function that runs the command line in an empty folder: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        with pytest.raises(SystemExit) as caught:
            cli.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return caught.value.code, captured.out, captured.err

    return run


@pytest.fixture
def little(monkeypatch):
    """Give `train` only the first images of MNIST, and other images in a folder."""

    def load(name="mnist", data_dir=None, log=None):
        # Files are converted by the first of all tests that reads them: the line is of no test's output.
        whole = data.load(name, None, lambda line: None)
        images = whole.train_images[:200] if data_dir is None else whole.train_images[200:400]
        return replace(
            whole,
            train_images=images,
            train_labels=whole.train_labels[:200],
            test_images=whole.test_images[:70],
            test_labels=whole.test_labels[:70],
        )

    monkeypatch.setattr("cnn_numba.cli.train.load", load)


@pytest.fixture
def fit(monkeypatch):
    """Return a function that replaces training by a result or an error; it returns the options."""

    def replace_fit(result):
        calls = {}

        def fit(*arguments, **options):
            calls.update(options, arguments=arguments)
            if isinstance(result, BaseException):
                raise result
            return result

        monkeypatch.setattr("cnn_numba.train.loop.fit", fit)
        return calls

    return replace_fit


@pytest.fixture
def nothing_to_load(monkeypatch):
    """Give `train` data sets without images."""

    def load(name, data_dir, log=None):
        nothing = np.zeros((0, *data.image_shape(name or "mnist")), np.uint8), np.zeros(0, np.int32)
        return data.Dataset(name or "mnist", *nothing, *nothing)

    monkeypatch.setattr("cnn_numba.cli.train.load", load)
