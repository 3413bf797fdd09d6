"""Drives a headless Chromium over its DevTools protocol, with JSON messages on two pipes, each ended by a zero byte.

Real input events go in, and every request, console message and uncaught error comes out. The browser has an empty
profile and no background traffic of its own. Protocol: https://chromedevtools.github.io/devtools-protocol
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-default-apps",
    "--no-default-browser-check",
    "--disable-dev-shm-usage",
    "--force-device-scale-factor=1",
    "--mute-audio",
    "--remote-debugging-pipe",
)
# The browser reads commands from descriptor 3 and writes answers to 4.
_START = "import os, sys; a, b = map(int, sys.argv[1:3]); os.dup2(a, 103); os.dup2(b, 104); os.dup2(103, 3); \
os.dup2(104, 4); os.execvp(sys.argv[3], sys.argv[3:])"


def executable() -> str | None:
    """Return a Chromium of this machine, or None."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((found for name in names if (found := shutil.which(name))), None)


class BrowserError(Exception):
    """The browser refused a command, or went away."""


class Page:
    """A tab of the browser. requests: requested addresses; complaints: console messages and errors, as text."""

    def __init__(self, commands: int, answers: int, patience: float) -> None:
        self._commands, self._answers, self._patience = commands, answers, patience
        self._buffer, self._number, self._session = b"", 0, ""
        self.requests: list[str] = []
        self.complaints: list[str] = []

    def attach(self, width: int, height: int) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.size(width, height)

    def size(self, width: int, height: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def open(self, path: Path) -> None:
        """Load a file, until its load event."""
        self.visit(path.resolve().as_uri())

    def visit(self, address: str) -> None:
        """Load an address, until its load event."""
        self._loaded = False
        self.call("Page.navigate", url=address)
        deadline = time.monotonic() + self._patience
        while not self._loaded:
            self._read(deadline)

    def call(self, method: str, **parameters: Any) -> Any:
        """Return the result of one command."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + self._patience
        while True:
            answer = self._read(deadline)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']}")
                return answer["result"]

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression, awaited if it is a promise."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise BrowserError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """Send a real event: mouseMoved, mousePressed, mouseReleased or mouseWheel, at a point of the window."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x: float, y: float, modifiers: int = 0) -> None:
        self.mouse("mouseMoved", x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1, modifiers=modifiers)
        self.settle()

    def wheel(self, x: float, y: float, by: float, modifiers: int = 0) -> None:
        self.mouse("mouseWheel", x, y, deltaX=0, deltaY=by, modifiers=modifiers)
        self.settle()

    def key(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.settle()

    def settle(self) -> None:
        """Wait until two frames were drawn."""
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def screenshot(self) -> bytes:
        """Return the window as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def _read(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(self._answers, 1 << 20) if ready else b""
            if not chunk:
                raise BrowserError("the browser is gone" if ready else "the browser does not answer")
            self._buffer += chunk
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, about: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(about["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(json.dumps(about["args"]))
        elif method == "Log.entryAdded":
            self.complaints.append(about["entry"]["text"])


@contextmanager
def browser(folder: Path, width: int = 1280, height: int = 720, patience: float = 60) -> Iterator[Page]:
    """Yield a tab in a new browser, with its profile in the folder; the browser is ended afterwards."""
    program = executable()
    assert program is not None
    from_us, commands = os.pipe()
    answers, to_us = os.pipe()
    line = [sys.executable, "-c", _START, str(from_us), str(to_us), program, *FLAGS]
    process = subprocess.Popen(
        [*line, f"--user-data-dir={folder / 'profile'}", f"--window-size={width},{height}", "about:blank"],
        pass_fds=(from_us, to_us),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "HOME": str(folder)},
    )
    os.close(from_us)
    os.close(to_us)
    try:
        page = Page(commands, answers, patience)
        page.attach(width, height)
        yield page
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(commands)
        os.close(answers)
