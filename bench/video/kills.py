"""An export whose process is killed once in each third of its way, and started again until the video is there."""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

from bench.trials import Failed
from bench.video.exports import Export
from bench.video.job import Job, Made
from dumbwaiter.jobs.video import find_ffmpeg

# Each segment has an FFmpeg that reads pictures; this one writes down that it was started, and becomes the real one.
COUNTING = """#!/bin/sh
case " $* " in *" pipe:0 "*) echo begun >> '{log}' ;; esac
exec '{ffmpeg}' "$@"
"""


@dataclass(frozen=True)
class Survived:
    """What an export that was killed so often made; how many segments were begun in all attempts, how many processes outlived a kill."""

    made: Made
    kills: int
    begun: int
    left: int

    @property
    def again(self) -> float:
        """How many segments were begun once more, for each kill."""
        return (self.begun - self.made.segments) / self.kills


def moments(chance: random.Random) -> list[float]:
    """When to kill: once in each third of the way."""
    return [(third + chance.random()) / 3 for third in range(3)]


def survive(job: Job, home: Path, chance: random.Random, *, emptied: bool) -> Survived:
    """Export, killed at random moments; `emptied` empties the work directory after each kill.

    Raises:
        Failed: it ended before it was killed, or without a video.
    """
    log = home / "begun"
    log.touch()
    counting = counter(home / "ffmpeg", log)
    job = Job(**{**vars(job), "options": {**job.options, "ffmpeg": str(counting)}})
    left, wanted = 0, moments(chance)
    for moment in wanted:
        with Export(job, home / "killed") as running:
            if not any(at >= moment for at in running.progress()):
                raise Failed(f"it ended before it was killed at {moment:.0%}")
            running.kill()
            left += running.processes_left()
        if emptied:
            shutil.rmtree(job.workdir, ignore_errors=True)
    with Export(job, home / "finished") as running:
        made = running.made()
    if made.error:
        raise Failed(f"{made.error}: {made.message}")
    return Survived(made, len(wanted), len(log.read_text().splitlines()), left)


def counter(path: Path, log: Path) -> Path:
    """A program that counts the encoders."""
    path.write_text(COUNTING.format(log=log, ffmpeg=find_ffmpeg(os.environ.get("DUMBWAITER_FFMPEG"))))
    path.chmod(0o755)
    return path
