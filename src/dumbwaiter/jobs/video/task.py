"""The task type "video-export": a recording, named by whoever asks, becomes an MP4 among the result files.

What may be named: an upload, `sample:NAME`, a recording that comes with the package, and a file under the directory that the worker's
environment names in `DUMBWAITER_RECORDINGS`, by its path in there (or by its absolute path, if that leads there too).
Nothing else is ever opened, whoever asks and however: the argument may come over HTTP, and a path from there is a hole.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from dumbwaiter.executors.context import TaskContext
from dumbwaiter.executors.upload import Upload
from dumbwaiter.jobs.video.errors import ExportCancelled, NoSuchRecording
from dumbwaiter.jobs.video.export import Video, export
from dumbwaiter.jobs.video.plan import Options
from dumbwaiter.jobs.video.recording import Recording, load
from dumbwaiter.jobs.video.samples import sample

if TYPE_CHECKING:
    from dumbwaiter.app import Dumbwaiter

NAME = "video-export"
QUEUE = "exports"
TIMEOUT = timedelta(minutes=30)
RECORDINGS = "DUMBWAITER_RECORDINGS"
SAMPLE = "sample:"
# Parts of the whole, as they take their time here: reading is quick, publishing copies a few megabytes.
READ, DRAWN = 0.02, 0.98
MOST_LISTED = 20


def register(waiter: Dumbwaiter) -> Any:
    """Declare the task type on an application; returns what `waiter.task(…)` returns, to enqueue with.

    Example:
        >>> video_export = register(waiter)
        >>> video_export.enqueue(recording="sample:shop-tour")
    """
    declare = waiter.task(NAME, queue=QUEUE, isolate=True, needs={"chromium": 1}, timeout=TIMEOUT, http=True)
    return declare(export_video)


def export_video(
    ctx: TaskContext,
    recording: str | Upload,
    *,
    fps: Annotated[int, Field(ge=1, le=60)] = 25,
    max_side: Annotated[int, Field(ge=160, le=4096)] = 1920,
    speed: Annotated[float, Field(ge=0.1, le=100)] = 1.0,
    cursor: bool = True,
) -> dict[str, Any]:
    """Export one recording: read, render, encode, publish.

    `max_side` is the longest side of the picture in pixels, `speed` how many seconds of the recording one second of the
    video shows.

    Raises:
        RecordingError: fails at once, with words for the person who asked.
        VideoError: its `transient` says whether another attempt is made.
    """
    ctx.progress(0.0, step="reading")
    options = Options(fps=fps, speed=speed, max_side=max_side, cursor=cursor)
    if isinstance(recording, Upload):
        name, session = recording.filename, load(ctx.download(recording))
    else:
        name, session = recording, read_recording(recording)
    ctx.check()
    try:
        video = export(
            session,
            ctx.workdir / "video.mp4",
            options=options,
            progress=lambda fraction, step: ctx.progress(READ + fraction * (DRAWN - READ), step=step),
            cancelled=lambda: ctx.cancelled,
            workdir=ctx.workdir,
        )
    except ExportCancelled:
        ctx.check()
        raise
    ctx.progress(DRAWN, step="publishing")
    ctx.publish(video.path, filename=filename(name), content_type="video/mp4")
    return result(session, video)


def read_recording(reference: str) -> Recording:
    """The recording that somebody named: a sample, or a file in the one directory that may be read.

    Raises:
        NoSuchRecording: there is none; the message does not say whether a forbidden file exists.
    """
    if reference.startswith(SAMPLE):
        return sample(reference.removeprefix(SAMPLE))
    allowed = os.environ.get(RECORDINGS)
    if not allowed:
        raise NoSuchRecording(
            f"{reference!r} is no sample, and {RECORDINGS} names no directory whose recordings may be exported"
        )
    directory = Path(allowed).resolve()
    path = inside(directory, reference)
    if path is None:
        raise NoSuchRecording(f"there is no recording {reference!r} in {directory}")
    return load(path)


def inside(directory: Path, reference: str) -> Path | None:
    """The file of this name in the directory, links followed; None if there is none, or it lies elsewhere."""
    try:
        path = (directory / reference).resolve()
        return path if path.is_relative_to(directory) and path.is_file() else None
    except (OSError, ValueError, RuntimeError):  # a name too long, with a zero byte, a circle of links
        return None


def filename(reference: str) -> str:
    """What the video is called for the person who downloads it."""
    stem = reference.removeprefix(SAMPLE).rsplit("/", 1)[-1].split(".")[0]
    safe = "".join(character if character.isalnum() or character in "-_ " else "-" for character in stem)
    return f"{safe[:60].strip() or 'recording'}.mp4"


def result(session: Recording, video: Video) -> dict[str, Any]:
    """What is remembered of the export beside its file."""
    return {
        "title": session.title,
        "duration_seconds": round(video.duration_seconds, 3),
        "frames": video.frames,
        "width": video.width,
        "height": video.height,
        "pictures": video.pictures,
        "size_bytes": video.size_bytes,
        "warnings": list(video.warnings[:MOST_LISTED]),
        "refused": list(video.refused[:MOST_LISTED]),
    }
