"""The drawing pad in JupyterLab, drawn on with the mouse; skipped where there is no Chromium."""

import pytest
from browser import element, lab_with, run_cell, until
from helpers import PROGRAMS
from PIL import Image

from cnn_course.chapters.mnist_cnn.pad import example_drawing


def says(text):
    return lambda chrome: element(chrome, ".digit-pad .answer").text == text


def highest(digit):
    return lambda chrome: element(chrome, ".digit-pad .bar.best").text.split()[0] == digit


@pytest.mark.exhaustive(
    "test_book_browser.py: the same pad in a browser; test_journey_browser.py: JupyterLab"
)
@pytest.mark.slow
def test_a_digit_drawn_in_jupyterlab_is_read_by_the_network(tmp_path):
    with lab_with([(PROGRAMS / "reads_drawn_digits.py").read_text()], tmp_path) as chrome:
        from selenium.webdriver import ActionChains

        run_cell(chrome)
        canvas = element(chrome, ".digit-pad canvas.drawing")
        until(chrome, says("Draw a digit."))

        # The widget replaces the picture for readers without a kernel.
        assert not chrome.execute_script("return document.querySelector('.jp-OutputArea figure')")

        pen = ActionChains(chrome, duration=20)
        pen.move_to_element_with_offset(canvas, 0, -90).click_and_hold()
        for _ in range(9):
            pen.move_by_offset(0, 20)
        pen.release().perform()
        until(chrome, says("This is a 1."))
        until(chrome, highest("1"))

        element(chrome, ".digit-pad .clear").click()
        until(chrome, says("Draw a digit."))

        pen = ActionChains(chrome, duration=20)
        pen.move_to_element_with_offset(canvas, -70, -80).click_and_hold()
        pen.move_by_offset(140, 0).move_by_offset(-60, 80).move_by_offset(-20, 90).release().perform()
        until(chrome, says("This is a 7."))

        path = tmp_path / "three.png"
        Image.fromarray(255 - example_drawing()).save(path)
        element(chrome, ".digit-pad input.file").send_keys(str(path))
        until(chrome, says("This is a 3."))
        chrome.save_screenshot(str(tmp_path / "pad.png"))
