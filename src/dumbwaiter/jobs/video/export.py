"""From a recording to a video: plan, draw and encode its segments, join them, check, put in place."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dumbwaiter.jobs.video.effort import busy
from dumbwaiter.jobs.video.errors import ExportCancelled, TooSlow
from dumbwaiter.jobs.video.fonts import missing_for
from dumbwaiter.jobs.video.formats import GIF, Container, codec_of, container_of
from dumbwaiter.jobs.video.joining import as_gif, check, join, take_poster
from dumbwaiter.jobs.video.kept import Checkpoints, Made, digest, keeping
from dumbwaiter.jobs.video.options import Options
from dumbwaiter.jobs.video.plan import plan
from dumbwaiter.jobs.video.recording import Recording
from dumbwaiter.jobs.video.segments import Segment, cut, share_out, weight
from dumbwaiter.jobs.video.slices import Household, Work, draw

# Of the whole way, this much is the drawing; joining takes a moment, a GIF longer.
DRAWN, DRAWN_OF_GIF = 0.99, 0.8
MOST_WARNINGS = 10
SEGMENTS_PREFIX = "segments-"


@dataclass(frozen=True)
class Video:
    """A finished video.

    Attributes:
        path: the file; size_bytes and sha256 are its own.
        duration_seconds, frames, width, height: what it shows; a GIF has fewer frames and pixels than that.
        pictures: how many of the frames look otherwise than the one before.
        picture_hashes: each of those, with the SHA-256 of its picture.
        segments, segments_restored: how many parts it was made of, and how many of them an earlier attempt had made.
        time_map: corners of the line from the video's seconds to the recording's.
        timings: seconds until the first picture ("start"), of all drawing ("rendering"), of joining ("joining"), of everything ("whole").
        warnings: what had to be left out or assumed.
        refused: what the recording asked the network for.
        poster: the picture that was asked for beside it.
    """

    path: Path
    duration_seconds: float
    frames: int
    width: int
    height: int
    pictures: int
    size_bytes: int
    sha256: str
    picture_hashes: tuple[tuple[int, str], ...]
    segments: int
    segments_restored: int
    time_map: tuple[tuple[float, float], ...]
    timings: dict[str, float]
    warnings: tuple[str, ...]
    refused: tuple[str, ...]
    poster: Path | None = None


def ignore(fraction: float, step: str) -> None:
    """Take no notice of progress."""


def never() -> bool:
    """Go on."""
    return False


def export(
    recording: Recording,
    out: Path | str,
    *,
    options: Options = Options(),  # noqa: B008 - frozen
    progress: Callable[[float, str], None] = ignore,
    cancelled: Callable[[], bool] = never,
    workdir: Path | str,
    checkpoints: Checkpoints | None = None,
    poster: Path | str | None = None,
) -> Video:
    """Make a video of a recording.

    Args:
        recording: what `load` returned.
        out: the file to write: .mp4, .webm or .gif. It appears when it is whole, or not at all.
        options: how; see `Options`.
        progress: called several times a second with a fraction between 0 and 1 and the step ("rendering", "encoding").
        cancelled: asked several times a second.
        workdir: where temporary files go; nothing of them is left at any end.
        checkpoints: where finished segments are kept; an export that finds them there goes on where an earlier one was ended.
        poster: a picture of the video to write too: .jpg, .png or .webp.

    Raises:
        ImpossibleOption: an option does not go with this recording or file.
        TooLong: the recording is longer than allowed.
        ToolMissing: there is no browser or no encoder.
        BrowserLost, EncoderFailed: worth another attempt, if their `transient` says so.
        PlayerFailed: the player cannot show this recording.
        TooSlow: it took longer than `options.wall_limit`.
        ExportCancelled: `cancelled` said so.
        OSError: there is no directory for the file, or it cannot be written there.

    Example:
        >>> video = export(load(Path("session.json")), Path("session.mp4"), workdir=Path("/tmp/work"))
        >>> video.frames
        1012
    """
    began = time.monotonic()
    out, workdir, poster = Path(out), Path(workdir), None if poster is None else Path(poster)
    for place in (out, poster):
        if place is not None and not place.absolute().parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, "there is no such directory", str(place.absolute().parent))
    cancelled = unless_too_slow(cancelled, options, began)
    container = container_of(out)
    codec_of(container, options)
    grid = plan(recording, options)
    likely = busy(recording.moments, grid)
    segments = cut(likely)
    workdir.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=SEGMENTS_PREFIX, dir=workdir))
    try:
        kept = keeping(
            checkpoints,
            recording,
            grid,
            segments,
            options,
            suffix=container.suffix,
            parts=container.parts,
            directory=place,
        )
        made = {segment.number: found for segment in segments if (found := kept.restore(segment))}
        restored = len(made)

        def done(segment: Made) -> None:
            kept.keep(segment)
            made[segment.number] = segment

        work = Work(recording, grid, options, container, likely, workdir, kept.path, done)
        house = render(work, segments, made, progress, cancelled)
        drawn = time.monotonic()
        parts = [(kept.path(segment.number), segment.frames / grid.fps) for segment in segments]
        samples = sum(made[segment.number].samples for segment in segments)
        whole = finish(
            work,
            parts,
            samples,
            place=place,
            progress=progress,
            cancelled=cancelled,
        )
        picture = None if poster is None else picture_of(work, whole, poster, place)
        sha256, size = digest(whole), whole.stat().st_size
        put_in_place(whole, out)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    progress(1.0, "encoding")
    ordered = [made[segment.number] for segment in segments]
    hashes = shown(ordered)
    ended = time.monotonic()
    timings = {
        "start": (house.first_picture or drawn) - began if house else 0.0,
        "rendering": drawn - began,
        "joining": ended - drawn,
        "whole": ended - began,
    }
    return Video(
        path=out,
        duration_seconds=grid.duration_seconds,
        frames=grid.frames,
        width=grid.width,
        height=grid.height,
        pictures=len(hashes),
        size_bytes=size,
        sha256=sha256,
        picture_hashes=hashes,
        segments=len(segments),
        segments_restored=restored,
        time_map=grid.times.corners(grid.frames, grid.fps),
        timings={name: round(seconds, 3) for name, seconds in timings.items()},
        warnings=(
            *recording.warnings,
            *missing_for(recording.events + json.dumps(options.text).encode()),
            *said(ordered),
        ),
        refused=tuple(dict.fromkeys(address for part in ordered for address in part.refused)),
        poster=picture,
    )


def unless_too_slow(cancelled: Callable[[], bool], options: Options, began: float) -> Callable[[], bool]:
    """The same question, which raises TooSlow once `options.wall_limit` is over."""
    limit = options.wall_limit
    if limit is None:
        return cancelled

    def asked() -> bool:
        if time.monotonic() - began > limit.total_seconds():
            raise TooSlow(f"the export took longer than the allowed {limit}")
        return cancelled()

    return asked


def render(
    work: Work,
    segments: Sequence[Segment],
    made: dict[int, Made],
    progress: Callable[[float, str], None],
    cancelled: Callable[[], bool],
) -> Household | None:
    """Draw what is not made yet; None if nothing had to be."""
    missing = [segment for segment in segments if segment.number not in made]
    shares = share_out(missing, work.likely, work.options.workers)
    whole = weight(work.likely, 0, len(work.likely))
    before = 1 - sum(share.weight for share in shares) / whole
    reach = share_of_drawing(work.container)

    def tell(fraction: float) -> None:
        progress((before + (1 - before) * fraction) * reach, "rendering")

    tell(0.0)
    return draw(work, shares, tell, cancelled) if shares else None


def share_of_drawing(container: Container) -> float:
    """How much of the whole way is the drawing."""
    return DRAWN_OF_GIF if container is GIF else DRAWN


def finish(
    work: Work,
    parts: Sequence[tuple[Path, float]],
    samples: int,
    *,
    place: Path,
    progress: Callable[[float, str], None],
    cancelled: Callable[[], bool],
) -> Path:
    """The segments as one file, looked at."""

    def ask() -> None:
        if cancelled():
            raise ExportCancelled("the export was cancelled")
        progress(share_of_drawing(work.container), "encoding")

    ask()
    joined = place / f"whole{work.container.parts}"
    join(parts, work.container, work.options, joined, ask)
    check(joined, work.plan, samples, container=work.container, options=work.options, ask=ask)
    if work.container is not GIF:
        return joined
    gif = place / f"whole{work.container.suffix}"
    as_gif(joined, work.plan, work.options, gif, ask)
    check(gif, work.plan, samples, container=work.container, options=work.options, ask=ask)
    return gif


def picture_of(work: Work, whole: Path, wanted: Path, place: Path) -> Path:
    """One picture of the video, put in its place."""
    made = place / f"poster{wanted.suffix}"
    take_poster(whole, work.plan, work.options, made, lambda: None)
    put_in_place(made, wanted)
    return wanted


def shown(segments: Sequence[Made]) -> tuple[tuple[int, str], ...]:
    """The frames at which the picture changes: where a segment begins with what the one before ended with, it does not."""
    hashes: list[tuple[int, str]] = []
    for frame, sha256 in (picture for segment in segments for picture in segment.pictures):
        if not hashes or hashes[-1][1] != sha256:
            hashes.append((frame, sha256))
    return tuple(hashes)


def said(segments: Sequence[Made]) -> list[str]:
    """What the player warned of, each thing once with its count."""
    counts: Counter[str] = Counter()
    for segment in segments:
        counts.update(dict(segment.warnings))
    return [f"{text} ({count:,} times)" if count > 1 else text for text, count in counts.items()][
        :MOST_WARNINGS
    ]


def put_in_place(part: Path, out: Path) -> None:
    """Move the file to its name in one step, also from one file system to another."""
    try:
        part.replace(out)
    except OSError:
        # short, for the file's own name may be as long as a name can be
        near = out.with_name(f".{os.getpid()}-{threading.get_ident()}.part")
        try:
            shutil.copyfile(part, near)
            near.replace(out)
        finally:
            near.unlink(missing_ok=True)
