"""Reading an MP4's boxes (ISO/IEC 14496-12): enough to know that a file is the video that was asked for."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from dumbwaiter.jobs.video.errors import BadVideo

MAX_INDEX = 256 << 20
CONTAINERS = {b"moov", b"trak", b"mdia", b"minf", b"stbl"}


@dataclass(frozen=True)
class Mp4:
    """What the index of a file says about its video track."""

    width: int
    height: int
    frames: int
    duration_seconds: float
    codec: str
    size_bytes: int
    index_first: bool


def read_mp4(path: Path) -> Mp4:
    """Read the index of a file with one video track.

    Raises:
        BadVideo: it is no MP4, incomplete, or has no video.
    """
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise BadVideo(f"there is no file {path.name}") from None
    with path.open("rb") as file:
        boxes = list(top_boxes(file, size))
        names = [name for name, _, _ in boxes]
        if b"moov" not in names or b"mdat" not in names:
            raise BadVideo(f"{path.name} has no index or no pictures ({size:,} bytes)")
        _, start, length = boxes[names.index(b"moov")]
        if length > MAX_INDEX:
            raise BadVideo(f"{path.name} has an index of {length:,} bytes")
        file.seek(start)
        index = dict(inner_boxes(file.read(length)))
    try:
        width, height = struct.unpack_from(">II", index[b"tkhd"], len(index[b"tkhd"]) - 8)
        return Mp4(
            width=width >> 16,
            height=height >> 16,
            frames=sample_count(index[b"stts"]),
            duration_seconds=media_duration(index[b"mdhd"]),
            codec=index[b"stsd"][12:16].decode("latin-1"),
            size_bytes=size,
            index_first=names.index(b"moov") < names.index(b"mdat"),
        )
    except (KeyError, struct.error, ZeroDivisionError) as error:
        raise BadVideo(f"{path.name} has a damaged index ({error!r})") from None


def top_boxes(file: BinaryIO, size: int) -> Iterator[tuple[bytes, int, int]]:
    """Name, start and length of the content of each box; together they must fill the file exactly."""
    at = 0
    while at < size:
        file.seek(at)
        header = file.read(16)
        if len(header) < 8:
            raise BadVideo("the file stops inside a box")
        length, name = struct.unpack_from(">I4s", header)
        head = 8
        if length == 1 and len(header) == 16:
            length, head = struct.unpack_from(">Q", header, 8)[0], 16
        if length < head or at + length > size:
            raise BadVideo(f"the file stops inside the box {name!r}")
        yield name, at + head, length - head
        at += length


def inner_boxes(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Every box inside, containers opened."""
    at = 0
    while at + 8 <= len(data):
        length, name = struct.unpack_from(">I4s", data, at)
        if length < 8 or at + length > len(data):
            raise BadVideo(f"the index is damaged at the box {name!r}")
        content = data[at + 8 : at + length]
        if name in CONTAINERS:
            yield from inner_boxes(content)
        else:
            yield name, content
        at += length


def sample_count(stts: bytes) -> int:
    """Frames in the track: the sum over the runs of equal duration."""
    (runs,) = struct.unpack_from(">I", stts, 4)
    return sum(struct.unpack_from(">I", stts, 8 + 8 * run)[0] for run in range(runs))


def media_duration(mdhd: bytes) -> float:
    """Seconds; the fields are twice as long in version 1."""
    if mdhd[0] == 1:
        scale, duration = struct.unpack_from(">IQ", mdhd, 20)
    else:
        scale, duration = struct.unpack_from(">II", mdhd, 12)
    return float(duration / scale)
