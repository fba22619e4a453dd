"""Replaying a recording in a browser: the frames that may differ from the one before, each with its picture."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from dumbwaiter.jobs.video.browser import ADDRESS, Browser, Response, nonce, start
from dumbwaiter.jobs.video.errors import BrowserLost, MemoryExceeded
from dumbwaiter.jobs.video.plan import Options, Plan
from dumbwaiter.jobs.video.processes import MemoryWatch
from dumbwaiter.jobs.video.recording import Recording

POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline' data:; img-src data: blob:; "
    "font-src data:; media-src data: blob:; connect-src 'self'; frame-src data: blob:; base-uri 'none'; form-action 'none'"
)
SETTLE_SECONDS = 10.0
ANIMATION_ONLY = 1
MOST_WARNINGS = 10


@dataclass(frozen=True)
class Picture:
    """From this frame on the page looks like this (JPEG)."""

    frame: int
    data: bytes


@dataclass
class Replay:
    """One recording being replayed: started again at the last good frame when the browser is lost.

    `warnings` and `refused` (addresses that the page asked for and did not get) are filled in on the way.
    """

    recording: Recording
    plan: Plan
    options: Options
    workdir: Path
    on_frame: Callable[[int], None]
    encoder_pid: int
    warnings: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    _next: int = 0

    def pictures(self) -> Generator[Picture, None, None]:
        """All pictures of the video, in order of their frames.

        Raises:
            BrowserLost: more often than `options.restarts`; MemoryExceeded at once, since it would come again.
        """
        restarts = 0
        while self._next < self.plan.frames:
            try:
                yield from self._run(self._next)
            except BrowserLost as error:
                if restarts == self.options.restarts or not error.transient:
                    raise
                restarts += 1
                self.warnings.append(f"the browser was started again at frame {self._next:,}: {error}")

    def _run(self, first: int) -> Iterator[Picture]:
        """Pictures from frame `first` on, with one browser."""
        starting: list[str] = []
        with start(self.options, self.workdir, self.plan.width, self.plan.height, starting) as browser:
            self.warnings += [line for line in starting if line not in self.warnings]
            pids = [browser.process.pid, self.encoder_pid]
            with MemoryWatch(lambda: pids, self.options.max_memory, browser.kill) as memory:
                try:
                    load(browser, self.recording, self.plan, self.options)
                    yield from self._frames(browser, first)
                    self._remember(browser)
                except BrowserLost as error:
                    if memory.exceeded:
                        raise too_much_memory(self.options) from error
                    raise

    def _frames(self, browser: Browser, first: int) -> Iterator[Picture]:
        last = self.plan.frames - 1
        browser.evaluate(f"Player.start({first}, {self.plan.interval_ms})", within=self._warm_seconds(first))
        self._advance(browser, first, first)
        # there is no picture before the first, so it is drawn whether or not it changed
        yield self._photograph(browser, first, settle=True)
        self._next = first + 1
        while self._next <= last:
            frame, change, unfinished = self._advance(browser, self._next, last)
            if change and self._shows_change(browser, change):
                yield self._photograph(browser, frame, settle=unfinished)
            self._next = frame + 1 if change else frame
            self.on_frame(self._next)

    def _advance(self, browser: Browser, frame: int, last: int) -> tuple[int, int, bool]:
        """Run from `frame` to the next that may differ: that frame, what moved, and whether something still loads."""
        frame, change, unfinished = browser.evaluate(f"Player.next({frame}, {last}, {self.plan.interval_ms})")
        return frame, change, unfinished

    def _warm_seconds(self, first: int) -> float:
        # a frame without a picture takes 1.5 to 5 ms
        return self.options.frame_timeout.total_seconds() + first * 0.02

    def _shows_change(self, browser: Browser, change: int) -> bool:
        """Endless animations often move nothing that can be seen: of 17,779 pictures of one session 45 differed."""
        return change != ANIMATION_ONLY or browser.draw(None).damaged

    def _photograph(self, browser: Browser, frame: int, *, settle: bool) -> Picture:
        if settle:
            settle_page(browser)
        data = browser.draw(self.options.quality).picture
        if data is None:
            data = browser.draw(self.options.quality).picture
        if data is None:
            raise BrowserLost(f"the browser drew no picture of frame {frame:,}")
        if browser.on_request:
            browser.draw(None)  # a picture damages the frame after it; that is absorbed here
        return Picture(frame, data)

    def _remember(self, browser: Browser) -> None:
        said = browser.evaluate("Player.warnings()")
        self.warnings += [
            f"{text} ({count:,} times)" if count > 1 else str(text) for text, count in said[:MOST_WARNINGS]
        ]
        self.refused += browser.refused


def load(browser: Browser, recording: Recording, plan: Plan, options: Options) -> None:
    """Bring the player and the recording into the page."""
    browser.show(pages(recording))
    picture = {"width": plan.width, "height": plan.height, "scale": plan.scale}
    settings = {
        "picture": picture,
        "cursor": options.cursor,
        "clicks": options.clicks,
        "mouseTrail": options.mouse_trail,
        "canvas": recording.has_canvas,
    }
    # building a page of 30 MB takes 2 s here; a slow machine gets its time
    within = options.frame_timeout.total_seconds() + len(recording.events) / 1e6
    browser.evaluate(f"Player.load({json.dumps(settings)})", wait=True, within=within)


def settle_page(browser: Browser) -> None:
    """Let pictures and fonts that are inside the recording finish loading; frames go on meanwhile."""
    if browser.on_request:
        browser.draw(None)
    browser.evaluate("Player.settle()", wait=True, within=SETTLE_SECONDS)


def pages(recording: Recording) -> dict[str, Response]:
    """Everything that exists for the browser: the replay page and the recording."""
    word = nonce()
    html = replay_page(word)
    return {
        ADDRESS: Response("text/html; charset=utf-8", html, POLICY.format(nonce=word)),
        f"{ADDRESS}events.json": Response("application/json", recording.events),
    }


def replay_page(word: str) -> bytes:
    """The page that the player runs in; its scripts carry the word that the policy asks for."""
    here = files("dumbwaiter.jobs.video")
    style = (here / "vendor" / "rrweb.min.css").read_text() + (here / "player.css").read_text()
    scripts = [(here / "vendor" / "rrweb.umd.min.cjs").read_text(), (here / "player.js").read_text()]
    whole = [script.replace("</script", "<\\/script") for script in scripts]
    tags = "".join(f'<script nonce="{word}">{script}</script>' for script in whole)
    page = f'<!doctype html><html><head><meta charset="utf-8"><style>{style}</style></head><body><div id="root"></div>'
    return f"{page}{tags}</body></html>".encode()


def too_much_memory(options: Options) -> MemoryExceeded:
    """The error for a page that was ended for its memory."""
    return MemoryExceeded(
        f"browser and encoder took more than the allowed {options.max_memory >> 20:,} MB of memory"
    )
