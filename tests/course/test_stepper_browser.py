"""The stepper in JupyterLab, by keyboard and for a screen reader; skipped without Chromium."""

import pytest
from browser import cell, element, lab_with, run_cell, until
from helpers import PROGRAMS


@pytest.mark.exhaustive("test_lab_browser.py: a widget in JupyterLab; test_stepper.py: what a step shows")
@pytest.mark.slow
def test_arrow_keys_step_and_each_step_is_announced(tmp_path):
    output = f"{cell(0)} .jp-OutputArea-output"
    with lab_with([(PROGRAMS / "steps_through_a_kernel.py").read_text()], tmp_path) as chrome:
        from selenium.webdriver import Keys

        def announced(text):
            return until(chrome, lambda chrome: text in element(chrome, f"{output} [role=alert]").text)

        run_cell(chrome)
        announced("Lanes 0 to 31 active.")
        slider = element(chrome, f"{output} .noUi-handle")
        assert slider.get_attribute("role") == "slider"
        for _ in range(4):
            slider.send_keys(Keys.ARROW_RIGHT)
        announced("The barrier: warp 0 waits; warp 1 has yet to come.")
        image = element(chrome, f"{output} img")
        assert image.get_attribute("alt").startswith("Step 5 of 7: warp 0, line ")
        chrome.save_screenshot(str(tmp_path / "barrier.png"))
        slider.send_keys(Keys.ARROW_LEFT)
        announced("Writes tile[t] in 32 lanes (shared): no bank conflict.")
        warps = chrome.find_elements("css selector", f"{output} .noUi-handle")[1]
        warps.send_keys(Keys.ARROW_RIGHT)
        until(chrome, lambda chrome: "warp 1" in element(chrome, f"{output} img").get_attribute("alt"))
        for _ in range(3):
            slider.send_keys(Keys.ARROW_RIGHT)
        announced("Lanes 0 to 3 active; lanes 4 to 7 sit it out.")
