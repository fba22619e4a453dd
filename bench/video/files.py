"""Is the file what players want? Looked at with ffprobe, not with our own reader."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.trials import Failed

WANTED = {
    "codec_name": "h264",
    "pix_fmt": "yuv420p",
    "color_range": "tv",
    "color_space": "bt709",
    "color_transfer": "bt709",
    "color_primaries": "bt709",
}


@dataclass(frozen=True)
class Seen:
    """By how many frames its length is off, how often a time is not behind the one before, and what else is wrong."""

    off: float
    unordered: int
    wrong: tuple[str, ...]


def probe(video: Path) -> dict[str, Any]:
    """What ffprobe says of a file."""
    program = shutil.which("ffprobe")
    if program is None:
        raise Failed("ffprobe is not here; it comes with FFmpeg")
    words = ["-v", "error", "-select_streams", "v", "-show_streams", "-show_format", "-show_packets"]
    run = subprocess.run([program, *words, "-of", "json", str(video)], capture_output=True, check=True)
    told: dict[str, Any] = json.loads(run.stdout)
    return told


def look(video: Path, planned_seconds: float, fps: int) -> Seen:
    """Compare a file with its plan."""
    told = probe(video)
    [stream] = told["streams"]
    times = [int(packet["dts"]) for packet in told["packets"]]
    shown = sorted(int(packet["pts"]) for packet in told["packets"])
    unordered = sum(b <= a for values in (times, shown) for a, b in pairwise(values))
    wrong = [f"{name} is {stream.get(name)}" for name, value in WANTED.items() if stream.get(name) != value]
    if not index_first(video):
        wrong.append("its index is at the end")
    return Seen(abs(float(told["format"]["duration"]) - planned_seconds) * fps, unordered, tuple(wrong))


def index_first(video: Path) -> bool:
    """Whether the index (moov) stands before the pictures (mdat), so that playing can begin before all of it is there."""
    boxes = []
    with video.open("rb") as file:
        while head := file.read(8):
            size = int.from_bytes(head[:4], "big")
            boxes.append(head[4:8])
            passed = 8
            if size == 1:
                size = int.from_bytes(file.read(8), "big")
                passed = 16
            if size == 0:
                break
            file.seek(size - passed, 1)
    return b"moov" in boxes and boxes.index(b"moov") < boxes.index(b"mdat")
