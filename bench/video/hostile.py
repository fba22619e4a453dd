"""Recordings that are made to do harm: what they reach, what they run, what they take, what they leave."""

from __future__ import annotations

import contextlib
import socketserver
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from bench.trials import Failed
from bench.video.exports import Export
from bench.video.job import Job
from dumbwaiter.jobs.video import Options, Recording, RecordingError, load
from dumbwaiter.jobs.video.browser import ADDRESS, start
from dumbwaiter.jobs.video.plan import plan
from dumbwaiter.jobs.video.replay import load as load_page
from tests.jobs.video.sessions import CANARY

# Whether any script of theirs ran in any window, and whether the page went elsewhere.
RAN = """(function ran(view) {
  try {
    const below = Array.from({ length: view.length }, (_, i) => ran(view[i]));
    return Number("PWNED" in view) + below.reduce((sum, n) => sum + n, 0);
  } catch { return 0; }
})(window) + Number(location.href !== "HERE")""".replace("HERE", ADDRESS)


class Canary:
    """A listener on loopback that remembers what was said to it."""

    def __init__(self) -> None:
        heard = self.heard = []  # type: list[bytes]

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                self.request.settimeout(1)
                with contextlib.suppress(OSError):
                    heard.append(self.request.recv(200))
                    self.request.sendall(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def aim(self, recording: bytes) -> bytes:
        """A recording whose requests would come here."""
        return recording.replace(CANARY.encode(), self.address.encode())

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextlib.contextmanager
def listening() -> Iterator[Canary]:
    canary = Canary()
    try:
        yield canary
    finally:
        canary.close()


@dataclass(frozen=True)
class Endured:
    """What came of a hostile recording, and what was seen meanwhile."""

    error: str
    unnamed: bool
    seconds: float
    peak_mb: float
    processes_left: int
    files_left: int


def endure(raw: bytes, home: Path, name: str) -> Endured:
    """Export it, with the options that everybody has."""
    home.mkdir(parents=True, exist_ok=True)
    source = home / name
    source.write_bytes(raw)
    job = Job(str(source), str(home / "out.mp4"), str(home / "work"))
    began = time.monotonic()
    with Export(job, home) as running:
        made = None
        with running.watching() as seen, contextlib.suppress(Failed):
            made = running.made()
        seconds = time.monotonic() - began
        left = running.processes_left(), len(running.files_left())
    return Endured(made.error if made else "", made is None, seconds, seen.mb, *left)


def scripts_run(raw: bytes, workdir: Path) -> int:
    """How many scripts of the recording ran in the player: cleaned as always, and as it came, against the browser's own walls."""
    try:
        clean = load(raw)
    except RecordingError:
        return 0
    as_it_came = replace(clean, events=raw)
    drawn = [replace(recording, has_canvas=True) for recording in (clean, as_it_came)]
    return sum(ran(recording, workdir) for recording in (clean, as_it_came, *drawn))


def ran(recording: Recording, workdir: Path) -> int:
    """Play a recording, and look whether a script of it ran."""
    grid = plan(recording, Options())
    with start(Options(), workdir, grid.width, grid.height, []) as browser:
        load_page(browser, recording, grid, Options())
        browser.evaluate("Player.begin()")
        reached = 0
        while reached < grid.frames:
            reached = browser.evaluate(f"Player.next({grid.frames - 1})")[0] + 1
            browser.draw(None)
        found: int = browser.evaluate(RAN)
        return found
