"""Several browsers that draw parts of one video at the same time, each on a thread of its own with the encoder that it feeds."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from dumbwaiter.jobs.video.browser import Browser
from dumbwaiter.jobs.video.effort import Effort
from dumbwaiter.jobs.video.encoder import Encoder
from dumbwaiter.jobs.video.errors import ExportCancelled, MemoryExceeded
from dumbwaiter.jobs.video.formats import Container
from dumbwaiter.jobs.video.joining import check
from dumbwaiter.jobs.video.kept import Made, digest, synced
from dumbwaiter.jobs.video.options import Options
from dumbwaiter.jobs.video.plan import Plan
from dumbwaiter.jobs.video.processes import MemoryWatch
from dumbwaiter.jobs.video.recording import Recording
from dumbwaiter.jobs.video.replay import Picture, Replay
from dumbwaiter.jobs.video.segments import Segment, Share

# So often the caller is told how far it is, and asked whether to go on.
LOOK_SECONDS = 0.1
# A frame is drawn, and an encoder ended, in less.
GRACE_SECONDS = 0.5
# So many pictures wait in memory, a tenth of a megabyte each, for the file before to be kept.
MOST_WAITING = 50


@dataclass(frozen=True)
class Work:
    """What all slices of one export share. `place` says where a segment's file goes, `done` is called with each that is finished."""

    recording: Recording
    plan: Plan
    options: Options
    container: Container
    likely: bytearray
    workdir: Path
    place: Callable[[int], Path]
    done: Callable[[Made], None]


class Household:
    """The browsers and encoders of one export: watched together, stopped together."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._grown = False
        self.stop = threading.Event()
        self._browsers: list[Browser] = []
        self._encoders: list[Encoder] = []
        self._lock = threading.Lock()
        self.first_picture: float | None = None

    def browser(self, browser: Browser) -> None:
        """One more browser. Raises as `check` does: it may have been started when the others were being ended."""
        with self._lock:
            self._browsers.append(browser)
        self.check()

    def encoder(self, encoder: Encoder) -> None:
        """One more encoder."""
        with self._lock:
            self._encoders.append(encoder)

    def pids(self) -> list[int]:
        """The processes that live."""
        with self._lock:
            programs = [one.process for one in self._browsers] + [one.process for one in self._encoders]
        return [program.pid for program in programs if program.returncode is None]

    def kill(self) -> None:
        """End the browsers, which are what grows: they take too much memory."""
        self._grown = True
        self.end_browsers()

    def end_browsers(self) -> None:
        """Whoever waits for a browser waits no longer."""
        with self._lock:
            browsers = list(self._browsers)
        for browser in browsers:
            if browser.process.returncode is None:
                browser.kill()

    def check(self) -> None:
        """Raises MemoryExceeded or ExportCancelled once the export is to stop."""
        if self._grown:
            raise too_much_memory(self._options)
        if self.stop.is_set():
            raise ExportCancelled("the export was cancelled")


class Slice:
    """One worker: draws its share of the segments with one browser, and has each encoded while the next is drawn."""

    def __init__(self, work: Work, share: Share, household: Household) -> None:
        self._work, self.share, self._household = work, share, household
        likely = bytearray().join(work.likely[segment.first : segment.end] for segment in share.segments)
        self._effort = Effort(likely, constant_rate=work.options.constant_rate)
        self._began = time.monotonic()
        self._before = 0
        self._segment = share.segments[0]
        self.fraction = 0.0
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, name="dumbwaiter-slice", daemon=True)

    def _run(self) -> None:
        try:
            self._draw_all()
        except BaseException as error:  # noqa: BLE001 - raised again by whoever waits for the thread
            self.error = error

    def _draw_all(self) -> None:
        work, house = self._work, self._household
        with (
            Replay(
                work.recording,
                work.plan,
                work.options,
                work.workdir,
                on_frame=self._reached,
                on_browser=house.browser,
            ) as replay,
            ThreadPoolExecutor(1, "dumbwaiter-encoded") as closer,
            contextlib.ExitStack() as encoders,
        ):
            kept: Future[None] = Future()
            kept.set_result(None)
            for segment in self.share.segments:
                self._segment = segment
                encoder, pictures = self._draw(replay, segment, kept, encoders)
                self._before += segment.frames
                kept = closer.submit(self._close, encoder, segment, pictures, *replay.said())
            kept.result()
        self.fraction = 1.0

    def _encoder(self, segment: Segment) -> Encoder:
        work, house = self._work, self._household
        plan, path = replace(work.plan, frames=segment.frames), work.place(segment.number)
        encoder = Encoder(plan, work.options, unfinished(path), house.check, work.container)
        house.encoder(encoder)
        return encoder

    def _draw(
        self, replay: Replay, segment: Segment, before: Future[None], encoders: contextlib.ExitStack
    ) -> tuple[Encoder, list[tuple[int, str]]]:
        """Every picture of a segment goes to its encoder.

        That is started once the segment before is kept, so that a crash costs one segment; the first pictures wait for it.
        """
        shown: list[tuple[int, str]] = []
        waiting: list[Picture] = []
        encoder: Encoder | None = None
        for picture in replay.pictures(segment):
            if self._household.first_picture is None:
                self._household.first_picture = time.monotonic()
            shown.append((picture.frame, hashlib.sha256(picture.data).hexdigest()))
            waiting.append(picture)
            if before.done() or len(waiting) >= MOST_WAITING:
                encoder = encoder or self._encoder_after(before, segment, encoders)
                hand_over(waiting, segment, encoder)
        encoder = encoder or self._encoder_after(before, segment, encoders)
        hand_over(waiting, segment, encoder)
        return encoder, shown

    def _encoder_after(
        self, before: Future[None], segment: Segment, encoders: contextlib.ExitStack
    ) -> Encoder:
        before.result()
        return encoders.enter_context(self._encoder(segment))

    def _close(
        self,
        encoder: Encoder,
        segment: Segment,
        pictures: list[tuple[int, str]],
        warnings: tuple[tuple[str, int], ...],
        refused: tuple[str, ...],
    ) -> None:
        """Wait for a segment's file, look at it, and give it its name."""
        encoder.finish(self._household.check)
        encoder.close()
        work, path = self._work, self._work.place(segment.number)
        plan = replace(work.plan, frames=segment.frames)
        check(
            unfinished(path),
            plan,
            encoder.samples,
            container=work.container,
            options=work.options,
            ask=self._household.check,
        )
        synced(unfinished(path)).replace(path)
        work.done(Made(*segment, tuple(pictures), encoder.samples, digest(path), warnings, refused))

    def _reached(self, frame: int) -> None:
        """Asked after each frame whether to go on."""
        self._household.check()
        frames = self._before + frame - self._segment.first
        self.fraction = self._effort.done(frames, frames, time.monotonic() - self._began)


def hand_over(waiting: list[Picture], segment: Segment, encoder: Encoder) -> None:
    """Give an encoder the pictures that waited for it."""
    for picture in waiting:
        encoder.put(picture.frame - segment.first, picture.data)
    waiting.clear()


def unfinished(path: Path) -> Path:
    """What a file is called until it is whole."""
    return path.with_name(f"{path.stem}.part{path.suffix}")


def draw(
    work: Work,
    shares: Sequence[Share],
    progress: Callable[[float], None],
    cancelled: Callable[[], bool],
) -> Household:
    """Have all shares drawn; `progress` is told the fraction that is done, ten times a second, on the caller's own thread.

    Raises:
        ExportCancelled: `cancelled` said so. MemoryExceeded.
        BrowserLost, EncoderFailed, PlayerFailed: as the first slice that failed.
    """
    house = Household(work.options)
    slices = [Slice(work, share, house) for share in shares]
    total = sum(share.weight for share in shares)
    with MemoryWatch(house.pids, work.options.max_memory, house.kill):
        try:
            for one in slices:
                one.thread.start()
            while (alive := [one for one in slices if one.thread.is_alive()]) and not any(
                one.error for one in slices
            ):
                if cancelled():
                    raise ExportCancelled("the export was cancelled")
                progress(sum(one.share.weight * one.fraction for one in slices) / total)
                alive[0].thread.join(LOOK_SECONDS)
        finally:
            house.stop.set()
            end([one.thread for one in slices if one.thread.ident is not None], house)
    # those that were stopped because of another are not what went wrong
    failed = [one.error for one in slices if one.error is not None]
    if failed:
        raise min(failed, key=lambda error: isinstance(error, ExportCancelled))
    progress(1.0)
    return house


def end(threads: Sequence[threading.Thread], house: Household) -> None:
    """Wait for all of them; one that is not ready soon waits for a browser that does not answer."""
    deadline = time.monotonic() + GRACE_SECONDS
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0))
    if any(thread.is_alive() for thread in threads):
        house.end_browsers()
    for thread in threads:
        thread.join()


def too_much_memory(options: Options) -> MemoryExceeded:
    """The error for a page that was ended for its memory."""
    return MemoryExceeded(
        f"browser and encoder took more than the allowed {options.max_memory >> 20:,} MB of memory"
    )
