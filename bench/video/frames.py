"""A picture of every frame, as other exporters take them, beside the pictures of those frames alone that may differ."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dumbwaiter.jobs.video import Options, Recording
from dumbwaiter.jobs.video.browser import start
from dumbwaiter.jobs.video.encoder import Encoder
from dumbwaiter.jobs.video.plan import plan
from dumbwaiter.jobs.video.replay import Picture, Replay, load, settle_page
from dumbwaiter.jobs.video.segments import Segment
from tests.jobs.video.support import grey, ssim


@dataclass(frozen=True)
class Likeness:
    """Of so many frames, how many have the same bytes in both; of the others, the structural similarity of the least alike."""

    frames: int
    equal: int
    least: float

    @property
    def percent(self) -> float:
        return self.equal / self.frames * 100


def every(recording: Recording, options: Options, workdir: Path) -> Iterator[Picture]:
    """A picture of each frame, whether anything moved or not."""
    grid = plan(recording, options)
    with start(options, workdir, grid.width, grid.height, []) as browser:
        load(browser, recording, grid, options)
        browser.evaluate("Player.begin()")
        while browser.evaluate("Player.run(0)")[0] < 0:
            pass  # it goes to where the first frame is, a little each time
        for frame in range(grid.frames):
            _, _, unfinished = browser.evaluate(f"Player.next({frame})")
            if unfinished or frame == 0:
                settle_page(browser)
            picture = browser.draw(options.quality).picture or browser.draw(options.quality).picture
            assert picture is not None
            yield Picture(frame, picture)


def changed(recording: Recording, options: Options, workdir: Path) -> Iterator[Picture]:
    """The pictures that an export takes."""
    grid = plan(recording, options)
    with Replay(recording, grid, options, workdir, on_frame=lambda _: None) as replay:
        yield from replay.pictures(Segment(0, 0, grid.frames))


def time_every(recording: Recording, options: Options, workdir: Path, out: Path) -> float:
    """How many times faster than real time a video is made of a picture of every frame: from the browser's start to the file's end."""
    grid = plan(recording, options)
    began = time.monotonic()
    with Encoder(grid, options, out) as encoder:
        for picture in every(recording, options, workdir):
            encoder.put(picture.frame, picture.data)
        encoder.finish()
    return grid.duration_seconds / (time.monotonic() - began)


def compare(recording: Recording, options: Options, workdir: Path) -> Likeness:
    """What an export shows at each frame beside the picture of that frame."""
    shown = {picture.frame: picture.data for picture in changed(recording, options, workdir)}
    different: dict[tuple[str, str], tuple[bytes, bytes]] = {}
    now, frames, equal = b"", 0, 0
    for picture in every(recording, options, workdir):
        now = shown.get(picture.frame, now)
        frames += 1
        if now == picture.data:
            equal += 1
        else:
            different[digest(now), digest(picture.data)] = now, picture.data
    return Likeness(frames, equal, least(different))


def least(pairs: Mapping[tuple[str, str], tuple[bytes, bytes]]) -> float:
    """The least similarity of these pictures; 1 if there are none."""
    return min((ssim(grey(one), grey(other)) for one, other in pairs.values()), default=1.0)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
