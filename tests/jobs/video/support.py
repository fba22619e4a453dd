"""What the tests of the video job share: recordings, decoded frames, their likeness, and a replayer that is not ours."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy
import psutil
from PIL import Image

from dumbwaiter.jobs.video.browser import ADDRESS, Browser, Response, start
from dumbwaiter.jobs.video.encoder import find_ffmpeg
from dumbwaiter.jobs.video.options import Options
from dumbwaiter.jobs.video.plan import plan
from dumbwaiter.jobs.video.processes import alive, share
from dumbwaiter.jobs.video.recording import Recording, load
from dumbwaiter.jobs.video.replay import load as load_page
from dumbwaiter.jobs.video.replay import settle_page

RECORDINGS = Path(__file__).parent / "recordings"
FPS = 25
Picture = Any  # a numpy array: rows of grey levels
STILL = "*, *::before, *::after { caret-animation: manual !important; scroll-behavior: auto !important }"
PLAIN_PAGE = """<!doctype html><meta charset="utf-8"><style>{style}
html, body {{ margin: 0; overflow: hidden; background: #000 }} .replayer-wrapper iframe {{ border: 0; background: #fff }}
.replayer-mouse {{ display: none }}</style><div id="root"></div><script>{rrweb}</script>"""
PLAIN_START = """(async () => {
  const events = await (await fetch("events.json")).text();
  const options = {
    root: document.getElementById("root"), mouseTail: false, insertStyleRules: [%s], UNSAFE_replayCanvas: %s,
  };
  window.fresh = () => new rrweb.Replayer(JSON.parse(events), options);
  window.plain = fresh();
})()"""
TWO_FRAMES = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


def events_of(name: str) -> list[dict[str, Any]]:
    """The events of a recording in `recordings/`."""
    events: list[dict[str, Any]] = json.loads((RECORDINGS / name).read_text())
    return events


def page(*body: dict[str, Any], head: tuple[dict[str, Any], ...] = (), seconds: float = 1.0) -> bytes:
    """A recording of a page with these nodes, on which nothing happens."""
    start_ms = 1_700_000_000_000
    node = {
        "type": 0,
        "id": 1,
        "childNodes": [
            {"type": 1, "name": "html", "publicId": "", "systemId": "", "id": 2},
            element("html", element("head", *head, id=4), element("body", *body, id=5), id=3),
        ],
    }
    meta = {"href": "http://site.recording.invalid/", "width": 640, "height": 360}
    events = [
        {"type": 4, "data": meta, "timestamp": start_ms},
        {"type": 2, "data": {"node": node, "initialOffset": {"top": 0, "left": 0}}, "timestamp": start_ms},
        {"type": 5, "data": {"tag": "end", "payload": {}}, "timestamp": start_ms + round(seconds * 1000)},
    ]
    return json.dumps(events).encode()


def happening(recording: bytes, *events: tuple[float, int, dict[str, Any]]) -> bytes:
    """A recording in which something happens too: (seconds, rrweb's source of the change, its data) each."""
    recorded = json.loads(recording)
    first = recorded[0]["timestamp"]
    for seconds, source, data in events:
        timestamp = first + round(seconds * 1000)
        recorded.append({"type": 3, "data": {"source": source, **data}, "timestamp": timestamp})
    return json.dumps(sorted(recorded, key=lambda event: event["timestamp"])).encode()


def changes(**lists: list[dict[str, Any]]) -> dict[str, Any]:
    """The data of a mutation: `adds`, `removes`, `attributes`, `texts`."""
    return {"adds": [], "removes": [], "attributes": [], "texts": [], **lists}


def added(node: dict[str, Any], parent: int) -> list[dict[str, Any]]:
    """What a mutation adds for a node, and all in it, that comes to the end of another's children; a document comes whole."""
    if node["type"] == 0 or "childNodes" not in node:
        return [{"parentId": parent, "nextId": None, "node": node}]
    inside = [one for child in node["childNodes"] for one in added(child, node["id"])]
    return [{"parentId": parent, "nextId": None, "node": {**node, "childNodes": []}}, *inside]


def element(tag: str, *children: dict[str, Any], id: int, **attributes: str) -> dict[str, Any]:
    """A serialised element."""
    return {"type": 2, "tagName": tag, "attributes": attributes, "childNodes": list(children), "id": id}


def text(content: str, id: int) -> dict[str, Any]:
    """A serialised text."""
    return {"type": 3, "textContent": content, "id": id}


def decode(video: Path, *frames: int) -> list[Picture]:
    """These frames of a video of 25 a second, in grey; all of them when none is named."""
    chosen = "+".join(f"eq(n,{frame})" for frame in frames) or "1"
    command = [str(find_ffmpeg()), *["-v", "error", "-i"], str(video), "-vf", f"fps={FPS},select='{chosen}'"]
    command += ["-fps_mode", "passthrough", "-c:v", "png", "-pix_fmt", "gray", "-f", "image2pipe", "-"]
    run = subprocess.run(command, capture_output=True, check=True, stdin=subprocess.DEVNULL)
    assert run.stderr == b"", run.stderr
    parts = run.stdout.split(b"\x89PNG\r\n\x1a\n")[1:]
    return [grey(b"\x89PNG\r\n\x1a\n" + part) for part in parts]


def count_decoded(video: Path) -> int:
    """How many frames come out when the whole video is decoded and shown at 25 a second."""
    command = [str(find_ffmpeg()), *["-v", "error", "-xerror", "-i"], str(video)]
    command += [
        "-vf",
        f"scale=16:16,format=gray,fps={FPS}",
        "-fps_mode",
        "passthrough",
        "-f",
        "rawvideo",
        "-",
    ]
    run = subprocess.run(command, capture_output=True, check=True, stdin=subprocess.DEVNULL)
    assert run.stderr == b"", run.stderr
    return len(run.stdout) // 256


def grey(image: bytes) -> Picture:
    """A picture file as grey levels."""
    return numpy.asarray(Image.open(io.BytesIO(image)).convert("L"), dtype=numpy.float64)


def ssim(one: Picture, other: Picture, window: int = 7) -> float:
    """Structural similarity (Wang et al. 2004, uniform window), the mean over the picture: 1 for equal ones."""
    assert one.shape == other.shape, (one.shape, other.shape)

    def mean(values: Picture) -> Picture:
        total = numpy.pad(values.cumsum(0).cumsum(1), ((1, 0), (1, 0)))
        box = (
            total[window:, window:]
            - total[:-window, window:]
            - total[window:, :-window]
            + total[:-window, :-window]
        )
        return box / window**2

    a, b = mean(one), mean(other)
    variance_a, variance_b = mean(one * one) - a * a, mean(other * other) - b * b
    covariance = mean(one * other) - a * b
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    top = (2 * a * b + c1) * (2 * covariance + c2)
    return float((top / ((a * a + b * b + c1) * (variance_a + variance_b + c2))).mean())


class Replayed:
    """A recording in our own player, drawn at the moments that a test asks for, in order."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self._reached = -1

    def go(self, seconds: float) -> None:
        """Run on to a moment, 25 frames a second, without pictures."""
        frame = round(seconds * FPS)
        steps = f"for (let k = {self._reached + 1}; k <= {frame}; k++) Player.step(k * {1000 // FPS})"
        self.browser.evaluate(steps)
        self._reached = frame

    def jump(self, seconds: float) -> None:
        """Go to a moment in one step."""
        self.browser.evaluate(f"Player.step({seconds * 1000})")

    def drawn(self) -> bytes:
        """What is there, as a JPEG."""
        settle_page(self.browser)
        data = self.browser.draw(95).picture
        assert data is not None
        self.browser.draw(None)
        return data

    def at(self, seconds: float) -> Picture:
        """What is there at a moment: rows of pixels, each red, green and blue."""
        self.go(seconds)
        return numpy.asarray(Image.open(io.BytesIO(self.drawn())).convert("RGB"), dtype=numpy.int16)


@contextmanager
def replayed(source: bytes | Path, workdir: Path, **options: Any) -> Iterator[Replayed]:
    """Show a recording with our player."""
    recording, chosen = load(source), Options(**options)
    grid = plan(recording, chosen)
    with start(chosen, workdir, grid.width, grid.height, []) as browser:
        load_page(browser, recording, grid, chosen)
        browser.evaluate("Player.begin()")
        yield Replayed(browser)


class PlainReplayer:
    """rrweb's own Replayer in a page of its own, in real time, photographed: none of our player, clock or encoder."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser

    def at(self, seconds: float) -> Picture:
        """The page at this time of the recording.

        Each time with a new Replayer: going on from an earlier pause, rrweb 2.2.2 brings back scroll positions of old.
        """
        self._browser.evaluate(f"plain.destroy(); plain = fresh(); plain.pause({seconds * 1000})")
        self._browser.evaluate(TWO_FRAMES, wait=True)
        return grey(self._shot())

    def play(self, seconds: float) -> None:
        """Go on in real time, from this time of the recording."""
        self._browser.evaluate(f"plain.destroy(); plain = fresh(); plain.play({seconds * 1000})")

    def now(self) -> float:
        """The time of the recording that it has come to, in seconds."""
        milliseconds: float = self._browser.evaluate("plain.getCurrentTime()")
        return milliseconds / 1000

    def photograph(self) -> tuple[float, Picture, float]:
        """The page while it plays, with the times before and after, in seconds: it shows something between the two."""
        before, shot, after = self.now(), self._shot(), self.now()
        return before, grey(shot), after

    def _shot(self) -> bytes:
        wanted = {"format": "png", "optimizeForSpeed": True}
        return base64.b64decode(self._browser.call("Page.captureScreenshot", wanted)["data"])


def plain_html() -> str:
    """A page with rrweb's own Replayer."""
    vendor = files("dumbwaiter.jobs.video") / "vendor"
    rrweb = (vendor / "rrweb.umd.min.cjs").read_text().replace("</script", "<\\/script")
    return PLAIN_PAGE.format(style=(vendor / "rrweb.min.css").read_text(), rrweb=rrweb)


def plain_start(recording: Recording) -> str:
    """What makes the Replayer, `plain`, in that page; `fresh()` makes another."""
    return PLAIN_START % (json.dumps(STILL), json.dumps(recording.has_canvas))


@contextmanager
def plain_replayer(recording: Recording, workdir: Path) -> Iterator[PlainReplayer]:
    """Show a recording with rrweb's own Replayer."""
    width, height = recording.viewport
    with start(Options(capture="screenshot"), workdir, width, height, []) as browser:
        pages = {
            ADDRESS: Response("text/html; charset=utf-8", plain_html().encode()),
            f"{ADDRESS}events.json": Response("application/json", recording.events),
        }
        browser.show(pages)
        browser.evaluate(plain_start(recording), wait=True)
        yield PlainReplayer(browser)


@dataclass
class Peak:
    """The most memory that all of an export's processes were seen to take together, in MiB."""

    mb: float = 0.0


class Tag:
    """A word in the environment of everything that a test starts."""

    def __init__(self) -> None:
        self.word = uuid.uuid4().hex
        self._seen: set[psutil.Process] = set()

    def processes(self, name: str = "") -> list[psutil.Process]:
        """The living processes that carry the word, and those below them, whose command line has `name` in it.

        Those below too, because Chromium's page processes write their titles over their environment.
        """
        found = {process for process in psutil.process_iter() if self._carried_by(process)}
        for process in list(found):
            with suppress(psutil.Error):
                found.update(process.children(recursive=True))
        self._seen |= found
        return [process for process in found if alive(process) and name in command_line(process)]

    def gone(self) -> bool:
        """Whether all of them, and all that were ever seen, end within two seconds."""
        return wait_for(lambda: not self.processes() and not any(map(alive, self._seen)), 2.0)

    @contextmanager
    def watching(self) -> Iterator[Peak]:
        """Look at the memory of all of them five times a second."""
        peak, done = Peak(), threading.Event()

        def look() -> None:
            while not done.wait(0.2):
                # a page that several share counts once among them
                peak.mb = max(peak.mb, sum(map(share, self.processes())) / (1 << 20))

        watcher = threading.Thread(target=look, daemon=True)
        watcher.start()
        try:
            yield peak
        finally:
            done.set()
            watcher.join()

    def _carried_by(self, process: psutil.Process) -> bool:
        try:
            return process.pid != os.getpid() and process.environ().get("DUMBWAITER_TAG") == self.word
        except psutil.Error:
            return False


def command_line(process: psutil.Process) -> str:
    """Its words, or nothing."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether the condition comes true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
