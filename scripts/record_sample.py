"""Records the bundled session: drives a page of our own in Chromium like a person would, with rrweb looking on.

`.venv/bin/python scripts/record_sample.py` writes src/dumbwaiter/jobs/video/samples/shop-tour.json.gz (about 40 s).
"""

from __future__ import annotations

import gzip
import json
import math
import tempfile
import time
from importlib.resources import files
from pathlib import Path

from dumbwaiter.jobs.video.browser import ADDRESS, Browser, Response, start
from dumbwaiter.jobs.video.plan import Options

HERE = Path(__file__).parent
OUT = HERE.parent / "src/dumbwaiter/jobs/video/samples/shop-tour.json.gz"
WIDTH, HEIGHT = 1280, 720
STEP_SECONDS = 1 / 60


class Hand:
    """A hand on mouse and keyboard."""

    def __init__(self, browser: Browser) -> None:
        self.browser, self.x, self.y = browser, 640.0, 300.0

    def rest(self, seconds: float) -> None:
        """Look at the page for a while."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.browser._connection.listen(left)

    def go(self, selector: str, seconds: float = 0.8) -> None:
        """Move the pointer onto an element, along a slight curve, slower at both ends."""
        find = f"(()=>{{const r=document.querySelector({json.dumps(selector)}).getBoundingClientRect();return [r.x+r.width/2,r.y+r.height/2]}})()"
        x, y = self.browser.evaluate(find)
        began, x0, y0 = time.monotonic(), self.x, self.y
        while (part := (time.monotonic() - began) / seconds) < 1:
            eased = (1 - math.cos(math.pi * part)) / 2
            bow = 24 * math.sin(math.pi * part)
            self.point(x0 + (x - x0) * eased + bow, y0 + (y - y0) * eased - bow)
            self.rest(STEP_SECONDS)
        self.point(x, y)

    def point(self, x: float, y: float) -> None:
        """Put the pointer at a place."""
        self.x, self.y = x, y
        self.mouse("mouseMoved")

    def mouse(self, kind: str, **more: object) -> None:
        """One mouse event where the pointer is."""
        self.browser.call("Input.dispatchMouseEvent", {"type": kind, "x": self.x, "y": self.y, **more})

    def click(self, selector: str, seconds: float = 0.8) -> None:
        """Go there and click."""
        self.go(selector, seconds)
        self.rest(0.15)
        self.mouse("mousePressed", button="left", clickCount=1)
        self.rest(0.09)
        self.mouse("mouseReleased", button="left", clickCount=1)

    def type(self, text: str, pause: float = 0.09) -> None:
        """Type, a character at a time."""
        for character in text:
            self.browser.call("Input.insertText", {"text": character})
            self.rest(pause)

    def scroll(self, distance: float, seconds: float) -> None:
        """Turn the wheel."""
        began, done = time.monotonic(), 0.0
        while (part := (time.monotonic() - began) / seconds) < 1:
            target = distance * (1 - math.cos(math.pi * part)) / 2
            self.mouse("mouseWheel", deltaX=0, deltaY=target - done)
            done = target
            self.rest(0.03)
        self.mouse("mouseWheel", deltaX=0, deltaY=distance - done)


def tour(hand: Hand) -> None:
    """What the visitor does."""
    hand.rest(1.8)
    hand.go(".hero h1", 0.9)
    hand.rest(1.8)
    hand.scroll(215, 1.4)
    hand.rest(0.6)
    hand.click("[data-name='Dragon Well'] .add")
    hand.rest(0.7)
    hand.click("[data-kind='oolong']", 0.9)
    hand.rest(1.0)
    hand.click("[data-name='Iron Goddess'] .add")
    hand.rest(1.0)
    hand.click("[data-kind='all']", 0.7)
    hand.rest(0.5)
    hand.click("#search", 0.9)
    hand.type("jasmine")
    hand.rest(0.7)
    hand.browser.evaluate("document.querySelector('#search').select()")
    hand.type("白", 0.3)
    hand.rest(1.0)
    hand.click("[data-name='White Peony'] .add")
    hand.rest(0.6)
    hand.click("#basket", 0.9)
    hand.rest(1.0)
    hand.click("#name", 0.6)
    hand.type("The tea club · 茶友会", 0.07)
    hand.click("#address", 0.5)
    hand.type("杭州市西湖区龙井路 18 号", 0.08)
    hand.click("#note", 0.5)
    hand.type("生日快乐！Enjoy it slowly 🍵🎂", 0.08)
    hand.click("#gift", 0.6)
    hand.rest(0.4)
    hand.click("#pay", 0.6)
    hand.rest(2.6)
    hand.go(".chips", 0.6)
    hand.scroll(1400, 2.2)
    hand.rest(0.4)
    hand.go("#orders tr td:nth-child(2)", 0.7)
    hand.rest(3.2)


def main() -> None:
    """Record, and write the file."""
    rrweb = (
        (files("dumbwaiter.jobs.video") / "vendor" / "rrweb.umd.min.cjs")
        .read_text()
        .replace("</script", "<\\/script")
    )
    page = (HERE / "samples" / "shop-tour.html").read_text()
    page = page.replace("</head>", f"<script>{rrweb}</script></head>")
    options = Options(capture="screenshot")
    with tempfile.TemporaryDirectory() as work, start(options, Path(work), WIDTH, HEIGHT, []) as browser:
        browser.show({ADDRESS: Response("text/html; charset=utf-8", page.encode())})
        browser.evaluate("window.taken=[];rrweb.record({emit:(e)=>taken.push(e),sampling:{mousemove:50}});0")
        tour(Hand(browser))
        events = json.loads(browser.evaluate("JSON.stringify(taken)"))
    text = json.dumps(events, ensure_ascii=False, separators=(",", ":")).replace(
        ADDRESS, "https://lantern-and-leaf.example/"
    )
    OUT.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    seconds = (events[-1]["timestamp"] - events[0]["timestamp"]) / 1000
    print(f"{OUT.name}: {len(events):,} events, {seconds:.1f} s, {OUT.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
