"""A browser with one page: behind the wall, drawing one frame when it is asked to, gone when it is closed."""

from __future__ import annotations

import base64
import os
import secrets
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dumbwaiter.jobs.video import chromium, leftovers
from dumbwaiter.jobs.video.cdp import Connection, Message
from dumbwaiter.jobs.video.chromium import Way
from dumbwaiter.jobs.video.errors import (
    BrowserCrashed,
    BrowserLost,
    BrowserStuck,
    ChromiumMissing,
    PlayerFailed,
)
from dumbwaiter.jobs.video.options import Options
from dumbwaiter.jobs.video.processes import end_tree

# Nobody is there; browsers take animated pictures apart (ImageDecoder) for trusted origins only, and of this name each is one.
ADDRESS = "http://replay.localhost/"
START_SECONDS = 15.0
PROBE_SECONDS = 2.0
CLOSE_SECONDS = 0.5
# Frame times must only grow; they begin far ahead of the browser's own clock.
TICKS_AHEAD_MS = 100_000.0
CRASHES = (
    "Inspector.targetCrashed",
    "Target.targetCrashed",
    "Inspector.detached",
    "Target.detachedFromTarget",
)


@dataclass(frozen=True)
class Response:
    """What the wall answers for one address."""

    content_type: str
    body: bytes
    policy: str = ""


@dataclass(frozen=True)
class Drawn:
    """One frame: whether it changed anything, and its picture if one was asked for."""

    damaged: bool
    picture: bytes | None


class Browser:
    """A running Chromium with one page.

    Use `start`; leaving the `with` block ends every process and removes the profile.
    """

    def __init__(self, executable: Path, way: Way, workdir: Path, *, on_request: bool, within: float) -> None:
        self._within = within
        self._on_request = on_request
        self._ticks = time.monotonic() * 1000 + TICKS_AHEAD_MS
        self._pages: dict[str, Response] = {}
        self._session: str | None = None
        self.way = way
        self.refused: list[str] = []
        self._profile = chromium.make_profile(workdir, way.user)
        try:
            self.process, self._connection = self._launch(executable)
        except BaseException:
            leftovers.remove(self._profile)
            raise
        for event in CRASHES:
            self._connection.on[event] = self._crashed
        self._connection.on["Fetch.requestPaused"] = self._answer

    def _launch(self, executable: Path) -> tuple[subprocess.Popen[bytes], Connection]:
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        try:
            process = chromium.launch(
                executable,
                self._profile,
                self.way,
                orders=theirs_in,
                answers=theirs_out,
                on_request=self._on_request,
            )
        except BaseException:
            os.close(ours_out)
            os.close(ours_in)
            raise
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
        return process, Connection(ours_out, ours_in)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all of it, politely for half a second; can be called twice, and after a crash."""
        if not self._connection.closed:
            try:
                self._connection.call("Browser.close", within=CLOSE_SECONDS)
                self.process.wait(CLOSE_SECONDS)
            except (BrowserLost, subprocess.TimeoutExpired):
                pass
            self._connection.close()
        end_tree(self.process)
        leftovers.remove(self._profile)

    def kill(self) -> None:
        """End its processes at once, from any thread; whoever waits for an answer learns that the browser is gone."""
        end_tree(self.process)

    @property
    def on_request(self) -> bool:
        """Whether frames are drawn when asked for, rather than when the browser likes."""
        return self._on_request

    def complaint(self) -> str:
        """The last lines that the browser wrote about itself."""
        try:
            text = (self._profile / "stderr").read_bytes()[-2000:].decode("utf-8", "replace")
        except OSError:
            return ""
        return " | ".join(text.strip().splitlines()[-3:])

    # --- the page ---

    def open(self, width: int, height: int) -> None:
        """Open the page, of this size in pixels; nothing it asks for exists until `show`."""
        target: Message = {"url": "about:blank", "width": width, "height": height}
        if self._on_request:
            target["enableBeginFrameControl"] = True
        created = self._connection.call("Target.createTarget", target, within=START_SECONDS)
        attach = {"targetId": created["targetId"], "flatten": True}
        self._session = self._connection.call("Target.attachToTarget", attach, within=START_SECONDS)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Inspector"):
            self.call(f"{domain}.enable")
        self.call("Fetch.enable", {"patterns": [{"urlPattern": "*"}]})
        if self._on_request:
            self._connection.call(
                "HeadlessExperimental.beginFrame", self._frame(), session=self._session, within=PROBE_SECONDS
            )
        else:
            metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
            self.call("Emulation.setDeviceMetricsOverride", metrics)

    def show(self, pages: dict[str, Response]) -> None:
        """Go to `ADDRESS`. Each of these pages can be fetched once; nothing else exists."""
        self._pages = dict(pages)
        going = self._connection.send(
            "Page.navigate", {"url": ADDRESS}, session=self._session, within=self._within
        )
        self._connection.result(going, "Page.navigate", self._within)
        deadline = time.monotonic() + self._within
        while self.evaluate("document.readyState") != "complete" or self.evaluate("location.href") != ADDRESS:
            if time.monotonic() > deadline:
                raise BrowserStuck("the replay page did not load in time")
            if self._on_request:
                self.draw(None)
            self._connection.listen(0.02)

    def call(self, method: str, params: Message | None = None, *, within: float | None = None) -> Message:
        """A command to the page."""
        return self._connection.call(method, params, session=self._session, within=within or self._within)

    def evaluate(self, expression: str, *, wait: bool = False, within: float | None = None) -> Any:
        """The value of a JavaScript expression in the page; `wait` for it if it is a promise."""
        question = {"expression": expression, "returnByValue": True, "awaitPromise": wait}
        answer = self.call("Runtime.evaluate", question, within=within)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            said = details.get("exception", {}).get("description") or details["text"]
            where = " ".join(line.strip() for line in said.splitlines()[:3])
            raise PlayerFailed(
                f"the player failed: {where}; if another version of it shows this recording, please report that"
            )
        return answer["result"].get("value")

    def draw(self, quality: int | None) -> Drawn:
        """Draw one frame; with a picture (JPEG of this quality) unless `quality` is None."""
        if not self._on_request:
            return Drawn(True, self._photograph(quality) if quality else None)
        frame = self._frame()
        if quality is not None:
            frame["screenshot"] = {"format": "jpeg", "quality": quality}
        drawn = self.call("HeadlessExperimental.beginFrame", frame)
        data = drawn.get("screenshotData")
        return Drawn(bool(drawn.get("hasDamage")), base64.b64decode(data) if data else None)

    def tidy(self) -> None:
        """Have the page's memory freed of what nothing holds any more; left to itself it lets 50 MB gather in a long session."""
        self.call("HeapProfiler.collectGarbage")

    def _photograph(self, quality: int) -> bytes:
        wanted = {"format": "jpeg", "quality": quality, "optimizeForSpeed": True}
        return base64.b64decode(self.call("Page.captureScreenshot", wanted)["data"])

    def _frame(self) -> Message:
        self._ticks += 40.0
        return {"frameTimeTicks": self._ticks, "interval": 40.0}

    # --- the wall ---

    def _answer(self, message: Message) -> None:
        request = message["params"]
        address = request["request"]["url"]
        page = self._pages.pop(address, None)
        reply: Message = {"requestId": request["requestId"]}
        if page is None:
            self.refused.append(address[:200])
            method = "Fetch.failRequest"
            reply["errorReason"] = "BlockedByClient"
        else:
            method = "Fetch.fulfillRequest"
            headers = {"content-type": page.content_type, "content-security-policy": page.policy}
            reply["responseCode"] = 200
            reply["responseHeaders"] = [
                {"name": name, "value": value} for name, value in headers.items() if value
            ]
            reply["body"] = base64.b64encode(page.body).decode()
        self._connection.send(method, reply, session=message.get("sessionId"), within=self._within)

    def _crashed(self, message: Message) -> None:
        raise BrowserCrashed(f"the page's process is gone ({message['method']})")


def start(
    options: Options,
    workdir: Path,
    width: int,
    height: int,
    warn: list[str],
    *,
    started: Callable[[Browser], None] = lambda _: None,
) -> Browser:
    """Start a browser with an open page of this size, in the safest way that works here.

    `started` is told of each process that is started, before it is waited for; it ends the start by raising.

    Raises:
        ChromiumMissing: there is none, or none of the ways to start it works.
    """
    executable = chromium.find_chromium(options.chromium)
    failures: list[str] = []
    for way in chromium.ways(options.sandbox):
        for on_request in {"auto": (True, False), "begin-frame": (True,), "screenshot": (False,)}[
            options.capture
        ]:
            opened = attempt(
                executable,
                way,
                options,
                workdir,
                on_request=on_request,
                size=(width, height),
                failures=failures,
                started=started,
            )
            if opened is not None:
                if not way.sandbox and options.sandbox is None:
                    warn.append("the browser ran without its sandbox, which cannot be used on this machine")
                return opened
    raise ChromiumMissing(f"{executable} does not start: {'; '.join(failures)}; {chromium.INSTALL}")


def attempt(
    executable: Path,
    way: Way,
    options: Options,
    workdir: Path,
    *,
    on_request: bool,
    size: tuple[int, int],
    failures: list[str],
    started: Callable[[Browser], None],
) -> Browser | None:
    """Try one way; None when it does not work, with the reason in `failures`."""
    browser = None
    try:
        within = options.frame_timeout.total_seconds()
        browser = Browser(executable, way, workdir, on_request=on_request, within=within)
        started(browser)
        browser.open(*size)
        return browser
    except (BrowserLost, OSError) as error:
        said = browser.complaint() if browser else ""
        failures.append(f"{error}{': ' if said else ''}{said}")
        if browser:
            browser.close()
        return None
    except BaseException:
        if browser:
            browser.close()
        raise


def nonce() -> str:
    """A word that nobody can guess, for the page's own scripts."""
    return secrets.token_urlsafe(16)


__all__ = ["ADDRESS", "Browser", "Drawn", "Response", "nonce", "start"]
