"""How a recording becomes a video: every choice, checked when it is made."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from dumbwaiter.jobs.video.errors import ImpossibleOption

MIN_SIDE, MAX_SIDE = 16, 4096
MOST_MASKS, LONGEST_TEXT = 100, 500
PRESETS = (
    "ultrafast", "superfast", "veryfast", "faster", "fast", "medium", "slow", "slower", "veryslow",
)  # fmt: skip

Codec = Literal["h264", "h265", "vp9", "vp8"]


@dataclass(frozen=True)
class Options:
    """How a recording becomes a video; the defaults suit nearly everybody.

    Attributes:
        fps: frames a second of the video.
        speed: how many seconds of the recording one second of the video shows.
        start, end: the part of the recording to show, in its own time; None is its beginning, and its end.
        max_gap: a time in which nothing happens is shortened to this; None shows all of it. `Video.time_map` tells where.
        max_side: the longest side of the picture in pixels; a larger page is scaled down.
        size: width and height of the picture, into which the page is fitted; None takes the page's own.
        scale: the picture's size in relation to the page's, where `size` is None.
        cursor, clicks, mouse_trail: draw the pointer, a ripple at each click, a line behind the pointer.
        masks: CSS selectors of what is not to be seen; solid boxes stand in its place.
        clock: the recording's time in a corner.
        text: a caption at the lower edge.
        canvas: draw what the page drew on canvases; None does if the recording has it.
        background: a CSS colour for what the page does not cover.
        hold: how long the last frame stays.
        max_duration: the longest video; a longer recording is refused.
        max_memory: bytes of memory that browsers and encoders may take together.
        frame_timeout: the longest wait for the browser to draw one frame, or to answer anything else.
        encoder_timeout: the longest time in which FFmpeg neither takes a picture nor writes a frame.
        wall_limit: the longest time that the export may take; None is without end.
        restarts: how often in a row a lost browser is started again at the last good frame.
        workers: how many browsers draw parts of the video at the same time.
        codec: of the video; None takes what suits the file's suffix.
        constant_rate: every frame is in the file; otherwise those that differ, and one each ten seconds.
        crf: the codec's measure of quality, lower is better; None takes what suits it. preset: x264's and x265's.
        encoder_threads: of each FFmpeg; 0 takes two for H.264, on any machine the same, and lets FFmpeg choose for the others.
        quality: of the JPEG pictures between browser and encoder.
        capture: "begin-frame" needs a headless shell, "screenshot" works everywhere; "auto" asks the browser.
        sandbox: None tries with Chromium's sandbox first and warns when that is impossible.
        chromium, ffmpeg: the programs; None finds them.

    Raises:
        ImpossibleOption: a value is out of its range.
    """

    fps: int = 25
    speed: float = 1.0
    start: timedelta | None = None
    end: timedelta | None = None
    max_gap: timedelta | None = None
    max_side: int = 1920
    size: tuple[int, int] | None = None
    scale: float = 1.0
    cursor: bool = True
    clicks: bool = True
    mouse_trail: bool = False
    masks: tuple[str, ...] = ()
    clock: bool = False
    text: str = ""
    canvas: bool | None = None
    background: str = "#000"
    hold: timedelta = timedelta(0)
    max_duration: timedelta = timedelta(hours=2)
    max_memory: int = 1536 << 20
    frame_timeout: timedelta = timedelta(seconds=15)
    encoder_timeout: timedelta = timedelta(seconds=15)
    wall_limit: timedelta | None = None
    restarts: int = 2
    workers: int = 1
    codec: Codec | None = None
    constant_rate: bool = False
    crf: int | None = None
    preset: str = "veryfast"
    encoder_threads: int = 0
    quality: int = 90
    capture: Literal["auto", "begin-frame", "screenshot"] = "auto"
    sandbox: bool | None = None
    chromium: Path | str | None = None
    ffmpeg: Path | str | None = None

    def __post_init__(self) -> None:
        for name, kinds in kinds_of(Options).items():
            check_kind(name, getattr(self, name), kinds)
        width, height = self.size or (MIN_SIDE, MIN_SIDE)
        ranges: dict[str, tuple[float, float, float]] = {
            "fps": (self.fps, 1, 60),
            "speed": (self.speed, 0.1, 100),
            "max_side": (self.max_side, MIN_SIDE, MAX_SIDE),
            "width": (width, MIN_SIDE, MAX_SIDE),
            "height": (height, MIN_SIDE, MAX_SIDE),
            "scale": (self.scale, 0.05, 4),
            "quality": (self.quality, 1, 100),
            "crf": (self.crf or 0, 0, 63),
            "hold": (self.hold.total_seconds(), 0, 60),
            "restarts": (self.restarts, 0, 100),
            "workers": (self.workers, 1, 16),
            "encoder_threads": (self.encoder_threads, 0, 64),
            "masks": (len(self.masks), 0, MOST_MASKS),
            "text": (len(self.text), 0, LONGEST_TEXT),
        }
        for name, (value, low, high) in ranges.items():
            if not low <= value <= high:
                what = f"{name} of {value} characters" if name == "text" else f"{name}={value}"
                raise ImpossibleOption(f"{what}: give a number from {low} to {high}")
        self._check_times()

        if self.preset not in PRESETS:
            raise ImpossibleOption(f"preset={self.preset}: give one of {', '.join(PRESETS)}")

    def _check_times(self) -> None:
        for name, least in (("start", 0.0), ("end", 0.001), ("max_gap", 0.1), ("wall_limit", 1.0)):
            time: timedelta | None = getattr(self, name)
            if time is not None and time.total_seconds() < least:
                raise ImpossibleOption(f"{name}={seconds(time)}: give at least {least:g} s")
        if self.start is not None and self.end is not None and self.start >= self.end:
            raise ImpossibleOption(
                f"start={seconds(self.start)}: that is not before the end, {seconds(self.end)}"
            )


# What to say that a value of each kind is.
WORDS: dict[Any, str] = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a text",
    timedelta: "a timedelta, such as timedelta(seconds=1.5)",
    Path: "a path",
    tuple[int, int]: "width and height, such as (1280, 720)",
    tuple[str, ...]: "a tuple of texts, such as ('.card',)",
    NoneType: "None",
}


@cache
def kinds_of(options: type) -> dict[str, tuple[Any, ...]]:
    """The kinds of value that each option may have."""
    hints = get_type_hints(options)
    several = {UnionType, Union}
    return {name: get_args(hint) if get_origin(hint) in several else (hint,) for name, hint in hints.items()}


def check_kind(name: str, value: object, kinds: tuple[Any, ...]) -> None:
    """Raises ImpossibleOption for a value of none of these kinds."""
    if any(is_kind(value, kind) for kind in kinds):
        return
    words = [WORDS[kind] if kind in WORDS else f"one of {', '.join(get_args(kind))}" for kind in kinds]
    raise ImpossibleOption(f"{name}={value!r}: give {' or '.join(words)}")


def is_kind(value: object, kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if get_origin(kind) is tuple:
        if not isinstance(value, tuple):
            return False
        of = get_args(kind)
        return all(is_kind(part, of[0]) for part in value) and (of[-1] is Ellipsis or len(value) == len(of))
    if isinstance(value, bool):
        return kind is bool  # though Python counts it among the numbers
    return isinstance(value, (int, float) if kind is float else kind)


def seconds(time: timedelta) -> str:
    """A time as a message names it."""
    return f"{time.total_seconds():g} s"
