"""What an export will make: how large, how many frames, at which times. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta

from dumbwaiter.jobs.video.errors import ImpossibleOption, TooLong
from dumbwaiter.jobs.video.options import MIN_SIDE, Options
from dumbwaiter.jobs.video.recording import Recording
from dumbwaiter.jobs.video.timeline import Piece, Timeline, held, lay


@dataclass(frozen=True)
class Plan:
    """The frame grid and the picture of one video.

    `timeline` says what each frame shows; None is the recording from its beginning, without anything shortened.
    """

    fps: int
    frames: int
    width: int
    height: int
    scale: float
    speed: float = 1.0
    timeline: Timeline | None = None

    @property
    def interval_ms(self) -> float:
        """Milliseconds of the recording from one frame to the next, where nothing is shortened."""
        return 1000 * self.speed / self.fps

    @property
    def times(self) -> Timeline:
        """The moment of the recording that each frame shows."""
        return self.timeline or Timeline((Piece(0, 0.0, self.interval_ms),))

    @property
    def duration_seconds(self) -> float:
        """How long the video plays."""
        return self.frames / self.fps


def plan(recording: Recording, options: Options) -> Plan:
    """Lay the frame grid over a recording.

    Raises:
        TooLong: the video would be longer than `options.max_duration`.
        ImpossibleOption: `options.start` lies behind the recording's end.
    """
    start_ms, end_ms = part(recording, options)
    interval_ms = 1000 * options.speed / options.fps
    gap_ms = None if options.max_gap is None else options.max_gap.total_seconds() * 1000
    timeline, frames = lay(start_ms, end_ms, interval_ms, recording.moments, gap_ms)
    duration = timedelta(seconds=(frames - 1) / options.fps)
    if duration > options.max_duration + timedelta(seconds=1 / options.fps):
        shown = timedelta(milliseconds=end_ms - start_ms)
        at_speed = "" if options.speed == 1 else f" ({shown / options.speed} at this speed)"
        raise TooLong(f"the recording lasts {shown}{at_speed}, more than the allowed {options.max_duration}")
    timeline, frames = held(
        timeline, frames, math.ceil(options.hold / timedelta(milliseconds=1000 / options.fps))
    )
    width, height, scale = picture(recording.viewport, options)
    return Plan(options.fps, frames, width, height, scale, options.speed, timeline)


def part(recording: Recording, options: Options) -> tuple[float, float]:
    """From where to where the recording is shown, in its milliseconds."""
    start_ms = 0.0 if options.start is None else options.start.total_seconds() * 1000
    end_ms = recording.duration_ms
    if start_ms > end_ms:
        raise ImpossibleOption(f"start={start_ms / 1000:g} s: the recording lasts {end_ms / 1000:.1f} s")
    if options.end is not None:
        end_ms = min(end_ms, options.end.total_seconds() * 1000)
    return start_ms, end_ms


def picture(viewport: tuple[int, int], options: Options) -> tuple[int, int, float]:
    """Width and height of the picture (even, as yuv420p wants) and the scale at which the page is drawn in it."""
    width, height = viewport
    if options.size is not None:
        wide, high = options.size
        return even(wide), even(high), min(wide / width, high / height)
    scale = min(options.scale, options.max_side / max(width, height))
    return even(width * scale), even(height * scale), scale


def even(side: float) -> int:
    """The even number at or below `side`: a lost edge is not seen, a black one is."""
    return max(MIN_SIDE, int(side + 1e-6) // 2 * 2)
