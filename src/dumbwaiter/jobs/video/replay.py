"""Replaying a recording in a browser: the frames that may differ from the one before, each with its picture."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Self

from dumbwaiter.jobs.video.browser import ADDRESS, Browser, Response, nonce, start
from dumbwaiter.jobs.video.errors import BrowserLost, ChromiumMissing, ImpossibleOption
from dumbwaiter.jobs.video.options import Options
from dumbwaiter.jobs.video.plan import Plan
from dumbwaiter.jobs.video.recording import Recording
from dumbwaiter.jobs.video.segments import Segment

POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline' data:; img-src data: blob:; "
    "font-src data:; media-src data: blob:; connect-src 'self'; frame-src data: blob:; base-uri 'none'; form-action 'none'"
)
SCRIPTS = ("vendor/rrweb.umd.min.cjs", "masks.js", "films.js", "drawings.js", "moving.js", "player.js")
SETTLE_SECONDS = 10.0
# With `content-visibility: auto` the browser finds out what is on the screen when it draws, and how large that is.
DECIDED_BY_DRAWING = (b"content-visibility",)


@dataclass(frozen=True)
class Picture:
    """From this frame on the page looks like this (JPEG)."""

    frame: int
    data: bytes


class Replay:
    """One recording being replayed, segment after segment; started again at the segment's beginning when the browser is lost.

    Leaving the `with` block ends the browser. `on_frame` is called with each frame that is reached, and while the recording is run to where a
    segment begins; it ends the replay by raising. `on_browser` is told of each browser.
    """

    def __init__(
        self,
        recording: Recording,
        plan: Plan,
        options: Options,
        workdir: Path,
        *,
        on_frame: Callable[[int], None],
        on_browser: Callable[[Browser], None] = lambda _: None,
    ) -> None:
        self._recording, self._plan, self._options, self._workdir = recording, plan, options, workdir
        self._on_frame, self._on_browser = on_frame, on_browser
        self._browser: Browser | None = None
        self._drawn_throughout = any(word in recording.events for word in DECIDED_BY_DRAWING)
        self._reached = 0
        self._warnings: list[tuple[str, int]] = []
        self._refused: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._close()

    def pictures(self, segment: Segment) -> Generator[Picture, None, None]:
        """The pictures of a segment, in order of their frames; the first is that of its first frame. Segments come in order.

        Raises:
            BrowserLost: more often in a row than `options.restarts`, or in a way that would come again.
        """
        restarts, shown = 0, -1
        self._reached = segment.first
        while self._reached < segment.end:
            try:
                for picture in self._run(segment):
                    # after a restart those come again that there were before
                    if picture.frame > shown:
                        shown = picture.frame
                        yield picture
            except BrowserLost as error:
                self._close()
                self._on_frame(self._reached)  # it may have been ended for a reason
                if restarts == self._options.restarts or not error.transient:
                    raise
                restarts += 1
                self._warnings.append(
                    (f"the browser was started again at frame {self._reached:,}: {error}", 1)
                )

    def said(self) -> tuple[tuple[tuple[str, int], ...], tuple[str, ...]]:
        """Warnings with how often each was said, and addresses that the page asked for and did not get; since this was last asked."""
        if self._browser is not None:
            self._warnings += [(str(text), int(count)) for text, count in self._ask("Player.warnings()")]
            self._refused += self._browser.refused
            self._browser.refused.clear()
            # who has come to the end has been everywhere
            if self._reached == self._plan.frames:
                unmasked = self._browser.evaluate("Player.unmasked()")
                self._warnings += [
                    (f"mask {selector}: nothing on these pages is it", 1) for selector in unmasked
                ]
        warnings, refused = tuple(self._warnings), tuple(dict.fromkeys(self._refused))
        self._warnings, self._refused = [], []
        return warnings, refused

    def _ask(self, question: str) -> list[tuple[str, int]]:
        assert self._browser is not None
        try:
            answer: list[tuple[str, int]] = self._browser.evaluate(question)
        except BrowserLost:
            return []  # the pictures are there; the next segment will notice
        return answer

    def _run(self, segment: Segment) -> Iterator[Picture]:
        """The pictures of a segment, from its first frame on: what comes later in it depends on what was drawn in it before."""
        browser = self._browser or self._open()
        self._go_to(browser, segment.first)
        # there is no picture before the first, so it is drawn whether or not it changed
        self._advance(browser, segment.first)
        browser.tidy()
        forget_drawing(browser)
        last = self._photograph(browser, segment.first, settle=True)
        yield Picture(segment.first, last)
        reached = segment.first + 1
        while reached < segment.end:
            frame, change, unfinished = self._advance(browser, segment.end - 1)
            if change and (unfinished or self._shows_change(browser)):
                data = self._photograph(browser, frame, settle=unfinished)
                if data != last:
                    yield Picture(frame, data)
                    last = data
            reached = frame + 1 if change else frame
            self._reached = max(self._reached, reached)
            self._on_frame(self._reached)
        self._reached = segment.end

    def _open(self) -> Browser:
        """A browser that has loaded the recording and stands at its beginning."""
        starting: list[str] = []
        try:
            browser = self._browser = start(
                self._options,
                self._workdir,
                self._plan.width,
                self._plan.height,
                starting,
                started=self._on_browser,
            )
        except ChromiumMissing:
            self._on_frame(self._reached)  # it may have been ended for a reason
            raise
        self._warnings += [(line, 1) for line in starting]
        load(browser, self._recording, self._plan, self._options)
        browser.evaluate("Player.begin()")
        return browser

    def _close(self) -> None:
        browser, self._browser = self._browser, None
        if browser is not None:
            self._refused += browser.refused
            browser.close()

    def _go_to(self, browser: Browser, frame: int) -> None:
        """Run to before a frame, without pictures; nor is anything drawn, but where that decides what a page shows."""
        reached = -1
        while reached < frame:
            if self._drawn_throughout:
                reached, change, unfinished = self._advance(browser, frame - 1)
            else:
                (reached, unfinished), change = browser.evaluate(f"Player.run({frame})"), 0
            if unfinished:
                settle_page(browser)
            if change:
                browser.draw(None)
            self._on_frame(frame)

    def _advance(self, browser: Browser, last: int) -> tuple[int, int, bool]:
        """Run on to the next frame that may differ, or to `last`: that frame, what moved, and whether something still loads."""
        frame, change, unfinished = browser.evaluate(f"Player.next({last})")
        return frame, change, unfinished

    def _shows_change(self, browser: Browser) -> bool:
        """Much that happens changes no pixel, and a frame without a picture tells that in a fifth of a picture's time.

        In a typical session it is a sixth of all; of 17,779 pictures of a session with endless animations 45 differed.
        """
        return browser.draw(None).damaged

    def _photograph(self, browser: Browser, frame: int, *, settle: bool) -> bytes:
        if settle:
            settle_page(browser)
        data = browser.draw(self._options.quality).picture
        if data is None:
            data = browser.draw(self._options.quality).picture
        if data is None:
            raise BrowserLost(f"the browser drew no picture of frame {frame:,}")
        if browser.on_request:
            browser.draw(None)  # a picture damages the frame after it; that is absorbed here
        return data


def load(browser: Browser, recording: Recording, plan: Plan, options: Options) -> None:
    """Bring the player and the recording into the page.

    Raises:
        ImpossibleOption: `options.masks` has something that is no selector, or `options.background` is no colour.
    """
    browser.show(pages(recording))
    settings = {
        "picture": {"width": plan.width, "height": plan.height, "scale": plan.scale},
        "timeline": plan.times.pieces,
        "cursor": options.cursor,
        "clicks": options.clicks,
        "mouseTrail": options.mouse_trail,
        "canvas": recording.has_canvas if options.canvas is None else options.canvas,
        "masks": options.masks,
        "clock": options.clock,
        "text": options.text,
        "background": options.background,
    }
    if fault := browser.evaluate(f"Player.fault({json.dumps(settings)})"):
        raise ImpossibleOption(fault)
    # building a page of 30 MB takes 2 s here; a slow machine gets its time
    within = options.frame_timeout.total_seconds() + len(recording.events) / 1e6
    browser.evaluate(f"Player.load({json.dumps(settings)})", wait=True, within=within)


def forget_drawing(browser: Browser) -> None:
    """Have the next frame drawn as if nothing had been before: where a segment begins, whoever comes there shows the same."""
    for begins in ("true", "false"):
        browser.evaluate(f"Player.forget({begins})")
        # who draws when it likes does so for a photograph
        browser.draw(None if browser.on_request else 1)


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
    scripts = [(here / name).read_text() for name in SCRIPTS]
    whole = [script.replace("</script", "<\\/script") for script in scripts]
    tags = "".join(f'<script nonce="{word}">{script}</script>' for script in whole)
    page = f'<!doctype html><html><head><meta charset="utf-8"><style>{style}</style></head><body><div id="root"></div>'
    return f"{page}{tags}</body></html>".encode()
