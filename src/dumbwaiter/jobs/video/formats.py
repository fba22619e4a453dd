"""The kinds of video file: what their name ends in, which encoder makes them, and with which words. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dumbwaiter.jobs.video.errors import ImpossibleOption
from dumbwaiter.jobs.video.options import Codec, Options

GIF_FPS, GIF_SIDE = 12, 800
# A GIF is made of an intermediate video that nobody sees.
GIF_CRF = 12
# x264 would take one and a half for each core, with memory for each; two keep up with a browser, and their file is the same on any machine.
THREADS: dict[Codec, int] = {"h264": 2}
# x264's usual preset looks ten pictures ahead and holds all of them. Five, and no thread of its own for that, take 40 MB less at
# 1920 × 1106, make a smaller file, and lose 0.0001 of SSIM.
FRUGAL = {"veryfast": ["-x264-params", "rc-lookahead=5:sync-lookahead=0"]}


@dataclass(frozen=True)
class Container:
    """A kind of file. `muxer` is FFmpeg's name; `codecs` what it can hold, the usual one first; `parts` the suffix of its segments."""

    suffix: str
    content_type: str
    muxer: str
    codecs: tuple[Codec, ...]
    parts: str
    closing: tuple[str, ...] = ()


MP4 = Container(".mp4", "video/mp4", "mp4", ("h264", "h265"), ".mp4", ("-movflags", "+faststart"))
WEBM = Container(".webm", "video/webm", "webm", ("vp9", "vp8"), ".webm")
GIF = Container(".gif", "image/gif", "gif", ("h264",), ".mp4")
CONTAINERS = {container.suffix: container for container in (MP4, WEBM, GIF)}

ENCODERS: dict[Codec, str] = {"h264": "libx264", "h265": "libx265", "vp9": "libvpx-vp9", "vp8": "libvpx"}
# What FFmpeg calls them when it reads, and what an MP4's index does.
SAMPLE_ENTRIES: dict[Codec, str] = {"h264": "avc1", "h265": "hvc1"}
CRF: dict[Codec, int] = {"h264": 21, "h265": 25, "vp9": 33, "vp8": 12}


def container_of(out: Path) -> Container:
    """The kind of file that a name asks for.

    Raises:
        ImpossibleOption: there is none that ends so.
    """
    container = CONTAINERS.get(out.suffix.lower())
    if container is None:
        raise ImpossibleOption(f"{out.name}: give the video a name that ends in {', '.join(CONTAINERS)}")
    return container


def codec_of(container: Container, options: Options) -> Codec:
    """The codec to use.

    Raises:
        ImpossibleOption: the container cannot hold the one that was asked for.
    """
    codec = options.codec or container.codecs[0]
    if container is GIF and options.codec is not None:
        raise ImpossibleOption(f"codec={codec}: a GIF has no codec to choose")
    if codec not in container.codecs:
        raise ImpossibleOption(f"codec={codec}: a {container.suffix} takes {' or '.join(container.codecs)}")
    return codec


def encoder_words(container: Container, options: Options) -> list[str]:
    """FFmpeg's words for the codec, its quality and its speed.

    There are no B-frames: segments join without an edit, and a file whose frames stand at unequal times keeps its end (FFmpeg 9 takes the last
    picture in the order of decoding for it: 8 s became 6.12 s).
    """
    codec = codec_of(container, options)
    crf = str(GIF_CRF if container is GIF else CRF[codec] if options.crf is None else options.crf)
    count = options.encoder_threads or THREADS.get(codec, 0)
    threads = ["-threads", str(count)] if count else []
    words = ["-c:v", ENCODERS[codec], *threads, "-crf", crf]
    if codec == "h264":
        return [*words, "-preset", options.preset, *FRUGAL.get(options.preset, []), "-bf", "0"]
    if codec == "h265":
        pools = f":pools={count}" if count else ""
        return [
            *words, "-preset", options.preset, "-tag:v", "hvc1", "-x265-params", f"log-level=error:bframes=0{pools}",
        ]  # fmt: skip
    rate = ["-b:v", "0"] if codec == "vp9" else ["-b:v", "4M"]
    row = ["-row-mt", "1"] if codec == "vp9" else []
    return [*words, *rate, "-deadline", "realtime", "-cpu-used", "5", *row]
