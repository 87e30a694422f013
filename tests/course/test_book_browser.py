"""The book's page for drawing a digit, in a browser; skipped without Chromium."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from browser import chrome_in, element, serving, until

from cnn_course.chapters.mnist_cnn.pad import SIZE, example_drawing
from cnn_numba import load, load_model, prepare_digit
from cnn_numba.pretrained import MNIST_CNN

ROOT = Path(__file__).parents[2]
PAGE = """<!DOCTYPE html><link rel="stylesheet" href="pad.css"><div id="digit-pad"></div>
<script type="module" src="draw.js"></script>"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Yield a browser with the pad's page and the files that `docs/book/build.py` adds."""
    folder = tmp_path_factory.mktemp("page")
    shutil.copytree(ROOT / "docs" / "book" / "static", folder, dirs_exist_ok=True)
    for name in ("pad.js", "pad.css"):
        shutil.copy2(ROOT / "cnn_course" / "chapters" / "mnist_cnn" / name, folder)
    with np.load(MNIST_CNN) as checkpoint:
        (folder / "mnist_cnn.bin").write_bytes(checkpoint["parameters"].tobytes())
    (folder / "index.html").write_text(PAGE)
    with serving(folder) as address, chrome_in(tmp_path_factory.mktemp("browser")) as chrome:
        chrome.get(address)
        until(chrome, lambda chrome: chrome.execute_script("return Boolean(window.readDigit)"))
        yield chrome


def test_the_browser_answers_as_predict_does(page):
    images = load("mnist").test_images[:200].astype(np.float32) / 255
    script = "return arguments[0].map((digit) => window.readDigit(digit))"
    chances = np.array(page.execute_script(script, images.reshape(200, -1).tolist()))
    expected = load_model(MNIST_CNN, batch_size=200).predict(images)
    assert (chances.argmax(axis=1) == expected.argmax(axis=1)).all()
    np.testing.assert_allclose(chances, expected, atol=1e-5)


def drawings():
    three = example_drawing()
    wide, tall = np.zeros((2, SIZE, SIZE), np.uint8)
    wide[60:75, 5:130] = 255
    tall[10:131, 20:27] = 255
    tall[10:20, 20:60] = 255
    small = np.zeros_like(three)
    small[100:135, 3:38] = three[20:125:3, 20:125:3]
    return {"three": three, "small": small, "wide": wide, "tall": tall}


@pytest.mark.parametrize("name", drawings())
def test_a_drawing_is_prepared_as_in_python(name, page):
    drawing = drawings()[name]
    digit = page.execute_script("return window.prepareDigit(arguments[0], 140)", drawing.ravel().tolist())
    difference = np.array(digit).reshape(28, 28) - prepare_digit(drawing)[0].astype(int)
    assert abs(difference).max() <= 1  # of 255, if a sum in another order rounds differently


def test_a_drawing_is_read_and_cleared(page):
    from selenium.webdriver import ActionChains

    canvas = element(page, "canvas.drawing")
    pen = ActionChains(page, duration=20)
    pen.move_to_element_with_offset(canvas, -70, -80).click_and_hold()
    pen.move_by_offset(140, 0).move_by_offset(-60, 80).move_by_offset(-20, 90).release().perform()
    until(page, lambda page: element(page, ".answer").text == "This is a 7.")
    assert element(page, ".bar.best .digit").text == "7"
    element(page, ".clear").click()
    until(page, lambda page: element(page, ".answer").text == "Draw a digit.")


def test_a_digit_is_drawn_read_and_cleared_by_keys(page):
    from selenium.webdriver import ActionChains, Keys

    def press(*keys):
        ActionChains(page).send_keys(*keys).perform()

    def focused():
        return page.execute_script("return document.activeElement.className")

    page.execute_script("document.body.tabIndex = -1; document.body.focus()")
    press(Keys.TAB)
    assert focused() == "drawing"
    assert element(page, ".pen").is_displayed()
    press(*[Keys.ARROW_UP] * 7, Keys.SPACE)
    assert element(page, "[role=status]").text == "The pen is down."
    press(*[Keys.ARROW_DOWN] * 14, Keys.SPACE)
    assert element(page, "[role=status]").text == "The pen is up."
    press(*[Keys.ARROW_RIGHT] * 3)
    until(page, lambda page: element(page, "[aria-live=polite]").text == "This is a 1.")
    press(Keys.DELETE)
    until(page, lambda page: element(page, ".answer").text == "Draw a digit.")
    press(*[Keys.ARROW_LEFT] * 99, Keys.SPACE)  # to the edge and no farther
    until(page, lambda page: element(page, ".answer").text.startswith("This is a"))
    for reached in ("clear", "file"):
        press(Keys.TAB)
        assert focused() == reached
    assert not page.find_elements("css selector", ".pen.down:focus, .drawing:focus")
    page.find_element("css selector", ".clear").send_keys(Keys.ENTER)
    until(page, lambda page: element(page, ".answer").text == "Draw a digit.")


def test_other_files_give_a_message(page, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("no picture")
    element(page, "input.file").send_keys(str(path))
    until(page, lambda page: element(page, ".answer").text.startswith("No digit could be read"))


def test_a_picture_is_read(page, tmp_path):
    from PIL import Image

    path = tmp_path / "three.png"
    Image.fromarray(255 - example_drawing()).resize((420, 420)).save(path)
    element(page, "input.file").send_keys(str(path))
    until(page, lambda page: element(page, ".answer").text == "This is a 3.")
