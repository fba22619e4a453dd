"""A recorded web session becomes a video: rrweb events in, MP4 out."""

from __future__ import annotations

from dumbwaiter.jobs.video.chromium import find_chromium
from dumbwaiter.jobs.video.encoder import find_ffmpeg
from dumbwaiter.jobs.video.errors import (
    AbsurdTimestamps,
    BadVideo,
    BrowserCrashed,
    BrowserLost,
    BrowserStuck,
    ChromiumMissing,
    EmptyRecording,
    EncoderFailed,
    EncoderMissing,
    EncoderStuck,
    ExportCancelled,
    ImpossibleOption,
    MemoryExceeded,
    NoFullSnapshot,
    NoSuchRecording,
    NoSuchWindow,
    NotARecording,
    NotARegularFile,
    NotJson,
    PlayerFailed,
    ProtocolError,
    RecordingError,
    TooDeep,
    TooFewEvents,
    TooLarge,
    ToolMissing,
    TooLong,
    TooSlow,
    Truncated,
    VideoError,
)
from dumbwaiter.jobs.video.export import Video, export
from dumbwaiter.jobs.video.fonts import missing_fonts
from dumbwaiter.jobs.video.kept import Checkpoints, InDirectory
from dumbwaiter.jobs.video.options import Options
from dumbwaiter.jobs.video.recording import Recording, load
from dumbwaiter.jobs.video.samples import sample, sample_names

__all__ = [
    "AbsurdTimestamps",
    "BadVideo",
    "BrowserCrashed",
    "BrowserLost",
    "BrowserStuck",
    "Checkpoints",
    "ChromiumMissing",
    "EmptyRecording",
    "EncoderFailed",
    "EncoderMissing",
    "EncoderStuck",
    "ExportCancelled",
    "ImpossibleOption",
    "InDirectory",
    "MemoryExceeded",
    "NoFullSnapshot",
    "NoSuchRecording",
    "NoSuchWindow",
    "NotARecording",
    "NotARegularFile",
    "NotJson",
    "Options",
    "PlayerFailed",
    "ProtocolError",
    "Recording",
    "RecordingError",
    "TooDeep",
    "TooFewEvents",
    "TooLarge",
    "TooLong",
    "TooSlow",
    "ToolMissing",
    "Truncated",
    "Video",
    "VideoError",
    "export",
    "find_chromium",
    "find_ffmpeg",
    "load",
    "missing_fonts",
    "sample",
    "sample_names",
]
