"""From a recording to an MP4: plan, replay, encode, check, put in place."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dumbwaiter.jobs.video.effort import Effort, busy
from dumbwaiter.jobs.video.encoder import Encoder
from dumbwaiter.jobs.video.errors import BadVideo, ExportCancelled
from dumbwaiter.jobs.video.mp4 import Mp4, read_mp4
from dumbwaiter.jobs.video.plan import Options, Plan, plan
from dumbwaiter.jobs.video.recording import Recording
from dumbwaiter.jobs.video.replay import Replay

DURATION_TOLERANCE = 1.5


@dataclass(frozen=True)
class Video:
    """A finished video. `pictures` is how many of its frames had to be drawn; `refused` what the recording asked the network for."""

    path: Path
    duration_seconds: float
    frames: int
    width: int
    height: int
    pictures: int
    size_bytes: int
    warnings: tuple[str, ...]
    refused: tuple[str, ...]


def ignore(fraction: float, step: str) -> None:
    """Take no notice of progress."""


def never() -> bool:
    """Go on."""
    return False


def export(
    recording: Recording,
    out: Path,
    *,
    options: Options = Options(),  # noqa: B008 - frozen
    progress: Callable[[float, str], None] = ignore,
    cancelled: Callable[[], bool] = never,
    workdir: Path,
) -> Video:
    """Make a video of a recording.

    Args:
        recording: what `load` returned.
        out: the file to write; it appears when it is whole, or not at all.
        options: how; see `Options`.
        progress: called with a fraction between 0 and 1 and the step ("rendering", "encoding").
        cancelled: asked between frames and while waiting.
        workdir: where temporary files go; nothing of them is left at any end.

    Raises:
        TooLong: the recording is longer than allowed.
        ToolMissing: there is no browser or no encoder.
        BrowserLost, EncoderFailed: worth another attempt.
        ExportCancelled: `cancelled` said so.

    Example:
        >>> video = export(load(Path("session.json")), Path("session.mp4"), workdir=Path("/tmp/work"))
        >>> video.frames
        1012
    """
    grid = plan(recording, options)
    workdir.mkdir(parents=True, exist_ok=True)
    part = workdir / f"{out.stem}.part.mp4"
    try:
        replay, pictures = render(
            recording, grid, options, part=part, progress=progress, cancelled=cancelled, workdir=workdir
        )
        made = check(part, grid, options)
        put_in_place(part, out)
    finally:
        part.unlink(missing_ok=True)
    return Video(
        path=out,
        duration_seconds=made.duration_seconds,
        frames=grid.frames,
        width=made.width,
        height=made.height,
        pictures=pictures,
        size_bytes=made.size_bytes,
        warnings=(*recording.warnings, *replay.warnings),
        refused=tuple(dict.fromkeys(replay.refused)),
    )


def render(
    recording: Recording,
    grid: Plan,
    options: Options,
    *,
    part: Path,
    progress: Callable[[float, str], None],
    cancelled: Callable[[], bool],
    workdir: Path,
) -> tuple[Replay, int]:
    """Replay into the encoder; how many pictures that took."""
    effort, began = Effort(busy(recording.moments, grid)), time.monotonic()
    drawn, step = 0, "rendering"

    def tell() -> None:
        """Said after each frame, and while one part waits for the other: a minute of stillness is one picture, and long to encode."""
        if cancelled():
            raise ExportCancelled("the export was cancelled")
        # of a variable rate the encoder counts pictures, not frames
        written = encoder.frames if options.constant_rate else drawn
        progress(effort.done(drawn, written, time.monotonic() - began), step)

    def on_frame(frame: int) -> None:
        nonlocal drawn
        drawn = frame
        tell()

    with Encoder(grid, options, part, tell) as encoder:
        replay = Replay(recording, grid, options, workdir, on_frame, encoder.process.pid)
        progress(0.0, step)
        pictures = 0
        for picture in replay.pictures():
            encoder.put(picture.frame, picture.data)
            pictures += 1
        drawn, step = grid.frames, "encoding"
        encoder.finish(tell)
        progress(1.0, step)
    return replay, pictures


def check(part: Path, grid: Plan, options: Options) -> Mp4:
    """Look at what came out before it is called a result: half a file can come with exit status 0.

    Raises:
        BadVideo
    """
    made = read_mp4(part)
    wanted = (grid.width, grid.height, grid.frames if options.constant_rate else made.frames, "avc1")
    found = (made.width, made.height, made.frames, made.codec)
    if found != wanted:
        raise BadVideo(f"asked for (width, height, frames, codec) {wanted}, got {found}")
    if (
        options.constant_rate
        and abs(made.duration_seconds - grid.duration_seconds) > DURATION_TOLERANCE / grid.fps
    ):
        raise BadVideo(f"asked for {grid.duration_seconds:.3f} s, got {made.duration_seconds:.3f} s")
    return made


def put_in_place(part: Path, out: Path) -> None:
    """Move the file to its name in one step, also from one file system to another."""
    try:
        part.replace(out)
    except OSError:
        near = out.with_name(f".{out.name}.{os.getpid()}.part")
        try:
            shutil.copyfile(part, near)
            near.replace(out)
        finally:
            near.unlink(missing_ok=True)
