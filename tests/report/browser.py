"""A real browser without a window, spoken to over a pipe (DevTools), so that a page is looked at as readers do."""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 120.0
MEASURE = """({
  widths: [document.scrollingElement.scrollWidth, innerWidth],
  height: document.scrollingElement.scrollHeight,
  images: document.images.length,
  broken: [...document.images].filter(image => !image.complete || !image.naturalWidth).length,
  sources: [...document.images].map(image => image.currentSrc),
})"""


class Look(NamedTuple):
    """A page as it was drawn: what the browser measured, all that it asked for, and a picture of the whole."""

    widths: list[int]
    height: int
    images: int
    broken: int
    sources: list[str]
    requests: list[str]
    picture: bytes


def find_browser() -> str:
    """The browser of this machine; CI must have one, a laptop need not."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        why = f"no browser on this machine: none of {', '.join(BROWSERS)}; on Debian: apt-get install chromium"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(why)
    return found


class Browser:
    """One tab; leaving the context ends the browser."""

    def __init__(self, profile: Path) -> None:
        theirs_in, self._to = os.pipe()
        self._from, theirs_out = os.pipe()
        arguments = [
            *("--headless=new", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage", "--no-first-run"),
            *(
                "--disable-background-networking",
                "--host-resolver-rules=MAP * ~NOTFOUND",
            ),  # nothing leaves this host
            *(["--no-sandbox"] if os.getuid() == 0 else []),
            *("--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"),
        ]
        shell = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'  # where the browser expects its pipes
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "bash", find_browser(), *arguments],
            pass_fds=(theirs_in, theirs_out),
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._unread, self._count, self._session = b"", 0, ""
        self._events: list[dict[str, Any]] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._call("Page.enable")
        self._call("Network.enable")

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        with contextlib.suppress(OSError):
            self._session = ""
            self._call("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def look(self, file: Path, width: int, height: int, scheme: str, *, scale: float = 1.0) -> Look:
        """Open a page in a window of this size, for a reader who likes it "light" or "dark"."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        self._call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self._events.clear()
        self._call("Page.navigate", url=file.as_uri())
        self._wait_for("Page.loadEventFired")
        found = self.evaluate(MEASURE)
        clip = {"x": 0, "y": 0, "width": width, "height": found["height"], "scale": scale}
        shot = self._call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]
        sent = [event for event in self._events if event["method"] == "Network.requestWillBeSent"]
        urls = [event["params"]["request"]["url"] for event in sent]
        return Look(**found, requests=urls, picture=base64.b64decode(shot))

    def evaluate(self, expression: str) -> Any:
        """What a line of script finds in the page."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (heard := self._next()).get("id") != self._count:
            self._events.append(heard)
        assert "error" not in heard, (method, heard)
        return heard["result"]

    def _wait_for(self, method: str) -> None:
        while not any(event.get("method") == method for event in self._events):
            self._events.append(self._next())

    def _next(self) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._from], [], [], max(0.0, until - time.monotonic()))
            assert ready, f"the browser says nothing for {PATIENCE:.0f} s"
            read = os.read(self._from, 1 << 20)
            if not read:
                raise BrokenPipeError("the browser has ended")
            self._unread += read
        message, _, self._unread = self._unread.partition(b"\0")
        return json.loads(message)
