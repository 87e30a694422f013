"""A notebook in JupyterLab in a headless Chromium: `lab_with`, `lab_of`. Without a browser: skipped."""

import functools
import http.server
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import contextmanager

import nbformat
import pytest

from cnn_course.engine.notebooks import METADATA

# This extension asks at the first start whether to show news.
SETTINGS = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}
# The limit of every wait. It is rarely reached: on a busy machine starting takes minutes.
SECONDS = 300
_RUN = '[data-command="notebook:run-cell-and-select-next"]'


def found(*names):
    """Return the path of the first of these programs that is installed, or skip the test."""
    paths = [path for path in map(shutil.which, names) if path]
    if not paths:
        pytest.skip(f"{names[0]} is not installed")
    return paths[0]


@contextmanager
def lab_with(cells, folder):
    """Open a notebook of these cells in JupyterLab; yield the browser when it is ready.

    Parameters
    ----------
    cells : list of str
        Code.
    folder : Path
        For the notebook and all settings.

    Yields
    ------
    selenium.webdriver.Chrome
    """
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in cells])
    notebook.metadata = nbformat.from_dict(METADATA)
    with lab_of(notebook, folder) as chrome:
        yield chrome


@contextmanager
def lab_of(notebook, folder):
    """Open a copy of a notebook in JupyterLab; otherwise as `lab_with`."""
    with chrome_in(folder) as chrome:
        nbformat.write(notebook, folder / "test.ipynb")
        with _server(folder) as address:
            chrome.get(f"{address}/lab/tree/test.ipynb")
            # The state of the kernel is shown for the active tab, and none is active at the start.
            element(chrome, ".lm-DockPanel-tabBar .lm-TabBar-tabLabel").click()
            yield chrome


@contextmanager
def chrome_in(folder, *more):
    """Open a browser whose files are in a folder, with more options; yield it."""
    pytest.importorskip("selenium", reason="selenium is not installed")
    browser, driver = found("chromium", "google-chrome", "chromium-browser"), found("chromedriver")
    with _chrome(browser, driver, folder, more) as chrome:
        yield chrome


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files without a log."""

    def log_message(self, *arguments):
        pass


@contextmanager
def serving(folder, handler=Quiet):
    """Serve a folder's files, or use another handler; yield the address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()


def until(chrome, condition):
    """Return `condition(browser)` as soon as it is true."""
    from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
    from selenium.webdriver.support.ui import WebDriverWait

    passing = NoSuchElementException, StaleElementReferenceException
    return WebDriverWait(chrome, SECONDS, ignored_exceptions=passing).until(condition)


def element(chrome, selector):
    """Return the first element of this CSS selector as soon as one is visible."""
    from selenium.webdriver.common.by import By

    def visible(chrome):
        return next((e for e in chrome.find_elements(By.CSS_SELECTOR, selector) if e.is_displayed()), None)

    return until(chrome, visible)


def run_cell(chrome, index=0):
    """Run a cell of the notebook by its button; return when it has started."""
    wait_for_kernel(chrome)
    element(chrome, f"{cell(index)} .cm-content").click()
    element(chrome, _RUN).click()
    until(chrome, lambda chrome: element(chrome, f"{cell(index)} .jp-InputPrompt").text != "[ ]:")


def cell(index):
    """Return the CSS selector of a cell."""
    return f'.jp-Notebook .jp-Cell[data-windowed-list-index="{index}"]'


def wait_for_kernel(chrome):
    """Wait until nothing runs; at the start, until the kernel has started."""
    # The indicator begins as idle, even before there is a kernel; JupyterLab would drop what is run then.
    until(chrome, lambda chrome: "| Idle" in element(chrome, "#jp-main-statusbar").text)
    element(chrome, '.jp-Notebook-ExecutionIndicator[data-status="idle"]')


def step_to(chrome, index):
    """Run cells with `run_cell`, from the selected one until this one is selected."""
    wait_for_kernel(chrome)
    while (selected := _selected(chrome)) < index:
        element(chrome, _RUN).click()
        until(chrome, lambda chrome, last=selected: _selected(chrome) > last)
    wait_for_kernel(chrome)


def type_code(chrome, code):
    """Replace the code of the selected cell; return when it is there."""
    from selenium.webdriver import ActionChains, Keys

    editor = f"{cell(_selected(chrome))} .cm-content"
    element(chrome, editor).click()
    element(chrome, f"{editor}:focus")
    everything = ActionChains(chrome).key_down(Keys.CONTROL).send_keys("a").key_up(Keys.CONTROL)
    everything.send_keys(Keys.DELETE).perform()
    until(chrome, lambda chrome: not element(chrome, editor).text.strip())
    keyboard = ActionChains(chrome)
    for number, line in enumerate(code.splitlines()):
        if number:  # the indentation that JupyterLab proposes is selected, and overwritten
            keyboard.send_keys(Keys.ENTER).key_down(Keys.SHIFT).send_keys(Keys.HOME).key_up(Keys.SHIFT)
        keyboard.send_keys(line)
    keyboard.perform()
    until(chrome, lambda chrome: element(chrome, editor).text.split() == code.split())


def _selected(chrome):
    active = element(chrome, ".jp-Notebook .jp-Cell.jp-mod-active")
    return int(active.get_attribute("data-windowed-list-index"))


@contextmanager
def _server(folder):
    settings = folder / "settings"
    (settings / "labconfig").mkdir(parents=True)
    (settings / "labconfig" / "page_config.json").write_text(json.dumps(SETTINGS))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    places = {f"JUPYTER_{kind}_DIR": str(settings / kind) for kind in ("DATA", "RUNTIME")}
    options = ["--no-browser", f"--port={port}", "--ServerApp.port_retries=0", "--IdentityProvider.token="]
    options += ["--ip=127.0.0.1", f"--ServerApp.root_dir={folder}", "--allow-root"]
    environment = os.environ | places | {"JUPYTER_CONFIG_DIR": str(settings)}
    with open(folder / "server.log", "w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *options], env=environment, stdout=log, stderr=log
        )
    try:
        _wait_for(f"http://127.0.0.1:{port}/api", process, folder)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(SECONDS)


def _wait_for(address, process, folder):
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except OSError:
            time.sleep(0.3)
    pytest.fail("JupyterLab does not start:\n" + (folder / "server.log").read_text()[-2000:])


@contextmanager
def _chrome(browser, driver, folder, more=()):
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = browser
    quiet = ("background-networking", "component-update", "sync", "gpu", "dev-shm-usage")
    for option in (
        "headless=new",
        "no-sandbox",
        "no-first-run",
        *(f"disable-{name}" for name in quiet),
        *more,
    ):
        options.add_argument(f"--{option}")
    options.add_argument("--window-size=1200,1000")
    options.add_argument(f"--user-data-dir={folder / 'profile'}")
    chrome = webdriver.Chrome(options, webdriver.ChromeService(driver))
    try:
        yield chrome
    except BaseException:
        chrome.save_screenshot(str(folder / "failed.png"))
        raise
    finally:
        chrome.quit()
