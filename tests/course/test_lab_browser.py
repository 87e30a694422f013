"""A notebook of the course in JupyterLab, as a reader uses it; skipped without Chromium."""

from pathlib import Path

import pytest
from browser import cell, element, lab_of, step_to, type_code, until

from cnn_course.engine import notebooks

PATH = Path(__file__).parents[2] / "notebooks" / "02_first_cuda_kernels.ipynb"


def shows(chrome, selector, text):
    return until(chrome, lambda chrome: text in element(chrome, selector).text)


@pytest.mark.slow
def test_a_typed_answer_turns_its_check_green_and_a_slider_redraws(tmp_path):
    notebook = notebooks.read(PATH)
    place = {found.id: index for index, found in enumerate(notebook.cells)}
    check, explorer = (
        f"{cell(place[name])} .jp-OutputArea-output" for name in ("axpy-kernel-check", "explore")
    )

    with lab_of(notebook, tmp_path) as chrome:
        from selenium.webdriver import Keys

        step_to(chrome, place["axpy-kernel-stub"])
        type_code(chrome, notebooks.exercises(notebook)[0].solution)
        step_to(chrome, place["axpy-kernel-hints"])
        shows(chrome, check, "✔ solved: axpy_kernel")
        verdict = element(chrome, f"{check} div[style]")
        assert verdict.value_of_css_property("border-left-color") == "rgba(46, 160, 67, 1)"

        step_to(chrome, place["explore"] + 1)
        shows(chrome, explorer, "4 blocks of 16 x 16 threads over 26 x 26 pixels")
        # The widget has replaced the picture for readers without a kernel.
        figures = f"return document.querySelectorAll('{explorer} figure').length"
        assert chrome.execute_script(figures) == 1
        element(chrome, f"{explorer} .noUi-handle").send_keys(Keys.ARROW_RIGHT)
        shows(chrome, explorer, "16 blocks of 8 x 8 threads over 26 x 26 pixels")
        chrome.save_screenshot(str(tmp_path / "lab.png"))
