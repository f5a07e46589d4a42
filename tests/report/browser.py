"""Pages in a browser: how they are opened, and what is asked of each."""

import fcntl
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

# A headless Chromium, driven over its DevTools pipe: messages are JSON, each ended by a zero byte.

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)
# Chromium reads commands from descriptor 3 and answers on 4; the little program puts ours there.
_START = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)
_EVENTS = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded", "Network.requestWillBeSent")


class Browser:
    """One process; close it."""

    def __init__(self, binary: str, profile: Path) -> None:
        commands, self._write = os.pipe()
        self._read, answers = os.pipe()
        far = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (commands, answers)]
        os.close(commands), os.close(answers)
        words = [sys.executable, "-c", _START, *map(str, far), binary, *FLAGS, f"--user-data-dir={profile}"]
        self._process = subprocess.Popen(words, pass_fds=far, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for end in far:
            os.close(end)
        self._buffer = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable", on_page=True)

    def open(self, path: Path, width: int, height: int = 900, *, scheme: str = "light") -> None:
        """Load a file in a window of this size, for a reader who prefers light or dark; forget what was heard."""
        self.call("Emulation.setDeviceMetricsOverride", on_page=True, **_metrics(width, height))
        preferred = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", on_page=True, media="", features=preferred)
        self.events.clear()
        answer = self.call("Page.navigate", on_page=True, url=path.resolve().as_uri())
        assert "errorText" not in answer, answer
        self._until(lambda: any(event["method"] == "Page.loadEventFired" for event in self.events))

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", on_page=True, expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def heard(self) -> list[dict[str, Any]]:
        """Console messages, errors, and requests other than for the page itself, since `open`.

        A data: address is part of the page and asks for nothing.
        """
        found = [event for event in self.events if event["method"] in _EVENTS]
        return [event for event in found if not _harmless(event["params"])]

    def screenshot(self, path: Path) -> None:
        """The whole page as PNG."""
        import base64

        shot = self.call("Page.captureScreenshot", on_page=True, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def print_on(self, media: str) -> None:
        """Show the page as on "print" or "screen"."""
        self.call("Emulation.setEmulatedMedia", on_page=True, media=media)

    def call(self, method: str, *, on_page: bool = False, **params: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if on_page:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        answer: dict[str, Any] = {}

        def answered() -> bool:
            answer.update(next((event for event in self.events if event.get("id") == message["id"]), {}))
            return bool(answer)

        self._until(answered)
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def _until(self, happened: Any) -> None:
        deadline = time.monotonic() + 30
        while not happened():
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            chunk = os.read(self._read, 1 << 16)
            assert chunk, "the browser has ended"
            *whole, self._buffer = (self._buffer + chunk).split(b"\0")
            for event in map(json.loads, whole):
                event.setdefault("method", "")
                self.events.append(event)

    def close(self) -> None:
        """End the process."""
        try:
            self.call("Browser.close")
            self._process.wait(timeout=10)
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._read), os.close(self._write)


def _harmless(params: dict[str, Any]) -> bool:
    return params.get("type") == "Document" or params.get("request", {}).get("url", "").startswith("data:")


def _metrics(width: int, height: int) -> dict[str, Any]:
    return {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}


# What every page must be in a browser: silent, without requests, nothing cut, nothing too small or too faint.

# Elements that reach beyond the window. No box scrolls: what does not fit is folded, never cut.
SPILLS = """
[...document.querySelectorAll("main *")]
  .filter(e => !e.closest("svg") && e.checkVisibility())
  .filter(e => !e.parentElement.closest(".wide"))
  .filter(e => e.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5)
  .map(e => e.outerHTML.slice(0, 80))
"""
# Elements whose content is wider than they are and cannot be scrolled.
CUT = """
[...document.querySelectorAll("main, main *")]
  .filter(e => !e.closest("svg") && e.checkVisibility() && getComputedStyle(e).display != "inline")
  .filter(e => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX != "auto")
  .map(e => e.outerHTML.slice(0, 80))
"""
# Text of charts that reaches out of its chart.
OUTSIDE = """
[...document.querySelectorAll("figure > svg")].flatMap(svg => {
  const frame = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text")]
    .filter(e => {
      const box = e.getBoundingClientRect();
      const across = box.left < frame.left - 6 || box.right > frame.right + 6;
      return across || box.top < frame.top - 1 || box.bottom > frame.bottom + 1;
    })
    .map(e => e.textContent);
})
"""
# The smallest text on the screen, charts included, in CSS pixels.
SMALLEST = """
Math.min(...[...document.querySelectorAll("main *")]
  .filter(e => [...e.childNodes].some(n => n.nodeType == 3 && n.textContent.trim()))
  .filter(e => e.checkVisibility() && !["title", "desc"].includes(e.tagName))
  .map(e => {
    const svg = e.closest("svg");
    const scale = svg ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
    return parseFloat(getComputedStyle(e).fontSize) * scale;
  }))
"""
# Contrast (WCAG 2.1) between two colours, and the ground behind an element.
COLOURS = """
  const parts = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = rgb => {
    const linear = v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    const [r, g, b] = rgb.slice(0, 3).map(v => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = e => {
    for (; e; e = e.parentElement) {
      const colour = parts(getComputedStyle(e).backgroundColor);
      if (colour.length == 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const contrast = (e, ink) => {
    const [bright, dark] = [light(parts(ink)), light(ground(e))].sort((x, y) => y - x);
    return (bright + 0.05) / (dark + 0.05);
  };
"""
# The weakest contrast of a text.
CONTRAST = f"""
(() => {{
  {COLOURS}
  return Math.min(...[...document.querySelectorAll("main *")]
    .filter(e => [...e.childNodes].some(n => n.nodeType == 3 && n.textContent.trim()))
    .filter(e => !["title", "desc"].includes(e.tagName))
    .map(e => contrast(e, e.closest("svg") ? getComputedStyle(e).fill : getComputedStyle(e).color)));
}})()
"""


def assert_silent_and_readable(chromium: Any, page: Path, width: int, scheme: str) -> None:
    """Open a page in a window of this width, for a reader who prefers light or dark."""
    chromium.open(page, width, scheme=scheme)
    assert chromium.heard() == []
    chromium.evaluate("document.querySelectorAll('details').forEach(e => e.open = true)")
    root = "document.documentElement"
    assert chromium.evaluate(f"{root}.scrollWidth <= {root}.clientWidth")
    assert chromium.evaluate(SPILLS) == []
    assert chromium.evaluate(CUT) == []
    assert chromium.evaluate(OUTSIDE) == []
    assert chromium.evaluate(SMALLEST) >= 10
    assert chromium.evaluate(CONTRAST) >= 4.5
