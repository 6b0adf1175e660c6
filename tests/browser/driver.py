"""A Chromium that is told what to do through a pipe: pages, widths, colours, clicks, pictures."""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)

#: Seconds without a word from the browser after which it is taken for dead.
PATIENCE = 120


def find_browser():
    """Path of a Chromium, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page in a browser; ``messages`` are what it has written to the console."""

    def __init__(self, path):
        self.messages = []
        self._number, self._buffer, self._loaded = 0, b"", set()
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        (read, self._write), (self._read, write) = os.pipe(), os.pipe()
        # The browser reads from 3 and writes to 4, which may be taken.
        code = (
            "import fcntl, os, sys; "
            f"r, w = (fcntl.fcntl(f, fcntl.F_DUPFD, 10) for f in ({read}, {write})); "
            "os.dup2(r, 3); os.dup2(w, 4); os.execv(sys.argv[1], sys.argv[1:])"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, path, *FLAGS, "--remote-debugging-pipe",
             f"--user-data-dir={self._profile.name}", "about:blank"],
            pass_fds=(read, write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(read)
        os.close(write)
        self._session = None
        targets = self.ask("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        told = self.ask("Target.attachToTarget", targetId=page, flatten=True)
        self._session = told["sessionId"]
        for name in ("Page", "Runtime", "Log"):
            self.ask(f"{name}.enable")
        self.ask("Page.setLifecycleEventsEnabled", enabled=True)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._process.kill()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)
        self._profile.cleanup()

    def _next(self):
        while b"\0" not in self._buffer:
            if not select.select([self._read], [], [], PATIENCE)[0]:
                raise RuntimeError(f"the browser has said nothing for {PATIENCE} s")
            piece = os.read(self._read, 1 << 20)
            if not piece:
                raise RuntimeError("the browser has ended")
            self._buffer += piece
        text, self._buffer = self._buffer.split(b"\0", 1)
        told = json.loads(text)
        if told.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown",
                                  "Log.entryAdded"):  # fmt: skip
            self.messages.append(told["params"])
        if told.get("method") == "Page.lifecycleEvent" and told["params"]["name"] == "load":
            self._loaded.add(told["params"]["loaderId"])
        return told

    def ask(self, method, **arguments):
        """Send a command of the DevTools protocol, and return its result."""
        self._number += 1
        asked = {"id": self._number, "method": method, "params": arguments}
        if self._session:
            asked["sessionId"] = self._session
        os.write(self._write, json.dumps(asked).encode() + b"\0")
        while (told := self._next()).get("id") != self._number:
            pass
        if "error" in told:
            raise RuntimeError(f"{method}: {told['error']}")
        return told["result"]

    def open(self, page, *, width=1160, dark=False, paper=False):
        """Show a file, as wide as told, in light or dark colours, or as it is printed."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", media="print" if paper else "screen",
                 features=[scheme])  # fmt: skip
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900,
                 deviceScaleFactor=1, mobile=width < 500)  # fmt: skip
        told = self.ask("Page.navigate", url=Path(page).resolve().as_uri())
        # Not any load event: an earlier page's may come now, and this one's may have come.
        while told["loaderId"] not in self._loaded:
            self._next()

    def run(self, script):
        """Value of an expression in the page."""
        told = self.ask("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in told:
            raise RuntimeError(told["exceptionDetails"])
        return told["result"].get("value")

    def picture(self, path):
        """Draw the whole page."""
        told = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        Path(path).write_bytes(base64.b64decode(told["data"]))

    def print(self, path):
        """Print the page to a PDF file."""
        told = self.ask("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
        Path(path).write_bytes(base64.b64decode(told["data"]))
