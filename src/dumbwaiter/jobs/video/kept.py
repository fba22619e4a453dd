"""Finished segments that outlive a crash: kept under names, found again by a later attempt that makes the same video."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from dumbwaiter.jobs.video.chromium import find_chromium
from dumbwaiter.jobs.video.encoder import find_ffmpeg
from dumbwaiter.jobs.video.options import Options
from dumbwaiter.jobs.video.plan import Plan
from dumbwaiter.jobs.video.processes import environment
from dumbwaiter.jobs.video.recording import Recording
from dumbwaiter.jobs.video.replay import replay_page
from dumbwaiter.jobs.video.segments import Segment

# Whoever changes what a picture shows, or how it is encoded, adds one: segments of before are made anew then.
METHOD = 5
ASK_SECONDS = 20.0
# These change how an export goes, and nothing of what comes out.
NOT_IN_THE_VIDEO = {
    "max_duration", "max_memory", "frame_timeout", "encoder_timeout", "wall_limit", "restarts", "workers", "chromium", "ffmpeg",
}  # fmt: skip


class Checkpoints(Protocol):
    """Where segments are kept. A task's own are `TaskContext.keep` and `restore`; a directory is `InDirectory`."""

    def keep(self, name: str, path: Path) -> None:
        """Keep a file under a name, whole or not at all."""

    def restore(self, name: str, into: Path) -> bool:
        """Bring back the file that was kept under a name, if there is one."""


@dataclass(frozen=True)
class InDirectory:
    """Keeps segments in a directory, which is made when the first one comes. Remove it when the video is there.

    Example:
        >>> export(recording, out, workdir=work, checkpoints=InDirectory(Path("session.parts")))
    """

    path: Path

    def keep(self, name: str, path: Path) -> None:
        """Copy the file there, and wait until it and its name are on the disk."""
        self.path.mkdir(parents=True, exist_ok=True)
        # another export may keep the same here
        part = self.path / f"{name}.{os.getpid()}-{threading.get_ident()}.part"
        try:
            shutil.copyfile(path, part)
            synced(part).replace(self.path / name)
        finally:
            part.unlink(missing_ok=True)  # of a disk that was full
        sync_names(self.path)

    def restore(self, name: str, into: Path) -> bool:
        """Copy the file back."""
        try:
            shutil.copyfile(self.path / name, into)
        except (FileNotFoundError, IsADirectoryError):
            return False
        return True


@dataclass(frozen=True)
class Made:
    """A finished segment: what its pictures are, and what was said on the way.

    `pictures` are the frames at which the page looks otherwise than before, with the SHA-256 of the JPEG. `samples` is how many frames its
    file has, `sha256` the file's. `warnings` come with how often each was said.
    """

    number: int
    first: int
    end: int
    pictures: tuple[tuple[int, str], ...]
    samples: int
    sha256: str
    warnings: tuple[tuple[str, int], ...]
    refused: tuple[str, ...]


class Kept:
    """The segments of one video that were kept, under its key."""

    def __init__(self, checkpoints: Checkpoints, key: str, directory: Path, suffix: str) -> None:
        self._checkpoints, self._key, self._directory, self._suffix = checkpoints, key, directory, suffix

    def path(self, number: int) -> Path:
        """Where a segment's file lies while the export goes on."""
        return self._directory / f"segment-{number:04}{self._suffix}"

    def keep(self, made: Made) -> None:
        """Keep a finished segment: its file first, so that what is told of it is always there."""
        path = self.path(made.number)
        self._checkpoints.keep(path.name, path)
        said = path.with_suffix(".json")
        said.write_text(json.dumps({"key": self._key, **asdict(made)}))
        self._checkpoints.keep(said.name, said)

    def restore(self, segment: Segment) -> Made | None:
        """A segment that an earlier attempt has finished; None if there is none, or it is of another video."""
        path = self.path(segment.number)
        said = path.with_suffix(".json")
        if not self._checkpoints.restore(said.name, said):
            return None
        made = read(said, self._key)
        if made is None or (made.number, made.first, made.end) != segment:
            return None
        if not self._checkpoints.restore(path.name, path) or digest(path) != made.sha256:
            path.unlink(missing_ok=True)
            return None
        return made


class Nowhere:
    """Keeps nothing."""

    def keep(self, name: str, path: Path) -> None:
        """Nothing is kept."""

    def restore(self, name: str, into: Path) -> bool:
        """Nothing was kept."""
        return False


def keeping(
    checkpoints: Checkpoints | None,
    recording: Recording,
    plan: Plan,
    segments: Sequence[Segment],
    options: Options,
    *,
    suffix: str,
    parts: str,
    directory: Path,
) -> Kept:
    """Where the segments of this video are kept; `suffix` is the video's, `parts` that of its segments.

    Raises:
        ChromiumMissing, EncoderMissing
    """
    # of one segment alone nothing is worth keeping: it is there when the video is
    if checkpoints is None or len(segments) == 1:
        return Kept(Nowhere(), "", directory, parts)
    return Kept(checkpoints, key_of(recording, plan, segments, options, suffix), directory, parts)


def read(said: Path, key: str) -> Made | None:
    """What a file says of a segment, if it is of the video with this key."""
    try:
        told = json.loads(said.read_bytes())
        if told.pop("key") != key:
            return None
        told = {field.name: told[field.name] for field in fields(Made)}
        pictures = tuple((int(frame), str(sha)) for frame, sha in told.pop("pictures"))
        warnings = tuple((str(text), int(count)) for text, count in told.pop("warnings"))
        refused = tuple(str(address) for address in told.pop("refused"))
        for name in ("number", "first", "end", "samples"):
            told[name] = int(told[name])
        return Made(pictures=pictures, warnings=warnings, refused=refused, **told)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def key_of(
    recording: Recording, plan: Plan, segments: Sequence[Segment], options: Options, suffix: str
) -> str:
    """What decides how a video's segments look: the recording, the options, and every program that has a hand in them.

    Raises:
        ChromiumMissing, EncoderMissing
    """
    chosen = {
        field.name: str(getattr(options, field.name))
        for field in fields(options)
        if field.name not in NOT_IN_THE_VIDEO
    }
    parts = [
        str(METHOD),
        hashlib.sha256(recording.events).hexdigest(),
        repr((plan, list(segments))),
        json.dumps(chosen, sort_keys=True),
        suffix,
        version(str(find_chromium(options.chromium)), "--version"),
        version(str(find_ffmpeg(options.ffmpeg)), "-version"),
        fonts(),
        hashlib.sha256(replay_page("")).hexdigest(),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@lru_cache(maxsize=16)
def version(program: str, flag: str) -> str:
    """What a program says of its version; its address if it does not."""
    return said([program, flag]).partition("\n")[0] or program


def fonts() -> str:
    """The fonts of this machine, whatever directory they lie in."""
    lines = said(["fc-list", "--format", "%{file|basename} %{fontversion}\n"]).splitlines()
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


def said(command: list[str]) -> str:
    """A program's output; nothing if it cannot be started."""
    try:
        run = subprocess.run(
            command, capture_output=True, timeout=ASK_SECONDS, stdin=subprocess.DEVNULL, env=environment()
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return run.stdout.decode("utf-8", "replace")


def digest(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def synced(path: Path) -> Path:
    """The same file, once all of it is on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return path


def sync_names(directory: Path) -> None:
    """Have the names in a directory on the disk; where a directory cannot be opened (Windows), they take their time."""
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
