"""What an export will make: how large, how many frames, at which times. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal

from dumbwaiter.jobs.video.errors import ImpossibleOption, TooLong
from dumbwaiter.jobs.video.recording import Recording

MIN_SIDE = 16


@dataclass(frozen=True)
class Options:
    """How a recording becomes a video; the defaults suit nearly everybody.

    Attributes:
        fps: frames a second of the video.
        speed: how many seconds of the recording one second of the video shows.
        max_side: the longest side of the picture in pixels; a larger page is scaled down.
        cursor, clicks, mouse_trail: draw the pointer, a ripple at each click, a line behind the pointer.
        hold: how long the last frame stays.
        max_duration: the longest video; a longer recording is refused.
        max_memory: bytes of memory that browser and encoder may take together.
        frame_timeout: the longest wait for the browser to draw one frame, or to answer anything else.
        encoder_timeout: the longest time in which FFmpeg neither takes a picture nor writes a frame.
        restarts: how often a lost browser is started again at the last good frame.
        constant_rate: every frame is in the file; otherwise only those that differ.
        quality: of the JPEG pictures between browser and encoder; crf, preset: x264's.
        capture: "begin-frame" needs a headless shell, "screenshot" works everywhere; "auto" asks the browser.
        sandbox: None tries with Chromium's sandbox first and warns when that is impossible.
        chromium, ffmpeg: the programs; None finds them.
    """

    fps: int = 25
    speed: float = 1.0
    max_side: int = 1920
    cursor: bool = True
    clicks: bool = True
    mouse_trail: bool = False
    hold: timedelta = timedelta(0)
    max_duration: timedelta = timedelta(hours=2)
    max_memory: int = 1536 << 20
    frame_timeout: timedelta = timedelta(seconds=15)
    encoder_timeout: timedelta = timedelta(seconds=15)
    restarts: int = 1
    constant_rate: bool = True
    quality: int = 90
    crf: int = 21
    preset: str = "veryfast"
    capture: Literal["auto", "begin-frame", "screenshot"] = "auto"
    sandbox: bool | None = None
    chromium: Path | None = None
    ffmpeg: Path | None = None

    def __post_init__(self) -> None:
        ranges = {
            "fps": (self.fps, 1, 60),
            "speed": (self.speed, 0.1, 100),
            "max_side": (self.max_side, MIN_SIDE, 4096),
            "quality": (self.quality, 1, 100),
            "crf": (self.crf, 0, 51),
            "hold": (self.hold.total_seconds(), 0, 60),
            "restarts": (self.restarts, 0, 100),
        }
        for name, (value, low, high) in ranges.items():
            if not low <= value <= high:
                raise ImpossibleOption(f"{name}={value}: give a number from {low} to {high}")


@dataclass(frozen=True)
class Plan:
    """The frame grid and the picture of one video."""

    fps: int
    frames: int
    width: int
    height: int
    scale: float
    speed: float = 1.0

    @property
    def interval_ms(self) -> float:
        """Milliseconds of the recording from one frame to the next."""
        return 1000 * self.speed / self.fps

    @property
    def duration_seconds(self) -> float:
        """How long the video plays."""
        return self.frames / self.fps


def plan(recording: Recording, options: Options) -> Plan:
    """Lay the frame grid over a recording.

    Frame k shows the page k * speed / fps seconds after the first event. One frame more than fits, or the last event falls off.

    Raises:
        TooLong: the video would be longer than `options.max_duration`.
    """
    duration = timedelta(milliseconds=recording.duration_ms)
    if duration / options.speed > options.max_duration:
        at_speed = "" if options.speed == 1 else f" ({duration / options.speed} at this speed)"
        raise TooLong(
            f"the recording lasts {duration}{at_speed}, more than the allowed {options.max_duration}"
        )
    interval = 1000 / options.fps
    # a duration that is a whole number of frames but for rounding gets no extra one
    frames = math.ceil(recording.duration_ms / options.speed / interval - 1e-6) + 1
    frames += math.ceil(options.hold / timedelta(milliseconds=interval))
    width, height, scale = picture(recording.viewport, options.max_side)
    return Plan(options.fps, frames, width, height, scale, options.speed)


def picture(viewport: tuple[int, int], max_side: int) -> tuple[int, int, float]:
    """Width and height of the picture (even, as yuv420p wants) and the scale at which the page is drawn in it."""
    width, height = viewport
    scale = min(1.0, max_side / max(width, height))
    return even(width * scale), even(height * scale), scale


def even(side: float) -> int:
    """The even number at or below `side`: a lost edge is not seen, a black one is."""
    return max(MIN_SIDE, int(side + 1e-6) // 2 * 2)
