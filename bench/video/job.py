"""An export in a process of its own, which imports nothing but what exports, since its memory is looked at.

`python -m bench.video.job JOB` is that process. It writes lines of JSON: how far it is, and at last what came of it.
"""

from __future__ import annotations

import functools
import importlib
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from dumbwaiter.jobs.video import InDirectory, Options, VideoError, export, load

DURATIONS = {
    "start",
    "end",
    "max_gap",
    "hold",
    "max_duration",
    "frame_timeout",
    "encoder_timeout",
    "wall_limit",
}


@dataclass(frozen=True)
class Job:
    """What to export. `options` are those of `Options`, durations in seconds; `pictures` is how large a segment is, if not as usual."""

    recording: str
    out: str
    workdir: str
    options: Mapping[str, Any] = field(default_factory=dict)
    checkpoints: str = ""
    pictures: int = 0


@dataclass(frozen=True)
class Made:
    """What came of an export: a video, or an error with a name. `seconds` are those of the export alone, without Python's start."""

    seconds: float
    error: str = ""
    message: str = ""
    duration: float = 0.0
    frames: int = 0
    pictures: tuple[tuple[int, str], ...] = ()
    sha256: str = ""
    segments: int = 0
    restored: int = 0

    @property
    def times(self) -> float:
        """How many times faster than real time."""
        return self.duration / self.seconds


def options_of(words: Mapping[str, Any]) -> Options:
    """Options as JSON has them."""
    values = dict(words)
    for name in DURATIONS & values.keys():
        values[name] = timedelta(seconds=values[name])
    if values.get("size"):
        values["size"] = tuple(values["size"])
    return Options(**values)


def work(job: Job) -> Made:
    """Do it, in this process."""
    if job.pictures:
        module = importlib.import_module("dumbwaiter.jobs.video.export")
        vars(module)["cut"] = functools.partial(vars(module)["cut"], pictures=job.pictures)
    began = time.monotonic()
    try:
        recording = load(Path(job.recording))
        began = time.monotonic()
        video = export(
            recording,
            Path(job.out),
            options=options_of(job.options),
            progress=lambda fraction, _: print(json.dumps({"at": fraction}), flush=True),
            workdir=Path(job.workdir),
            checkpoints=InDirectory(Path(job.checkpoints)) if job.checkpoints else None,
        )
    except VideoError as error:
        return Made(time.monotonic() - began, type(error).__name__, str(error)[:300])
    return Made(
        seconds=time.monotonic() - began,
        duration=video.duration_seconds,
        frames=video.frames,
        pictures=video.picture_hashes,
        sha256=video.sha256,
        segments=video.segments,
        restored=video.segments_restored,
    )


if __name__ == "__main__":
    print(json.dumps(asdict(work(Job(**json.loads(sys.argv[1]))))), flush=True)
