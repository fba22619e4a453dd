"""`dumbwaiter export-video`: a recording becomes a video here and now, without a queue."""

from __future__ import annotations

import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from dumbwaiter.cli.program import command
from dumbwaiter.errors import DumbwaiterError, RefusedError
from dumbwaiter.task import estimated_left


class BadTarget(RefusedError):
    """The output cannot go there."""


class SomeFailed(RefusedError):
    """Not every recording became a video."""


@command("export-video")
def export_video(
    ctx: typer.Context,
    recordings: Annotated[list[Path], typer.Argument(metavar="IN...", help="Recorded sessions (rrweb).")],
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="OUT", help="The MP4 file; a directory for several.")
    ],
) -> None:
    """Make videos of recorded web sessions."""
    failed = 0
    for recording, target in targets(recordings, out):
        try:
            export_one(recording, target)
        except DumbwaiterError as error:
            if len(recordings) == 1:
                raise
            # the others are good all the same
            print(f"dumbwaiter: {recording}: {error}", file=sys.stderr)
            failed += 1
    if failed:
        raise SomeFailed(f"{failed} of {len(recordings)} recordings were not exported")


def targets(recordings: list[Path], out: Path) -> list[tuple[Path, Path]]:
    """Where each recording's video goes. Raises BadTarget."""
    if len(recordings) == 1 and not out.is_dir():
        if not out.absolute().parent.is_dir():
            raise BadTarget(f"-o {out}: there is no directory {out.parent}")
        return [(recordings[0], out)]
    if out.exists() and not out.is_dir():
        raise BadTarget(f"-o {out}: name a directory for several recordings")
    out.mkdir(parents=True, exist_ok=True)
    pairs = [(recording, out / f"{recording.name.partition('.')[0]}.mp4") for recording in recordings]
    if len({target for _, target in pairs}) < len(pairs):
        raise BadTarget(
            "two of the recordings have one name, and their videos would overwrite each other; export them apart"
        )
    return pairs


def export_one(source: Path, target: Path) -> None:
    from dumbwaiter.cli.following import bar
    from dumbwaiter.jobs.video import export, load

    began = time.monotonic()
    with bar(source.name) as show, tempfile.TemporaryDirectory(prefix="dumbwaiter-video-") as workdir:

        def progress(fraction: float, step: str) -> None:
            left = estimated_left(timedelta(seconds=time.monotonic() - began), fraction)
            show(fraction, step, left or None)

        show(None, "reading", None)
        video = export(load(source), target, progress=progress, workdir=Path(workdir))
    print(
        f"{video.path}: {video.duration_seconds:.1f} s, {video.width} × {video.height}, {video.size_bytes:,} bytes, "
        f"made in {time.monotonic() - began:.1f} s"
    )
