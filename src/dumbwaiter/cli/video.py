"""`dumbwaiter export-video`: a recording becomes a video here and now, without a queue."""

from __future__ import annotations

import dataclasses
import os
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dumbwaiter.cli.program import command
from dumbwaiter.errors import DumbwaiterError, RefusedError
from dumbwaiter.eta import Pace

if TYPE_CHECKING:
    from dumbwaiter.jobs.video import Video

SUFFIX = ".mp4"


class BadTarget(RefusedError):
    """The output cannot go there."""


class SomeFailed(RefusedError):
    """Not every recording became a video."""


@command("export-video")
def export_video(
    ctx: typer.Context,
    recordings: Annotated[list[Path], typer.Argument(metavar="IN", help="Recorded sessions (rrweb).")],
    out: Annotated[
        str, typer.Option("-o", "--out", metavar="OUT", help="The MP4 file, or a directory for several.")
    ],
) -> None:
    """Make videos of recorded web sessions."""
    from dumbwaiter.jobs.video.errors import ExportCancelled, ToolMissing
    from dumbwaiter.jobs.video.processes import ending_cleanly

    failed = 0
    with ending_cleanly() as cancelled:
        for recording, target in targets(recordings, out):
            try:
                export_one(recording, target, cancelled)
            except (ToolMissing, ExportCancelled):
                raise
            except (DumbwaiterError, OSError) as error:
                sentence = f"{recording}: {reason_of(error)}"
                if len(recordings) == 1:
                    raise SomeFailed(sentence) from error
                # the others are good all the same
                print(f"dumbwaiter: {sentence}", file=sys.stderr)
                failed += 1
    if failed:
        raise SomeFailed(f"{failed} of {len(recordings)} recordings were not exported")


def reason_of(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def targets(recordings: list[Path], out: str) -> list[tuple[Path, Path]]:
    """Where each recording's video goes; nothing is created yet.

    Raises:
        typer.BadParameter: OUT is not a name that it can have.
        BadTarget: nothing can be written there.
    """
    place = Path(out)
    if out.endswith(os.sep) or place.is_dir() or (len(recordings) > 1 and not place.suffix):
        check_directory(place, out)
        return in_directory(recordings, place)
    if place.suffix.lower() != SUFFIX:
        raise typer.BadParameter(
            f"-o {out}: videos are {SUFFIX} files: name one that ends so, or a directory with a {os.sep} at its end"
        )
    if len(recordings) > 1:
        raise typer.BadParameter(
            f"-o {out}: this is one file for {len(recordings)} recordings; name a directory, with a {os.sep} at its end"
        )
    if not place.absolute().parent.is_dir():
        raise BadTarget(f"-o {out}: there is no directory {place.parent}")
    return [(recordings[0], place)]


def check_directory(place: Path, out: str) -> None:
    """Raises BadTarget unless the directory is there or can be made."""
    there = next(path for path in (place.absolute(), *place.absolute().parents) if path.exists())
    if not there.is_dir():
        raise BadTarget(f"-o {out}: {there} is a file, and no directory")
    if not os.access(there, os.W_OK | os.X_OK):
        raise BadTarget(f"-o {out}: nothing may be written in {there}")


def in_directory(recordings: list[Path], place: Path) -> list[tuple[Path, Path]]:
    pairs = [(recording, place / f"{recording.name.partition('.')[0]}{SUFFIX}") for recording in recordings]
    if len({target for _, target in pairs}) < len(pairs):
        raise BadTarget(
            "two of the recordings have one name, and their videos would overwrite each other; export them apart"
        )
    return pairs


def export_one(source: Path, target: Path, cancelled: Callable[[], bool]) -> None:
    from dumbwaiter.cli.following import bar
    from dumbwaiter.cli.show import rounded, spoken

    began, pace = time.monotonic(), Pace()
    with bar(source.name) as show, tempfile.TemporaryDirectory(prefix="dumbwaiter-video-") as workdir:

        def progress(fraction: float, step: str) -> None:
            seconds = time.monotonic() - began
            pace.note(seconds, fraction)
            estimate = pace.forecast(seconds)
            left = None if estimate is None else timedelta(seconds=estimate.seconds)
            show(fraction, step, "" if left is None else f"{spoken(rounded(left))} left")

        show(None, "reading", "")
        video = exported(source, target, progress, cancelled, Path(workdir))
    for warning in video.warnings:
        print(f"dumbwaiter: {source}: warning: {warning}", file=sys.stderr)
    print(
        f"{video.path}: {video.duration_seconds:.1f} s, {video.width} × {video.height}, {video.size_bytes:,} bytes, "
        f"made in {time.monotonic() - began:.1f} s"
    )


def exported(
    source: Path,
    target: Path,
    progress: Callable[[float, str], None],
    cancelled: Callable[[], bool],
    workdir: Path,
) -> Video:
    """The video, whose directory is made only now that there is something to put into it."""
    from dumbwaiter.jobs.video import export, load
    from dumbwaiter.jobs.video.export import put_in_place

    made = workdir / "whole.mp4"
    video = export(load(source), made, progress=progress, cancelled=cancelled, workdir=workdir)
    target.parent.mkdir(parents=True, exist_ok=True)
    put_in_place(made, target)
    return dataclasses.replace(video, path=target)
