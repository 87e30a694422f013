"""A headless Firefox for Selenium without geckodriver, which is on neither PyPI nor Debian: `firefox_in`.

Commands for geckodriver go to Firefox itself, which answers them by its own
protocol, Marionette: JSON in both directions, each message after its length.
"""

import itertools
import json
import socket
import subprocess
import time
from contextlib import contextmanager

import pytest
from browser import SECONDS, found

#: Commands that Marionette calls by another name than WebDriver:Name.
_NAMES = {
    "get": "Navigate",
    "w3cExecuteScript": "ExecuteScript",
    "w3cExecuteScriptAsync": "ExecuteAsyncScript",
    "getCurrentUrl": "GetCurrentURL",
    "clickElement": "ElementClick",
    "sendKeysToElement": "ElementSendKeys",
    "getElementAriaLabel": "GetComputedLabel",
    "actions": "PerformActions",
    "screenshot": "TakeScreenshot",
    "quit": "DeleteSession",
}


@contextmanager
def firefox_in(folder, proxy):
    """Open a Firefox whose files are in a folder and whose requests go through a proxy."""
    from selenium.webdriver import FirefoxOptions
    from selenium.webdriver.remote.file_detector import UselessFileDetector
    from selenium.webdriver.remote.webdriver import WebDriver

    program = found("firefox", "firefox-esr")
    profile = folder / "profile"
    profile.mkdir()
    host, port = proxy.removeprefix("http://").removesuffix("/").split(":")
    settings = {"marionette.port": 0, "network.proxy.type": 1}  # 0: any port that is free
    for scheme in ("http", "ssl"):
        settings |= {f"network.proxy.{scheme}": host, f"network.proxy.{scheme}_port": int(port)}
    lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in settings.items()]
    (profile / "user.js").write_text("".join(lines), encoding="utf-8")
    command = [program, "--headless", "--marionette", "--no-remote", "--profile", str(profile)]
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **silent) as process:
        try:
            port = _written(profile / "MarionetteActivePort", process)
            with socket.create_connection(("127.0.0.1", int(port)), SECONDS) as connection:
                driver = WebDriver(
                    _Marionette(connection), options=FirefoxOptions(), file_detector=UselessFileDetector()
                )
                driver.set_window_size(1200, 1000)
                yield driver
        finally:
            process.terminate()


def _written(path, process):
    """Return the text that a starting process writes to a file."""
    end = time.monotonic() + SECONDS
    while not (path.is_file() and path.read_text()):
        if process.poll() is not None or time.monotonic() > end:
            pytest.fail("Firefox does not start")
        time.sleep(0.1)
    return path.read_text()


class _Marionette:
    """Stands for Selenium's connection to a driver."""

    def __init__(self, connection):
        self._file = connection.makefile("rwb")
        self._numbers = itertools.count(1)
        self._read()  # the capabilities of Firefox

    def execute(self, command, parameters):
        """Send a command; return the answer in Selenium's form."""
        name = _NAMES.get(command) or command[0].upper() + command[1:]
        if command == "newSession":
            parameters = {}
        text = json.dumps([0, next(self._numbers), f"WebDriver:{name}", parameters])
        self._file.write(f"{len(text)}:{text}".encode())  # `text` is ASCII
        self._file.flush()
        _, _, error, answer = self._read()
        if error:
            return {"status": 500, "value": json.dumps({"value": error})}
        return {"value": answer["value"] if isinstance(answer, dict) and [*answer] == ["value"] else answer}

    def _read(self):
        length = b""
        while not length.endswith(b":"):
            length += self._file.read(1)
        return json.loads(self._file.read(int(length[:-1])))
