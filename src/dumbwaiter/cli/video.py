"""`dumbwaiter export-video`: a recording becomes a video here and now, without a queue."""

from __future__ import annotations

import dataclasses
import re
import shutil
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dumbwaiter.cli.places import STDIN, BadTarget, read_stdin, sources, targets
from dumbwaiter.cli.program import command
from dumbwaiter.errors import ConfigurationError, DumbwaiterError, RefusedError
from dumbwaiter.eta import Pace

if TYPE_CHECKING:
    from dumbwaiter.jobs.video import Options, Recording, Video
    from dumbwaiter.jobs.video.errors import ImpossibleOption

PARTS = ".parts"


class SomeFailed(RefusedError):
    """Not every recording became a video."""


@dataclasses.dataclass(frozen=True)
class How:
    """What holds for every recording of one call."""

    options: Options
    window: str | None
    poster: str | None
    resume: bool


@command("export-video")
def export_video(  # noqa: PLR0917 - the options of a command line
    ctx: typer.Context,
    recordings: Annotated[
        list[str],
        typer.Argument(
            metavar="IN", help="Recorded sessions (rrweb): files, directories, - for standard input."
        ),
    ],
    out: Annotated[
        str,
        typer.Option(
            "-o", "--out", metavar="OUT", help="The file (.mp4, .webm, .gif), or a directory for several."
        ),
    ],
    format: Annotated[  # noqa: A002 - the option's name
        Literal["mp4", "webm", "gif"] | None,
        typer.Option(help="Of videos that go into a directory; else mp4."),
    ] = None,
    fps: Annotated[int, typer.Option(help="Frames a second.")] = 25,
    speed: Annotated[
        float, typer.Option(help="Seconds of the recording that a second of the video shows.")
    ] = 1.0,
    start: Annotated[
        str | None, typer.Option(metavar="TIME", help="Where to begin: 90s, 1m30s, 1:30.")
    ] = None,
    end: Annotated[str | None, typer.Option(metavar="TIME", help="Where to end.")] = None,
    max_gap: Annotated[
        str | None, typer.Option(metavar="TIME", help="Shorten a time in which nothing happens to this.")
    ] = None,
    hold: Annotated[str, typer.Option(metavar="TIME", help="How long the last frame stays.")] = "0s",
    size: Annotated[
        str,
        typer.Option(metavar="SIZE", help="The picture: recording, WIDTHxHEIGHT, or a scale such as 0.5."),
    ] = "recording",
    max_side: Annotated[
        int, typer.Option(help="Longest side of the picture in pixels, where SIZE does not say.")
    ] = 1920,
    cursor: Annotated[bool, typer.Option(help="Draw the pointer.")] = True,
    clicks: Annotated[bool, typer.Option(help="Draw a ripple at each click.")] = True,
    mouse_trail: Annotated[bool, typer.Option(help="Draw a line behind the pointer.")] = False,
    mask: Annotated[
        list[str] | None,
        typer.Option(metavar="SELECTOR", help="CSS selector of what is not to be seen; several times."),
    ] = None,
    clock: Annotated[bool, typer.Option(help="Show the recording's time in a corner.")] = False,
    text: Annotated[str, typer.Option(help="A caption at the lower edge.")] = "",
    background: Annotated[
        str, typer.Option(metavar="COLOUR", help="CSS colour of what the page does not cover.")
    ] = "#000",
    window: Annotated[
        str | None, typer.Option(help="The browser window, of a recording that has several.")
    ] = None,
    codec: Annotated[
        Literal["h264", "h265", "vp9", "vp8"] | None, typer.Option(help="Else what suits the file.")
    ] = None,
    crf: Annotated[int | None, typer.Option(help="Quality: lower is better, and larger.")] = None,
    preset: Annotated[
        str, typer.Option(help="Of x264 and x265, from ultrafast to veryslow: slower makes smaller files.")
    ] = "veryfast",
    constant_rate: Annotated[
        bool, typer.Option(help="Write every frame, also those that are like the one before.")
    ] = False,
    poster: Annotated[
        str | None,
        typer.Option(metavar="SUFFIX", help="Write a picture too: .jpg, .png or .webp beside the video."),
    ] = None,
    workers: Annotated[int, typer.Option(help="Browsers that draw at the same time.")] = 1,
    resume: Annotated[
        bool,
        typer.Option(
            help="Keep finished parts beside the video (OUT.parts), and go on from those of an export that was ended."
        ),
    ] = False,
    max_duration: Annotated[str, typer.Option(metavar="TIME", help="The longest video.")] = "2h",
    max_memory: Annotated[int, typer.Option(metavar="MB", help="Of browsers and encoders together.")] = 1536,
    wall_limit: Annotated[
        str | None, typer.Option(metavar="TIME", help="The longest time that one export may take.")
    ] = None,
) -> None:
    """Make videos of recorded web sessions."""
    from dumbwaiter.jobs.video.errors import ExportCancelled, ImpossibleOption, NoSuchWindow, ToolMissing
    from dumbwaiter.jobs.video.processes import ending_cleanly

    options = checked(
        fps=fps,
        speed=speed,
        start=time_of("--start", start),
        end=time_of("--end", end),
        max_gap=time_of("--max-gap", max_gap),
        hold=time_of("--hold", hold) or timedelta(0),
        **size_of(size),
        max_side=max_side,
        cursor=cursor,
        clicks=clicks,
        mouse_trail=mouse_trail,
        masks=tuple(mask or ()),
        clock=clock,
        text=text,
        background=background,
        codec=codec,
        crf=crf,
        preset=preset,
        constant_rate=constant_rate,
        workers=workers,
        max_duration=time_of("--max-duration", max_duration) or timedelta(0),
        max_memory=max_memory << 20,
        wall_limit=time_of("--wall-limit", wall_limit),
    )
    how = How(options, window, poster_suffix(poster), resume)
    found = sources(recordings)
    pairs = targets(found, out, f".{format or 'mp4'}")
    check_files([target for _, target in pairs], options, format)
    failed = 0
    with ending_cleanly() as cancelled:
        for recording, target in pairs:
            try:
                export_one(recording, target, how, cancelled)
            except (ToolMissing, ExportCancelled):
                raise
            except (DumbwaiterError, OSError) as error:
                sentence = f"{name_of(recording)}: {reason_of(error)}"
                if len(found) == 1 and isinstance(error, ImpossibleOption):
                    raise typer.BadParameter(in_words(error)) from error
                if len(found) == 1 and isinstance(error, NoSuchWindow):
                    raise typer.BadParameter(f"--window {window}: {error}") from error
                if len(found) == 1:
                    raise SomeFailed(sentence) from error
                # the others are good all the same
                print(f"dumbwaiter: {sentence}", file=sys.stderr)
                failed += 1
    if failed:
        raise SomeFailed(f"{failed} of {len(found)} recordings were not exported")


def checked(**options: Any) -> Options:
    """The options, if they are possible.

    Raises:
        typer.BadParameter
    """
    from dumbwaiter.jobs.video.errors import ImpossibleOption
    from dumbwaiter.jobs.video.options import Options

    try:
        return Options(**options)
    except ImpossibleOption as error:
        raise typer.BadParameter(in_words(error)) from error


def check_files(targets: list[Path], options: Options, format: str | None) -> None:  # noqa: A002 - see above
    """Raises typer.BadParameter for files that are not of the kind, or cannot have the codec, that was asked for."""
    from dumbwaiter.jobs.video.errors import ImpossibleOption
    from dumbwaiter.jobs.video.formats import codec_of, container_of

    try:
        for target in targets:
            if format and target.suffix.lower() != f".{format}":
                raise typer.BadParameter(f"--format {format}: {target} is another kind of file; leave it out")
            codec_of(container_of(target), options)
    except ImpossibleOption as error:
        raise typer.BadParameter(in_words(error)) from error


# What the command line calls otherwise.
NAMES = {"width": "size", "height": "size", "masks": "mask"}


def in_words(error: ImpossibleOption) -> str:
    """The sentence with the option as one types it: `--max-gap 0.01 s: …` for `max_gap=0.01 s: …`."""
    name, equals, rest = str(error).partition("=")
    if not equals or not name.isidentifier():
        name, colon, rest = str(error).partition(": ")
        return f"--{NAMES[name]}: {rest}" if colon and name in NAMES else str(error)
    return f"--{NAMES.get(name, name).replace('_', '-')} {rest}"


def time_of(option: str, said: str | None) -> timedelta | None:
    """A time as people write it: 90s, 1m30s, 1:30, 1:02:03.

    Raises:
        typer.BadParameter
    """
    from dumbwaiter.settings import duration

    if said is None:
        return None
    if said.startswith("."):
        said = f"0{said}"
    if re.fullmatch(r"(\d+:)?\d+:\d{2}(\.\d+)?", said):
        seconds = 0.0
        for part in said.split(":"):
            seconds = seconds * 60 + float(part)
        return timedelta(seconds=seconds)
    try:
        # several words in a row, and nothing between them
        parts = re.findall(r"[\d.]+[a-z]*", said) if re.fullmatch(r"([\d.]+[a-z]*)+", said) else [said]
        return sum((duration(part) for part in parts), timedelta(0))
    except (ValueError, ConfigurationError):
        raise typer.BadParameter(f"{option} {said}: write a time such as 90s, 1m30s or 1:30") from None


def size_of(said: str) -> dict[str, object]:
    """The options that a SIZE stands for.

    Raises:
        typer.BadParameter
    """
    if said == "recording":
        return {}
    if match := re.fullmatch(r"(\d{1,5})[x×](\d{1,5})", said):
        return {"size": (int(match[1]), int(match[2]))}
    if re.fullmatch(r"\d*\.?\d+", said):
        return {"scale": float(said)}
    raise typer.BadParameter(f"--size {said}: write recording, WIDTHxHEIGHT or a scale such as 0.5")


def poster_suffix(said: str | None) -> str | None:
    """Raises typer.BadParameter for what is no kind of picture."""
    if said is None:
        return None
    suffix = "." + said.removeprefix(".").lower()
    if suffix not in (".jpg", ".png", ".webp"):
        raise typer.BadParameter(f"--poster {said}: write jpg, png or webp")
    return suffix


def name_of(recording: Path) -> str:
    return "standard input" if str(recording) == STDIN else str(recording)


def reason_of(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def export_one(source: Path, target: Path, how: How, cancelled: Callable[[], bool]) -> None:
    from dumbwaiter.cli.following import bar
    from dumbwaiter.cli.show import rounded, spoken
    from dumbwaiter.jobs.video.leftovers import work_directory

    began, pace = time.monotonic(), Pace()
    with bar(Path(name_of(source)).name) as show, work_directory() as workdir:

        def progress(fraction: float, step: str) -> None:
            seconds = time.monotonic() - began
            pace.note(seconds, fraction)
            estimate = pace.forecast(seconds)
            left = None if estimate is None or fraction == 1 else timedelta(seconds=estimate.seconds)
            show(fraction, step, "" if left is None else f"{spoken(rounded(left))} left")

        show(None, "reading", "")
        video = exported(
            read(source, how.window, cancelled),
            target,
            how,
            progress=progress,
            cancelled=cancelled,
            workdir=workdir,
        )
    for warning in video.warnings:
        print(f"dumbwaiter: {name_of(source)}: warning: {warning}", file=sys.stderr)
    width, height = size_of_file(video)
    parts = (
        f", {video.segments_restored} of {video.segments} parts were there" if video.segments_restored else ""
    )
    print(
        f"{video.path}: {video.duration_seconds:.1f} s, {width} × {height}, {video.size_bytes:,} bytes, "
        f"made in {time.monotonic() - began:.1f} s{parts}"
    )


def size_of_file(video: Video) -> tuple[int, int]:
    """Width and height of the file itself: a GIF is smaller than what it shows."""
    from dumbwaiter.jobs.video.joining import gif_size

    size = video.width, video.height
    return gif_size(*size) if video.path.suffix.lower() == ".gif" else size


def read(source: Path, window: str | None, cancelled: Callable[[], bool]) -> Recording:
    """The recording in a file, or on standard input."""
    from dumbwaiter.jobs.video.recording import MAX_BYTES, load

    given = read_stdin(MAX_BYTES) if str(source) == STDIN else source
    return load(given, window=window, cancelled=cancelled)


def exported(
    recording: Recording,
    target: Path,
    how: How,
    *,
    progress: Callable[[float, str], None],
    cancelled: Callable[[], bool],
    workdir: Path,
) -> Video:
    """The video, whose directory is made only now that there is something to put into it."""
    from dumbwaiter.jobs.video import InDirectory, export
    from dumbwaiter.jobs.video.export import put_in_place

    made = workdir / f"whole{target.suffix}"
    parts = target.with_name(target.name + PARTS)
    video = export(
        recording,
        made,
        options=how.options,
        progress=progress,
        cancelled=cancelled,
        workdir=workdir,
        checkpoints=InDirectory(parts) if how.resume else None,
        poster=workdir / f"poster{how.poster}" if how.poster else None,
    )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        put_in_place(made, target)
        if video.poster is not None and how.poster is not None:
            put_in_place(video.poster, target.with_suffix(how.poster))
    except OSError as error:
        raise BadTarget(f"{target} cannot be written: {reason_of(error)}") from error
    if how.resume:
        shutil.rmtree(parts, ignore_errors=True)
    return dataclasses.replace(video, path=target)
