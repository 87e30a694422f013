"""The course under its old names inside the package, for one release."""

import importlib
import warnings

import pytest

import cnn_course
import cnn_numba.course
from cnn_course import old_names

OLD = {
    "checks": "cnn_course.engine.checks",
    "checks.kernels": "cnn_course.engine.checks.kernels",
    "contents": "cnn_course.engine.outline",
    "exercises.make_it_fast": "cnn_course.chapters.launches_and_graphs.exercises",
    "exercises.the_machine": "cnn_course.chapters.the_machine.exercises",
    "mixed_precision": "cnn_course.chapters.mixed_precision.trainings",
    "network": "cnn_course.chapters.mnist_cnn.network",
    "pictures.convolution": "cnn_course.chapters.convolution_on_the_cpu.pictures",
    "pictures.explorer": "cnn_course.engine.explorer",
    "pictures.many_gpus": "cnn_course.chapters.many_gpus.pictures",
    "roads": "cnn_course.chapters.other_roads.roads",
    "roads.yardstick": "cnn_course.chapters.other_roads.roads.yardstick",
    "tape": "cnn_course.chapters.launches_and_graphs.tape",
    "workbook": "cnn_course.engine.workbook",
}


@pytest.mark.parametrize("old", OLD)
def test_an_old_name_is_the_renamed_module_and_warns(old, monkeypatch):
    new = importlib.import_module(OLD[old])
    name = f"cnn_numba.course.{old}"
    monkeypatch.delitem(importlib.sys.modules, name, raising=False)
    with pytest.warns(FutureWarning, match=f"{name} is {OLD[old]} now"):
        assert importlib.import_module(name) is new
    assert new.__name__ == new.__spec__.name == OLD[old]


def test_every_old_name_has_a_new_place():
    for name in old_names._OTHERS:
        assert importlib.util.find_spec(old_names.new_place(name)), name


def test_names_of_the_course_itself():
    with pytest.warns(FutureWarning, match=r"cnn_numba\.course\.progress is cnn_course\.progress now"):
        assert cnn_numba.course.progress is cnn_course.progress
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cnn_numba.course.TRAINED_MNIST_CNN.is_file()
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = cnn_numba.course.no_such_name
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("cnn_numba.course.no_such_module")
