"""The task type "video-export": a recording, named by whoever asks, becomes an MP4 among the result files.

What may be named: an upload, `sample:NAME`, a recording that comes with the package, and a file under the directory that the worker's
environment names in `DUMBWAITER_RECORDINGS`, by its path in there (or by its absolute path, if that leads there too).
Nothing else is ever opened, whoever asks and however: the argument may come over HTTP, and a path from there is a hole.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo

from dumbwaiter.executors.context import TaskContext
from dumbwaiter.executors.upload import Upload
from dumbwaiter.jobs.video.errors import ExportCancelled, ImpossibleOption, NoSuchRecording
from dumbwaiter.jobs.video.export import Video, export
from dumbwaiter.jobs.video.formats import CONTAINERS
from dumbwaiter.jobs.video.options import LONGEST_TEXT, MOST_MASKS, Options
from dumbwaiter.jobs.video.recording import Recording, load
from dumbwaiter.jobs.video.samples import no_sample, sample, sample_names

if TYPE_CHECKING:
    from dumbwaiter.app import Dumbwaiter

NAME = "video-export"
QUEUE = "exports"
TIMEOUT = timedelta(minutes=30)
# Of one export: what reads the recording, and the browsers and encoders, which have a limit of their own.
MOST_MEMORY = 3 << 30
RECORDINGS = "DUMBWAITER_RECORDINGS"
SAMPLE = "sample:"
# Parts of the whole, as they take their time here: reading is quick, publishing copies a few megabytes.
READ, DRAWN = 0.02, 0.98
MOST_LISTED = 20
MOST_CORNERS = 500
BROWSERS = "DUMBWAITER_EXPORT_BROWSERS"
MOST_BROWSERS = 16
MOST_SECONDS = 7 * 86_400
POSTER = "poster.jpg"


def register(waiter: Dumbwaiter) -> Any:
    """Declare the task type on an application; returns what `waiter.task(…)` returns, to enqueue with.

    A task takes as many of the worker's capacity "chromium" as browsers draw it: one, or what `DUMBWAITER_EXPORT_BROWSERS` says.

    Example:
        >>> video_export = register(waiter)
        >>> video_export.enqueue(recording="sample:shop-tour")
    """
    declare = waiter.task(
        NAME,
        queue=QUEUE,
        isolate=True,
        needs={"chromium": browsers()},
        timeout=TIMEOUT,
        max_memory=MOST_MEMORY,
        http=True,
    )
    return declare(export_video)


def browsers() -> int:
    """How many browsers draw one video at the same time.

    Raises:
        ImpossibleOption: the environment names no number from 1 to 16.
    """
    said = os.environ.get(BROWSERS, "1")
    if not said.isdecimal() or not 1 <= int(said) <= MOST_BROWSERS:
        raise ImpossibleOption(f"{BROWSERS}={said}: give a number from 1 to {MOST_BROWSERS}")
    return int(said)


@dataclass(frozen=True)
class Kept:
    """Keeps the segments of a video with its task, so that a later attempt goes on from them, on whatever host."""

    ctx: TaskContext

    def keep(self, name: str, path: Path) -> None:
        """Keep a file."""
        self.ctx.keep(name, path)

    def restore(self, name: str, into: Path) -> bool:
        """Bring a file back; before the first attempt there was none."""
        return self.ctx.task.attempt > 1 and self.ctx.restore(name, into) is not None


def known(recording: str | Upload) -> str | Upload:
    """Refuse a sample that there is not where the task is asked for. What a worker's directory holds only the worker knows.

    Raises:
        ValueError: with the samples that there are.
    """
    if isinstance(recording, str) and recording.startswith(SAMPLE):
        name = recording.removeprefix(SAMPLE)
        if name not in sample_names():
            raise ValueError(no_sample(name))
    return recording


def after_start(end: float | None, given: ValidationInfo) -> float | None:
    """Refuse an end that comes before the beginning where the task is asked for.

    Raises:
        ValueError: with both.
    """
    # the fields of a task's arguments have a letter before their names
    start = next((given.data[name] for name in given.data if name.endswith("start_seconds")), None)
    if end is not None and start is not None and end <= start:
        raise ValueError(
            f"the part to show ends at {end:g} s, which is not after its beginning at {start:g} s"
        )
    return end


def export_video(
    ctx: TaskContext,
    recording: Annotated[str | Upload, AfterValidator(known)],
    *,
    format: Literal["mp4", "webm", "gif"] = "mp4",  # noqa: A002 - what is written in a request
    fps: Annotated[int, Field(ge=1, le=60)] = 25,
    max_side: Annotated[int, Field(ge=160, le=4096)] = 1920,
    speed: Annotated[float, Field(ge=0.1, le=100)] = 1.0,
    start_seconds: Annotated[float, Field(ge=0, le=MOST_SECONDS)] = 0.0,
    end_seconds: Annotated[
        Annotated[float, Field(gt=0, le=MOST_SECONDS)] | None, AfterValidator(after_start)
    ] = None,
    max_gap_seconds: Annotated[float, Field(ge=0.1, le=MOST_SECONDS)] | None = None,
    cursor: bool = True,
    clicks: bool = True,
    mouse_trail: bool = False,
    masks: Annotated[list[str], Field(max_length=MOST_MASKS)] = [],  # noqa: B006 - read only
    clock: bool = False,
    text: Annotated[str, Field(max_length=LONGEST_TEXT)] = "",
    window: str | None = None,
    poster: bool = False,
) -> dict[str, Any]:
    """Export one recording: read, render, encode, publish.

    `max_side` is the longest side of the picture in pixels, `speed` how many seconds of the recording one second of the video
    shows. `start_seconds` and `end_seconds` are of the recording; where nothing happens for longer than `max_gap_seconds`, it is shortened
    to that. `masks` are CSS selectors of what is not to be seen. `window` is the browser window to show of a recording that has several.
    With `poster` a picture, poster.jpg, is published too.

    Raises:
        RecordingError: fails at once, with words for the person who asked.
        VideoError: its `transient` says whether another attempt is made.
    """
    ctx.progress(0.0, step="reading")
    options = Options(
        fps=fps,
        max_side=max_side,
        speed=speed,
        start=timedelta(seconds=start_seconds) if start_seconds else None,
        end=None if end_seconds is None else timedelta(seconds=end_seconds),
        max_gap=None if max_gap_seconds is None else timedelta(seconds=max_gap_seconds),
        cursor=cursor,
        clicks=clicks,
        mouse_trail=mouse_trail,
        masks=tuple(masks),
        clock=clock,
        text=text,
        workers=browsers(),
    )

    def cancelled() -> bool:
        return ctx.cancelled

    try:
        if isinstance(recording, Upload):
            name = recording.filename
            session = load(ctx.download(recording), window=window, cancelled=cancelled)
        else:
            name, session = recording, read_recording(recording, window, cancelled)
        video = export(
            session,
            ctx.workdir / f"video.{format}",
            options=options,
            progress=lambda fraction, step: ctx.progress(READ + fraction * (DRAWN - READ), step=step),
            cancelled=cancelled,
            workdir=ctx.workdir,
            checkpoints=Kept(ctx),
            poster=ctx.workdir / POSTER if poster else None,
        )
    except ExportCancelled:
        ctx.check()
        raise
    ctx.progress(DRAWN, step="publishing")
    container = CONTAINERS[video.path.suffix]
    ctx.publish(video.path, filename=filename(name, container.suffix), content_type=container.content_type)
    if video.poster is not None:
        ctx.publish(video.poster, filename=POSTER, content_type="image/jpeg")
    return result(session, video)


def read_recording(
    reference: str, window: str | None = None, cancelled: Callable[[], bool] = lambda: False
) -> Recording:
    """The recording that somebody named: a sample, or a file in the one directory that may be read.

    Raises:
        NoSuchRecording: there is none; the message does not say whether a forbidden file exists.
        ExportCancelled: `cancelled` said so.
    """
    if reference.startswith(SAMPLE):
        return sample(reference.removeprefix(SAMPLE), window)
    allowed = os.environ.get(RECORDINGS)
    if not allowed:
        raise NoSuchRecording(
            f"{reference!r} is no sample, and {RECORDINGS} names no directory whose recordings may be exported; "
            "a file of your own goes along with the task as Path(…), or on the command line as recording=@FILE"
        )
    directory = Path(allowed).resolve()
    path = inside(directory, reference)
    if path is None:
        raise NoSuchRecording(f"there is no recording {reference!r} in {directory}")
    return load(path, window=window, cancelled=cancelled)


def inside(directory: Path, reference: str) -> Path | None:
    """The file of this name in the directory, links followed; None if there is none, or it lies elsewhere."""
    try:
        path = (directory / reference).resolve()
        return path if path.is_relative_to(directory) and path.is_file() else None
    except (OSError, ValueError, RuntimeError):  # a name too long, with a zero byte, a circle of links
        return None


def filename(reference: str, suffix: str = ".mp4") -> str:
    """What the video is called for the person who downloads it."""
    stem = reference.removeprefix(SAMPLE).rsplit("/", 1)[-1].split(".")[0]
    safe = "".join(character if character.isalnum() or character in "-_ " else "-" for character in stem)
    return f"{safe[:60].strip() or 'recording'}{suffix}"


def result(session: Recording, video: Video) -> dict[str, Any]:
    """What is remembered of the export beside its file."""
    return {
        "title": session.title,
        "duration_seconds": round(video.duration_seconds, 3),
        "frames": video.frames,
        "width": video.width,
        "height": video.height,
        "pictures": video.pictures,
        "segments": video.segments,
        "segments_restored": video.segments_restored,
        "sha256": video.sha256,
        "time_map": video.time_map[:MOST_CORNERS],
        "timings": video.timings,
        "size_bytes": video.size_bytes,
        "warnings": list(video.warnings[:MOST_LISTED]),
        "refused": list(video.refused[:MOST_LISTED]),
    }
