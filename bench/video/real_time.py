"""How others make a video of a session: it is played in real time, and Playwright's `recordVideo` films the page."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from dumbwaiter.jobs.video import Recording, ToolMissing, find_chromium, find_ffmpeg
from dumbwaiter.jobs.video.browser import ADDRESS
from dumbwaiter.jobs.video.encoder import writes
from tests.jobs.video.support import plain_html, plain_start

# From docs: a session of 20.7 s took 24.4 s to play, and became a video of 26.2 s.
CITED = 20.7 / 24.4
PLAYED = "new Promise((done) => { plain.on('finish', () => done()); plain.play(0); })"


class Unavailable(Exception):
    """Playwright cannot film here; the text says why."""


def times(recording: Recording, size: tuple[int, int], home: Path) -> float:
    """How many times faster than real time (less than 1) it is: from the browser's start until the film is closed.

    Raises:
        Unavailable
    """
    browsers(home)
    began = time.monotonic()
    try:
        film(recording, size, home)
    except ImportError as error:
        raise Unavailable(str(error)) from None
    made = list(home.glob("*.webm"))
    if not made or made[0].stat().st_size == 0:
        raise Unavailable("Playwright left no film")
    return recording.duration_ms / 1000 / (time.monotonic() - began)


def browsers(home: Path) -> None:
    """A directory in which Playwright finds our FFmpeg as its own, which `playwright install ffmpeg` would fetch from far away."""
    try:
        ffmpeg = find_ffmpeg()
        if not writes(ffmpeg, "vp9"):
            raise Unavailable(f"{ffmpeg} has no encoder of VP9, which Playwright films with")
        driver = files("playwright") / "driver" / "package" / "browsers.json"
        listed = json.loads(driver.read_text())["browsers"]
    except (ToolMissing, ImportError, OSError, ValueError, KeyError) as error:
        raise Unavailable(f"{type(error).__name__}: {error}") from None
    revision = next(entry["revision"] for entry in listed if entry["name"] == "ffmpeg")
    place = home / "browsers" / f"ffmpeg-{revision}"
    place.mkdir(parents=True, exist_ok=True)
    for name in ("ffmpeg-linux", "ffmpeg-mac"):
        with contextlib.suppress(FileExistsError):
            (place / name).symlink_to(ffmpeg)


def film(recording: Recording, size: tuple[int, int], home: Path) -> None:
    from playwright.sync_api import Error, sync_playwright

    width, height = size
    view: Any = {"width": width, "height": height}
    pages = {
        ADDRESS: ("text/html; charset=utf-8", plain_html().encode()),
        f"{ADDRESS}events.json": ("application/json", recording.events),
    }

    def answer(route: Any) -> None:
        page = pages.get(route.request.url)
        if page is None:
            route.abort()
        else:
            route.fulfill(content_type=page[0], body=page[1])

    flags = ["--proxy-server=127.0.0.1:9", "--proxy-bypass-list=<-loopback>", "--disable-dev-shm-usage"]
    if os.geteuid() == 0:
        flags.append("--no-sandbox")
    with environment("PLAYWRIGHT_BROWSERS_PATH", str(home / "browsers")), sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=find_chromium(), args=flags)
            context = browser.new_context(viewport=view, record_video_dir=home, record_video_size=view)
            context.route("**/*", answer)
            page = context.new_page()
            page.goto(ADDRESS)
            page.evaluate(plain_start(recording))
            page.evaluate(PLAYED)
            context.close()
            browser.close()
        except Error as error:
            raise Unavailable(error.message.partition("\n")[0]) from None


@contextlib.contextmanager
def environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
