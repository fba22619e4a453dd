"""Where the recordings of `dumbwaiter export-video` come from, and where their videos go."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import typer

from dumbwaiter.errors import RefusedError

FORMATS = (".mp4", ".webm", ".gif")
STDIN = "-"
# What recordings are called in a directory; what is in them says which they are.
RECORDINGS = (".json", ".jsonl", ".ndjson", ".gz", ".zlib", ".bin", ".txt", ".rrweb")


class BadSource(RefusedError):
    """There is no recording there."""


class BadTarget(RefusedError):
    """The output cannot go there."""


def sources(given: list[str]) -> list[Path]:
    """The recordings, each once: files, those in a directory, and `-` for what comes on standard input.

    Raises:
        BadSource: a directory without any.
        typer.BadParameter: standard input is named twice.
    """
    if given.count(STDIN) > 1:
        raise typer.BadParameter("standard input can be read once: write - once")
    found: list[Path] = []
    for name in given:
        path = Path(name)
        if name == STDIN or not path.is_dir():
            found.append(path)
            continue
        inside = sorted(
            one for one in path.iterdir() if one.is_file() and one.name.lower().endswith(RECORDINGS)
        )
        if not inside:
            raise BadSource(
                f"{name}: no file in this directory is called like a recording ({', '.join(RECORDINGS)})"
            )
        found += inside
    return list(dict.fromkeys(found))


def read_stdin(limit: int) -> bytes:
    """What comes on standard input, and no more than a byte over the limit."""
    return sys.stdin.buffer.read(limit + 1)


def targets(recordings: list[Path], out: str, suffix: str) -> list[tuple[Path, Path]]:
    """Where each recording's video goes; nothing is created yet. `suffix` is of those that go into a directory.

    Raises:
        typer.BadParameter: OUT is not a name that it can have.
        BadTarget: nothing can be written there.
    """
    place = Path(out)
    if out.endswith(os.sep) or place.is_dir() or (len(recordings) > 1 and not place.suffix):
        check_directory(place, out)
        return in_directory(recordings, place, suffix)
    if place.suffix.lower() not in FORMATS:
        raise typer.BadParameter(
            f"-o {out}: videos are {', '.join(FORMATS)} files: name one that ends so, or a directory with a {os.sep} at its end"
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


def in_directory(recordings: list[Path], place: Path, suffix: str) -> list[tuple[Path, Path]]:
    """Each under its own name."""
    pairs = [(recording, place / f"{stem(recording)}{suffix}") for recording in recordings]
    first: dict[Path, Path] = {}
    for recording, target in pairs:
        if (other := first.setdefault(target, recording)) is not recording:
            raise BadTarget(
                f"{other} and {recording} would both become {target}; export one of them apart, with a name of its own"
            )
    return pairs


def stem(recording: Path) -> str:
    """What a recording is called."""
    return "recording" if str(recording) == STDIN else recording.name.partition(".")[0]
