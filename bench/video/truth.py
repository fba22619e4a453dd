"""Does the video show what the page looked like? Its frames beside photographs of rrweb's own Replayer, which plays in real time."""

from __future__ import annotations

import bisect
import json
import math
import random
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from dumbwaiter.jobs.video import Recording, find_ffmpeg
from tests.jobs.video.support import Picture, grey, plain_replayer, ssim

FULL_SNAPSHOT, INCREMENTAL = 2, 3
# What changes the page: nodes, scrolling, inputs, style sheets, canvases; of a pointer, which is not drawn, at most what is under it.
CHANGES = {0, 3, 4, 5, 8, 9, 13, 15}
AFTER_SECONDS = 0.2
# A photograph takes its time, and the page moves on meanwhile.
APART_SECONDS = 0.5
# A recording that lasts longer is not played from its beginning for each photograph, but from so long before.
PLAYED_THROUGH, LEAD_SECONDS, ONE_PLAY_SECONDS = 70.0, 3.0, 10.0
PNG = b"\x89PNG\r\n\x1a\n"


class Play(NamedTuple):
    """From where the Replayer plays, and when it is photographed; seconds of the recording."""

    start: float
    moments: list[float]


class Photograph(NamedTuple):
    """What the page looked like at some time between these two."""

    before: float
    picture: Picture
    after: float


@dataclass(frozen=True)
class Likeness:
    """The structural similarity at each photograph, and how many of them were taken soon after a change."""

    values: Sequence[float]
    fresh: int

    @property
    def mean(self) -> float:
        return sum(self.values) / len(self.values)


def changes(recording: Recording) -> list[float]:
    """When the recorded page changes, in seconds since the recording began."""
    events = json.loads(recording.events)
    return [
        (event["timestamp"] - recording.started_ms) / 1000
        for event in events
        if event["type"] == FULL_SNAPSHOT
        or (event["type"] == INCREMENTAL and event["data"]["source"] in CHANGES)
    ]


def moments(changed: Sequence[float], duration: float, points: int, chance: random.Random) -> list[float]:
    """When to photograph: most of the times soon after a change, the others anywhere, all over the recording."""
    fresh = math.ceil(points * 0.6)
    within = [at for at in changed if at < duration - AFTER_SECONDS] or [0.0]
    parts = [
        within[len(within) * i // fresh : max(len(within) * (i + 1) // fresh, len(within) * i // fresh + 1)]
        for i in range(fresh)
    ]
    chosen = [chance.choice(part) + chance.uniform(0.03, 0.12) for part in parts]
    rest = points - fresh
    chosen += [duration * (i + chance.random()) / rest for i in range(rest)]
    return sorted(chosen)


def plays(wanted: Iterable[float], duration: float) -> list[Play]:
    """The moments, shared out so that those of one play are far enough apart."""
    found: list[Play] = []
    for at in sorted(wanted):
        for play in found:
            in_reach = duration <= PLAYED_THROUGH or at - play.start <= ONE_PLAY_SECONDS
            if in_reach and at - play.moments[-1] >= APART_SECONDS:
                play.moments.append(at)
                break
        else:
            found.append(Play(0.0 if duration <= PLAYED_THROUGH else max(at - LEAD_SECONDS, 0.0), [at]))
    return found


def photographs(recording: Recording, wanted: Iterable[Play], workdir: Path) -> Iterator[Photograph]:
    """What rrweb's own Replayer shows, playing in real time."""
    with plain_replayer(recording, workdir) as plain:
        for play in wanted:
            plain.play(play.start)
            for at in play.moments:
                while (left := at - plain.now()) > 0:
                    time.sleep(min(left, 0.05))
                yield Photograph(*plain.photograph())


def compare(video: Path, fps: int, taken: Sequence[Photograph], changed: Sequence[float]) -> Likeness:
    """Each photograph beside the frames that it may show; the most alike counts."""
    candidates = [set(frames_of(one, fps)) for one in taken]
    shown = decoded(video, fps, sorted(set().union(*candidates)))
    values = [
        max(ssim(cropped(one.picture, shown[frame]), shown[frame]) for frame in frames if frame in shown)
        for one, frames in zip(taken, candidates, strict=True)
    ]
    return Likeness(values, sum(is_fresh(one.before, changed) for one in taken))


def frames_of(one: Photograph, fps: int) -> range:
    """The frames of a video that stand for the time of a photograph, and one on either side."""
    return range(max(math.floor(one.before * fps) - 1, 0), math.ceil(one.after * fps) + 2)


def is_fresh(at: float, changed: Sequence[float]) -> bool:
    """Whether a change came within the time before."""
    before = bisect.bisect_right(changed, at)
    return before > 0 and at - changed[before - 1] <= AFTER_SECONDS


def cropped(picture: Picture, other: Picture) -> Picture:
    """A picture without the row or column that a video of even sides has not."""
    return picture[: other.shape[0], : other.shape[1]]


def runs(frames: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Numbers in order, as the first and the last of each run without a gap."""
    for _, run in groupby(enumerate(frames), lambda pair: pair[1] - pair[0]):
        numbers = [number for _, number in run]
        yield numbers[0], numbers[-1]


def decoded(video: Path, fps: int, frames: Sequence[int]) -> dict[int, Picture]:
    """These frames of a video, as a player shows them, in grey; those behind its end are not there."""
    # FFmpeg takes a sum of a hundred terms, and no more
    chosen = "+".join(f"between(n,{first},{last})" for first, last in runs(frames))
    convert = "scale=in_range=tv:in_color_matrix=bt709:out_range=pc,format=rgb24"
    command = [str(find_ffmpeg()), "-v", "error", "-i", str(video)]
    command += ["-vf", f"fps={fps}:start_time=0,select='{chosen}',{convert}", "-fps_mode", "passthrough"]
    run = subprocess.run(
        [*command, "-c:v", "png", "-f", "image2pipe", "-"],
        capture_output=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    pictures = [grey(PNG + part) for part in run.stdout.split(PNG)[1:]]
    return dict(zip(frames, pictures, strict=False))
