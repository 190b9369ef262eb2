"""A headless Chromium, driven over its debugging pipe: what a viewer of the page sees, presses and is told."""

import base64
import itertools
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SECONDS = 60.0
PAUSE = 0.05
KEYS = {"Tab": 9, "Enter": 13, " ": 32, "Escape": 27}


def executable() -> str | None:
    """Return the path of a Chromium, or the one that CHROMIUM names; None where there is none."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """A browser with one tab, which speaks the Chrome DevTools Protocol: JSON, each message ended by a zero byte."""

    def __init__(self, path: str, profile: Path) -> None:
        to_browser, self._writing = os.pipe()
        self._reading, from_browser = os.pipe()
        # Chromium reads from descriptor 3 and writes to 4; the shell puts ours there.
        command = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        self._process = subprocess.Popen(
            ["bash", "-c", command, "bash", path, "--headless", "--remote-debugging-pipe", "--no-sandbox",
             "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--hide-scrollbars", f"--user-data-dir={profile}"],
            pass_fds=(to_browser, from_browser), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        self._numbers = itertools.count(1)
        self._rest = b""
        self._session = ""
        self.console: list[str] = []  # errors and warnings that the page or the browser wrote
        self.requested: list[str] = []  # addresses of all requests
        target = self.command("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.command("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.command(f"{domain}.enable")
        # The time of the page's thread, not of the clock: a figure is the same on a machine that has other work.
        self.command("Performance.enable", timeDomain="threadTicks")

    def close(self) -> None:
        """End the browser."""
        self._process.terminate()
        self._process.wait()
        os.close(self._writing)
        os.close(self._reading)

    def command(self, method: str, **parameters: Any) -> Any:
        """Return the result of one command of the protocol."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._writing, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def run(self, script: str) -> Any:
        """Return the value of an expression in the page; a promise is awaited."""
        result = self.command("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def until(self, script: str, accept: Callable[[Any], Any] = bool, seconds: float = SECONDS) -> Any:
        """Return the first value of an expression that `accept` accepts; fails after a generous deadline."""
        end = time.monotonic() + seconds
        while True:
            value = self.run(script)
            if accept(value):
                return value
            if time.monotonic() > end:
                raise AssertionError(f"not within {seconds:g} s: {script}; the last value is {value!r}")
            time.sleep(PAUSE)

    def open(self, address: str) -> None:
        """Load a page, also where only what follows the `#` differs from the address of the present one."""
        self.command("Page.navigate", url="about:blank")
        self.until("document.URL === 'about:blank'")
        self.command("Page.navigate", url=address)
        self.until("document.URL !== 'about:blank' && document.readyState === 'complete'")

    def text(self, selector: str) -> str:
        """Return the text of the first element that matches."""
        return str(self.run(f"document.querySelector({json.dumps(selector)})?.textContent ?? ''"))

    def click(self, selector: str) -> None:
        """Press an element, as a mouse does."""
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def press(self, key: str, **more: Any) -> None:
        """Press a key of the keyboard: one of KEYS."""
        text = {"Enter": "\r", " ": " "}.get(key, "")
        code = {"windowsVirtualKeyCode": KEYS[key], "key": key, "code": {" ": "Space"}.get(key, key), **more}
        self.command("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **code)
        self.command("Input.dispatchKeyEvent", type="keyUp", **code)

    def type(self, text: str) -> None:
        """Write into the element that has the focus."""
        self.command("Input.insertText", text=text)

    def resize(self, width: int, height: int, *, is_dark: bool = False) -> None:
        """Give the page this size in pixels, and light or dark colours."""
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])

    def metrics(self) -> Mapping[str, float]:
        """Return the page's counters, such as ScriptDuration and TaskDuration in seconds."""
        return {metric["name"]: metric["value"] for metric in self.command("Performance.getMetrics")["metrics"]}

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Write what is seen, or the whole page, as WebP or as the suffix of `path` says."""
        kind: dict[str, Any] = {"format": path.suffix.removeprefix(".")}
        if kind["format"] == "webp":
            kind["quality"] = 80
        result = self.command("Page.captureScreenshot", captureBeyondViewport=whole, **kind, **self._clip(whole))
        path.write_bytes(base64.b64decode(result["data"]))

    def _clip(self, whole: bool) -> dict[str, Any]:
        if not whole:
            return {}
        size = self.command("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}

    def _receive(self) -> Any:
        while b"\0" not in self._rest:
            part = os.read(self._reading, 1 << 16)
            if not part:
                raise RuntimeError("the browser has ended")
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\0")
        message = json.loads(line)
        self._note(message)
        return message

    def _note(self, message: Any) -> None:
        parameters = message.get("params", {})
        match message.get("method"):
            case "Network.requestWillBeSent":
                self.requested.append(parameters["request"]["url"])
            case "Runtime.exceptionThrown":
                self.console.append(json.dumps(parameters["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if parameters["type"] in ("error", "warning", "assert"):
                self.console.append(json.dumps(parameters["args"]))
            case "Log.entryAdded" if parameters["entry"]["level"] in ("error", "warning"):
                self.console.append(f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}")
