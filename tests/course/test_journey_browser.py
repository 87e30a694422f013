"""From the first kernel to a certificate in JupyterLab, as a reader does it, on few digits."""

from pathlib import Path

import pytest
from browser import cell, element, lab_of, step_to, type_code, until

from cnn_course.chapters.many_gpus.workers import write_few_digits
from cnn_course.engine import notebooks

FOLDER = Path(__file__).parents[2] / "notebooks"
# The cells of notebook 09 that lead to the certificate.
KEPT = ("colab", "setup", "sizes", "own-network", "own-gradients", "training", "certificate")


def output_of(chrome, index, text):
    """Wait for a text among a cell's outputs, and return all of them."""
    outputs = f"{cell(index)} .jp-OutputArea"
    until(chrome, lambda chrome: text in element(chrome, outputs).text)
    return element(chrome, outputs).text


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """Return a folder for the notebooks, beside a small MNIST and an empty workbook."""
    for name in ("data", "first", "last"):
        (tmp_path / name).mkdir()
    write_few_digits(tmp_path / "data", 320, 200)
    monkeypatch.setenv("CNN_NUMBA_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("CNN_NUMBA_WORKBOOK", str(tmp_path / "workbook"))
    return tmp_path


@pytest.mark.exhaustive(
    "test_lab_browser.py: an answer that is typed; tests of workbooks, the capstone and certificates"
)
@pytest.mark.slow
@pytest.mark.gpu
def test_from_the_first_kernel_to_a_certificate(desk):
    start = notebooks.read(FOLDER / "00_start_here.ipynb")
    place = {found.id: index for index, found in enumerate(start.cells)}
    with lab_of(start, desk / "first") as chrome:
        step_to(chrome, place["brighten-kernel-stub"])
        type_code(chrome, notebooks.exercises(start)[0].solution)
        step_to(chrome, place["brighten-kernel-hints"])
        assert "Kept in your workbook." in output_of(chrome, place["brighten-kernel-check"], "✔ solved")
    assert [path.name for path in (desk / "workbook").iterdir()] == ["start_here_brighten_kernel.py"]

    # A kernel of the network, as kept by its check.
    relu = notebooks.exercises(notebooks.read(FOLDER / "02_first_cuda_kernels.ipynb"))[3]
    assert relu.name == "relu_stride_kernel"
    imports = "from numba import cuda, float32\n\n\n"
    (desk / "workbook" / f"02_{relu.name}.py").write_text(f"{imports}{relu.solution}\n")

    end = notebooks.read(FOLDER / "09_mnist_cnn.ipynb")
    end.cells = [found for found in end.cells if found.id in KEPT]
    place = {found.id: index for index, found in enumerate(end.cells)}
    with lab_of(end, desk / "last") as chrome:
        step_to(chrome, place["own-gradients"])
        assert "1 of 14 kernels are yours" in output_of(chrome, place["own-network"], "ReLU")
        step_to(chrome, place["training"])
        output_of(chrome, place["own-gradients"], "agree with the reference")
        type_code(chrome, end.cells[place["training"]].source.replace("FULL = False", "FULL = True"))
        step_to(chrome, place["certificate"])
        output_of(chrome, place["training"], "epoch 2/2")
        element(chrome, '[data-command="notebook:run-cell-and-select-next"]').click()
        said = output_of(chrome, place["certificate"], "Your certificate:")
        assert "of 200 digits that it has never seen" in said
        assert "1 of 14 kernels are yours" in said
        chrome.save_screenshot(str(desk / "certificate.png"))
    assert (desk / "workbook" / "certificate.png").is_file()
